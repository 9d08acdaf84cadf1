//! What is compared: each side does the same work between two processes and says what it cost.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use gambeson_link::carrier::{Carrier, shm, tcp};
use gambeson_link::{Capability, Domain, Pending, Progress, Protection, Startpoint};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::bare;
use super::other::{BARE, CPU, ECHO, Offer, PROTECTIONS, Setting, TAKE, each_for_itself};
use crate::bench::part::{Job, Part, Task, no_link};
use crate::failure::Failure;

pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Requests under way at a time, in [`Kind::Outstanding`].
pub(crate) const OUTSTANDING: usize = 64;

/// What is done with messages of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// There and back, one after the other.
    Trips,
    /// There and back, with 64 under way.
    Outstanding,
    /// One way, and a word at the end.
    Stream,
}

/// So many messages of that length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Work {
    pub(crate) kind: Kind,
    /// Bytes of a message.
    pub(crate) length: usize,
    pub(crate) count: u32,
}

/// What a work took.
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    /// Processor time of both processes, in seconds.
    pub(crate) cpu: f64,
}

/// One of those that are compared.
pub(crate) trait Side {
    /// What moves its bytes.
    fn carrier(&self) -> &str;

    fn name(&self) -> &str;

    /// Does the work.
    fn perform(&mut self, work: Work) -> Result<Cost, Failure>;
}

/// How long this process has had a processor, in ns, all its threads together (what getrusage tells in µs).
pub(crate) fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The process at the other end, and the domain at this one.
pub(super) struct Other {
    startpoints: Vec<Rc<Startpoint>>,
    offer: Offer,
    _domain: Domain,
    _part: Part,
}

impl Other {
    pub(super) fn start(shm: bool, own_thread: bool) -> Result<Self, Failure> {
        let job = Job::new()?;
        let mut part = Part::start(Task::Link)?;
        let progress = if own_thread { Progress::Auto } else { Progress::Manual };
        let domain = Domain::open(job.config(progress, each_for_itself())?).map_err(no_link)?;
        part.tell(&Setting { job, shm, own_thread })?;
        let offer: Offer = part.hear()?;
        let open = |bytes: &Vec<u8>| {
            let capability = Capability::decode(bytes).map_err(|error| Failure::system(error.to_string()))?;
            domain.startpoint(&capability, PATIENCE).map(Rc::new).map_err(no_link)
        };
        let startpoints = offer.startpoints.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Other { startpoints, offer, _domain: domain, _part: part })
    }

    /// Does something, and says what it cost here and there.
    pub(super) fn measured(&self, work: impl FnOnce() -> Result<(), Failure>) -> Result<Cost, Failure> {
        let (there, here) = (self.cpu_ns()?, cpu_ns());
        let began = Instant::now();
        work()?;
        let seconds = began.elapsed().as_secs_f64();
        let cpu = (cpu_ns() - here) + (self.cpu_ns()? - there);
        Ok(Cost { seconds, cpu: cpu as f64 / 1e9 })
    }

    fn cpu_ns(&self) -> Result<u64, Failure> {
        let answer = self.control().call(CPU, &[], PATIENCE).map_err(no_link)?;
        answer.try_into().map(u64::from_le_bytes).map_err(|_| Failure::system("the other process tells no time"))
    }

    /// The sealed one.
    pub(super) fn control(&self) -> &Startpoint {
        self.startpoints.last().expect("there is one for each protection")
    }
}

/// The bare carrier, and links over it in clear, with integrity and sealed, between two processes of this host whose
/// programs move the bytes.
///
/// # Errors
/// When the other process does not come up.
pub(crate) fn links(shm: bool) -> Result<Vec<Box<dyn Side>>, Failure> {
    let other = Rc::new(Other::start(shm, false)?);
    let bare = connect(shm, &other.offer.bare)
        .map_err(|error| Failure::system(format!("the bare carrier cannot be had: {error}")))?;
    let carrier = name(shm);
    let mut sides: Vec<Box<dyn Side>> =
        vec![Box::new(Bare { carrier, other: other.clone(), bare, buffer: Vec::new() })];
    for (at, protection) in PROTECTIONS.into_iter().enumerate() {
        let name = match protection {
            Protection::None => "in clear",
            Protection::Integrity => "integrity",
            Protection::Privacy => "sealed",
        };
        sides.push(Box::new(Linked::new(carrier, name, &other, at)));
    }
    Ok(sides)
}

