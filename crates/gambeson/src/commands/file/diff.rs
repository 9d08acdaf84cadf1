//! `gambeson file diff`: whether two files hold the same bytes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use gambeson_file::Head;
use gambeson_keys::Keys;

use super::opening::{Access, Contents, Opener, below, cannot, file, head};
use super::ranks::Ranks;
use super::{STATUSES, parallel};
use crate::failure::Failure;
use crate::keys;

/// Says whether two files hold the same bytes, and where they differ first; either may be plain
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Diff {
    /// A file, sealed or plain
    one: PathBuf,
    /// Another one
    other: PathBuf,
    #[command(flatten)]
    keys: keys::Access,
}

enum Side {
    Sealed(Opener),
    Plain(PathBuf),
}

impl Diff {
    pub(super) fn execute(&self, ranks: &Ranks) -> Result<ExitCode, Failure> {
        let mut sides = ranks.agreed(self.sides(ranks))?;
        for side in &mut sides {
            // All go by what the first process finds, if the files should be changing.
            if let Side::Sealed(opener) = side {
                opener.take_head(ranks.told(opener.head.encode())?);
            }
        }
        let sizes = || Ok([sides[0].contents()?.size()?, sides[1].contents()?.size()?]);
        let [one, other] = ranks.told(ranks.agreed(sizes())?)?;
        let common = one.min(other);
        let own = ranks.agreed(compare(&sides, common, ranks))?;
        let differs = ranks.told(ranks.gathered(own)?.into_iter().min().unwrap_or(common))?;
        let (a, b) = (self.one.display(), self.other.display());
        let said = match differs {
            at if at < common => format!("{a} and {b} differ from byte {at} on"),
            _ if one < other => {
                format!("{a} ends at byte {one}; before that they are equal, and {b} goes on to {other}")
            }
            _ if one > other => {
                format!("{b} ends at byte {other}; before that they are equal, and {a} goes on to {one}")
            }
            _ => return Ok(ExitCode::SUCCESS),
        };
        if ranks.is_first() {
            println!("{said}");
        }
        Ok(ExitCode::FAILURE)
    }

    fn sides(&self, ranks: &Ranks) -> Result<[Side; 2], Failure> {
        let mut ring: Option<Arc<dyn Keys>> = None;
        let mut side = |path: &Path| -> Result<Side, Failure> {
            let (name, below) = (path.display().to_string(), below(path, Access::Read)?);
            let read = Head::read(below.sealed()).map_err(|error| cannot("read", path, &error))?;
            let head = match read {
                Some(head) => head,
                None if below.data().is_none() => return Ok(Side::Plain(path.to_owned())),
                None => head(&name, &below)?,
            };
            let keys = match &ring {
                Some(keys) => keys.clone(),
                None => ring.insert(ranks.keys(&self.keys)?).clone(),
            };
            Ok(Side::Sealed(Opener { name, below, head, keys }))
        };
        Ok([side(&self.one)?, side(&self.other)?])
    }
}

/// Where this process's share of the bytes that both have differs first; `common`: nowhere.
fn compare(sides: &[Side; 2], common: u64, ranks: &Ranks) -> Result<u64, Failure> {
    let differs = AtomicU64::new(common);
    let chunks = ranks.share(common.div_ceil(parallel::CHUNK));
    let progress = ranks.progress("comparing", (chunks.end - chunks.start) * parallel::CHUNK);
    ranks.each(
        chunks,
        || Ok((sides[0].contents()?, sides[1].contents()?, Vec::new(), Vec::new())),
        |(one, other, ours, theirs), chunk| {
            let offset = chunk * parallel::CHUNK;
            if offset >= differs.load(Ordering::Relaxed) {
                return Ok(());
            }
            let length = parallel::CHUNK.min(common - offset) as usize;
            ours.resize(length, 0_u8);
            theirs.resize(length, 0_u8);
            one.read(offset, ours)?;
            other.read(offset, theirs)?;
            if let Some(at) = ours.iter().zip(theirs.iter()).position(|(a, b)| a != b) {
                differs.fetch_min(offset + at as u64, Ordering::Relaxed);
            }
            progress.inc(length as u64);
            Ok(())
        },
    )?;
    progress.finish_and_clear();
    Ok(differs.into_inner())
}

impl Side {
    fn contents(&self) -> Result<Contents, Failure> {
        Ok(match self {
            Side::Sealed(opener) => Contents::Sealed(Box::new(opener.handle()?)),
            Side::Plain(path) => Contents::Plain(path.display().to_string(), file(path, Access::Read)?),
        })
    }
}
