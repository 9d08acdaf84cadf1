//! `gambeson file seal`: a sealed file with the bytes of a plain one.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use gambeson_file::{Below, Dirty, Extent, Head, LocalBody, Map, SealedFile, Shape, Then, create};
use gambeson_keys::{KeyRing, Keys};
use gambeson_proto::file::FileSuite;

use super::held::Held;
use super::map::{Laid, block, label, map, maps, suite};
use super::opening::{Access, Contents, file, refuse_sealed};
use super::ranks::Ranks;
use super::replace::{self, mode_of};
use super::{STATUSES, parallel};
use crate::failure::Failure;
use crate::keys;

/// Seals a plain file into another one
///
/// All of it is sealed under one label, or under several with maps: a map gives a label the bytes
/// OFFSET+LENGTH of every EXTENT bytes from DISPLACEMENT on. Bytes that no map names are the
/// rest's, which is under --label. The label `none` means plain, by decision:
///
///   gambeson file seal records.dat sealed.dat --label clinical --map trial:0:4096:0+128,512+64
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
pub(super) struct Seal {
    /// The plain file
    plain: PathBuf,
    /// The sealed file to make
    sealed: PathBuf,
    /// The label of the rest, or none
    #[arg(long, value_name = "LABEL")]
    label: String,
    /// Bytes of a block, which is sealed as one
    #[arg(long, value_name = "BYTES", default_value = "64KiB", value_parser = block)]
    block: u32,
    /// 2 gives each block two slots: who is killed while he writes costs nothing of what was closed before
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=2))]
    slots: u8,
    /// Keep the data at its offsets in the sealed file, and all else in SEALED.gambeson beside it
    #[arg(long)]
    detached: bool,
    /// xaes-256-gcm, aes-256-gcm-siv, or aes-256-xts, which does not notice what is altered
    #[arg(long, default_value = FileSuite::Xaes256Gcm.name(), value_parser = suite)]
    suite: FileSuite,
    /// LABEL:DISPLACEMENT:EXTENT:OFFSET+LENGTH,... (may be given several times)
    #[arg(long = "map", value_name = "MAP", value_parser = map)]
    laid: Vec<Laid>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    keys: keys::Access,
}

