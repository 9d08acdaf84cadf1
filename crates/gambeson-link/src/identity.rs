//! Who a domain is, and whom it accepts: job, pinned public key or certificate, always mutual.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::Ed25519KeyPair;
use gambeson_pkcs11::{Key, Made, Uri};
use gambeson_proto::key_schedule::JobKeys;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use crate::error::Error;
use crate::private_key::{PrivateKey, unusable};

/// SHA-256 of a domain's public key (its SubjectPublicKeyInfo in DER, RFC 5280 section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let parsed = webpki::EndEntityCert::try_from(certificate)
            .map_err(|_| rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding))?;
        Ok(Self::of_public_key(parsed.subject_public_key_info().as_ref()))
    }

    /// Of a SubjectPublicKeyInfo in DER.
    #[must_use]
    pub fn of_public_key(info: &[u8]) -> Self {
        KeyHash(digest(&SHA256, info).as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// Reads 64 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("two digits");
        Some(KeyHash(std::array::from_fn(byte)))
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KeyHash({self})")
    }
}

/// A domain's own key, with the certificate that shows it.
pub struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKey,
    hash: KeyHash,
}

impl Identity {
    /// A fresh Ed25519 key in a certificate of its own: what ranks of a job use, and whoever is known by a pinned key.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn generate() -> Result<Self, Error> {
        // Without the public key, which makes it one that OpenSSL does not read.
        let key = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new());
        let key =
            key.map_err(|_| Error::identity("the kernel gives no random numbers, so no key could be made".into()))?;
        let key = PrivatePkcs8KeyDer::from(key.as_ref().to_vec());
        let made = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ED25519);
        let made = made.and_then(|pair| CertificateParams::new(Vec::new())?.self_signed(&pair));
        let certificate = made.map_err(|cause| Error::identity(format!("no key could be made: {cause}")))?;
        Self::new(vec![certificate.der().clone()], PrivateKey::Here(key.into()))
    }

    /// A key in a token, which it never leaves, in a certificate of its own. It is made there if it is not there.
    ///
    /// # Errors
    /// When the token does not answer, or cannot make one.
    pub fn in_token(uri: &Uri) -> Result<(Self, Made), Error> {
        let (key, made) = Key::open_or_make(uri).map_err(unusable)?;
        // A first signature shows what the token says if it gives none.
        key.sign(b"gambeson: does this key sign?").map_err(unusable)?;
        let key = PrivateKey::InToken(Arc::new(key));
        Ok((Self::new(vec![key.own_certificate()?], key)?, made))
    }

    /// A certificate with its chain and its private key, both in PEM (RFC 7468). In the place of a key that is in a token
    /// stands a line with its PKCS #11 URI (RFC 7512): the token is opened, by the module that the URI names.
    ///
    /// # Errors
    /// When one of them is none, or the token does not answer.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, Error> {
        let chain = certificates(chain)?;
        Self::new(chain, PrivateKey::parse(key)?)
    }

    fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKey) -> Result<Self, Error> {
        let first = chain.first().ok_or_else(|| Error::identity("the file holds no certificate".into()))?;
        let hash = KeyHash::of(first).map_err(|cause| Error::identity(format!("the certificate is none: {cause}")))?;
        if let PrivateKey::InToken(key) = &key
            && hash != KeyHash::of_public_key(&key.public_key())
        {
            let what = format!("the certificate is not for the key {}; enroll again", key.uri().name());
            return Err(Error::identity(what));
        }
        Ok(Identity { chain, key, hash })
    }

    /// The same key in a certificate of its own, which claims nothing.
    ///
    /// # Errors
    /// When its kind is not supported, or its token does not answer.
    pub fn bare(&self) -> Result<Self, Error> {
        Self::new(vec![self.key.own_certificate()?], self.key.clone())
    }

    /// The same key with another certificate and its chain, in PEM.
    ///
    /// # Errors
    /// When that is none, or for another key.
    pub fn certified(&self, chain: &[u8]) -> Result<Self, Error> {
        let identity = Self::new(certificates(chain)?, self.key.clone())?;
        match identity.hash == self.hash {
            true => Ok(identity),
            false => Err(Error::identity("the certificate is for another key".into())),
        }
    }

    /// By what others know this domain.
    #[must_use]
    pub fn key_hash(&self) -> KeyHash {
        self.hash
    }

    /// The certificates, its own first, in DER.
    pub fn certificates(&self) -> impl Iterator<Item = &[u8]> {
        self.chain.iter().map(AsRef::as_ref)
    }

    /// The private key in DER: PKCS #8 (RFC 5958), if it was generated here. There is none of a key in a token.
    #[must_use]
    pub fn private_key(&self) -> Option<&[u8]> {
        match &self.key {
            PrivateKey::Here(key) => Some(key.secret_der()),
            PrivateKey::InToken(_) => None,
        }
    }

    /// Where the key is, if that is in a token.
    #[must_use]
    pub fn token(&self) -> Option<&Uri> {
        match &self.key {
            PrivateKey::Here(_) => None,
            PrivateKey::InToken(key) => Some(key.uri()),
        }
    }

    /// The public key, a SubjectPublicKeyInfo in DER (RFC 5280, section 4.1).
    ///
    /// # Errors
    /// When its kind is not supported.
    pub fn public_key(&self) -> Result<Vec<u8>, Error> {
        let key = self.key.signing_key().ok().and_then(|key| key.public_key().map(|public| public.to_vec()));
        key.ok_or_else(|| Error::identity("the private key is of a kind that is not supported".into()))
    }

    /// Signs a message with the key, in the first way that TLS has for it (RFC 8446, 4.2.3).
    ///
    /// # Errors
    /// When its kind is not supported, or its token does not answer.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let schemes =
            rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes();
        let signer = self.key.signing_key().ok().and_then(|key| key.choose_scheme(&schemes));
        let signer =
            signer.ok_or_else(|| Error::identity("the private key is of a kind that is not supported".into()))?;
        signer.sign(message).map_err(|cause| Error::identity(unsigned(&cause)))
    }
}

