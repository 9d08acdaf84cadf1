//! The MPI program inside `gambeson`: what `audit` and `bench` have mpiexec start.
//!
//! It is a hidden subcommand of the one executable, and calls the MPI library found at run time,
//! so that nobody needs a compiler or an interpreter to audit or to measure.

mod collective;
pub(crate) mod files;
pub(crate) mod job;
pub(crate) mod marker;
mod measure;
mod one_sided;
mod operation;
pub(crate) mod plan;
mod point_to_point;
pub(crate) mod report;
mod spawn;

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use clap::{Args, Subcommand};
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};

use crate::failure::Failure;
use crate::mpi::{self, Abi, Communicator, Flavour, Mpi, Outcome};

use marker::Seed;
use measure::Measurement;
use operation::Trial;
use plan::{Kind, Operation};
use report::{Cause, Event};

/// `gambeson probe`: not for people.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Pushes markers through every operation.
    Audit {
        #[arg(long)]
        library: PathBuf,
        #[arg(long)]
        seed: Seed,
        /// Index of the operation to begin with.
        #[arg(long, default_value_t = 0)]
        from: usize,
        /// Leave one-sided operations out.
        #[arg(long)]
        without_one_sided: bool,
        /// Seconds an operation may take before this process ends itself.
        #[arg(long)]
        limit: u64,
    },
    /// Measures latency, bandwidth and message rate.
    Bench {
        #[arg(long)]
        library: PathBuf,
        #[arg(long, value_delimiter = ',')]
        sizes: Vec<usize>,
        /// Milliseconds for each quantity and size.
        #[arg(long)]
        time: u64,
    },
    /// Does with files what it finds ordered.
    Files {
        #[arg(long)]
        library: PathBuf,
        /// The file with the orders.
        #[arg(long)]
        orders: PathBuf,
    },
    /// The process that the audit's MPI_Comm_spawn starts.
    Spawned {
        #[arg(long)]
        library: PathBuf,
        #[arg(long)]
        seed: Seed,
        #[arg(long)]
        limit: u64,
    },
}

impl Task {
    fn library(&self) -> &PathBuf {
        match self {
            Self::Audit { library, .. }
            | Self::Bench { library, .. }
            | Self::Files { library, .. }
            | Self::Spawned { library, .. } => library,
        }
    }
}

/// Is one rank of the job.
pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // Ends with the launcher's helper that started this process.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let outcome = match mpi::load(arguments.task.library()) {
        Err(sentence) => Err(format!("the MPI library could not be loaded: {sentence}")),
        Ok(Flavour::Mpich) => perform::<mpi::Mpich>(&arguments.task).map_err(|failure| failure.to_string()),
        Ok(Flavour::OpenMpi) => perform::<mpi::OpenMpi>(&arguments.task).map_err(|failure| failure.to_string()),
    };
    match outcome {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(sentence) => Err(Failure::system(format!("probe: {sentence}"))),
    }
}

fn perform<A: Abi>(task: &Task) -> Outcome {
    let mpi = Mpi::<A>::start()?;
    let world = mpi.world()?;
    if let Task::Spawned { seed, limit, .. } = task {
        let _watchdog = Watchdog::start(*limit, world.rank, usize::MAX);
        spawn::answer(&mpi, seed.marker(SPAWN))?;
        drop(world);
        return mpi.finish();
    }
    if world.size < 2 && !matches!(task, Task::Files { .. }) {
        eprintln!("gambeson probe: the job has one process; start at least two: mpiexec -n 2");
        return world.abort(1);
    }
    if world.rank == 0 {
        Event::Started { library: mpi.library_version(), processes: world.processes() }.print();
    }
    let outcome = match task {
        Task::Audit { seed, from, without_one_sided, limit, library } => {
            let spawned =
                ["--library", &library.to_string_lossy(), "--seed", &seed.to_string(), "--limit", &limit.to_string()];
            let spawn = ["probe", "spawned"].iter().chain(&spawned).map(|word| word.to_string()).collect();
            audit(
                &mpi,
                &world,
                &Auditor { seed: *seed, from: *from, one_sided: !without_one_sided, limit: *limit, spawn },
            )
        }
        Task::Bench { sizes, time, .. } => {
            measure::measure(&mpi, &world, &Measurement { sizes: sizes.clone(), time: Duration::from_millis(*time) })
        }
        Task::Files { orders, .. } => files::serve(&mpi, &world, orders),
        Task::Spawned { .. } => Ok(()),
    };
    match outcome {
        Ok(()) if world.rank == 0 => Event::Finished.print(),
        Ok(()) => {}
        Err(failure) => {
            eprintln!("gambeson probe: rank {}: {failure}", world.rank);
            world.abort(1)?;
        }
    }
    drop(world);
    mpi.finish()
}

