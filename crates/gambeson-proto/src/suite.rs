//! Suites and protections as values: what a policy may choose.

use std::fmt;

/// The AEAD of a job. All its ranks use the same; the wire never selects it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Suite {
    /// AES-256-GCM (NIST SP 800-38D).
    #[default]
    Aes256Gcm = 1,
    /// AES-128-GCM (NIST SP 800-38D).
    Aes128Gcm = 2,
}

impl Suite {
    /// Every suite there is.
    pub const ALL: [Suite; 2] = [Suite::Aes256Gcm, Suite::Aes128Gcm];

    /// Bytes of key.
    pub const fn key_len(self) -> usize {
        match self {
            Suite::Aes256Gcm => 32,
            Suite::Aes128Gcm => 16,
        }
    }

    /// The name in a policy file.
    pub const fn name(self) -> &'static str {
        match self {
            Suite::Aes256Gcm => "aes-256-gcm",
            Suite::Aes128Gcm => "aes-128-gcm",
        }
    }

    /// The suite of this name.
    pub fn from_name(name: &str) -> Option<Suite> {
        Suite::ALL.into_iter().find(|suite| suite.name() == name)
    }

    /// The suite of this number in a credential.
    pub fn from_number(number: u8) -> Option<Suite> {
        Suite::ALL.into_iter().find(|suite| *suite as u8 == number)
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How the messages of a pair are protected, strongest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Protection {
    /// Sealed: nobody reads or alters.
    #[default]
    Privacy = 1,
    /// Authenticated, in clear: nobody alters.
    Integrity = 2,
    /// Neither.
    None = 3,
}

impl Protection {
    /// Every protection there is.
    pub const ALL: [Protection; 3] = [Protection::Privacy, Protection::Integrity, Protection::None];

    /// The name in a policy file.
    pub const fn name(self) -> &'static str {
        match self {
            Protection::Privacy => "privacy",
            Protection::Integrity => "integrity",
            Protection::None => "none",
        }
    }

    /// The protection of this name.
    pub fn from_name(name: &str) -> Option<Protection> {
        Protection::ALL.into_iter().find(|protection| protection.name() == name)
    }

    /// The protection of this number in a canonical policy.
    pub fn from_number(number: u8) -> Option<Protection> {
        Protection::ALL.into_iter().find(|protection| *protection as u8 == number)
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
