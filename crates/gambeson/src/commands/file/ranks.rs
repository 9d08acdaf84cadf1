//! Several processes of one command, as `mpiexec -n 8 gambeson file verify FILE` starts them: each takes its share of
//! the blocks, and the first says what came of it. They tell each other by messages of the MPI library that started
//! them.
//!
//! What one of them finds ends all of them alike, so everything that may fail is agreed on before they go on.

use std::env;
use std::ops::Range;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use gambeson_keys::{KeyRing, Keys};
use gambeson_site::job;
use indicatif::ProgressBar;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::parallel;
use crate::failure::{Failure, Status};
use crate::keys;
use crate::mpi::{self, Abi, Communicator, Flavour, Mode, Mpi, Outcome};

/// The processes of this command.
pub(super) struct Ranks {
    rank: u32,
    size: u32,
    /// None: there is one.
    world: Option<Box<dyn World>>,
}

/// What the launcher says of this process, if it is one of several that it has started.
pub(super) struct Started {
    pub(super) rank: u32,
    launcher: PathBuf,
}

/// Who started this process as one of several. A program that a rank has started on its own is none, whatever its
/// environment says: so its parent has to be a launcher.
pub(super) fn started() -> Option<Started> {
    let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
    let both = |(rank, size): &(&str, &str)| Some((number(rank)?, number(size)?));
    let (rank, size) = RANK_AND_SIZE.iter().find_map(both)?;
    let launcher = Path::new("/proc").join(parent_id().to_string()).join("exe").read_link().ok()?;
    let name = launcher.file_name()?.to_string_lossy().into_owned();
    (size > 1 && LAUNCHERS.contains(&name.as_str())).then_some(Started { rank, launcher })
}

/// Carries out a command that its processes share; the first speaks for all.
pub(super) fn together(
    started: Option<&Started>,
    act: impl FnOnce(&Ranks) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    let ranks = started.map_or_else(|| Ok(Ranks { rank: 0, size: 1, world: None }), Ranks::start)?;
    let done = ranks.check_hosts().and_then(|()| act(&ranks));
    if !ranks.are_several() {
        return done;
    }
    if let Err(failure) = &done
        && ranks.is_first()
    {
        eprintln!("gambeson: {failure}");
    }
    // A launcher ends all when one has ended with a failure: nobody does before the first has said what it has to say.
    ranks.told(())?;
    if let Some(world) = ranks.world {
        world.finish().map_err(broken)?;
    }
    Ok(done.unwrap_or_else(|failure| failure.status.into()))
}

impl Ranks {
    fn start(started: &Started) -> Result<Self, Failure> {
        let library = mpi::locate::libmpi(&started.launcher).map_err(Failure::unavailable)?;
        let world = match mpi::load(&library).map_err(Failure::unavailable)? {
            Flavour::Mpich => started_by::<mpi::Mpich>(),
            Flavour::OpenMpi => started_by::<mpi::OpenMpi>(),
        };
        let (rank, size, world) = world.map_err(broken)?;
        Ok(Ranks { rank, size, world: Some(world) })
    }

    /// Whether this process is the one that speaks.
    pub(super) fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Whether there are others.
    fn are_several(&self) -> bool {
        self.size > 1
    }

    /// The keys that this process has here.
    pub(super) fn ring(&self, access: &keys::Access) -> Result<KeyRing, Failure> {
        if self.are_several() { access.keys_unasked() } else { access.keys() }
    }

    /// The same, for files.
    pub(super) fn keys(&self, access: &keys::Access) -> Result<Arc<dyn Keys>, Failure> {
        Ok(Arc::new(self.ring(access)?))
    }

    /// This process's share of so many things: as many in a row for each.
    pub(super) fn share(&self, count: u64) -> Range<u64> {
        let begin = |rank: u32| (u128::from(count) * u128::from(rank) / u128::from(self.size)) as u64;
        begin(self.rank)..begin(self.rank + 1)
    }

    /// As [`parallel::each`], on this process's part of its host's cores.
    pub(super) fn each<T: Send>(
        &self,
        chunks: Range<u64>,
        begin: impl Fn() -> Result<T, Failure> + Sync,
        act: impl Fn(&mut T, u64) -> Result<(), Failure> + Sync,
    ) -> Result<Vec<T>, Failure> {
        let here = HERE.iter().find_map(|name| env::var(name).ok()?.parse().ok());
        let here: u64 = if self.are_several() { here.unwrap_or(1) } else { 1 };
        parallel::each(chunks, (parallel::cores() / here.max(1)).max(1), begin, act)
    }

    /// The first process's bar, of its own share.
    pub(super) fn progress(&self, doing: &str, bytes: u64) -> ProgressBar {
        if self.is_first() { parallel::progress(doing, bytes) } else { ProgressBar::hidden() }
    }

