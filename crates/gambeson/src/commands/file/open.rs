//! `gambeson file open`: a plain file with the bytes of a sealed one.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Args;
use gambeson_file::{Cause, Extent, LocalBody, SealedFile};

use super::opening::{Access, Opener, cannot};
use super::ranks::Ranks;
use super::replace::{self, mode_of};
use super::{STATUSES, parallel};
use crate::failure::Failure;
use crate::keys;

/// Opens a sealed file into a plain one
///
/// If anything of it can't be had, because a key is missing or it was altered, there is no plain
/// file. With --leave-out such bytes are zeros, and what they are is listed on standard error. With
/// --as-user it shows what somebody else would see, who has another key store: bytes that he may
/// not read are zeros.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
pub(super) struct Open {
    /// The sealed file
    sealed: PathBuf,
    /// The plain file to make
    plain: PathBuf,
    /// Write zeros for what can't be had
    #[arg(long)]
    leave_out: bool,
    /// Another identity's key store: zeros for what it may not read
    #[arg(long, value_name = "FOLDER", conflicts_with = "store")]
    as_user: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    keys: keys::Access,
}

impl Open {
    pub(super) fn execute(&self, ranks: &Ranks) -> Result<ExitCode, Failure> {
        let keys = || match &self.as_user {
            Some(store) => {
                let passphrase_file = self.keys.passphrase_file.clone();
                ranks.keys(&keys::Access { store: Some(store.clone()), passphrase_file })
            }
            None => ranks.keys(&self.keys),
        };
        let opener = Opener::shared(&self.sealed, ranks, keys)?;
        let (size, unread) = ranks.agreed(self.readable(&opener))?;
        let size = ranks.told(size)?;
        let (replacement, plain) = replace::made(&self.plain, self.force, false, ranks)?;
        ranks.first(|| plain.file.set_len(size).map_err(|error| cannot("written", &self.plain, &error)))?;
        let own = self.open(&opener, &plain.file, size, ranks);
        // What others have written has to be there before the file takes its place.
        let own = own.and_then(|lost| {
            plain.file.sync_all().map_err(|error| cannot("written", &self.plain, &error))?;
            Ok(lost)
        });
        let lost: BTreeSet<(u64, String)> = ranks.gathered(ranks.agreed(own)?)?.into_iter().flatten().collect();
        ranks.first(|| {
            if super::opening::head(&opener.name, &opener.below)?.copies != opener.head.copies {
                return Err(Failure::refused(format!("{} was written meanwhile; try again", opener.name)));
            }
            let below = super::opening::file(&self.sealed, Access::Read)?;
            let replacement = replacement.expect("the first process has made it");
            replacement.keep(&plain, mode_of(&below, &self.sealed)?)?;
            for why in unread.iter().chain(lost.iter().map(|(_, why)| why)) {
                eprintln!("zeros: {why}");
            }
            Ok(())
        })?;
        Ok(ExitCode::SUCCESS)
    }

    /// The file's size, and what of it can't be read here, if that is to be left out.
    fn readable(&self, opener: &Opener) -> Result<(u64, Vec<String>), Failure> {
        let mut first = opener.handle()?;
        let regions = first.header().table().regions().len() as u16;
        let unread: Vec<String> = (0..regions)
            .filter_map(|region| first.check_readable(region).err())
            .map(|error| error.to_string())
            .collect();
        if let Some(error) = (0..regions).find_map(|region| first.check_readable(region).err())
            && !self.leave_out
            && self.as_user.is_none()
        {
            return Err(Failure::new(
                crate::failure::Status::NotPermitted,
                format!("{error}; --leave-out writes zeros there"),
            ));
        }
        Ok((first.size()?, unread))
    }

    /// Opens this process's share of the file; the blocks of it that could not be, and why.
    fn open(
        &self,
        opener: &Opener,
        plain: &File,
        size: u64,
        ranks: &Ranks,
    ) -> Result<BTreeSet<(u64, String)>, Failure> {
        let lost = Mutex::new(BTreeSet::new());
        let chunks = ranks.share(size.div_ceil(parallel::CHUNK));
        let progress = ranks.progress("opening", (chunks.end - chunks.start) * parallel::CHUNK);
        ranks.each(
            chunks,
            || Ok((opener.handle()?, Vec::new())),
            |(file, bytes), chunk| {
                let offset = chunk * parallel::CHUNK;
                bytes.resize(parallel::CHUNK.min(size - offset) as usize, 0);
                for (block, why) in read(file, offset, bytes)? {
                    if !self.leave_out {
                        return Err(Failure::refused(format!("{why}; --leave-out writes zeros there")));
                    }
                    lost.lock().expect("nobody panics with it").insert((block, why));
                }
                plain.write_all_at(bytes, offset).map_err(|error| cannot("written", &self.plain, &error))?;
                progress.inc(bytes.len() as u64);
                Ok(())
            },
        )?;
        progress.finish_and_clear();
        Ok(lost.into_inner().expect("nobody panics with it"))
    }
}

/// Reads a chunk; the blocks of it in which something is not what was written, which is zeros now. Keys that are missing
/// are known before.
fn read(file: &mut SealedFile<LocalBody>, offset: u64, into: &mut [u8]) -> Result<Vec<(u64, String)>, Failure> {
    let error = match file.read(&[Extent { offset, length: into.len() as u64 }], into) {
        Ok(_) => return Ok(Vec::new()),
        Err(error) if error.cause == Cause::Storage => return Err(error.into()),
        Err(error) => error,
    };
    // One of its blocks, or several. Which, is seen one by one.
    let block_len = u64::from(file.geometry().block_len);
    let first = offset / block_len;
    let blocks = first..(offset + into.len() as u64).div_ceil(block_len);
    let findings = file.verify(blocks)?.findings;
    let altered = findings.into_iter().filter(|finding| finding.error.cause != Cause::Key);
    let altered: Vec<_> = altered.map(|finding| (finding.block, finding.error.to_string())).collect();
    // What was wrong and is not any more is somebody's writing.
    if altered.is_empty() && error.cause != Cause::Key { Err(error.into()) } else { Ok(altered) }
}