/// What is said of a key that gives no signature.
pub(crate) fn unsigned(cause: &rustls::Error) -> String {
    match cause {
        rustls::Error::General(what) => format!("this end's key signs nothing: {what}"),
        cause => format!("this end's key signs nothing: {cause}"),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let parsed = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    parsed.map_err(|cause| Error::identity(format!("the certificate is not readable: {cause}")))
}

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Identity").field("key_hash", &self.hash).finish_non_exhaustive()
    }
}

/// Whom a domain talks to. Without anything it talks to nobody.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    pub(crate) job: Option<JobKeys>,
    pub(crate) pinned: BTreeMap<KeyHash, (String, Vec<String>)>,
    pub(crate) roots: Option<Arc<RootCertStore>>,
    pub(crate) guests: bool,
}

impl Trust {
    /// Accepts who proves that it has this job's secret; its roles are `rank`. Both ends need the job.
    #[must_use]
    pub fn job(mut self, keys: JobKeys) -> Self {
        self.job = Some(keys);
        self
    }

    /// Accepts the owner of this public key, under a name and with roles.
    #[must_use]
    pub fn pinned(mut self, key: KeyHash, name: &str, roles: &[&str]) -> Self {
        self.pinned.insert(key, (name.to_owned(), roles.iter().map(|&role| role.to_owned()).collect()));
        self
    }

    /// Accepts certificates that these authorities signed, for servers and for clients. The roles are what its URIs of
    /// the form `gambeson:role:NAME` name, and `dns:NAME` for each of its DNS names, in small letters. The name is the
    /// certificate's first DNS name, or else the last of its roles.
    ///
    /// # Errors
    /// When the text holds no certificate of an authority.
    pub fn authorities(mut self, pem: &[u8]) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate =
                certificate.map_err(|cause| Error::identity(format!("an authority is not readable: {cause}")))?;
            let added = roots.add(certificate);
            added.map_err(|cause| Error::identity(format!("an authority's certificate cannot be used: {cause}")))?;
        }
        if roots.is_empty() {
            return Err(Error::identity("the file holds no authority's certificate".into()));
        }
        self.roots = Some(Arc::new(roots));
        Ok(self)
    }

    /// Lets guests in, too, where this domain listens: owners of keys that nobody knows, in certificates that claim nothing
    /// ([`Identity::generate`]). They have the one role [`GUEST`], and reach what is published for that
    /// ([`crate::Endpoint::publish`]) and nothing else, whatever startpoints they hold. There are few at a time, and not for
    /// long. Whom this domain connects to is never a guest.
    #[must_use]
    pub fn guests(mut self) -> Self {
        self.guests = true;
        self
    }

    /// Whose certificate this is, with its chain in DER, its own first: for servers of other protocols, which have had the
    /// owner prove that he has its key. The authorities alone count here.
    ///
    /// # Errors
    /// When no authority of these has certified it as a client, or not for now.
    pub fn whose(&self, chain: &[CertificateDer<'_>]) -> Result<Peer, Error> {
        crate::handshake::whose(self, chain)
    }

    /// How the authorities are called (their subjects in DER), so that a browser offers what they have certified.
    #[must_use]
    pub fn subjects(&self) -> Vec<Vec<u8>> {
        let subjects = self.roots.iter().flat_map(|roots| roots.subjects());
        subjects.map(|subject| subject.as_ref().to_vec()).collect()
    }
}

/// Who has to be at an address: never whoever answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The owner of this public key.
    Key(KeyHash),
    /// Whoever proves to have this role: by the job (`rank`), a pinned key or a certificate.
    Role(String),
}

impl Expected {
    /// Whether a peer is it.
    pub(crate) fn is(&self, peer: &Peer) -> bool {
        match self {
            Expected::Key(key) => peer.key == *key,
            Expected::Role(role) => peer.roles.contains(role),
        }
    }
}

/// A signature under a message, with the certificates that show whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The certificates, the signer's own first, in DER.
    pub chain: Vec<Vec<u8>>,
    /// How it is signed, as TLS numbers that (RFC 8446, 4.2.3).
    pub scheme: u16,
    /// The signature.
    pub signature: Vec<u8>,
}

/// Who is at the other end of a session, proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its public key.
    pub key: KeyHash,
    /// What it is known by: `rank` of the job, the pinned key's name, or the certificate's.
    pub name: String,
    /// What it may be asked to be.
    pub roles: Vec<String>,
    /// The host that it says it is on; vouched for by whoever vouches for it.
    pub host: String,
    /// The address that it says its host has, if it does: what policy rules about subnets go by.
    pub address: Option<IpAddr>,
}

impl Peer {
    /// Whether it has proved nothing but a key that nobody knows.
    pub(crate) fn is_guest(&self) -> bool {
        self.roles == [GUEST]
    }
}

/// The role of guests, and theirs alone: [`Trust::guests`].
pub const GUEST: &str = "guest";

/// The prefix of a role among a certificate's URIs.
pub(crate) const ROLE: &str = "gambeson:role:";

/// The prefix of a role that a DNS name stands for; no URI names such a one.
pub(crate) const DNS_ROLE: &str = "dns:";
