//! `gambeson file cat`: the bytes of a sealed file on standard output.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::map::size;
use super::opening::{Access, Contents, Opener};
use super::{STATUSES, parallel};
use crate::failure::{Failure, Status};
use crate::keys;

/// Writes the bytes of a sealed file, or a part of them, to standard output
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Cat {
    /// The sealed file
    sealed: PathBuf,
    /// Begin at this byte
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = size)]
    offset: u64,
    /// Write so many bytes, instead of all to the file's end
    #[arg(long, value_name = "BYTES", value_parser = size)]
    length: Option<u64>,
    #[command(flatten)]
    keys: keys::Access,
}

impl Cat {
    pub(super) fn execute(&self) -> Result<ExitCode, Failure> {
        let opener = Opener::new(&self.sealed, Arc::new(self.keys.keys()?), Access::Read)?;
        let mut contents = Contents::Sealed(Box::new(opener.handle()?));
        let size = contents.size()?;
        let end = self.length.map_or(size, |length| size.min(self.offset.saturating_add(length)));
        let mut out = io::stdout().lock();
        let mut bytes = Vec::new();
        let mut at = self.offset;
        while at < end {
            bytes.resize(parallel::CHUNK.min(end - at) as usize, 0);
            contents.read(at, &mut bytes)?;
            match out.write_all(&bytes) {
                Ok(()) => at += bytes.len() as u64,
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Status::ReaderLeft.into()),
                Err(error) => return Err(Failure::system(format!("standard output cannot be written ({error})"))),
            }
        }
        out.flush().map_err(|error| Failure::system(format!("standard output cannot be written ({error})")))?;
        Ok(ExitCode::SUCCESS)
    }
}
