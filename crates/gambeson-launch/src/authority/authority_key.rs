//! What an authority signs with: a key in a file of its host's, or in a token of that.

use std::path::Path;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use gambeson_pkcs11::{Key, SCHEME, Uri};
use pki_types::PrivatePkcs8KeyDer;
use pki_types::pem::PemObject;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData, SignatureAlgorithm, SigningKey};
use zeroize::Zeroizing;

use super::pem;
use crate::Error;

/// A key that signs certificates.
pub(super) enum AuthorityKey {
    Here(KeyPair),
    InToken(Box<Key>),
}

impl AuthorityKey {
    /// A new one, with what its file says; in a token the one of that name, if it is there.
    pub(super) fn make(token: Option<&Uri>) -> Result<(Self, Zeroizing<String>), Error> {
        if let Some(uri) = token {
            let (key, _) = Key::open_or_make(uri)?;
            return Ok((AuthorityKey::InToken(Box::new(key)), Zeroizing::new(format!("{uri}\n"))));
        }
        let made = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new());
        let made =
            made.map_err(|_| Error::Unavailable("the kernel gives no random numbers, so no key can be made".into()))?;
        Self::made(made.as_ref())
    }

    /// The same on P-256 where it is a file: browsers take no certificate that an Ed25519 key has signed.
    pub(super) fn make_for_browsers(token: Option<&Uri>) -> Result<(Self, Zeroizing<String>), Error> {
        if token.is_some() {
            return Self::make(token);
        }
        Self::made(&p256()?)
    }

    fn made(pkcs8: &[u8]) -> Result<(Self, Zeroizing<String>), Error> {
        let text = pem("PRIVATE KEY", pkcs8);
        let key = Self::parse(&text).ok_or_else(|| Error::Unavailable("the key that was made is none".into()))??;
        Ok((key, text))
    }

    /// What a file says.
    pub(super) fn read(text: &str, path: &Path) -> Result<Self, Error> {
        Self::parse(text).unwrap_or_else(|| {
            Err(Error::Refused(format!(
                "{} holds neither an Ed25519 or P-256 key in PEM nor the PKCS #11 URI of one; bring it back from a copy",
                path.display()
            )))
        })
    }

    fn parse(text: &str) -> Option<Result<Self, Error>> {
        if text.starts_with(SCHEME) {
            let opened = text.trim_end().parse::<Uri>().and_then(|uri| Key::open(&uri));
            return Some(opened.map(|key| AuthorityKey::InToken(Box::new(key))).map_err(Error::from));
        }
        let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).ok()?;
        let kinds = [&PKCS_ED25519, &PKCS_ECDSA_P256_SHA256];
        let pair = kinds.into_iter().find_map(|kind| KeyPair::from_pkcs8_der_and_sign_algo(&key, kind).ok())?;
        Some(Ok(AuthorityKey::Here(pair)))
    }

    /// Where it is, if that is a token.
    pub(super) fn token(&self) -> Option<&Uri> {
        match self {
            AuthorityKey::Here(_) => None,
            AuthorityKey::InToken(key) => Some(key.uri()),
        }
    }

    /// Why no certificate was made.
    pub(super) fn unsigned(&self, cause: &rcgen::Error) -> Error {
        if let AuthorityKey::InToken(key) = self
            && let Err(why) = key.sign(b"gambeson: does this key sign?")
        {
            return Error::Unavailable(format!("the authority's key signs nothing: {why}"));
        }
        Error::Unavailable(format!("no certificate can be made: {cause}"))
    }
}

/// A new key on P-256, in PKCS #8.
pub(super) fn p256() -> Result<Zeroizing<Vec<u8>>, Error> {
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    let made =
        made.map_err(|_| Error::Unavailable("the kernel gives no random numbers, so no key can be made".into()))?;
    Ok(Zeroizing::new(made.as_ref().to_vec()))
}

impl PublicKeyData for AuthorityKey {
    fn der_bytes(&self) -> &[u8] {
        match self {
            AuthorityKey::Here(key) => key.der_bytes(),
            AuthorityKey::InToken(key) => key.der_bytes(),
        }
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match self {
            AuthorityKey::Here(key) => key.algorithm(),
            AuthorityKey::InToken(key) => key.algorithm(),
        }
    }
}

impl SigningKey for AuthorityKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        match self {
            AuthorityKey::Here(key) => SigningKey::sign(key, message),
            AuthorityKey::InToken(key) => SigningKey::sign(&**key, message),
        }
    }
}
