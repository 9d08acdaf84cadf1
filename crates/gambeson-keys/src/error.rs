//! Why a key or an anchor is not served.

use std::fmt;

use gambeson_proto::directory::date;

use crate::keyring::SERVICE;

/// Displays as a sentence with label, store and remedy. Stores are named as people know them: by their path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// There is no key store where one is looked for.
    NoStore {
        /// Where.
        store: String,
    },
    /// Its master key is wrapped by a passphrase, which nobody has given here.
    Locked {
        /// Which.
        store: String,
    },
    /// The passphrase is not the one that the master key was wrapped with.
    WrongPassphrase {
        /// Of which store.
        store: String,
    },
    /// Others could read or write what is to be secret.
    Exposed {
        /// Which store.
        store: String,
        /// What is open to whom, and what to do.
        why: String,
    },
    /// A store is there already.
    StoreExists {
        /// Where.
        store: String,
    },
    /// The file is no export of labels.
    NoExport {
        /// Its name.
        file: String,
        /// Why not.
        why: String,
    },
    /// What is to be a label's name is none.
    NoName {
        /// What it is.
        label: String,
    },
    /// A label of that name is there already.
    LabelExists {
        /// In which store.
        store: String,
        /// Its name.
        label: String,
    },
    /// A label of that name is there already, with other keys that are newer.
    Newer {
        /// In which store.
        store: String,
        /// Its name.
        label: String,
    },
    /// No such label is known here.
    NoLabel {
        /// To which store.
        store: String,
        /// Its name.
        label: String,
    },
    /// The label is known here, and this version of it is not.
    NoVersion {
        /// To which store.
        store: String,
        /// The label.
        label: String,
        /// Which version.
        version: u32,
    },
    /// The label may only be read with: its signing key is not here.
    MayNotWrite {
        /// From which store.
        store: String,
        /// The label.
        label: String,
    },
    /// Its lifetime is over.
    Expired {
        /// In which store.
        store: String,
        /// The label.
        label: String,
        /// Which version.
        version: u32,
        /// When that was, in seconds since 1970.
        since: u64,
    },
    /// What was to be unwrapped was not wrapped by this version of the label in this context.
    WrongWrapping {
        /// Which store has the label.
        store: String,
        /// The label.
        label: String,
        /// Which version.
        version: u32,
    },
    /// What was read of the store is not what was written there.
    Altered {
        /// Which store.
        store: String,
        /// What of it.
        what: String,
    },
    /// A later generation of the file is recorded already.
    OlderAnchor {
        /// In which store.
        store: String,
        /// Of which file.
        file: [u8; 16],
        /// The generation that is recorded.
        held: u64,
        /// The one that was to be.
        given: u64,
    },
    /// Keys are served here, and anchors cannot be recorded, as where the store itself is on another host.
    NotAnchored {
        /// Which store.
        store: String,
        /// For which file.
        file: [u8; 16],
        /// What stands in the way.
        why: String,
    },
    /// A key service does not give what was asked for.
    NotGranted {
        /// Which service.
        store: String,
        /// Its sentence.
        why: String,
    },
    /// A key service was asked for what cannot be.
    Unfit {
        /// Which service.
        store: String,
        /// Its sentence.
        why: String,
    },
    /// A key service cannot be asked.
    Unreachable {
        /// Which service.
        store: String,
        /// Why not, and what to do.
        why: String,
    },
    /// This process was forked from the one that opened the store, and its keys did not come along.
    Forked {
        /// Which store.
        store: String,
    },
    /// The operating system refused something.
    System {
        /// For which store.
        store: String,
        /// What was to be done, with the file's name.
        doing: String,
        /// What the operating system says.
        why: String,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStore { store } => write!(
                out,
                "there is no key store {store}; make one with `gambeson key init`, or name yours in GAMBESON_KEYS"
            ),
            Self::Locked { store } => write!(
                out,
                "the keys of {store} are locked; give its passphrase, or unlock it for this session with `gambeson key \
                 unlock`"
            ),
            Self::WrongPassphrase { store } => {
                write!(out, "the passphrase is not that of {store}, or its first bytes were altered; try again")
            }
            Self::Exposed { store, why } => write!(out, "the key store {store} is refused: {why}"),
            Self::StoreExists { store } => write!(
                out,
                "there is a key store {store} already, and it stays as it is; name another place in GAMBESON_KEYS"
            ),
            Self::NoExport { file, why } => write!(
                out,
                "{file} is no export of labels: {why}; `gambeson key export` makes one where the labels are"
            ),
            Self::NoName { label } => write!(
                out,
                "\"{label}\" is no name for a label; use up to 64 letters, digits, '-', '_' or '.', and not \"none\""
            ),
            Self::LabelExists { store, label } => write!(
                out,
                "the key store {store} has a label \"{label}\" already; choose another name, or make a new version of it \
                 with `gambeson key rotate {label}`"
            ),
            Self::Newer { store, label } => write!(
                out,
                "the key store {store} has another label \"{label}\", whose keys are newer, so it stays; if it is sure to be \
                 needed no more, `gambeson key delete {label}` comes first"
            ),
            Self::NoLabel { store, label } if store.starts_with(SERVICE) => write!(
                out,
                "the key service {store} gave you no label \"{label}\": it does not exist, its lifetime is over, or nobody granted \
                 it to you; `gambeson key show {label}` says which"
            ),
            Self::NoLabel { store, label } => write!(
                out,
                "the key store {store} has no label \"{label}\"; ask who has it for an export and take it in with `gambeson \
                 key import`, or make it with `gambeson key create {label}`"
            ),
            Self::NoVersion { store, label, version } if store.starts_with(SERVICE) => write!(
                out,
                "the key service {store} gave you label \"{label}\" but not version {version} of it: it does not exist, its \
                 lifetime is over, or it was made since; `gambeson key show {label}` says which"
            ),
            Self::NoVersion { store, label, version } => write!(
                out,
                "the key store {store} has label \"{label}\" but not version {version} of it; ask who rotated the label for \
                 a new export"
            ),
            Self::MayNotWrite { store, label } if store.starts_with(SERVICE) => write!(
                out,
                "the key service {store} gave you label \"{label}\" for reading alone, without its signing key; who administers \
                 it can grant more with `gambeson key grant {label}` and --write"
            ),
            Self::MayNotWrite { store, label } => write!(
                out,
                "the key store {store} holds label \"{label}\" for reading alone, without its signing key; ask its owner for \
                 an export that may write"
            ),
            Self::Expired { store, label, version, since } => write!(
                out,
                "version {version} of label \"{label}\" in the key store {store} expired on {}; ask its owner for a new \
                 export, or, if it is yours, extend it: gambeson key expire {label} --on never",
                date(*since)
            ),
            Self::WrongWrapping { store, label, version } => write!(
                out,
                "this data key was not wrapped by version {version} of label \"{label}\" in the key store {store}; the file \
                 was altered, or another label of that name is meant: compare `gambeson key show {label}` with its owner's"
            ),
            Self::Altered { store, what } => write!(
                out,
                "the key store {store} was altered or is damaged: {what} is not what was written there; take it from a backup"
            ),
            Self::OlderAnchor { store, file, held, given } => write!(
                out,
                "file {} is at generation {given}, and the key store {store} has seen generation {held} of it; somebody put \
                 an old version back, or restored a backup",
                hexadecimal(file)
            ),
            Self::NotAnchored { store, file, why } => write!(
                out,
                "file {} is not anchored in the key store {store}: {why}; an old version of the file would not be noticed \
                 until it is closed where the store can be written",
                hexadecimal(file)
            ),
            Self::NotGranted { store, why } => write!(out, "the key service {store} says no: {why}"),
            Self::Unfit { why, .. } => out.write_str(why),
            Self::Unreachable { store, why } => write!(out, "the key service {store} cannot be asked: {why}"),
            Self::Forked { store } => write!(
                out,
                "the keys of {store} did not come along into this forked process; open the store again in it"
            ),
            Self::System { store, doing, why } => {
                write!(out, "the key store {store} cannot be used: {doing} failed ({why})")
            }
        }
    }
}

impl std::error::Error for KeyError {}

impl KeyError {
    pub(crate) fn system(store: &str, doing: impl Into<String>, why: &impl fmt::Display) -> Self {
        Self::System { store: store.to_owned(), doing: doing.into(), why: why.to_string() }
    }

    pub(crate) fn no_random_numbers(store: &str, cause: &getrandom::Error) -> Self {
        Self::system(store, "drawing random numbers from the kernel", cause)
    }

    pub(crate) fn altered(store: &str, what: impl Into<String>) -> Self {
        Self::Altered { store: store.to_owned(), what: what.into() }
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
