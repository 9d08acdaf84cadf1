//! Credentials: bytes as they are, and the same content under a right trailer.

use aws_lc_rs::digest::{SHA256, digest};
use gambeson_proto::credential::{Credential, CredentialError};

use super::policy::agrees;

const TRAILER: usize = 32;

pub fn credential(data: &[u8]) {
    check(data);
    let body = &data[..data.len().saturating_sub(TRAILER)];
    let mut sealed = body.to_vec();
    sealed.extend(digest(&SHA256, body).as_ref());
    check(&sealed);
}

fn check(bytes: &[u8]) {
    match Credential::decode(bytes) {
        Ok(credential) => {
            assert_eq!(credential.encode()[..], *bytes, "a credential has one encoding");
            agrees(&credential.policy);
        }
        Err(CredentialError::Incomplete) => {
            let travelling = Credential::decode_travelling(bytes).expect("it lacks a key, and nothing else");
            assert!(travelling.lacking().is_some());
            assert_eq!(travelling.encode_to_travel()[..], *bytes, "as it travels, too");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
