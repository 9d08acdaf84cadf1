//! What the fuzz target reaches the decoder of batches by, and what becomes of one that is taken in.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use gambeson_keys::cipher;
use gambeson_master::{MasterError, MasterKey};
use gambeson_proto::secret::Secret32;

use super::envelope::End;
use super::snapshot::key;
use super::{Batch, Database, SealedRecord, Seed, Transaction, verification};
use crate::audit::sha256;
use crate::{Error, Grant, Rights, Row, Tail, Who};

/// Reads bytes as a batch and has a standby take it in: as it is, which it never does, and with its numbers, hashes and seals
/// made right, after which the standby is in order, whatever the rows say. Says whether it was taken in so.
pub fn batch(bytes: &[u8]) -> bool {
    let Some(batch) = Batch::decode(bytes) else { return false };
    assert_eq!(Batch::decode(&batch.encode()), Some(batch.clone()), "what is written is read as it was");
    STANDBY.with(|Standby { database, .. }| {
        assert!(database.apply(batch.clone()).is_err(), "nobody seals the end without the key");
        let done = database.change(move |transaction| -> Result<(), Error> {
            let batch = repaired(transaction, batch);
            let tail = transaction.apply(&batch)?;
            let (verified, _) = verification::of(transaction, None).expect("what a standby took in is in order");
            assert_eq!((tail, tail.number), (verified.tail, batch.rows.len() as u64));
            // And out again, for the next.
            Err(Error::Refused { answer: "taken in".into() })
        });
        // A panic is a sentence, too.
        let refused = done.expect_err("nothing stays");
        assert!(!refused.to_string().contains("panicked"), "{refused}");
        assert_eq!(database.tail().number, 0);
        matches!(refused, Error::Refused { .. })
    })
}

/// What to begin with.
pub fn batch_seeds() -> [(&'static str, Vec<u8>); 5] {
    let batch = |rows: Vec<Row>, records: Vec<SealedRecord>| {
        Batch { from: Tail { number: 0, hash: [0; 32] }, rows, records, end: vec![7; 60] }.encode()
    };
    let record = |kind: &str, name: &str, serial, sealed: &[u8]| SealedRecord {
        kind: kind.into(),
        name: name.into(),
        serial,
        sealed: sealed.to_vec(),
    };
    let place = r#"{"generation":7,"root":"0101010101010101010101010101010101010101010101010101010101010101"}"#;
    let anchor = Row { file: Some([5; 16]), about: place.into(), ..row("anchor", Some("clinical"), None) };
    let changed = |event, record: &str| row(event, Some("clinical"), Some((record, true)));
    let removed = row("delete", Some("clinical"), Some(("label/clinical", false)));
    let partition = changed("partition", "partition/a/b");
    let rows = vec![row("init", None, None), changed("create", "label/clinical"), partition.clone(), anchor];
    let all = vec![record("label", "clinical", 2, &label()), record("partition", "a/b", 3, b"anything")];
    [
        ("empty", batch(Vec::new(), Vec::new())),
        ("rows", batch(rows, all)),
        ("ahead", batch(vec![changed("create", "label/clinical")], vec![record("label", "clinical", 9, &label())])),
        ("missing", batch(vec![changed("create", "label/clinical"), partition], Vec::new())),
        ("removed", batch(vec![changed("create", "label/clinical"), removed], Vec::new())),
    ]
}

fn row(event: &str, label: Option<&str>, record: Option<(&str, bool)>) -> Row {
    Row {
        number: 0,
        time: 1_700_000_000,
        event: event.into(),
        label: label.map(str::to_owned),
        file: None,
        record: record.map(|(record, _)| record.to_owned()),
        sealed: record.filter(|(_, held)| *held).map(|_| [3; 32]),
        who: serde_json::to_string(&Who::service()).expect("strings are JSON"),
        about: "{}".into(),
        hash: [0; 32],
    }
}

/// Label "clinical" with one version of known keys.
fn label() -> Vec<u8> {
    let mut entry = b"\x08clinical\0\x01\0\0\0\x01".to_vec();
    for time in [1_700_000_000_u64, 1_700_000_000, 0] {
        entry.extend(time.to_be_bytes());
    }
    entry.extend([[4; 32], [5; 32]].concat());
    entry.push(1);
    entry.extend([6; 32]);
    let grants = vec![Grant { who: "user:ann".into(), rights: Rights::ALL, until: None }];
    let length = u32::try_from(entry.len()).expect("it is short").to_be_bytes();
    [&[1][..], &length, &entry, &postcard::to_stdvec(&grants).expect("grants are written")].concat()
}

/// The batch as its primary would have written it.
fn repaired(transaction: &Transaction<'_>, mut batch: Batch) -> Batch {
    let envelope = &transaction.envelope;
    for record in &mut batch.records {
        let SealedRecord { kind, name, serial, sealed } = record;
        *sealed = envelope.seal_record(kind, name, *serial, sealed).expect("the kernel gives random numbers");
    }
    batch.from = transaction.state().tail;
    let mut tail = batch.from;
    for row in &mut batch.rows {
        let number = tail.number + 1;
        let told = batch
            .records
            .iter()
            .find(|record| row.record.as_deref() == Some(&key(&record.kind, &record.name)) && record.serial == number);
        let sealed = told.map_or(row.sealed, |record| Some(sha256(&record.sealed)));
        *row = Row { number, sealed, ..row.clone() };
        tail = row.seal_after(&tail);
    }
    let end = End { tail, term: 0 };
    Batch { end: envelope.seal_end(&end).expect("the kernel gives random numbers"), ..batch }
}

/// A standby in a folder that goes with its thread.
struct Standby {
    database: Database,
    folder: PathBuf,
}

impl Standby {
    fn new() -> Self {
        let name = format!("gambeson-fuzz-{}-{:?}", std::process::id(), std::thread::current().id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        DirBuilder::new().mode(0o700).create(&folder).expect("there is room for a folder");
        let seed = Seed { id: [1; 16], key: Secret32::from_bytes([2; 32]) };
        let database = Database::create_standby(&folder.join("keys.db"), &Master, &seed).expect("it can be made");
        Standby { database, folder }
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

struct Master;

impl MasterKey for Master {
    fn name(&self) -> String {
        "of nobody".into()
    }

    fn wrap(&self, context: &[u8], key: &Secret32) -> Result<Vec<u8>, MasterError> {
        cipher::seal(&Secret32::from_bytes([3; 32]), context, key.as_bytes())
            .map_err(|why| MasterError::Unavailable(why.to_string()))
    }

    fn unwrap(&self, context: &[u8], wrapped: &[u8]) -> Result<Secret32, MasterError> {
        let key = cipher::open(&Secret32::from_bytes([3; 32]), context, wrapped);
        let key = key.ok_or_else(|| MasterError::NotWrappedByIt("it was wrapped by another".into()))?;
        Ok(Secret32::filled(|secret| secret.copy_from_slice(&key)))
    }
}

thread_local! {
    static STANDBY: Standby = Standby::new();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_is_taken_in() {
        for (name, bytes) in batch_seeds() {
            assert!(batch(&bytes), "{name}");
        }
    }
}
