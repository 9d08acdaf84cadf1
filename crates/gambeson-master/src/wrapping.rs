//! The one form of what a master key wraps, whatever holds it (NIST SP 800-108r1, 4.1; RFC 8452).
//!
//! ```text
//! wrapped: version u8 = 1 | way u8 | help u16 length, bytes | sealed: nonce 12 | key 32 | tag 16
//! way 1: help is a salt of 32 bytes; the wrapping key is HMAC-SHA-256(master key, message)
//! way 2: help is nonce 12 | tag 16 | ciphertext 32, AES-256-GCM under the master key of a wrapping key drawn for this
//! message: u32 1 | "gambeson master key v1" | u8 0 | salt 32 | SHA-256(context) | u32 256
//! ```
//! The key is sealed by AES-256-GCM-SIV under the wrapping key, bound to "gambeson master key v1", all that stands before it
//! and the context. The message of way 1 is a key derivation in counter mode with HMAC-SHA-256, of one block; short enough
//! for a TPM's one command.
//!
//! Tokens are asked for HMACs and for nothing else, though PKCS #11 has key wrapping: CKM_AES_KEY_WRAP, CKM_AES_GCM and their
//! parameters differ from token to token, a TPM 2.0 has none of them, and some of those that have them take a nonce that
//! comes twice. HMAC-SHA-256 is the same everywhere and has no nonce; the salt makes each wrapping key another one.

use aws_lc_rs::digest::{SHA256, digest};
use gambeson_keys::cipher::{self, OVERHEAD};
use gambeson_proto::secret::Secret32;

use crate::error::no_random_numbers;
use crate::{MasterError, MasterKey};

/// What holds a master key: it does one of two things with it.
pub(crate) trait Holder: Send + Sync {
    /// Its place.
    fn name(&self) -> String;

    /// What it does with the key now.
    fn way(&self) -> Way;

    /// HMAC-SHA-256 of a message.
    fn mac(&self, message: &[u8]) -> Result<Secret32, MasterError>;

    /// Seals a wrapping key.
    fn seal(&self, key: &Secret32) -> Result<Vec<u8>, MasterError> {
        let _ = key;
        Err(never(&self.name()))
    }

    /// The wrapping key that was sealed.
    fn open(&self, sealed: &[u8]) -> Result<Secret32, MasterError> {
        let _ = sealed;
        Err(never(&self.name()))
    }
}

/// How a wrapping key comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    /// It is derived.
    Mac = 1,
    /// It is drawn, and sealed by the master key.
    Seal = 2,
}

pub(crate) struct Wrapper<H>(pub(crate) H);

impl<H: Holder> MasterKey for Wrapper<H> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn wrap(&self, context: &[u8], key: &Secret32) -> Result<Vec<u8>, MasterError> {
        let way = self.0.way();
        let (help, wrapping) = match way {
            Way::Mac => {
                let mut salt = [0; SALT];
                getrandom::fill(&mut salt).map_err(no_random_numbers)?;
                (salt.to_vec(), self.0.mac(&message(&salt, context))?)
            }
            Way::Seal => {
                let drawn = cipher::draw().map_err(no_random_numbers)?;
                (self.0.seal(&drawn)?, drawn)
            }
        };
        let mut wrapped = vec![VERSION, way as u8];
        wrapped.extend(u16::try_from(help.len()).expect("help is short").to_be_bytes());
        wrapped.extend(help);
        let sealed =
            cipher::seal(&wrapping, &bound_to(&wrapped, context), key.as_bytes()).map_err(no_random_numbers)?;
        wrapped.extend(sealed);
        // A token that errs now would be noticed when the service starts again, and its keys were gone.
        match self.unwrap(context, &wrapped) {
            Ok(again) if again == *key => Ok(wrapped),
            Ok(_) | Err(MasterError::NotWrappedByIt(_)) => Err(MasterError::Refused(format!(
                "the master key {} does not open again what it has just wrapped, so nothing was wrapped by it; look after \
                 what holds it, or name another master key",
                self.name()
            ))),
            Err(other) => Err(other),
        }
    }

    fn unwrap(&self, context: &[u8], wrapped: &[u8]) -> Result<Secret32, MasterError> {
        let another = || {
            MasterError::NotWrappedByIt(format!(
                "this was wrapped by another master key than {}, or was altered; name the master key that it was made with, or \
                 take it from a backup",
                self.name()
            ))
        };
        let Parts { way, help, before, sealed } = Parts::of(wrapped).ok_or_else(another)?;
        let wrapping = match way {
            Way::Mac => self.0.mac(&message(help.try_into().map_err(|_| another())?, context))?,
            Way::Seal => self.0.open(help)?,
        };
        let key = cipher::open(&wrapping, &bound_to(before, context), sealed).ok_or_else(another)?;
        Ok(Secret32::filled(|place| place.copy_from_slice(&key)))
    }
}