struct Auditor {
    seed: Seed,
    from: usize,
    one_sided: bool,
    limit: u64,
    spawn: Vec<String>,
}

/// The operation whose marker a spawned process shares.
const SPAWN: &str = "MPI_Comm_spawn";

/// Carries the plan out. A failure of one operation is reported and the next one begun: when it
/// left the ranks at different places of the program the time limit ends the job, and the auditor
/// starts another behind that operation.
fn audit<A: Abi>(mpi: &Rc<Mpi<A>>, world: &Communicator<A>, auditor: &Auditor) -> Outcome {
    let watchdog = Watchdog::start(auditor.limit, world.rank, auditor.from);
    for (index, operation) in plan::operations().iter().enumerate().skip(auditor.from) {
        if operation.is_one_sided() && !auditor.one_sided {
            continue;
        }
        watchdog.feed(index);
        if world.rank == 0 {
            Event::Begun { operation: index }.print();
        }
        let trial = Trial { mpi, world, marker: auditor.seed.marker(&operation.name) };
        if let Err(failure) = carry_out(&trial, operation, &auditor.spawn) {
            Event::failed(index, world.rank, &failure).print();
        }
        world.barrier()?;
        if world.rank == 0 {
            Event::Ended { operation: index }.print();
        }
    }
    Ok(())
}

fn carry_out<A: Abi>(trial: &Trial<'_, A>, operation: &Operation, spawn: &[String]) -> Outcome {
    match operation.kind {
        Kind::Sized(size) => trial.sized(size),
        Kind::Send(mode, way) => trial.send_modes(mode, way),
        Kind::Receive(probing) => trial.probing(probing),
        Kind::Exchange(exchange) => trial.exchange(exchange),
        Kind::Partitioned => trial.partitioned(),
        Kind::Derived(shape) => trial.derived(shape),
        Kind::Collective(collective, form) => trial.collective(collective, form),
        Kind::Neighbourhood(which, form) => trial.neighbourhood(&trial.world.ring()?, which, form),
        Kind::OneSided(access, epoch, provision) => trial.one_sided(access, epoch, provision),
        Kind::Spawn => {
            let program = std::env::current_exe().map_err(|error| mpi::Failure::WrongData(error.to_string()))?;
            trial.spawn(&program, spawn)
        }
    }
}

/// Ends this process when an operation takes longer than it may: a job that hangs must not outlive
/// its auditor.
struct Watchdog {
    fed: mpsc::Sender<usize>,
}

impl Watchdog {
    fn start(limit: u64, rank: i32, first: usize) -> Self {
        let (fed, food) = mpsc::channel();
        std::thread::spawn(move || {
            let mut operation = first;
            loop {
                match food.recv_timeout(Duration::from_secs(limit)) {
                    Ok(next) => operation = next,
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                    Err(mpsc::RecvTimeoutError::Timeout) => break,
                }
            }
            let text = format!("hung: it was ended after {limit} s");
            Event::Failed { operation, rank, cause: Cause::Refused, text }.print();
            // The MPI library is in an unknown state, so nothing of this process may run on.
            let _ = kill_process(getpid(), Signal::KILL);
        });
        Self { fed }
    }

    /// Gives the whole limit again, to this operation.
    fn feed(&self, operation: usize) {
        let _ = self.fed.send(operation);
    }
}
