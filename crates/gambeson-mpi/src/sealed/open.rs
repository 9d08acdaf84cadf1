//! Opening: one rank reads the head, each checks it with the labels that it knows, and the leader begins the session.

use std::path::Path;
use std::sync::Arc;

use gambeson_file::{Below, Cause, Error, Head, Map, SealedFile, Shape, create};
use gambeson_keys::Keys;
use gambeson_proto::file::region::RegionId;

use super::body::below;
use super::tell::Ranks;
use super::{MpiBody, SealedEngine, failure};
use crate::error::Failure;
use crate::mpi::Mpi;

/// A file that is to be made: what its rule says.
pub(crate) struct New {
    pub(crate) label: String,
    pub(crate) suite: gambeson_proto::file::FileSuite,
    pub(crate) shape: Shape,
}

/// Where the file is, and whose.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The library's handle.
    pub(crate) file: usize,
    /// That of its sidecar, if it is a detached file.
    pub(crate) sidecar: Option<usize>,
    /// As the program named it.
    pub(crate) name: &'a str,
    /// As the file system knows it.
    pub(crate) path: &'a Path,
    pub(crate) is_writable: bool,
}

/// Opens a sealed file at all ranks, after making it if it is new and empty.
///
/// # Errors
/// On all ranks alike, if nobody here knows a label of it, or it is not as it was left; for writing, if nobody may sign.
pub(crate) fn open(
    mpi: &'static Mpi,
    ranks: Ranks,
    place: Place<'_>,
    keys: Arc<dyn Keys>,
    new: Option<&New>,
) -> Result<SealedEngine, Failure> {
    let head = match new {
        Some(new) => make(mpi, ranks, place, keys.as_ref(), new)?,
        None => told_head(mpi, ranks, place, 0, |_| Ok(()))?,
    };
    open_head(mpi, ranks, place, keys, head)
}

/// The head of a file, read by one rank once it has done what is to be done before.
pub(super) fn told_head(
    mpi: &'static Mpi,
    ranks: Ranks,
    place: Place<'_>,
    who: i32,
    first: impl FnOnce(&Below<MpiBody>) -> Result<(), Failure>,
) -> Result<Head, Failure> {
    let read = (ranks.rank == who).then(|| {
        let below = below(mpi, place);
        first(&below).and_then(|()| read_head(mpi, place.name, below.sealed()))
    });
    let head = ranks.told_bytes(mpi, who, read)?;
    Ok(Head::decode(&head).expect("a head was sent"))
}

/// Opens a sealed file of which the head is known, at all ranks.
///
/// # Errors
/// As [`open`].
pub(super) fn open_head(
    mpi: &'static Mpi,
    ranks: Ranks,
    place: Place<'_>,
    keys: Arc<dyn Keys>,
    head: Head,
) -> Result<SealedEngine, Failure> {
    let below = || below(mpi, place);
    let mut file = check(mpi, ranks, place.name, &below, head, &keys)?;
    let access = Access::of(mpi, ranks, &file)?;
    let leader = if place.is_writable {
        let Some(leader) = access.signers.first().copied() else {
            let why = match file.refused_writing() {
                Some(told) => told.to_string(),
                None => "no rank has a key that may write to it; open it for reading (MPI_MODE_RDONLY), or ask its owner for an export of a label that may write".to_owned(),
            };
            let what = format!("{}: it is opened for writing, and {why}", place.name);
            return Err(Failure::new(mpi.abi.class.access, what));
        };
        let begun = (ranks.rank == leader)
            .then(|| file.begin().map(|head| head.encode()).map_err(|error| failure(mpi, &error)));
        let head = ranks.told_bytes(mpi, leader, begun)?;
        if ranks.rank != leader {
            let head = Head::decode(&head).expect("the leader has sent a head");
            agreed(mpi, ranks, file.join(head))?;
        } else {
            agreed(mpi, ranks, Ok(()))?;
        }
        Some(leader)
    } else {
        None
    };
    Ok(SealedEngine {
        mpi,
        ranks,
        file,
        below: (place.file, place.sidecar),
        path: place.path.to_path_buf(),
        keys,
        leader,
        readers: access.readers,
        writers: access.writers,
        is_atomic: false,
    })
}