/// What was wrapped, taken apart.
pub(crate) struct Parts<'b> {
    pub(crate) way: Way,
    pub(crate) help: &'b [u8],
    before: &'b [u8],
    sealed: &'b [u8],
}

impl<'b> Parts<'b> {
    pub(crate) fn of(wrapped: &'b [u8]) -> Option<Self> {
        let (before, sealed) = wrapped.split_at_checked(wrapped.len().checked_sub(32 + OVERHEAD)?)?;
        let (&[version, way, high, low], help) = before.split_first_chunk()?;
        let way = match way {
            1 => Way::Mac,
            2 => Way::Seal,
            _ => return None,
        };
        let fits = version == VERSION && help.len() == usize::from(u16::from_be_bytes([high, low]));
        fits.then_some(Parts { way, help, before, sealed })
    }
}

fn message(salt: &[u8; SALT], context: &[u8]) -> Vec<u8> {
    let context = digest(&SHA256, context);
    [&1u32.to_be_bytes()[..], LABEL, &[0], salt, context.as_ref(), &256u32.to_be_bytes()].concat()
}

fn bound_to(before: &[u8], context: &[u8]) -> Vec<u8> {
    [LABEL, before, context].concat()
}

fn never(place: &str) -> MasterError {
    MasterError::NotWrappedByIt(format!(
        "this was wrapped by a key server, and {place} is none; name the master key that it was made with"
    ))
}

const VERSION: u8 = 1;
const LABEL: &[u8] = b"gambeson master key v1";
const SALT: usize = 32;

#[cfg(test)]
mod tests {
    use aws_lc_rs::hmac;

    use super::*;

    /// A master key in this process, that errs when it is told to.
    struct Here {
        key: [u8; 32],
        way: Way,
        errs: bool,
    }

    impl Holder for Here {
        fn name(&self) -> String {
            "here".into()
        }

        fn way(&self) -> Way {
            self.way
        }

        fn mac(&self, message: &[u8]) -> Result<Secret32, MasterError> {
            let mut key = self.key;
            if self.errs {
                getrandom::fill(&mut key).unwrap();
            }
            let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), message);
            Ok(Secret32::from_bytes(mac.as_ref().try_into().unwrap()))
        }

        fn seal(&self, key: &Secret32) -> Result<Vec<u8>, MasterError> {
            Ok(cipher::seal(&Secret32::from_bytes(self.key), b"", key.as_bytes()).unwrap())
        }

        fn open(&self, sealed: &[u8]) -> Result<Secret32, MasterError> {
            let key = cipher::open(&Secret32::from_bytes(self.key), b"", sealed);
            let key = key.ok_or_else(|| MasterError::NotWrappedByIt("here".into()))?;
            Ok(Secret32::from_bytes(key.as_slice().try_into().unwrap()))
        }
    }

    fn here(key: u8, way: Way) -> Wrapper<Here> {
        Wrapper(Here { key: [key; 32], way, errs: false })
    }

    #[test]
    fn what_was_wrapped_is_unwrapped_and_nothing_else() {
        for way in [Way::Mac, Way::Seal] {
            let (master, key) = (here(1, way), cipher::draw().unwrap());
            let wrapped = master.wrap(b"database", &key).unwrap();
            assert_eq!(master.unwrap(b"database", &wrapped).unwrap(), key);
            assert_ne!(master.wrap(b"database", &key).unwrap(), wrapped);
            // The way is what the wrapping says, not what its holder would do now.
            let other_way = here(1, if way == Way::Mac { Way::Seal } else { Way::Mac });
            assert_eq!(other_way.unwrap(b"database", &wrapped).unwrap(), key);
            let refused = |master: &Wrapper<Here>, context: &[u8], wrapped: &[u8]| {
                assert!(matches!(master.unwrap(context, wrapped), Err(MasterError::NotWrappedByIt(_))));
            };
            refused(&here(2, way), b"database", &wrapped);
            refused(&master, b"another", &wrapped);
            for length in 0..wrapped.len() {
                refused(&master, b"database", &wrapped[..length]);
            }
            refused(&master, b"database", &[&wrapped[..], b"x"].concat());
            for bit in 0..wrapped.len() * 8 {
                let mut altered = wrapped.clone();
                altered[bit / 8] ^= 1 << (bit % 8);
                refused(&master, b"database", &altered);
            }
        }
    }

    #[test]
    fn a_holder_that_errs_wraps_nothing() {
        let master = Wrapper(Here { key: [1; 32], way: Way::Mac, errs: true });
        let refused = master.wrap(b"database", &cipher::draw().unwrap()).unwrap_err();
        assert!(refused.to_string().contains("does not open again what it has just wrapped"), "{refused}");
    }
}