    /// What the first process has.
    pub(super) fn told<T: Serialize + DeserializeOwned>(&self, own: T) -> Result<T, Failure> {
        let Some(world) = &self.world else { return Ok(own) };
        if self.is_first() {
            let message = encode(&own);
            (1..self.size).try_for_each(|to| send(world.as_ref(), to, &message))?;
            return Ok(own);
        }
        decode(&receive(world.as_ref(), 0)?)
    }

    /// What all processes have, in order of rank, at the first; at others their own.
    pub(super) fn gathered<T: Serialize + DeserializeOwned>(&self, own: T) -> Result<Vec<T>, Failure> {
        let Some(world) = &self.world else { return Ok(vec![own]) };
        if !self.is_first() {
            send(world.as_ref(), 0, &encode(&own))?;
            return Ok(vec![own]);
        }
        let mut all = vec![own];
        for from in 1..self.size {
            all.push(decode(&receive(world.as_ref(), from)?)?);
        }
        Ok(all)
    }

    /// The result, if it is one at all processes; else the failure of the first that failed.
    pub(super) fn agreed<T>(&self, own: Result<T, Failure>) -> Result<T, Failure> {
        let said = own.as_ref().err().map(|failure| (failure.status as u8, failure.to_string()));
        let first = self.gathered(said)?.into_iter().flatten().next();
        match (self.told(first)?, own) {
            (None, own) => own,
            (Some((status, sentence)), _) => Err(Failure::new(Status::of_number(status), sentence)),
        }
    }

    /// What the first process alone does, and how it went.
    pub(super) fn first(&self, act: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        self.agreed(if self.is_first() { act() } else { Ok(()) })
    }

    /// Between hosts messages are for others to read and change, unless a job seals them.
    fn check_hosts(&self) -> Result<(), Failure> {
        let hosts = self.gathered(job::host_name())?;
        let apart = hosts.iter().any(|host| *host != hosts[0]);
        self.first(|| {
            if apart && job::find("gambeson file").is_err() {
                return Err(Failure::refused(
                    "processes on several hosts tell each other over the network what they found; start them with `gambeson run -- mpiexec ...`, which seals that",
                ));
            }
            Ok(())
        })
    }
}

/// The world communicator of either ABI.
trait World {
    fn send(&self, to: u32, bytes: &[u8]) -> Outcome;
    fn receive(&self, from: u32, into: &mut [u8]) -> Outcome;
    fn finish(self: Box<Self>) -> Outcome;
}

struct Of<A: Abi> {
    mpi: Rc<Mpi<A>>,
    world: Communicator<A>,
}

fn started_by<A: Abi>() -> Outcome<(u32, u32, Box<dyn World>)> {
    let mpi = Mpi::<A>::start()?;
    let world = mpi.world()?;
    let (rank, size) = (world.place() as u32, world.processes() as u32);
    Ok((rank, size, Box::new(Of { mpi, world })))
}

impl<A: Abi> World for Of<A> {
    fn send(&self, to: u32, bytes: &[u8]) -> Outcome {
        self.world.send(Mode::Standard, self.mpi.source(bytes), to.cast_signed(), TAG)
    }

    fn receive(&self, from: u32, into: &mut [u8]) -> Outcome {
        self.world.receive(self.mpi.target(into), from.cast_signed(), TAG)
    }

    fn finish(self: Box<Self>) -> Outcome {
        let Of { mpi, world } = *self;
        drop(world);
        mpi.finish()
    }
}

fn send(world: &dyn World, to: u32, message: &[u8]) -> Result<(), Failure> {
    world.send(to, &(message.len() as u64).to_ne_bytes()).map_err(broken)?;
    message.chunks(PIECE).try_for_each(|piece| world.send(to, piece)).map_err(broken)
}

fn receive(world: &dyn World, from: u32) -> Result<Vec<u8>, Failure> {
    let mut length = [0; 8];
    world.receive(from, &mut length).map_err(broken)?;
    let mut message = vec![0; u64::from_ne_bytes(length) as usize];
    message.chunks_mut(PIECE).try_for_each(|piece| world.receive(from, piece)).map_err(broken)?;
    Ok(message)
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("what processes tell each other has no keys but names")
}

fn decode<T: DeserializeOwned>(message: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(message)
        .map_err(|error| Failure::system(format!("another process of this command is of another version ({error})")))
}

fn broken(failure: mpi::Failure) -> Failure {
    Failure::system(format!("the processes of this command can't tell each other what they found: {failure}"))
}

/// What launchers say of a process.
const RANK_AND_SIZE: [(&str, &str); 2] = [("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")];
/// How many processes are on this host.
const HERE: [&str; 2] = ["MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"];
/// Whose children ranks are.
const LAUNCHERS: [&str; 10] = [
    "hydra_pmi_proxy",
    "hydra_bstrap_proxy",
    "mpiexec.hydra",
    "mpiexec",
    "mpirun",
    "orterun",
    "orted",
    "prterun",
    "prted",
    "slurmstepd",
];
const TAG: i32 = 1;
/// Small enough to be copied through shared memory: libraries have the kernel copy longer messages from process to
/// process, which it refuses for one that is closed to others.
const PIECE: usize = 1024;
