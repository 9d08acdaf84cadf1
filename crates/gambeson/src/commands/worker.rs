//! `gambeson worker` and `gambeson station`, which the Python package carries out.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::failure::{Failure, STATUSES};
use crate::python::{self, Finds};

/// Computes for a task farm: joins the manager whose file it is given
///
/// In the manager's program:
///
///   with farm.Manager(program, workers=farm.joining("farm.json")) as manager: ...
///
/// and where there are processors, on hosts that see that file, however processes are started there:
///
///   mpiexec -n 16 gambeson worker --farm farm.json
///   srun -n 16 gambeson worker --farm farm.json
///
/// Whoever can read the file can join. In a job of gambeson run there is no secret in it, and the
/// processes of the job can join:
///
///   gambeson run -- mpiexec -n 1 python program.py : -n 16 gambeson worker --farm farm.json
///
/// A worker ends with its manager, however that ends.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
pub(crate) struct Worker {
    /// The file that the manager writes when it begins
    #[arg(long, value_name = "FILE")]
    farm: PathBuf,
    /// How long that may not be there yet
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    patience: u32,
    /// Run only code whose SHA-256 stands in this file, one a line, and take plain data alone
    #[arg(long, value_name = "FILE")]
    pinned: Option<PathBuf>,
    /// The Python that has Gambeson's package; without it python3 beside this program, of the virtual environment, or in PATH
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

impl Worker {
    pub(crate) fn execute(self) -> Result<ExitCode, Failure> {
        let Self { farm, patience, pinned, python } = self;
        let mut given: Vec<OsString> = vec!["--farm".into(), farm.into(), "--patience".into()];
        given.push(patience.to_string().into());
        given.extend(pinned.into_iter().flat_map(|file| ["--pinned".into(), file.into()]));
        Err(python::become_module(python.as_deref(), "gambeson.farm", &given, Finds::TheCurrentFolder))
    }
}

/// Starts workers of task farms on this host, for managers whose keys it was told
///
///   gambeson proxy keygen node1.pem                          prints the hash of its key
///   gambeson station --identity node1.pem --manager MANAGERS-HASH
///
/// and in the manager's program:
///
///   farm.Manager(program, identity="manager.pem", workers=farm.stations("node1:7100=NODE1S-HASH"))
///
/// It tells nobody else anything, and ends a worker when its manager has gone. It ends at SIGINT or
/// SIGTERM.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
pub(crate) struct Station {
    /// File with this station's key and certificate (PEM)
    #[arg(long, value_name = "FILE")]
    identity: PathBuf,
    /// The hash of a manager's key; once for each
    #[arg(long, value_name = "HASH", required = true)]
    manager: Vec<String>,
    /// Where managers connect to
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7100")]
    listen: String,
    /// A relay where this station waits for managers, too; once for each
    #[arg(long, value_name = "HOST:PORT")]
    relay: Vec<String>,
    /// So many workers at a time; as many as processors without it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
    /// Run only code whose SHA-256 stands in this file, one a line, and take plain data alone
    #[arg(long, value_name = "FILE")]
    pinned: Option<PathBuf>,
    /// Answer managers of this network that look for its key
    #[arg(long)]
    announce: bool,
    /// The Python that has Gambeson's package; without it python3 beside this program, of the virtual environment, or in PATH
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

impl Station {
    pub(crate) fn execute(self) -> Result<ExitCode, Failure> {
        let Self { identity, manager, listen, relay, slots, pinned, announce, python } = self;
        let mut given: Vec<OsString> = vec!["station".into(), "--identity".into(), identity.into()];
        given.extend(manager.into_iter().flat_map(|hash| ["--manager".into(), hash.into()]));
        given.extend(["--listen".into(), listen.into()]);
        given.extend(relay.into_iter().flat_map(|relay| ["--relay".into(), relay.into()]));
        given.extend(slots.into_iter().flat_map(|slots| ["--slots".into(), slots.to_string().into()]));
        given.extend(pinned.into_iter().flat_map(|file| ["--pinned".into(), file.into()]));
        given.extend(announce.then(|| "--announce".into()));
        Err(python::become_module(python.as_deref(), "gambeson.farm", &given, Finds::TheCurrentFolder))
    }
}
