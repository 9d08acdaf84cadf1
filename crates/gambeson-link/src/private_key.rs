//! A domain's private key: in memory, or in a token that it never leaves.

use std::str::FromStr;
use std::sync::Arc;
use std::{fmt, io};

use gambeson_pkcs11::{Key, SCHEME, Uri};
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use crate::error::Error;

/// What is said of a token: that it does not answer may pass.
pub(crate) fn unusable(cause: gambeson_pkcs11::Error) -> Error {
    match cause {
        gambeson_pkcs11::Error::Unavailable(why) => {
            Error::System { what: "the key's token cannot be used".into(), cause: io::Error::other(why) }
        }
        cause => Error::identity(cause.to_string()),
    }
}

/// Where a key is.
pub(crate) enum PrivateKey {
    Here(PrivateKeyDer<'static>),
    InToken(Arc<Key>),
}

impl PrivateKey {
    /// A private key in PEM, or a line with the PKCS #11 URI of one, as identity files have them.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Error> {
        let unreadable = |why: &dyn fmt::Display| Error::identity(format!("the private key is not readable: {why}"));
        let mut uris = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let mut uris = uris.by_ref().filter(|line| line.starts_with(SCHEME.as_bytes()));
        let Some(uri) = uris.next() else {
            return PrivateKeyDer::from_pem_slice(text).map(PrivateKey::Here).map_err(|cause| unreadable(&cause));
        };
        if uris.next().is_some() || PrivateKeyDer::from_pem_slice(text).is_ok() {
            return Err(unreadable(&"there are two; keep the one that the certificate is for"));
        }
        let uri = std::str::from_utf8(uri).map_err(|_| unreadable(&"its PKCS #11 URI is no text"))?;
        let key = Uri::from_str(uri).and_then(|uri| Key::open(&uri)).map_err(unusable)?;
        Ok(PrivateKey::InToken(Arc::new(key)))
    }

    /// A certificate that it signs for itself, and that claims nothing.
    pub(crate) fn own_certificate(&self) -> Result<CertificateDer<'static>, Error> {
        let made = CertificateParams::new(Vec::new()).and_then(|params| match self {
            PrivateKey::Here(key) => params.self_signed(&KeyPair::try_from(key)?),
            PrivateKey::InToken(key) => params.self_signed(&**key),
        });
        let made = made.map_err(|cause| Error::identity(format!("no certificate can be made: {cause}")))?;
        Ok(made.der().clone())
    }

    /// What TLS signs with.
    pub(crate) fn signing_key(&self) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        match self {
            PrivateKey::Here(key) => any_supported_type(key),
            PrivateKey::InToken(key) => Ok(Arc::new(InToken(key.clone()))),
        }
    }

    /// Whether a signature may take long: others do not wait for it then.
    pub(crate) fn is_slow(&self) -> bool {
        matches!(self, PrivateKey::InToken(_))
    }
}

impl Clone for PrivateKey {
    fn clone(&self) -> Self {
        match self {
            PrivateKey::Here(key) => PrivateKey::Here(key.clone_key()),
            PrivateKey::InToken(key) => PrivateKey::InToken(key.clone()),
        }
    }
}

#[derive(Clone, Debug)]
struct InToken(Arc<Key>);

/// What tokens sign with here: ECDSA on P-256 with SHA-256 (RFC 8446, 4.2.3).
const SCHEME_IN_TOKEN: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;

impl SigningKey for InToken {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&SCHEME_IN_TOKEN).then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(self.0.public_key()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for InToken {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        self.0.sign(message).map_err(|cause| rustls::Error::General(cause.to_string()))
    }

    fn scheme(&self) -> SignatureScheme {
        SCHEME_IN_TOKEN
    }
}