impl Seal {
    pub(super) fn execute(&self, ranks: &Ranks) -> Result<ExitCode, Failure> {
        let (plain, keys, maps) = ranks.agreed(self.begin(ranks))?;
        let (replacement, files) = replace::made(&self.sealed, self.force, self.detached, ranks)?;
        let name = self.sealed.display().to_string();
        let below = ranks.agreed(files.below())?;
        let shape = Shape { block_len: self.block, two_slots: self.slots == 2, detached: self.detached };
        ranks.first(|| Ok(create(&name, &below, keys.as_ref(), shape, &maps)?))?;
        let size = Contents::Plain(String::new(), ranks.agreed(share(&plain))?).size();
        let size = ranks.told(ranks.agreed(size)?)?;
        let read = || Ok(Contents::Plain(self.plain.display().to_string(), share(&plain)?));
        fill("sealing", &name, &below, &keys, size, read, ranks)?;
        ranks.first(|| {
            let replacement = replacement.expect("the first process has made it");
            replacement.keep(&files, mode_of(&plain, &self.plain)?)?;
            keys.anchor_now()
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn begin(&self, ranks: &Ranks) -> Result<(File, Arc<Held>, Vec<Map>), Failure> {
        let rest = label(&self.label).map_err(Failure::usage)?;
        let maps = maps(rest.as_deref(), self.suite, &self.laid);
        if maps.iter().all(|map| map.label.is_none()) {
            return Err(Failure::usage("nothing of the file would be sealed; name a label with --label or --map"));
        }
        if self.detached && self.slots == 2 {
            return Err(Failure::usage(
                "a detached file has one slot for each block; leave --detached or --slots away",
            ));
        }
        let plain = file(&self.plain, Access::Read)?;
        refuse_sealed(&self.plain)?;
        let keys = Arc::new(Held::new(Arc::new(ranks.ring(&self.keys)?)));
        check_labels(keys.ring(), &maps)?;
        Ok((plain, keys, maps))
    }
}

fn share(file: &File) -> Result<File, Failure> {
    file.try_clone().map_err(|error| Failure::system(format!("a file cannot be opened again ({error})")))
}

/// Writes what `read` gives into an empty sealed file, on all cores of all processes, and closes it. Each process has groups
/// of its own, whose entries it anchors; the first begins the session and closes the file.
pub(super) fn fill(
    doing: &str,
    name: &str,
    below: &Below<LocalBody>,
    keys: &Arc<Held>,
    size: u64,
    read: impl Fn() -> Result<Contents, Failure> + Sync,
    ranks: &Ranks,
) -> Result<(), Failure> {
    let open = |head: Head| SealedFile::open(name, below.clone(), head, keys.clone());
    let begin = || -> Result<(SealedFile<LocalBody>, Vec<u8>), Failure> {
        let read =
            Head::read(below.sealed()).map_err(|error| Failure::system(format!("{name} cannot be read ({error})")))?;
        let mut leader = open(read.expect("its header was just written"))?;
        // The others open it once the session has begun.
        let head = if ranks.is_first() { leader.begin()?.encode() } else { Vec::new() };
        Ok((leader, head))
    };
    let (mut own, head) = ranks.agreed(begin())?;
    let head = Head::decode(&ranks.told(head)?).expect("the first process has begun a session");
    ranks.agreed(if ranks.is_first() { Ok(()) } else { own.join(head.clone()).map_err(Failure::from) })?;
    own.note_size(size);
    let digests = ranks.agreed(write(doing, &open, &head, &mut own, size, read, ranks))?;
    let digests: Vec<(u64, [u8; 32])> = ranks.gathered(digests)?.into_iter().flatten().collect();
    ranks.first(|| {
        let settled = own.settle()?;
        own.finish(settled, &digests, None, size, Then::Close)?;
        Ok(())
    })
}

/// Writes this process's groups, and takes what was written into their entry tables; their digests.
fn write(
    doing: &str,
    open: &(impl Fn(Head) -> Result<SealedFile<LocalBody>, gambeson_file::Error> + Sync),
    head: &Head,
    own: &mut SealedFile<LocalBody>,
    size: u64,
    read: impl Fn() -> Result<Contents, Failure> + Sync,
    ranks: &Ranks,
) -> Result<Vec<(u64, [u8; 32])>, Failure> {
    let geometry = *own.geometry();
    let per_group = u64::from(geometry.group_blocks) * u64::from(geometry.block_len) / parallel::CHUNK;
    let count = size.div_ceil(parallel::CHUNK);
    let groups = ranks.share(count.div_ceil(per_group));
    let chunks = groups.start * per_group..count.min(groups.end * per_group);
    let progress = ranks.progress(doing, (chunks.end - chunks.start) * parallel::CHUNK);
    let done = ranks.each(
        chunks,
        || {
            let mut file = open(head.clone())?;
            file.join(head.clone())?;
            Ok((read()?, file, Vec::new()))
        },
        |(from, file, bytes), chunk| {
            let offset = chunk * parallel::CHUNK;
            let length = parallel::CHUNK.min(size - offset);
            bytes.resize(length as usize, 0);
            from.read(offset, bytes)?;
            file.without_locks(|file| file.write(&[Extent { offset, length }], bytes))?;
            progress.inc(length);
            Ok(())
        },
    )?;
    progress.finish_and_clear();
    let mut all = Dirty::default();
    for (_, mut file, _) in done {
        all.groups.extend(file.take_written().groups);
    }
    all.groups.sort_by_key(|(group, _)| *group);
    let mut digests = Vec::new();
    for of_group in all.groups.chunk_by(|a, b| a.0 == b.0) {
        let written: Vec<_> = of_group.iter().flat_map(|(_, written)| written.iter().copied()).collect();
        digests.push((of_group[0].0, own.anchor_group(of_group[0].0, &written, None)?));
    }
    // What others have written has to be there before the first process closes the file.
    own.body().sync().map_err(|error| own.storage_error("writing it failed", error))?;
    Ok(digests)
}

/// Labels that a file is to have: refused before anything is written, if they are not here.
pub(super) fn check_labels(keys: &KeyRing, maps: &[Map]) -> Result<(), Failure> {
    let names: Vec<&str> = maps.iter().filter_map(|map| map.label.as_deref()).collect();
    keys.require(&names)?;
    for name in names {
        keys.sign(name, keys.label(name)?.version, b"gambeson: may this process write?")?;
    }
    Ok(())
}
