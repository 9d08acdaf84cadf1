//! A job that does work after work, from where it was started.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bench::unfinished;
use crate::failure::Failure;
use crate::probe::files::work::{Order, Quantity, Seal, Work};
use crate::probe::job::{End, Job, Side, Starter};
use crate::probe::report::Event;

/// It ends with this.
pub(super) struct Hand<'s> {
    job: Job,
    side: Side,
    orders: PathBuf,
    serial: u64,
    stop: &'s AtomicBool,
    pub(super) library: String,
    pub(super) ranks: usize,
}

/// What came of a work.
#[derive(Default)]
pub(super) struct Done {
    /// What was timed: bytes, seconds.
    pub(super) times: Vec<(Quantity, u64, f64)>,
    /// What its files were on disk.
    pub(super) seals: Vec<(String, Option<Seal>)>,
}

impl<'s> Hand<'s> {
    /// Starts the job; its orders go into `folder`, which all ranks see.
    ///
    /// # Errors
    /// When it does not come up.
    pub(super) fn start(
        starter: &Starter,
        side: Side,
        folder: &std::path::Path,
        stop: &'s AtomicBool,
    ) -> Result<Self, Failure> {
        let orders = folder.join(format!("orders-{}", side.name()));
        // Of an earlier job, whose numbers this one would wait behind.
        let _ = std::fs::remove_file(&orders);
        let arguments = ["--orders".to_owned(), orders.display().to_string()];
        let job = starter.start(side, "files", &arguments).map_err(Failure::unavailable)?;
        let mut hand = Self { job, side, orders, serial: 0, stop, library: String::new(), ranks: 0 };
        match hand.next()? {
            Event::Started { library, processes } => (hand.library, hand.ranks) = (library, processes),
            event => return Err(Failure::system(format!("the {} job began with {event:?}", side.name()))),
        }
        Ok(hand)
    }

    /// Has it do a work.
    ///
    /// # Errors
    /// When the job ends instead, with what it said.
    pub(super) fn perform(&mut self, work: Work) -> Result<Done, Failure> {
        self.serial += 1;
        self.order(Some(work))?;
        let mut done = Done::default();
        loop {
            match self.next()? {
                Event::Timed { quantity, bytes, seconds } => done.times.push((quantity, bytes, seconds)),
                Event::File { name, seal } => done.seals.push((name, seal)),
                Event::Done { serial } if serial == self.serial => return Ok(done),
                _ => {}
            }
        }
    }

    /// Lets the job end.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        self.serial += 1;
        self.order(None)?;
        self.job.finish();
        Ok(())
    }

    fn order(&self, work: Option<Work>) -> Result<(), Failure> {
        let given = Order { serial: self.serial, work }.give(&self.orders);
        given.map_err(|error| Failure::system(format!("{} cannot be written ({error})", self.orders.display())))
    }

    fn next(&mut self) -> Result<Event, Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let heard = self.job.listen(GLANCE);
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failure::system("the measurement was interrupted, and its files are removed"));
            }
            match heard {
                Some(Ok(event)) => return Ok(event),
                Some(Err(end)) => return Err(unfinished(self.side, &end, &self.job.said())),
                None if Instant::now() > deadline => {
                    return Err(unfinished(self.side, &End::Silence, &self.job.said()));
                }
                None => {}
            }
        }
    }
}

const GLANCE: Duration = Duration::from_millis(200);
/// A single work of many ranks on few processors takes its time.
const PATIENCE: Duration = Duration::from_secs(900);
