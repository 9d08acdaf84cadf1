//! What ends the command line early: a sentence for people and a status for scripts.

use std::fmt;
use std::process::ExitCode;

use gambeson_keys::KeyError;

/// The statuses that are Gambeson's own, as sysexits.h numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    /// The command line is wrong.
    Usage = 64,
    /// An experiment, a trace or an export of labels makes no sense.
    Data = 65,
    /// A program, a package or a file that is needed is not there.
    Unavailable = 69,
    /// The messages would not be protected as the policy says, so the job must not run.
    Refused = 70,
    /// The operating system refused something.
    System = 71,
    /// The audit could not hear everything.
    Incomplete = 75,
    /// This user may not do what was asked.
    NotPermitted = 77,
    /// The policy or the site directory cannot be understood.
    Policy = 78,
    /// Who read the output went away, as a shell shows SIGPIPE.
    ReaderLeft = 141,
}

impl Status {
    /// The status of a number that another process has told.
    pub(crate) fn of_number(number: u8) -> Self {
        let all = [
            Self::Usage,
            Self::Data,
            Self::Unavailable,
            Self::Refused,
            Self::System,
            Self::Incomplete,
            Self::NotPermitted,
            Self::Policy,
            Self::ReaderLeft,
        ];
        all.into_iter().find(|status| *status as u8 == number).unwrap_or(Self::System)
    }
}

/// The table `--help` ends with.
pub(crate) const STATUSES: &str = "\
Exit status:
  of the job  as mpiexec gave it, when the job ran
  64          the command line is wrong
  65          an experiment or a trace makes no sense (sim), or a file is no export of labels (key)
  69          mpiexec, a Python with Gambeson's package, or a file, a key store or a label
              Gambeson needs, was not found; a file cannot be written, or another host not
              be reached (init, enroll, site); a key service does not answer (key, partition,
              file), none runs here, or its database or master key is not there (keyd)
  70          refused: the messages would not be protected as the policy says (run),
              the site directory does not hold (directory), a key store or a database was
              open to others or altered (key, keyd), or the other end is not who was
              expected, does not accept this one, or an identity is open to others (proxy,
              enroll, site, key, partition), or there is a site already (init)
  71          the operating system refused something, or the connection to a host of the job
              was lost and its launcher ended well all the same (run)
  75          not everything could be heard (audit)
  77          this user may not listen on the network interfaces (audit), or not use a key:
              a wrong passphrase, a label for reading alone, one that has expired (key),
              a folder or a master key that is another's (keyd); or a key service does not
              let this user (key, partition)
  78          the policy, the site directory or a service's rules (keyd) cannot be understood
  141         who read the output went away";

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status as u8)
    }
}

/// Why the command ends; displays as a sentence with cause and remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    sentence: String,
}

impl Failure {
    pub(crate) fn new(status: Status, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into() }
    }

    /// The same with where it was.
    #[must_use]
    pub(crate) fn at(self, place: &str) -> Self {
        Self { sentence: format!("{place}: {}", self.sentence), ..self }
    }

    pub(crate) fn refused(sentence: impl Into<String>) -> Self {
        Self::new(Status::Refused, sentence)
    }

    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self::new(Status::Usage, sentence)
    }

    pub(crate) fn unavailable(sentence: impl Into<String>) -> Self {
        Self::new(Status::Unavailable, sentence)
    }

    pub(crate) fn system(sentence: impl Into<String>) -> Self {
        Self::new(Status::System, sentence)
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        use KeyError::{
            Expired, LabelExists, Locked, MayNotWrite, NoExport, NoLabel, NoName, NoStore, NoVersion, NotGranted,
            StoreExists, System, Unfit, Unreachable, WrongPassphrase,
        };
        let status = match &error {
            NoName { .. } | LabelExists { .. } | StoreExists { .. } | Unfit { .. } => Status::Usage,
            NoExport { .. } => Status::Data,
            NoStore { .. } | NoLabel { .. } | NoVersion { .. } | Unreachable { .. } => Status::Unavailable,
            System { .. } => Status::System,
            Locked { .. } | WrongPassphrase { .. } | MayNotWrite { .. } | Expired { .. } | NotGranted { .. } => {
                Status::NotPermitted
            }
            _ => Status::Refused,
        };
        Self::new(status, error.to_string())
    }
}

impl From<gambeson_keyd::Error> for Failure {
    fn from(error: gambeson_keyd::Error) -> Self {
        use gambeson_keyd::Error::{Exists, InUse, Keys, NoBackup, NoDatabase, Rules, Senseless, Site, System, Unmade};
        let status = match &error {
            Keys(of) => Failure::from(of.clone()).status,
            Senseless { .. } | Exists { .. } => Status::Usage,
            NoDatabase { .. } | NoBackup { .. } | Unmade { .. } | InUse { .. } | Site { .. } => Status::Unavailable,
            Rules { .. } => Status::Policy,
            System { .. } => Status::System,
            _ => Status::Refused,
        };
        Self::new(status, error.to_string())
    }
}

impl From<gambeson_launch::Error> for Failure {
    fn from(error: gambeson_launch::Error) -> Self {
        use gambeson_launch::Error::{NotPermitted, Rules, Senseless, Unavailable};
        let status = match &error {
            Senseless(_) => Status::Usage,
            Rules(_) => Status::Policy,
            NotPermitted(_) => Status::NotPermitted,
            Unavailable(_) => Status::Unavailable,
            _ => Status::Refused,
        };
        Self::new(status, error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}
