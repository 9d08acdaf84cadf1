//! Where a master key is, as people write it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use gambeson_pkcs11::Uri;

use crate::MasterError;
use crate::kmip::{self, Address};

/// Where a master key is. What it displays as reads as the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// `file:PATH`: in a file, under a passphrase.
    File(PathBuf),
    /// `pkcs11:...?module-path=...`: in a token.
    Token(Box<Uri>),
    /// `kmip://HOST/ID?...`: in a key server of the site's.
    Server(Box<Address>),
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(path) => write!(out, "{FILE}{}", path.display()),
            Place::Token(uri) => uri.fmt(out),
            Place::Server(address) => address.fmt(out),
        }
    }
}

impl FromStr for Place {
    type Err = MasterError;

    fn from_str(text: &str) -> Result<Self, MasterError> {
        if let Some(path) = text.strip_prefix(FILE) {
            let legal = path.starts_with('/') && !path.ends_with('/') && !path.chars().any(char::is_control);
            return match legal && path.len() < PATH_MAX {
                true => Ok(Place::File(path.into())),
                false => Err(MasterError::Place(format!(
                    "{text:?} is no place for a master key: say the whole path of its file, as in {FILE}/etc/gambeson/master-key"
                ))),
            };
        }
        if text.starts_with(gambeson_pkcs11::SCHEME) {
            return Ok(Place::Token(Box::new(text.parse()?)));
        }
        if text.starts_with(kmip::SCHEME) {
            return Ok(Place::Server(Box::new(text.parse()?)));
        }
        Err(MasterError::Place(format!(
            "{text:?} is no place for a master key; say {FILE}/PATH, {}token=...;object=...?module-path=..., or {}HOST/ID?...",
            gambeson_pkcs11::SCHEME,
            kmip::SCHEME
        )))
    }
}

const FILE: &str = "file:";
const PATH_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written() {
        for text in [
            "file:/etc/gambeson/master-key",
            "file:/a b?c#%41",
            "pkcs11:token=site;object=master?module-path=/m.so&pin-source=file:/pin",
            "kmip://kms.example/17?certificate=/c.pem&key=/k.pem&authority=/a.pem",
        ] {
            let place: Place = text.parse().unwrap();
            assert_eq!(place.to_string(), text);
        }
        for (text, why) in [
            ("", "no place for a master key; say file:"),
            ("/etc/master-key", "no place for a master key; say file:"),
            ("file:master-key", "the whole path"),
            ("file:/etc/", "the whole path"),
            ("file:/a\nb", "the whole path"),
            ("pkcs11:token=site?module-path=/m.so", "names no key"),
            ("kmip://", "no address of a key server"),
        ] {
            let refused = text.parse::<Place>().expect_err(text);
            assert!(matches!(refused, MasterError::Place(_)));
            assert!(refused.to_string().contains(why), "{text}: {refused}");
        }
    }
}
