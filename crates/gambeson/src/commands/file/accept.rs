//! `gambeson file accept`: takes a file for what it is, on purpose.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use gambeson_file::{Anchoring, Cause, Examined, LocalBody, SealedFile};
use gambeson_keys::{Anchor, KeyRing, Keys};
use gambeson_proto::file::header;
use gambeson_proto::file::state::Status;

use super::held::Held;
use super::opening::{Access, Opener};
use super::{STATUSES, parallel};
use crate::failure::Failure;
use crate::keys;

/// Takes a file for what it is: one that was never closed, or an old one that was put back
///
/// A program that was killed leaves what it wrote last without anybody who vouches for it, and
/// reading that is refused. `accept` opens every part of the file by its own key, and closes the
/// file with what is there. Parts that are not authentic, that were removed or that are of keys you
/// don't have are refused; with --leave-out they stay lost, and all else is accepted.
///
/// When you have put an old version of a file back on purpose, as from a backup, --older makes the
/// key store take it. A file that the key store has not seen yet is taken note of, so that a later
/// rollback is noticed.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
pub(super) struct Accept {
    /// The file
    file: PathBuf,
    /// Leave what is not authentic as it is: reading it stays refused
    #[arg(long)]
    leave_out: bool,
    /// Take a version of the file that is older than what the key store has seen
    #[arg(long)]
    older: bool,
    #[command(flatten)]
    keys: keys::Access,
}

impl Accept {
    pub(super) fn execute(&self) -> Result<ExitCode, Failure> {
        let ring = Arc::new(self.keys.keys()?);
        let mut opener = Opener::new(&self.file, ring.clone(), Access::Read)?;
        let older = self.older(&opener, &ring)?;
        if older.is_some() {
            opener.keys = Arc::new(Held::forgetful(ring.clone()));
        }
        let mut file = opener.handle()?;
        let examined = examine(&opener, &mut file)?;
        for finding in &examined.findings {
            eprintln!("gambeson: {}", finding.error);
        }
        if !examined.findings.is_empty() && !self.leave_out {
            return Err(Failure::refused(format!(
                "{}: {} parts of blocks can't be taken for what they are, so nothing was changed; --leave-out leaves them lost, and accepts the rest",
                opener.name,
                examined.findings.len()
            )));
        }
        // All that could be looked at was: now the key store may take it.
        if let Some((id, here, _)) = &older {
            let (found, _) = header::choose(&opener.head.copies[0], &opener.head.copies[1])
                .map_err(|error| Failure::refused(format!("{}: {error}", opener.name)))?;
            let labels: Vec<&str> = found.fields().labels.iter().map(|label| label.name.as_str()).collect();
            ring.put_anchor_back(id, &labels, here)?;
        }
        let is_open = file.header().state().status == Status::Open;
        let must_write = is_open || !examined.groups.is_empty() || older.is_some();
        drop(file);
        opener.keys = ring;
        self.finish(opener, &examined, must_write.then_some(older.map_or(0, |(_, _, seen)| seen)))
    }

    /// The file, where it is, and which generation the key store has seen, if that is a later one.
    fn older(&self, opener: &Opener, ring: &KeyRing) -> Result<Option<([u8; 16], Anchor, u64)>, Failure> {
        let (found, _) = header::choose(&opener.head.copies[0], &opener.head.copies[1])
            .map_err(|error| Failure::refused(format!("{}: {error}", opener.name)))?;
        let (id, state) = (found.fields().file, *found.state());
        let here = Anchor { generation: state.closed, root: state.root };
        match ring.anchor(&id)? {
            Some(seen) if seen.generation > here.generation || (seen.generation == here.generation && seen != here) => {
                if !self.older {
                    return Err(Failure::refused(format!(
                        "{}: an old version of it was put back: it was last closed at generation {}, and the key store has seen generation {}; if you did that on purpose, use --older",
                        opener.name, here.generation, seen.generation
                    )));
                }
                Ok(Some((id, here, seen.generation)))
            }
            _ if self.older => Err(Failure::usage(format!(
                "{} is not older than what the key store has seen; leave --older away",
                opener.name
            ))),
            _ => Ok(None),
        }
    }

    fn finish(&self, opener: Opener, examined: &Examined, above: Option<u64>) -> Result<ExitCode, Failure> {
        let name = &opener.name;
        let may_sign = opener.handle()?.may_sign();
        match above {
            Some(above) if may_sign => {
                let opener = Opener::new(&self.file, opener.keys.clone(), Access::ReadAndWrite)?;
                let mut file = opener.handle()?;
                file.accept(examined, above)?;
                println!(
                    "{name}: {} parts of blocks that nobody had vouched for were accepted; it is closed at generation {}",
                    examined.unanchored(),
                    file.header().state().generation
                );
                if examined.holes > 0 {
                    println!("{} parts are empty, and nobody knows whether they always were", examined.holes);
                }
                warn(file.anchoring());
            }
            Some(_) if !examined.groups.is_empty() => {
                let told = opener.handle()?.refused_writing().map(|told| told.to_string());
                let why = told.unwrap_or_else(|| "none of its labels is here for writing".to_owned());
                return Err(Failure::new(
                    crate::failure::Status::NotPermitted,
                    format!("{name}: closing it takes a key that may write, and {why}"),
                ));
            }
            Some(_) => {
                println!("{name}: the key store takes it as it was last closed");
                warn(opener.handle()?.take_note());
            }
            None => {
                let mut file = opener.handle()?;
                let was = file.anchoring().clone();
                let now = file.take_note().clone();
                match (was, &now) {
                    (Anchoring::Covered, _) => println!("{name}: there was nothing to accept"),
                    (_, Anchoring::Covered) => println!("{name}: the key store has taken note of it"),
                    _ => warn(&now),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn warn(anchoring: &Anchoring) {
    if let Anchoring::NotCovered(why) = anchoring {
        println!("an old version of it, put back, would not be noticed: {why}");
    }
}

fn examine(opener: &Opener, first: &mut SealedFile<LocalBody>) -> Result<Examined, Failure> {
    let groups = first.groups()?;
    let group_len = u64::from(first.geometry().group_blocks) * u64::from(first.geometry().block_len);
    let progress = parallel::progress("examining", groups * group_len);
    let done = parallel::each(
        0..groups,
        parallel::cores(),
        || Ok((opener.handle()?, Examined::default())),
        |(file, examined), group| {
            examined.add(file.examine(group..group + 1)?);
            progress.inc(group_len);
            Ok(())
        },
    )?;
    progress.finish_and_clear();
    let mut all = Examined::default();
    for (_, examined) in done {
        all.add(examined);
    }
    // What is no business of the file's is none of an acceptance.
    match all.findings.iter().position(|finding| finding.error.cause == Cause::Storage) {
        Some(place) => Err(all.findings.swap_remove(place).error.into()),
        None => Ok(all),
    }
}
