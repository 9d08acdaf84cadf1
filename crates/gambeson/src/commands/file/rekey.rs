//! `gambeson file rekey`: a file sealed anew, under new data keys, and other maps if wanted.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use gambeson_file::{Map, Offer, Shape, compose, make_room, offer, sign, write_first_at};
use gambeson_keys::KeyError;
use gambeson_proto::file::state::Status;
use gambeson_proto::file::table::Table;
use gambeson_proto::file::{FileSuite, Geometry};

use super::STATUSES;
use super::held::Held;
use super::map::{Laid, block, label, map, maps, suite};
use super::opening::{Access, Contents, Opener};
use super::ranks::Ranks;
use super::replace::{self, mode_of};
use super::seal::{check_labels, fill};
use crate::failure::{Failure, Status as ExitStatus};
use crate::keys;

/// Seals a file anew, under new data keys; with other labels and maps if they are given
///
/// That takes the file away from those who have kept its old data keys, and is the way to change
/// maps, suite or block of a file that has data. The file is written anew beside itself, and then
/// takes its own place; nobody may have it open for writing. Without --label and --map the file
/// keeps its labels and maps.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
pub(super) struct Rekey {
    /// The file
    file: PathBuf,
    /// The label of the rest, or none; then the maps that are given are all maps
    #[arg(long, value_name = "LABEL")]
    label: Option<String>,
    /// Bytes of a block, instead of what it has
    #[arg(long, value_name = "BYTES", value_parser = block)]
    block: Option<u32>,
    /// 1 or 2 slots for each block, instead of what it has; with 2, who is killed while he writes costs nothing
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    slots: Option<u8>,
    /// Another suite for all that is sealed
    #[arg(long, value_parser = suite)]
    suite: Option<FileSuite>,
    /// LABEL:DISPLACEMENT:EXTENT:OFFSET+LENGTH,... (may be given several times)
    #[arg(long = "map", value_name = "MAP", value_parser = map, requires = "label")]
    laid: Vec<Laid>,
    #[command(flatten)]
    keys: keys::Access,
}

impl Rekey {
    pub(super) fn execute(&self, ranks: &Ranks) -> Result<ExitCode, Failure> {
        let keys = Arc::new(Held::new(Arc::new(ranks.agreed(ranks.ring(&self.keys))?)));
        let mut opener = ranks.agreed(Opener::new(&self.file, keys.clone(), Access::ReadAndWrite))?;
        let (_locked, head) =
            ranks.agreed(if ranks.is_first() { lock_out(&opener) } else { Ok(Default::default()) })?;
        opener.take_head(ranks.told(head)?);
        let (maps, size) = ranks.agreed(self.check(&opener, &keys))?;
        let (replacement, new) = replace::made(&self.file, true, opener.below.data().is_some(), ranks)?;
        let below = ranks.agreed(new.below())?;
        ranks.first(|| {
            let old = opener.handle()?;
            let table = self.table(&opener, old.header().table(), &keys, &maps)?;
            let signatures = sign(keys.as_ref(), &table);
            // The same file, further on: so that the old one, put back, is noticed.
            let generation = old.header().state().generation + 1;
            Ok(write_first_at(&opener.name, &below, keys.as_ref(), table, &signatures, generation)?)
        })?;
        let read = || Ok(Contents::Sealed(Box::new(opener.handle()?)));
        fill("rekeying", &opener.name, &below, &keys, size, read, ranks)?;
        ranks.first(|| {
            let old = super::opening::file(&self.file, Access::Read)?;
            let replacement = replacement.expect("the first process has made it");
            replacement.keep(&new, mode_of(&old, &self.file)?)?;
            keys.anchor_now()
        })?;
        Ok(ExitCode::SUCCESS)
    }

    /// The file's maps as they are to be, and its size.
    fn check(&self, opener: &Opener, keys: &Held) -> Result<(Vec<Map>, u64), Failure> {
        let mut old = opener.handle()?;
        if old.header().state().status == Status::Open {
            return Err(Failure::refused(format!(
                "{} was never closed; take it for what it is with `gambeson file accept` first",
                opener.name
            )));
        }
        if self.slots == Some(2) && old.geometry().detached {
            return Err(Failure::usage(format!(
                "{}: a detached file has one slot for each block; open it, and seal it again with --slots 2",
                opener.name
            )));
        }
        for region in 0..old.header().table().regions().len() as u16 {
            old.check_readable(region)?;
        }
        let maps = self.maps(old.header().table())?;
        if maps.iter().all(|map| map.label.is_none()) {
            return Err(Failure::usage("nothing of the file would be sealed; `gambeson file open` makes a plain one"));
        }
        check_labels(keys.ring(), &maps)?;
        Ok((maps, old.size()?))
    }

    fn maps(&self, table: &Table) -> Result<Vec<Map>, Failure> {
        if let Some(rest) = &self.label {
            let rest = label(rest).map_err(Failure::usage)?;
            let suite = self.suite.unwrap_or(table.regions()[0].suite);
            return Ok(maps(rest.as_deref(), suite, &self.laid));
        }
        let mut kept = Vec::new();
        for (number, region) in table.regions().iter().enumerate() {
            let newest = region.epoch().into_iter().flat_map(|epoch| region.keys_of(epoch));
            let mut names: Vec<&str> = newest.map(|key| table.labels()[usize::from(key.label)].name.as_str()).collect();
            names.dedup();
            if names.len() > 1 {
                return Err(Failure::new(
                    ExitStatus::Data,
                    format!(
                        "region {number} is under several labels ({}); say with --label and --map which it is to be",
                        names.join(", ")
                    ),
                ));
            }
            let label = names.first().map(|&name| name.to_owned());
            kept.push(Map { label, suite: self.suite.unwrap_or(region.suite), parts: region.parts.clone() });
        }
        Ok(kept)
    }

    fn table(&self, opener: &Opener, old: &Table, keys: &Arc<Held>, maps: &[Map]) -> Result<Table, Failure> {
        let epoch = old.regions().iter().filter_map(|region| region.epoch()).max().unwrap_or(0);
        let epoch = epoch.checked_add(1).ok_or_else(|| {
            Failure::refused(format!("{} had 65535 keys; seal its bytes into a new file", opener.name))
        })?;
        let offer = |(region, map): (u16, &Map)| {
            let label = map.label.as_deref();
            label.map(|label| offer(keys.as_ref(), label, *old.file(), region, epoch)).transpose()
        };
        let offers: Vec<Option<Offer>> = (0..).zip(maps).map(offer).collect::<Result<_, KeyError>>()?;
        let Geometry { block_len, two_slots, detached, .. } = *old.geometry();
        let two_slots = self.slots.map_or(two_slots, |slots| slots == 2);
        let shape = Shape { block_len: self.block.unwrap_or(block_len), two_slots, detached };
        let mut fields = compose(*old.file(), shape, maps, &offers);
        for key in fields.regions.iter_mut().flat_map(|region| &mut region.keys) {
            key.epoch = epoch;
        }
        make_room(&mut fields);
        Ok(gambeson_file::table(&opener.name, fields)?)
    }
}

/// Keeps others from writing to the file; what it says of itself now that nobody can change it any more.
fn lock_out(opener: &Opener) -> Result<(Vec<gambeson_file::Held>, Vec<u8>), Failure> {
    let locked = opener.handle()?.lock_out()?;
    Ok((locked, super::opening::head(&opener.name, &opener.below)?.encode()))
}
