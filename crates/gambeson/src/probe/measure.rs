//! The benchmark's measurements between the first two processes: latency, bandwidth, message rate.

use std::time::{Duration, Instant};

use crate::mpi::{Abi, Communicator, Form, Mode, Mpi, Outcome};

use super::report::Event;

/// Messages under way at a time when measuring bandwidth and rate.
const WINDOW: usize = 64;
/// Bytes of a message when measuring the rate.
const RATE_SIZE: usize = 8;
/// A window's messages together are kept below this, so that 16 MiB messages fit in memory.
const WINDOW_BYTES: usize = 256 << 20;
/// The samples whose median is the value of a round.
const SAMPLES: usize = 15;
const TAG: i32 = 1;

/// What to measure and how long.
pub(crate) struct Measurement {
    pub(crate) sizes: Vec<usize>,
    /// Time for each quantity and size.
    pub(crate) time: Duration,
}

/// Measures on ranks 0 and 1; others wait at the end.
pub(crate) fn measure<A: Abi>(mpi: &Mpi<A>, world: &Communicator<A>, wanted: &Measurement) -> Outcome {
    let pair = Pair { mpi, world, time: wanted.time };
    for &size in &wanted.sizes {
        pair.latency(size)?;
    }
    for &size in wanted.sizes.iter().filter(|&&size| size > 0) {
        pair.windowed("bandwidth", size, |seconds, messages| (messages * size) as f64 / seconds)?;
    }
    pair.windowed("rate", RATE_SIZE, |seconds, messages| messages as f64 / seconds)?;
    world.barrier()
}

struct Pair<'m, A: Abi> {
    mpi: &'m Mpi<A>,
    world: &'m Communicator<A>,
    time: Duration,
}

impl<A: Abi> Pair<'_, A> {
    /// Half the time of a round trip, in seconds.
    fn latency(&self, size: usize) -> Outcome {
        let (data, mut room) = (vec![0x5a; size], vec![0; size]);
        let mut round_trip = || match self.world.rank {
            0 => {
                self.world.send(Mode::Standard, self.mpi.source(&data), 1, TAG)?;
                self.world.receive(self.mpi.target(&mut room), 1, TAG)
            }
            1 => {
                self.world.receive(self.mpi.target(&mut room), 0, TAG)?;
                self.world.send(Mode::Standard, self.mpi.source(&data), 0, TAG)
            }
            _ => Ok(()),
        };
        let seconds = self.median_time(&mut round_trip)?;
        self.report("latency", size, seconds / 2.0);
        Ok(())
    }

    /// A window of messages one way and a short answer, expressed by `value`.
    fn windowed(&self, quantity: &str, size: usize, value: impl Fn(f64, usize) -> f64) -> Outcome {
        let window = WINDOW.min(WINDOW_BYTES / size).max(1);
        let data = vec![0x5a; size];
        let mut rooms = vec![vec![0u8; size]; if self.world.rank == 1 { window } else { 0 }];
        let mut answer = [0u8; 4];
        let mut burst = || match self.world.rank {
            0 => {
                self.world.together(|requests| {
                    (0..window).try_for_each(|_| requests.send(Mode::Standard, self.mpi.source(&data), 1, TAG))
                })?;
                self.world.receive(self.mpi.target(&mut answer), 1, TAG)
            }
            1 => {
                self.world.together(|requests| {
                    rooms.iter_mut().try_for_each(|room| requests.receive(self.mpi.target(room), 0, TAG))
                })?;
                self.world.send(Mode::Standard, self.mpi.source(&[0; 4]), 0, TAG)
            }
            _ => Ok(()),
        };
        let seconds = self.median_time(&mut burst)?;
        self.report(quantity, size, value(seconds, window));
        Ok(())
    }

    /// Median time of one `step`, over samples of as many steps as fit the time.
    fn median_time(&self, step: &mut impl FnMut() -> Outcome) -> Outcome<f64> {
        let began = Instant::now();
        step()?;
        step()?;
        let each = (began.elapsed() / 2).max(Duration::from_nanos(200));
        // The first steps are slow (connections, page faults), so this errs towards fewer; a
        // second look corrects it. Rank 0's watch decides for both.
        let first = self.agree(self.time.as_secs_f64() / 10.0 / each.as_secs_f64())?;
        let began = Instant::now();
        (0..first).try_for_each(|_| step())?;
        let each = began.elapsed().as_secs_f64() / first as f64;
        let steps = self.agree(self.time.as_secs_f64() / each / SAMPLES as f64)?;
        let samples =
            if steps == 1 { self.agree((self.time.as_secs_f64() / each).clamp(3.0, SAMPLES as f64))? } else { SAMPLES };

        let mut times = Vec::with_capacity(samples);
        for _ in 0..samples {
            let began = Instant::now();
            (0..steps).try_for_each(|_| step())?;
            times.push(began.elapsed().as_secs_f64() / steps as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[samples / 2])
    }

    /// Rank 0's number, at least one and at most a million, for all.
    fn agree(&self, number: f64) -> Outcome<usize> {
        let mut bytes = (number.clamp(1.0, 1e6) as u64).to_le_bytes();
        self.world.broadcast(Form::Blocking, &mut bytes, 0)?;
        Ok(u64::from_le_bytes(bytes) as usize)
    }

    fn report(&self, quantity: &str, size: usize, value: f64) {
        if self.world.rank == 0 {
            Event::Measured { quantity: quantity.into(), size, value }.print();
        }
    }
}
