//! `gambeson keyd administer`: a label whose administrator has left gets another.

use clap::Args;
use gambeson_keyd::control::{self, Command, Reply, administrator};

use super::{Files, foreign, told};
use crate::commands::key;
use crate::failure::{Failure, STATUSES};

/// Has somebody administer a label, also while the service runs
///
/// For a label whose administrator has left: nobody else could grant, rotate or delete it. It is said on the service's host, as
/// root or as who runs the service, and the log has who did. It gives no right to read or to write; who administers a label
/// can grant these.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Administer {
    /// Which label
    label: String,
    /// Who: ann or user:ann for a person, dns:h1 for a host
    #[arg(value_name = "WHO", value_parser = key::role)]
    who: String,
    #[command(flatten)]
    files: Files,
}

impl Administer {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let Administer { label, who, files } = self;
        let command = Command::Administer { label: label.clone(), whom: who.clone() };
        let rights = match control::command(&files.socket(), &command) {
            Some(reply) => match told(reply)? {
                Reply::Administers(rights) => rights,
                _ => return Err(foreign()),
            },
            None => control::administer(&files.open()?, &administrator(), label, who)?,
        };
        println!("{who} may {} label \"{label}\", without end", key::rights(rights));
        Ok(())
    }
}
