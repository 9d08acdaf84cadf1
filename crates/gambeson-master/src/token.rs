//! A master key in a token, which it never leaves (PKCS #11).

use gambeson_pkcs11::{SecretKey, Uri};
use gambeson_proto::secret::Secret32;

use crate::wrapping::{Holder, Way};
use crate::{Made, MasterError};

pub(crate) struct Token(SecretKey);

impl Token {
    pub(crate) fn open(uri: &Uri) -> Result<Self, MasterError> {
        Ok(Token(SecretKey::open(uri)?))
    }

    pub(crate) fn open_or_make(uri: &Uri) -> Result<(Self, Made), MasterError> {
        let (key, made) = SecretKey::open_or_make(uri)?;
        let made = match made {
            gambeson_pkcs11::Made::Now => Made::Now,
            gambeson_pkcs11::Made::Before => Made::Before,
        };
        Ok((Token(key), made))
    }
}

impl Holder for Token {
    fn name(&self) -> String {
        self.0.uri().to_string()
    }

    fn way(&self) -> Way {
        Way::Mac
    }

    fn mac(&self, message: &[u8]) -> Result<Secret32, MasterError> {
        let mac = self.0.mac(message)?;
        Ok(Secret32::filled(|secret| secret.copy_from_slice(&*mac)))
    }
}