/// Makes the file, at the first rank that may write under its label; its head.
fn make(mpi: &'static Mpi, ranks: Ranks, place: Place<'_>, keys: &dyn Keys, new: &New) -> Result<Head, Failure> {
    let label = keys.label(&new.label);
    let may = matches!(&label, Ok(label) if label.may_write);
    let all = ranks.gather(mpi, &[i64::from(may)])?;
    let Some(maker) = all.iter().position(|&may| may == 1) else {
        let why = match label {
            Ok(_) => {
                let told = keys.refused_writing(&new.label).map(|told| told.to_string());
                told.unwrap_or_else(|| format!("label \"{}\" is here for reading alone", new.label))
            }
            Err(error) => error.to_string(),
        };
        let what =
            format!("{}: no rank may write under label \"{}\" of the policy; this one: {why}", place.name, new.label);
        return Err(Failure::new(mpi.abi.class.access, what));
    };
    told_head(mpi, ranks, place, maker as i32, |below| {
        let map = Map { label: Some(new.label.clone()), suite: new.suite, parts: Vec::new() };
        create(place.name, below, keys, new.shape, &[map]).map_err(|error| failure(mpi, &error))
    })
}

fn read_head(mpi: &Mpi, name: &str, body: &MpiBody) -> Result<Vec<u8>, Failure> {
    match Head::read(body) {
        Ok(Some(head)) => Ok(head.encode()),
        Ok(None) => {
            let what = "its header is gone, or that in its sidecar";
            Err(Failure::new(mpi.abi.class.io, format!("{name}: {what}")))
        }
        Err(error) => {
            Err(Failure::new(super::body::class(mpi, &error), format!("{name}: reading its header failed: {error}")))
        }
    }
}

/// Each rank checks the head. Who knows none of the labels goes by what those say who do.
fn check(
    mpi: &'static Mpi,
    ranks: Ranks,
    name: &str,
    below: &impl Fn() -> Below<MpiBody>,
    head: Head,
    keys: &Arc<dyn Keys>,
) -> Result<SealedFile<MpiBody>, Failure> {
    let opened = SealedFile::open(name, below(), head.clone(), keys.clone());
    let verdict = match &opened {
        Ok(_) => KNOWS,
        Err(Error { cause: Cause::Key, .. }) => KNOWS_NONE,
        Err(_) => REFUSES,
    };
    let all = ranks.gather(mpi, &[verdict])?;
    if all.contains(&REFUSES) {
        return opened.map_err(|error| failure(mpi, &error)).and_then(|_| {
            let rank = all.iter().position(|&verdict| verdict == REFUSES).expect("there is one");
            Err(Failure::new(mpi.abi.class.io, format!("{name}: rank {rank} refuses it, and says why")))
        });
    }
    let Some(knows) = all.iter().position(|&verdict| verdict == KNOWS) else {
        return opened.map_err(|error| failure(mpi, &error));
    };
    if all.iter().all(|&verdict| verdict == KNOWS) {
        return opened.map_err(|error| failure(mpi, &error));
    }
    let told = opened.as_ref().ok().filter(|_| ranks.rank == knows as i32);
    let table = ranks.broadcast(mpi, knows as i32, told.map(|file| file.header().table().digest().to_vec()))?;
    let file = opened.or_else(|_| {
        let vouched = table.try_into().ok();
        SealedFile::open_vouched(name, below(), head, keys.clone(), vouched)
    });
    agreed(mpi, ranks, file)
}

/// The result, if it is one at all ranks.
fn agreed<T>(mpi: &Mpi, ranks: Ranks, result: Result<T, Error>) -> Result<T, Failure> {
    let failed = ranks.any(mpi, result.is_err())?;
    let result = result.map_err(|error| failure(mpi, &error))?;
    if failed {
        return Err(Failure::new(mpi.abi.class.io, "another rank failed at this, and says why"));
    }
    Ok(result)
}

/// Who may do what with a file.
pub(super) struct Access {
    pub(super) readers: Vec<Vec<i32>>,
    pub(super) writers: Vec<Vec<i32>>,
    signers: Vec<i32>,
}

impl Access {
    pub(super) fn of(mpi: &Mpi, ranks: Ranks, file: &SealedFile<MpiBody>) -> Result<Self, Failure> {
        let regions = file.header().table().regions();
        let mut own: Vec<i64> = vec![i64::from(file.may_sign())];
        for region in 0..regions.len() as RegionId {
            let may_read = i64::from(file.unreadable(region).is_none());
            own.push(may_read | i64::from(file.may_write(region)) << 1);
        }
        let all = ranks.gather(mpi, &own)?;
        let who = |place: usize, bit: i64| {
            let each = all.chunks(own.len()).zip(0..);
            each.filter(|(of, _)| of[place] & bit != 0).map(|(_, rank)| rank).collect::<Vec<i32>>()
        };
        Ok(Access {
            signers: who(0, 1),
            readers: (1..own.len()).map(|place| who(place, 1)).collect(),
            writers: (1..own.len()).map(|place| who(place, 2)).collect(),
        })
    }
}

const KNOWS: i64 = 0;
const KNOWS_NONE: i64 = 1;
const REFUSES: i64 = 2;
