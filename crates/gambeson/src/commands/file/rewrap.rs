//! `gambeson file rewrap`: data keys under the newest versions of their labels.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::STATUSES;
use super::opening::{Access, Opener};
use crate::failure::Failure;
use crate::keys;

/// Wraps a file's data keys under the newest versions of its labels
///
/// After `gambeson key rotate`: only the header changes, so it is quick for any file. Who has the
/// old version of the label alone can't open the file any more, unless he has kept its data keys or
/// an old header of it: `gambeson file rekey` seals everything anew.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
pub(super) struct Rewrap {
    /// The file
    file: PathBuf,
    #[command(flatten)]
    keys: keys::Access,
}

impl Rewrap {
    pub(super) fn execute(&self) -> Result<ExitCode, Failure> {
        let opener = Opener::new(&self.file, Arc::new(self.keys.keys()?), Access::ReadAndWrite)?;
        let mut file = opener.handle()?;
        let changed = file.rewrap()?;
        let labels = file.header().table().labels();
        let labels: Vec<String> =
            labels.iter().map(|label| format!("{} version {}", label.name, label.version)).collect();
        let what = if changed { "its keys are now wrapped under" } else { "nothing to do: its keys are wrapped under" };
        println!("{}: {what} {}", opener.name, labels.join(", "));
        Ok(ExitCode::SUCCESS)
    }
}
