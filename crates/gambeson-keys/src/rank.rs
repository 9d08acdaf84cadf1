//! Keys of a rank that acts under an identity of its own, where a key service has them.
//!
//! A rank has no TLS: it signs a request by its identity's key, over a public key that it has made for the answer, and the
//! holder of its job's secrets passes that on over the connection that it has. The service seals the ring to that public
//! key (HPKE), so that who passes it on, and the job's user, read nothing of it.
//!
//! ```text
//! request   public key 32 | time u64 | job 16 | signature 64 | certificates { length u32, DER }
//! signed    64 spaces | "Gambeson, keys for a rank" 0 | public key | time | job       (as TLS 1.3 has signatures)
//! answer    0 | sealed ring, to "gambeson keys for a rank v1" | public key | time | job
//!         | 1 | sentence
//! ```
//! Big endian.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use aws_lc_rs::signature::Ed25519KeyPair;
use gambeson_proto::secret::Secret32;
use gambeson_site::directory::now;
use gambeson_site::holder;
use gambeson_site::job::read_secret;
use pki_types::pem::PemObject;
use pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use crate::ring::Ring;
use crate::{KeyError, recipient};

/// What the holder of a job's secrets answers requests for rings by.
pub const RING: &str = "ring";
/// The folder of the identity that the job itself has, as its holder says.
pub const IDENTITY: &str = "identity";
/// What a signature is for.
pub const PURPOSE: &str = "keys for a rank";
/// As TLS numbers Ed25519 (RFC 8446, 4.2.3).
pub const ED25519: u16 = 0x0807;

/// A request, as it is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What the answer is sealed to.
    pub public: [u8; 32],
    /// When it was signed, in seconds since 1970.
    pub time: u64,
    /// For which job.
    pub job: [u8; 16],
    /// By the key of the first certificate.
    pub signature: [u8; 64],
    /// Whose it is, in DER; its own first.
    pub chain: Vec<Vec<u8>>,
}

impl Request {
    /// What is signed, behind the purpose.
    #[must_use]
    pub fn signed(&self) -> Vec<u8> {
        [&self.public[..], &self.time.to_be_bytes(), &self.job].concat()
    }

    /// What the answer is bound to.
    #[must_use]
    pub fn info(&self) -> Vec<u8> {
        [INFO, &self.signed()].concat()
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = self.signed();
        out.extend(self.signature);
        for certificate in &self.chain {
            out.extend(u32::try_from(certificate.len()).expect("certificates are short").to_be_bytes());
            out.extend(certificate);
        }
        out
    }

    /// Reads one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (public, rest) = bytes.split_first_chunk()?;
        let (time, rest) = rest.split_first_chunk()?;
        let (job, rest) = rest.split_first_chunk()?;
        let (signature, mut rest) = rest.split_first_chunk()?;
        let mut chain = Vec::new();
        while let Some((length, more)) = rest.split_first_chunk() {
            let (certificate, more) = more.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            chain.push(certificate.to_vec());
            rest = more;
        }
        let time = u64::from_be_bytes(*time);
        let request = Request { public: *public, time, job: *job, signature: *signature, chain };
        (rest.is_empty() && !request.chain.is_empty()).then_some(request)
    }
}

/// The answer of a service, as a rank takes it.
#[must_use]
pub fn answer(outcome: Result<Vec<u8>, String>) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(match outcome {
        Ok(sealed) => [&[GIVEN][..], &sealed].concat(),
        Err(why) => [&[REFUSED][..], why.as_bytes()].concat(),
    })
}

/// The identity that this process's environment names, if it is another than its job's.
pub(crate) fn own_identity(job: &Path) -> Option<PathBuf> {
    let own = PathBuf::from(env::var_os("GAMBESON_IDENTITY").filter(|folder| !folder.is_empty())?);
    let of_job = holder::ask(job, IDENTITY).ok().flatten();
    let is_same = |of_job: &Zeroizing<Vec<u8>>| {
        let same = own.canonicalize().ok();
        own.as_os_str().as_encoded_bytes() == of_job.as_slice()
            || same.is_some_and(|own| own.as_os_str().as_encoded_bytes() == of_job.as_slice())
    };
    (!of_job.as_ref().is_some_and(is_same)).then_some(own)
}

/// The ring of an identity, by way of the job's holder; `store` is the service that the job's own keys are from.
pub(crate) fn ring(directory: &Path, identity: &Path, store: &str, job: [u8; 16]) -> Result<Ring, KeyError> {
    let refused = |why: String| KeyError::NotGranted { store: store.to_owned(), why };
    // Nobody was asked for anything yet.
    let (request, private) = sign(identity, job).map_err(|why| KeyError::Unfit { store: store.to_owned(), why })?;
    let unreachable = |why: String| KeyError::Unreachable { store: store.to_owned(), why };
    let answer = holder::call(directory, RING, &request.encode()).map_err(unreachable)?;
    match answer.as_ref().and_then(|answer| answer.split_first()) {
        Some((&GIVEN, sealed)) => {
            let opened = recipient::open_bytes(&private, &request.info(), sealed);
            let opened = opened.ok_or_else(|| KeyError::altered(store, "what it sealed to this rank"))?;
            Ring::carried(store, &opened)
        }
        Some((&REFUSED, why)) => Err(refused(String::from_utf8_lossy(why).into_owned())),
        _ => Err(unreachable(format!(
            "the job has no way to it on {} for an identity of a rank's own",
            gambeson_site::job::host_name()
        ))),
    }
}

/// A request by an identity, and the private key for its answer.
fn sign(identity: &Path, job: [u8; 16]) -> Result<(Request, Secret32), String> {
    let path = identity.join("identity.pem");
    let unusable = |why: &dyn fmt::Display| {
        format!("the identity {}, which GAMBESON_IDENTITY names, cannot be used by a rank: {why}", path.display())
    };
    let text = read_secret(&path).map_err(|why| unusable(&why))?;
    let in_memory = "its key is not in the file as an Ed25519 key, as of one in a token";
    let key = PrivatePkcs8KeyDer::from_pem_slice(&text).map_err(|_| unusable(&in_memory))?;
    let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der()).map_err(|_| unusable(&in_memory))?;
    let chain = CertificateDer::pem_slice_iter(&text).map(|one| one.map(|one| one.to_vec())).collect::<Result<_, _>>();
    let chain: Vec<Vec<u8>> = chain.map_err(|_| unusable(&"it holds no certificate"))?;
    let (public, private) = recipient::generate()?;
    let mut request = Request { public, time: now(), job, signature: [0; 64], chain };
    let message = [&[0x20; 64], &b"Gambeson, "[..], PURPOSE.as_bytes(), &[0], &request.signed()].concat();
    request.signature = key.sign(&message).as_ref().try_into().expect("Ed25519 signs with 64 bytes");
    Ok((request, private))
}

const INFO: &[u8] = b"gambeson keys for a rank v1";
const GIVEN: u8 = 0;
const REFUSED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written() {
        let chain = vec![vec![1; 300], vec![2; 5]];
        let request = Request { public: [1; 32], time: 7, job: [2; 16], signature: [3; 64], chain };
        let bytes = request.encode();
        assert_eq!(Request::decode(&bytes), Some(request));
        for length in [0, 31, 119, 120, 125, bytes.len() - 1] {
            assert_eq!(Request::decode(&bytes[..length]), None, "{length}");
        }
    }
}
