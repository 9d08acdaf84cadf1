//! What the fuzz target reaches the decoders by.

use std::path::PathBuf;

use aws_lc_rs::digest::{SHA256, digest};
use gambeson_proto::secret::Secret32;

use crate::format::{self, Contents, Header, Kind, Lock, SEALED_TO, WRAPPED};
use crate::passphrase::Cost;
use crate::ring::{Entry, Version};

/// Reads bytes as a key file in clear, whose digest is made right first, and asserts that what is taken is what would be
/// written.
pub fn key_file(bytes: &[u8]) {
    let Ok((header, length)) = Header::decode(bytes) else { return };
    assert_eq!(header.encode(), bytes[..length], "decoding accepts what encoding produces");
    let file = [bytes, digest(&SHA256, bytes).as_ref()].concat();
    if let Ok(contents) = format::look_into(&file, length) {
        assert_eq!(*format::lay_open(&header, &contents), file, "decoding accepts what encoding produces");
    }
}

/// What to begin with: a file for each lock, and labels of both kinds.
pub fn key_file_seeds() -> [(&'static str, Vec<u8>); 5] {
    let file = |kind, lock, contents: &Contents| {
        let file = format::lay_open(&Header { kind, id: [1; 16], serial: 2, lock }, contents);
        // Without the digest.
        file[..file.len() - 32].to_vec()
    };
    let secret = |byte| Secret32::from_bytes([byte; 32]);
    let version = |number, signing| Version {
        number,
        created: 1_700_000_000,
        changed: 1_700_000_001,
        expires: (number == 2).then_some(1_900_000_000),
        verifying_key: [4; 32],
        wrapping: secret(5),
        signing,
    };
    let entry = |name: &str, versions| Entry { name: name.to_owned(), versions };
    let labels = vec![
        entry("clinical", vec![version(1, None), version(2, None)]),
        entry("open.data", vec![version(7, Some(secret(6)))]),
    ];
    let full = Contents { anchor_key: secret(3), home: "/home/user/keys".into(), labels };
    let empty = Contents { anchor_key: secret(3), home: PathBuf::new(), labels: Vec::new() };
    let passphrase = Lock::Passphrase { cost: Cost::DEFAULT, salt: [7; 16], wrapped: [8; WRAPPED] };
    [
        ("job", file(Kind::Job, Lock::Open, &full)),
        ("job-empty", file(Kind::Job, Lock::Open, &empty)),
        ("export", file(Kind::Export, passphrase, &full)),
        ("export-to", file(Kind::Export, Lock::Recipient { public: [9; 32], sealed: [10; SEALED_TO] }, &empty)),
        ("store", file(Kind::Store, Lock::KeyFile("master-key".into()), &full)),
    ]
}
