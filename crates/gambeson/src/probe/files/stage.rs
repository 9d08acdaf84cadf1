//! What all patterns have in common: the ranks, the clock, the files' places.

use std::fs::{File as Local, OpenOptions};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use gambeson_file::Head;
use gambeson_proto::file::{Geometry, header};
use rustix::fs::{Advice, fadvise, fdatasync};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2};

use crate::mpi::{self, Abi, Communicator, File, FileMode, Filetype, Form, Mpi, Outcome};
use crate::probe::report::Event;

use super::grid::{ELEMENT, Grid};
use super::pattern::Pattern;
use super::work::{LABELS, Quantity, Seal, Work};

/// One work under way.
pub(super) struct Stage<'m, A: Abi> {
    pub(super) mpi: &'m Rc<Mpi<A>>,
    pub(super) world: &'m Communicator<A>,
    pub(super) work: &'m Work,
    pub(super) pattern: Pattern,
}

impl<A: Abi> Stage<'_, A> {
    /// The work's file of this name.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.work.folder.join(self.file_name(name))
    }

    fn file_name(&self, name: &str) -> String {
        format!("{name}.{}", self.work.ending)
    }

    pub(super) fn ranks(&self) -> usize {
        self.world.processes()
    }

    pub(super) fn rank(&self) -> usize {
        self.world.place()
    }

    /// A new file with the work's map over an array of it, whose view is by `grid`.
    pub(super) fn create(&self, name: &str, grid: &Grid, array: &[usize]) -> Outcome<File<A>> {
        let file = self.world.open(&self.path(name), FileMode::Create)?;
        if let Some(map) = grid.of_map(self.work.map).filter(|_| self.mpi.has_encryption_maps()) {
            let filetype = map.part(array, self.rank()).filetype(self.mpi, array)?;
            self.lay(&file, &filetype)?;
        }
        Ok(file)
    }

    /// This rank's part of the work's map.
    pub(super) fn lay(&self, file: &File<A>, filetype: &Filetype<A>) -> Outcome {
        file.set_encryption_map(filetype, LABELS[self.rank() % LABELS.len()], &self.work.suite)
    }

    /// Times what all ranks do: from where they are together until the last of them is done.
    pub(super) fn timed(&self, quantity: Quantity, bytes: u64, step: impl FnOnce() -> Outcome) -> Outcome {
        let seconds = self.slowest(step)?;
        if self.world.rank == 0 {
            Event::Timed { quantity, bytes, seconds }.print();
        }
        Ok(())
    }

    /// The time of the slowest rank; at rank 0.
    pub(super) fn slowest(&self, step: impl FnOnce() -> Outcome) -> Outcome<f64> {
        self.world.barrier()?;
        let began = Instant::now();
        step()?;
        let own = began.elapsed().as_nanos() as u64;
        let mut all = vec![0; if self.world.rank == 0 { ELEMENT * self.ranks() } else { 0 }];
        self.world.gather(Form::Blocking, &own.to_le_bytes(), &mut all, 0)?;
        let each = all.chunks_exact(ELEMENT).map(|word| u64::from_le_bytes(word.try_into().expect("a word")));
        Ok(each.max().unwrap_or(0) as f64 * 1e-9)
    }

    /// Rank 0 looks what a file is on disk, and tells.
    pub(super) fn tell(&self, name: &str) -> Outcome {
        if self.world.rank == 0 {
            let path = self.path(name);
            let seal = seal(&path).map_err(|why| wrong(format!("{}: {why}", path.display())))?;
            Event::File { name: path.display().to_string(), seal }.print();
        }
        Ok(())
    }

    /// Whether files of the work can be put out of the page cache.
    pub(super) fn has_disk(&self) -> bool {
        !self.work.disk.is_empty()
    }

    /// Puts a file out of the page cache, if it can be.
    pub(super) fn evict(&self, name: &str) -> Outcome {
        self.world.barrier()?;
        if self.world.rank == 0 {
            let files = self.work.disk.iter().map(|folder| folder.join(self.file_name(name)));
            for path in files.flat_map(with_sidecar) {
                evict(&path)
                    .map_err(|why| wrong(format!("{} does not leave the page cache: {why}", path.display())))?;
            }
        }
        self.world.barrier()
    }

    /// Removes files of the work.
    pub(super) fn remove(&self, names: &[&str]) -> Outcome {
        self.world.barrier()?;
        if self.world.rank == 0 {
            for path in names.iter().map(|name| self.path(name)).flat_map(with_sidecar) {
                std::fs::remove_file(&path)
                    .map_err(|error| wrong(format!("{} cannot be removed ({error})", path.display())))?;
            }
        }
        Ok(())
    }
}

/// Data that is not what it should be.
pub(super) fn wrong(what: impl Into<String>) -> mpi::Failure {
    mpi::Failure::WrongData(what.into())
}

/// A file, and its sidecar if it is detached.
fn with_sidecar(path: PathBuf) -> impl Iterator<Item = PathBuf> {
    let sidecar = gambeson_file::sidecar(&path);
    [path].into_iter().chain(sidecar.exists().then_some(sidecar))
}

/// What a file says of itself, if it is sealed.
fn seal(path: &std::path::Path) -> Result<Option<Seal>, String> {
    let below = gambeson_file::open(path, OpenOptions::new().read(true)).map_err(|error| error.to_string())?;
    let Some(head) = Head::read(below.sealed()).map_err(|error| error.to_string())? else { return Ok(None) };
    let (header, _) = header::choose(&head.copies[0], &head.copies[1]).map_err(|error| error.to_string())?;
    let fields = header.fields();
    let mut suites: Vec<String> = fields
        .regions
        .iter()
        .filter(|region| region.is_sealed())
        .map(|region| region.suite.name().to_owned())
        .collect();
    suites.sort_unstable();
    suites.dedup();
    let labels = fields.labels.iter().map(|label| label.name.clone()).collect();
    let Geometry { block_len: block, detached, .. } = fields.geometry;
    Ok(Some(Seal { labels, suites, block, detached }))
}

/// Writes a file's pages to disk and has the system forget them; then looks here and there whether it has.
fn evict(path: &std::path::Path) -> Result<(), String> {
    let file = Local::open(path).map_err(|error| error.to_string())?;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let forget = || fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| error.to_string());
    fdatasync(&file).map_err(|error| error.to_string())?;
    forget()?;
    let places = (0..SAMPLES).map(|sample| sample * (length / SAMPLES));
    let cached = places.filter(|&place| is_cached(&file, place)).count() as u64;
    if length > SAMPLES * CLUSTER && cached > SAMPLES / 8 {
        return Err(format!("{cached} of {SAMPLES} places of it are still there"));
    }
    // Looking may have brought some back.
    forget()
}

/// Whether a byte can be read without waiting for a disk. What doesn't know passes.
fn is_cached(file: &impl AsFd, place: u64) -> bool {
    let mut byte = [0];
    let read = preadv2(file, &mut [IoSliceMut::new(&mut byte)], place, ReadWriteFlags::NOWAIT);
    !matches!(read, Err(Errno::AGAIN | Errno::OPNOTSUPP))
}

const SAMPLES: u64 = 64;
/// What a system reads ahead around a sample, about.
const CLUSTER: u64 = 256 << 10;
