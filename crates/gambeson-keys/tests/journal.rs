//! Keys of journals: what opens what, and for whom.

use std::fs;

use gambeson_keys::{JournalKeys, KeyError, KeyRing, Protection, Rights, Store};

const ID: [u8; 16] = [7; 16];

/// A store with the label "clinical", and one of somebody who got it for reading alone.
fn stores() -> (KeyRing, KeyRing) {
    let place = std::env::temp_dir().join(format!("gambeson-journal-keys-{}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).unwrap();
    let make = |name: &str| Store::create(&place.join(name), Protection::KeyFile("master-key".into())).unwrap();
    let (mut writer, mut reader) = (make("writer"), make("reader"));
    writer.change(|ring| ring.create("clinical", None)).unwrap();
    writer.change(|ring| ring.create("other", None)).unwrap();
    let passed = writer.ring().extract(&["clinical".into()], Rights::Read, None).unwrap();
    reader.change(|held| held.adopt(&passed, &held.compare(&passed))).unwrap();
    let both = (writer.into_keys(), reader.into_keys());
    fs::remove_dir_all(&place).unwrap();
    both
}

#[test]
fn entries_are_opened_by_their_journals_keys_under_their_names_and_nothing_else() {
    let (writer, reader) = stores();
    let (keys, wrapped) = JournalKeys::create(&writer, "clinical", ID).unwrap();
    let name = keys.name(b"the first task");
    let sealed = keys.seal(&name, b"a result").unwrap();
    let again = JournalKeys::open(&writer, "clinical", ID, &wrapped).unwrap();
    assert_eq!(again.name(b"the first task"), name);
    assert_ne!(again.name(b"another task"), name);
    assert_eq!(again.unseal(&name, &sealed).unwrap().as_slice(), b"a result");
    assert!(again.unseal(&again.name(b"another task"), &sealed).is_none());
    for bit in 0..sealed.len() * 8 {
        let mut altered = sealed.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        assert!(again.unseal(&name, &altered).is_none(), "bit {bit}");
    }
    let (other, _) = JournalKeys::create(&writer, "clinical", ID).unwrap();
    assert_ne!(other.name(b"the first task"), name);
    assert!(other.unseal(&name, &sealed).is_none());

    let wrong = |result: Result<JournalKeys, KeyError>| matches!(result, Err(KeyError::WrongWrapping { .. }));
    assert!(wrong(JournalKeys::open(&writer, "clinical", [8; 16], &wrapped)));
    assert!(wrong(JournalKeys::open(&writer, "other", ID, &wrapped)));
    assert!(matches!(JournalKeys::open(&writer, "none", ID, &wrapped), Err(KeyError::NoLabel { .. })));
    for refused in [
        JournalKeys::create(&reader, "clinical", ID).map(drop),
        JournalKeys::open(&reader, "clinical", ID, &wrapped).map(drop),
    ] {
        assert!(matches!(refused, Err(KeyError::MayNotWrite { .. })), "{refused:?}");
    }
}
