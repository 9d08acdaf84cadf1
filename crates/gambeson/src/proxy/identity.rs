//! The identity of one end, in a file: a private key and the certificate that shows it, both in PEM.

use std::path::Path;

use gambeson_link::{Identity, KeyHash};

use crate::failure::Failure;
use crate::pem::{self, Secret};

const SECRET: Secret = Secret {
    what: "the identity",
    others: "who could take this end's place",
    remedy: "name it with --identity, or make one with `gambeson proxy keygen`",
};

/// Makes one that is not there yet.
pub(crate) fn make(path: &Path) -> Result<KeyHash, Failure> {
    let identity = Identity::generate().map_err(|cause| Failure::system(cause.to_string()))?;
    let mut text = pem::encode("PRIVATE KEY", identity.private_key().expect("it was made here"));
    for certificate in identity.certificates() {
        text.push_str(&pem::encode("CERTIFICATE", certificate));
    }
    pem::create(path, 0o600, text.as_bytes(), "the other end may know this one")?;
    Ok(identity.key_hash())
}

pub(crate) fn read(path: &Path) -> Result<Identity, Failure> {
    let none = || {
        let what = "holds no private key with its certificate in PEM; `gambeson proxy keygen` makes both";
        Failure::refused(format!("{} {what}", path.display()))
    };
    pem::read(path, &SECRET, |bytes| Identity::from_pem(bytes, bytes).ok(), none)
}
