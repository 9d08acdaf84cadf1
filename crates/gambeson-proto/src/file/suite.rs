//! The ciphers of sealed files.

use std::fmt;

/// How the shares of a region are sealed. A region has one, in the signed table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileSuite {
    /// XAES-256-GCM (C2SP): random nonces of 192 bits, so that concurrent writers need not count.
    #[default]
    Xaes256Gcm = 1,
    /// AES-256-GCM-SIV (RFC 8452): a nonce that comes twice shows no more than that two shares are equal.
    Aes256GcmSiv = 2,
    /// AES-256-XTS (IEEE 1619): secret, but without integrity: what is altered is read as other bytes, unnoticed.
    Aes256Xts = 3,
}

impl FileSuite {
    /// Every suite there is.
    pub const ALL: [FileSuite; 3] = [FileSuite::Xaes256Gcm, FileSuite::Aes256GcmSiv, FileSuite::Aes256Xts];

    /// The name in a policy file and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            FileSuite::Xaes256Gcm => "xaes-256-gcm",
            FileSuite::Aes256GcmSiv => "aes-256-gcm-siv",
            FileSuite::Aes256Xts => "aes-256-xts",
        }
    }

    /// The suite of this name.
    pub fn from_name(name: &str) -> Option<FileSuite> {
        FileSuite::ALL.into_iter().find(|suite| suite.name() == name)
    }

    /// The suite of this number in a file.
    pub fn from_number(number: u8) -> Option<FileSuite> {
        FileSuite::ALL.into_iter().find(|suite| *suite as u8 == number)
    }

    /// Whether it notices what was altered.
    pub const fn has_integrity(self) -> bool {
        !matches!(self, FileSuite::Aes256Xts)
    }
}

impl fmt::Display for FileSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
