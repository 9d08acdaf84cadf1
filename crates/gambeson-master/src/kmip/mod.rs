//! A master key in a key server of the site's, by KMIP (OASIS, 1.4 and 2.x) over mutual TLS.
//!
//! ```text
//! Server ──> operations: what is asked, what the answer says ──> message: one request, one answer ──> ttlv
//!    │                                                             connection: TLS, one for each few requests
//!    └─ address: kmip://HOST[:PORT]/ID?certificate=FILE&key=FILE&authority=FILE
//! ```
//! Where the server encrypts with the key (AES-256-GCM) it is asked to, and the key never leaves it. Where it does not, or
//! the key is not for that, the key is fetched each time, and forgotten.

mod address;
mod connection;
mod message;
mod operations;
mod server;
mod ttlv;
#[cfg(test)]
mod vectors;

pub use address::Address;
pub(crate) use address::SCHEME;
#[cfg(feature = "fuzzing")]
pub(crate) use fuzzing::{answers, rewritten};
pub(crate) use server::Server;

#[cfg(feature = "fuzzing")]
mod fuzzing {
    use super::message::{Operation, Version, response};
    use super::operations as does;
    use super::ttlv::Item;

    /// An item, written again; nothing: the bytes are none.
    pub(crate) fn rewritten(bytes: &[u8]) -> Option<Vec<u8>> {
        let item = Item::decode(bytes).ok()?;
        let mut out = Vec::with_capacity(item.length());
        item.encode(&mut out);
        assert_eq!(out.len(), item.length());
        Some(out)
    }

    /// To how many requests the bytes are an answer.
    pub(crate) fn answers(bytes: &[u8]) -> usize {
        use Operation::{Activate, Create, Decrypt, DiscoverVersions, Encrypt, Get, GetAttributes, Query};
        let all = [Activate, Create, Decrypt, DiscoverVersions, Encrypt, Get, GetAttributes, Query];
        let answered = |version, operation| {
            let Ok(payload) = response(bytes, version, operation) else { return false };
            let _ = (does::read_versions(&payload), does::read_operations(&payload), does::read_identifier(&payload));
            let _ = (does::read_attributes(version, &payload), does::read_encrypted(&payload, &[0; does::NONCE]));
            let _ = (does::read_decrypted(&payload), does::read_key(&payload));
            true
        };
        let versions = [Version(1, 4), Version(2, 0), Version(2, 1)];
        versions.iter().map(|&version| all.iter().filter(|&&one| answered(version, one)).count()).sum()
    }
}
