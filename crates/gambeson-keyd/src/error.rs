//! Why the database, or a rule of access, says no.

use std::fmt;

use gambeson_keys::KeyError;

/// Displays as a sentence with what happened, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// There is no database where one is looked for.
    NoDatabase {
        /// Where.
        path: String,
    },
    /// There is no backup where one is named.
    NoBackup {
        /// Where.
        path: String,
    },
    /// A database, or another file, is there already.
    Exists {
        /// Where.
        path: String,
    },
    /// A backup cannot be made where it is wanted.
    Unmade {
        /// Where.
        path: String,
        /// What was said.
        why: String,
        /// As whom it was tried.
        user: u32,
    },
    /// Others could read or write it.
    Exposed {
        /// Where.
        path: String,
        /// What is open to whom, and what to do.
        why: String,
    },
    /// Another process has it open.
    InUse {
        /// Where.
        path: String,
    },
    /// The master key did not give the database key, or could not be asked.
    Master {
        /// Of which database.
        path: String,
        /// What the master key is called.
        master: String,
        /// What it says.
        why: String,
    },
    /// What is there is not what was written.
    Altered {
        /// Of which database.
        path: String,
        /// What of it.
        what: String,
    },
    /// The log never ended as somebody remembers it.
    RolledBack {
        /// Of which database.
        path: String,
        /// What it was to have ended with.
        since: String,
        /// What it ends with.
        now: String,
    },
    /// Who asks may not. The true reason is in the log.
    Refused {
        /// The sentence for who asks.
        answer: String,
    },
    /// What is asked is not to be, whoever asks.
    Declined {
        /// Why not.
        why: String,
    },
    /// A later generation of the file is recorded already.
    OlderAnchor {
        /// Of which file.
        file: [u8; 16],
        /// The generation that is recorded.
        held: u64,
        /// The one that was to be.
        given: u64,
    },
    /// A record that is to be removed or changed is not there.
    NoRecord {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// What is to have rights is no role.
    NoRole {
        /// What it is.
        who: String,
    },
    /// A label has as many versions as one can have.
    Full {
        /// Which.
        label: String,
    },
    /// This database follows another, and changes go there.
    Standby {
        /// Which.
        path: String,
    },
    /// A standby cannot go on with what it was given.
    NotNext {
        /// Which standby.
        path: String,
        /// Why not, and what to do.
        why: String,
    },
    /// The service follows another, which makes changes.
    Follows {
        /// On which host.
        host: String,
        /// Which.
        primary: String,
    },
    /// The service cannot follow its primary any more.
    Apart {
        /// On which host.
        host: String,
        /// Which.
        primary: String,
        /// Why.
        why: String,
    },
    /// Another took the service's place.
    Replaced {
        /// On which host.
        host: String,
        /// Which, if that is known.
        by: Option<String>,
    },
    /// Another is the primary with the same right.
    Rival {
        /// On which host.
        host: String,
        /// Which.
        rival: String,
    },
    /// What an administrator wrote cannot be followed.
    Rules {
        /// Where, and why.
        why: String,
    },
    /// The network, or an identity of the site, does not serve.
    Site {
        /// What happened, and what to do.
        why: String,
    },
    /// What is asked makes no sense.
    Senseless {
        /// Why.
        why: String,
    },
    /// What a label's keys say.
    Keys(KeyError),
    /// The operating system, or SQLite, refused something.
    System {
        /// Of which database.
        path: String,
        /// What was to be done.
        doing: String,
        /// What was said.
        why: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDatabase { path } => {
                write!(out, "there is no key database {path}; make one with `gambeson keyd init`, or restore a backup")
            }
            Self::NoBackup { path } => {
                write!(out, "there is no backup {path}; name a file that `gambeson keyd backup` has made")
            }
            Self::Exists { path } => write!(out, "{path} is there already, and it stays as it is; name another place"),
            Self::Unmade { path, why, user } => write!(
                out,
                "the backup {path} cannot be made ({why}); who has the database open makes it, as user {user}, and needs a \
                 folder that is there and that he may write in"
            ),
            Self::Exposed { path, why } => write!(out, "the key database {path} is refused: {why}"),
            Self::InUse { path } => {
                write!(out, "another process has the key database {path} open; it is one service's at a time")
            }
            Self::Master { path, master, why } => {
                write!(out, "the key database {path} does not open with the master key {master}: {why}")
            }
            Self::Altered { path, what } => write!(
                out,
                "the key database {path} was altered or is damaged: {what} is not what was written there; take it from \
                 a backup, and find out who could write in its folder"
            ),
            Self::RolledBack { path, since, now } => write!(
                out,
                "the log of the key database {path} never ended with {since} (it ends with {now}): the whole file is an \
                 older one, or was written anew"
            ),
            Self::Refused { answer } => out.write_str(answer),
            Self::OlderAnchor { file, held, given } => write!(
                out,
                "file {} is at generation {given}, and generation {held} of it was seen; somebody put an old version \
                 back, or restored a backup",
                data_encoding::HEXLOWER.encode(file)
            ),
            Self::NoRecord { kind, name } => write!(out, "there is no {kind} \"{name}\""),
            Self::NoRole { who } => write!(
                out,
                "\"{who}\" is no role; write user:NAME, dns:HOST, or user:* for everybody who is certified as a person"
            ),
            Self::Full { label } => write!(
                out,
                "label \"{label}\" has as many versions as a label can have; make another one, and rewrap the files to it"
            ),
            Self::Standby { path } => write!(
                out,
                "the key database {path} is a standby's: it gives keys and changes nothing; ask the primary, or \
                 promote this one if that is gone for good"
            ),
            Self::NotNext { path, why } => write!(out, "the standby {path} cannot follow: {why}"),
            Self::Follows { host, primary } => write!(
                out,
                "{host} is a standby of {primary} and changes nothing; ask {primary}, or, if that is gone for good, make {host} \
                 the primary: gambeson keyd promote, there"
            ),
            Self::Apart { host, primary, why } => write!(
                out,
                "{host} gives and changes nothing, as it cannot follow {primary} any more: {why}; make it anew there: gambeson \
                 keyd init --standby-of {primary}"
            ),
            Self::Replaced { host, by } => {
                let (by, of) = by.as_deref().map_or(("one of its standbys", "HOST"), |by| (by, by));
                write!(
                    out,
                    "{host} gives and changes nothing: {by} was promoted in its place; make {host} a standby of that: gambeson \
                     keyd init --standby-of {of}, there"
                )
            }
            Self::Rival { host, rival } => write!(
                out,
                "{host} and {rival} are both primaries, promoted equally often, so neither makes changes; on the one that \
                 stays: gambeson keyd promote --force; then make the other a standby of it: gambeson keyd init --standby-of, \
                 there"
            ),
            Self::Rules { why } | Self::Site { why } | Self::Senseless { why } | Self::Declined { why } => {
                out.write_str(why)
            }
            Self::Keys(why) => why.fmt(out),
            Self::System { path, doing, why } => {
                write!(out, "the key database {path} cannot be used: {doing} failed ({why})")
            }
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    pub(crate) fn system(path: &str, doing: impl Into<String>, why: &impl fmt::Display) -> Self {
        Self::System { path: path.to_owned(), doing: doing.into(), why: why.to_string() }
    }

    pub(crate) fn altered(path: &str, what: impl Into<String>) -> Self {
        Self::Altered { path: path.to_owned(), what: what.into() }
    }
}

impl From<KeyError> for Error {
    fn from(why: KeyError) -> Self {
        Error::Keys(why)
    }
}

impl From<gambeson_launch::Error> for Error {
    fn from(cause: gambeson_launch::Error) -> Self {
        Error::Site { why: cause.to_string() }
    }
}

impl From<gambeson_link::Error> for Error {
    fn from(cause: gambeson_link::Error) -> Self {
        Error::Site { why: cause.to_string() }
    }
}