/// A sealed link, under a name of its own; with `own_thread` the domains' threads move bytes, else the programs do.
///
/// # Errors
/// When the other process does not come up.
pub(super) fn sealed(shm: bool, own_thread: bool, side: &'static str) -> Result<Box<dyn Side>, Failure> {
    let other = Rc::new(Other::start(shm, own_thread)?);
    Ok(Box::new(Linked::new(name(shm), side, &other, PROTECTIONS.len() - 1)))
}

pub(super) fn name(shm: bool) -> &'static str {
    if shm { "shared memory" } else { "TCP" }
}

fn connect(shm: bool, place: &str) -> std::io::Result<Box<dyn Carrier>> {
    if shm {
        return Ok(Box::new(shm::Folder::of_user()?.connect(place, PATIENCE)?));
    }
    let address = place.parse().map_err(std::io::Error::other)?;
    Ok(Box::new(tcp::Tcp::connect(address, PATIENCE)?))
}

/// The carrier alone.
struct Bare {
    carrier: &'static str,
    other: Rc<Other>,
    bare: Box<dyn Carrier>,
    buffer: Vec<u8>,
}

impl Bare {
    /// Does a work, from when the other process knows of it.
    fn ask(&mut self, work: Work) -> Result<(f64, u64), Failure> {
        let order = serde_json::to_vec(&work).expect("plain data");
        self.other.control().call(BARE, &order, PATIENCE).map_err(no_link)?;
        let (here, began) = (cpu_ns(), Instant::now());
        bare::ask(&mut *self.bare, work, &mut self.buffer)
            .map_err(|error| Failure::system(format!("the bare carrier failed: {error}")))?;
        Ok((began.elapsed().as_secs_f64(), cpu_ns() - here))
    }
}

impl Side for Bare {
    fn carrier(&self) -> &str {
        self.carrier
    }

    fn name(&self) -> &str {
        "bare"
    }

    fn perform(&mut self, work: Work) -> Result<Cost, Failure> {
        self.ask(Work { kind: Kind::Trips, count: 1, ..work })?;
        let before = self.other.cpu_ns()?;
        let (seconds, here) = self.ask(work)?;
        let cpu = here + self.other.cpu_ns()? - before;
        Ok(Cost { seconds, cpu: cpu as f64 / 1e9 })
    }
}

/// A link.
struct Linked {
    carrier: &'static str,
    name: &'static str,
    startpoint: Rc<Startpoint>,
    other: Rc<Other>,
    buffer: Vec<u8>,
    answer: Vec<u8>,
}

impl Linked {
    /// At a place among [`PROTECTIONS`].
    fn new(carrier: &'static str, name: &'static str, other: &Rc<Other>, protection: usize) -> Self {
        let (startpoint, other) = (other.startpoints[protection].clone(), other.clone());
        Linked { carrier, name, startpoint, other, buffer: Vec::new(), answer: Vec::new() }
    }
}

impl Side for Linked {
    fn carrier(&self) -> &str {
        self.carrier
    }

    fn name(&self) -> &str {
        self.name
    }

    fn perform(&mut self, work: Work) -> Result<Cost, Failure> {
        self.buffer.resize(work.length, 1);
        let (link, message, answer) = (&*self.startpoint, &self.buffer[..], &mut self.answer);
        // Whoever measured before has the caches full of something else.
        link.call_into(ECHO, message, answer, PATIENCE).map_err(no_link)?;
        self.other.measured(|| match work.kind {
            Kind::Trips => {
                (0..work.count).try_for_each(|_| link.call_into(ECHO, message, answer, PATIENCE)).map_err(no_link)
            }
            Kind::Stream => (0..work.count)
                .try_for_each(|_| link.send(TAKE, message))
                .and_then(|()| link.call_into(ECHO, &[1], answer, PATIENCE))
                .map_err(no_link),
            Kind::Outstanding => outstanding(link, message, work.count).map_err(no_link),
        })
    }
}

fn outstanding(link: &Startpoint, message: &[u8], count: u32) -> Result<(), gambeson_link::Error> {
    let mut under_way: VecDeque<Pending<&Startpoint>> = VecDeque::with_capacity(OUTSTANDING);
    for _ in 0..count {
        if under_way.len() == OUTSTANDING {
            under_way.pop_front().expect("64").wait(PATIENCE)?;
        }
        under_way.push_back(link.start(ECHO, message)?);
    }
    under_way.into_iter().try_for_each(|pending| pending.wait(PATIENCE).map(drop))
}
