//! The key store through its front door: a folder on disk, labels, lifetimes, exports, anchors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use gambeson_keys::{
    Anchor, Cost, Effect, KeyError, KeyRing, Keys, Passphrase, Protection, Rights, Ring, State, Store, read_export,
    write_export,
};
use gambeson_proto::secret::Secret32;

/// A folder that goes with the test.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let place = std::env::temp_dir().join(format!("gambeson-keys-{}-{count}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).unwrap();
        Place(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn cheap() -> Cost {
    Cost::new(64, 1, 1).unwrap()
}

fn passphrase(text: &str) -> Passphrase {
    Passphrase::new(text.as_bytes().to_vec().into())
}

/// A store with a key file and these labels.
fn store(place: &Path, labels: &[&str]) -> Store {
    let mut store = Store::create(place, Protection::KeyFile("master-key".into())).unwrap();
    for label in labels {
        store.change(|ring| ring.create(label, None)).unwrap();
    }
    store
}

fn reopen(place: &Path) -> Result<Store, KeyError> {
    Store::open(place, &mut |_| None)
}

fn keys(place: &Path) -> KeyRing {
    reopen(place).unwrap().into_keys()
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

const KEY: [u8; 32] = [0x5A; 32];

#[test]
fn a_label_wraps_and_signs_and_its_old_versions_stay() {
    let place = Place::new();
    let mut made = store(&place.path("keys"), &["clinical", "open.data"]);
    let before = keys(&place.path("keys"));
    let wrapped = before.wrap("clinical", 1, b"context", &Secret32::from_bytes(KEY)).unwrap();
    assert_eq!(wrapped.len(), 60);
    assert_eq!(made.change(|ring| ring.rotate("clinical", None)).unwrap(), 2);

    let keys = keys(&place.path("keys"));
    let label = keys.label("clinical").unwrap();
    assert_eq!((label.version, label.may_write, label.expires), (2, true, None));
    assert_ne!(label.verifying_key, keys.verifying_key("clinical", 1).unwrap());
    assert_eq!(keys.unwrap("clinical", 1, b"context", &wrapped).unwrap().as_bytes(), &KEY);
    for (label, version, context) in
        [("clinical", 2, b"context"), ("open.data", 1, b"context"), ("clinical", 1, b"contexT")]
    {
        let refused = keys.unwrap(label, version, context, &wrapped);
        assert!(matches!(refused, Err(KeyError::WrongWrapping { .. })));
    }
    let signature = keys.sign("clinical", 1, b"message").unwrap();
    let public = keys.verifying_key("clinical", 1).unwrap();
    let verifier = aws_lc_rs::signature::UnparsedPublicKey::new(&aws_lc_rs::signature::ED25519, public);
    verifier.verify(b"message", &signature).unwrap();
    assert!(matches!(keys.label("other"), Err(KeyError::NoLabel { .. })));
    assert!(matches!(keys.sign("clinical", 3, b""), Err(KeyError::NoVersion { version: 3, .. })));
}

#[test]
fn names_are_names_and_labels_are_made_once() {
    let place = Place::new();
    let mut store = store(&place.path("keys"), &["a"]);
    for name in ["", "none", "a b", "a/b", "ä", "a\n", &"x".repeat(65)] {
        let refused = store.change(|ring| ring.create(name, None)).unwrap_err();
        assert!(matches!(refused, KeyError::NoName { .. }), "{name}");
    }
    store.change(|ring| ring.create(&"x".repeat(64), None)).unwrap();
    assert!(matches!(store.change(|ring| ring.create("a", None)), Err(KeyError::LabelExists { .. })));
    store.change(|ring| ring.delete("a")).unwrap();
    assert!(matches!(store.change(|ring| ring.delete("a")), Err(KeyError::NoLabel { .. })));
    store.change(|ring| ring.create("a", None)).unwrap();
    assert!(matches!(
        Store::create(&place.path("keys"), Protection::KeyFile("other".into())),
        Err(KeyError::StoreExists { .. })
    ));
}

#[test]
fn what_has_expired_is_not_served_until_it_is_extended() {
    let place = Place::new();
    let mut made = store(&place.path("keys"), &["clinical"]);
    let key = Secret32::from_bytes(KEY);
    let wrapped = keys(&place.path("keys")).wrap("clinical", 1, b"", &key).unwrap();
    made.change(|ring| ring.expire("clinical", Some(1), Some(now()))).unwrap();
    let late = keys(&place.path("keys"));
    for refused in [
        late.wrap("clinical", 1, b"", &key).unwrap_err(),
        late.unwrap("clinical", 1, b"", &wrapped).unwrap_err(),
        late.sign("clinical", 1, b"").unwrap_err(),
    ] {
        assert!(matches!(refused, KeyError::Expired { version: 1, .. }));
        assert!(refused.to_string().contains("version 1 of label \"clinical\""), "{refused}");
    }
    assert!(late.verifying_key("clinical", 1).is_ok(), "who signed is known for ever");
    assert!(late.label("clinical").unwrap().expires.is_some_and(|expires| expires <= now()));
    made.change(|ring| ring.expire("clinical", None, Some(now() + 60))).unwrap();
    assert_eq!(keys(&place.path("keys")).unwrap("clinical", 1, b"", &wrapped).unwrap(), key);
    let refused = made.change(|ring| ring.expire("clinical", Some(2), None));
    assert!(matches!(refused, Err(KeyError::NoVersion { version: 2, .. })));
}

#[test]
fn a_passphrase_opens_and_another_does_not() {
    let place = Place::new();
    let keys = place.path("keys");
    drop(Store::create(&keys, Protection::Passphrase(passphrase("correct horse"), cheap())).unwrap());
    assert!(matches!(reopen(&keys), Err(KeyError::Locked { .. })));
    assert_eq!(gambeson_keys::state(&keys).unwrap(), State::Locked);
    let wrong = Store::open(&keys, &mut |_| Some(passphrase("wrong horse")));
    assert!(matches!(wrong, Err(KeyError::WrongPassphrase { .. })));
    let mut store = Store::open(&keys, &mut |_| Some(passphrase("correct horse"))).unwrap();
    store.change(|ring| ring.create("clinical", None)).unwrap();
    store.change_passphrase(&passphrase("another horse"), cheap()).unwrap();
    let old = Store::open(&keys, &mut |_| Some(passphrase("correct horse")));
    assert!(matches!(old, Err(KeyError::WrongPassphrase { .. })));
    let new = Store::open(&keys, &mut |_| Some(passphrase("another horse"))).unwrap();
    assert_eq!(new.ring().labels()[0].name, "clinical");
}

#[test]
fn every_bit_of_a_store_counts() {
    let place = Place::new();
    let keys = place.path("keys");
    let mut store = Store::create(&keys, Protection::Passphrase(passphrase("correct horse"), cheap())).unwrap();
    store.change(|ring| ring.create("clinical", Some(now() + 60))).unwrap();
    let file = keys.join("store");
    let whole = fs::read(&file).unwrap();
    let open = || Store::open(&keys, &mut |_| Some(passphrase("correct horse")));
    for bit in 0..whole.len() * 8 {
        let mut altered = whole.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        // A cost that is altered may be dearer than a test has time for.
        if (36 * 8..48 * 8).contains(&bit) && bit % 32 < 24 {
            continue;
        }
        fs::write(&file, &altered).unwrap();
        let refused = open().unwrap_err();
        assert!(matches!(refused, KeyError::Altered { .. } | KeyError::WrongPassphrase { .. }), "bit {bit}: {refused}");
    }
    for length in 0..whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        assert!(open().is_err(), "cut to {length}");
    }
    fs::write(&file, &whole).unwrap();
    assert_eq!(open().unwrap().ring().labels().len(), 1);
}

#[test]
fn what_others_could_read_is_refused() {
    let place = Place::new();
    let keys = place.path("keys");
    store(&keys, &["clinical"]);
    for (name, open, private) in [("", 0o750, 0o700), ("store", 0o640, 0o600), ("master-key", 0o604, 0o600)] {
        let path = keys.join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();
        let refused = reopen(&keys).unwrap_err();
        assert!(matches!(refused, KeyError::Exposed { .. }), "{name}: {refused}");
        assert!(refused.to_string().contains("chmod"), "{refused}");
        fs::set_permissions(&path, fs::Permissions::from_mode(private)).unwrap();
    }
    reopen(&keys).unwrap();
    assert!(matches!(reopen(&place.path("nowhere")), Err(KeyError::NoStore { .. })));
}

#[test]
fn many_who_change_a_store_at_once_lose_nothing() {
    let place = Place::new();
    let path = place.path("keys");
    store(&path, &[]);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut store = reopen(path).unwrap();
                for label in 0..8 {
                    store.change(|ring| ring.create(&format!("label-{writer}-{label}"), None)).unwrap();
                }
            });
        }
    });
    assert_eq!(reopen(&path).unwrap().ring().labels().len(), 32);
    // What a writer that was killed left beside it is in nobody's way.
    fs::write(path.join("store.new"), b"half of it").unwrap();
    reopen(&path).unwrap().change(|ring| ring.create("last", None)).unwrap();
}

#[test]
fn a_change_that_fails_changes_nothing() {
    let place = Place::new();
    let mut store = store(&place.path("keys"), &["a"]);
    let before = fs::read(place.path("keys/store")).unwrap();
    let refused = store.change(|ring| {
        ring.create("b", None)?;
        ring.create("b", None)
    });
    assert!(refused.is_err());
    assert_eq!(store.ring().labels().len(), 1);
    assert_eq!(fs::read(place.path("keys/store")).unwrap(), before);
}

/// What somebody exports and another imports.
fn hand_over(place: &Place, from: &Ring) -> Ring {
    let file = place.path("export");
    let _ = fs::remove_file(&file);
    write_export(&file, from, &passphrase("between us"), cheap()).unwrap();
    let wrong = read_export(&file, || Some(passphrase("something else"))).unwrap_err();
    assert!(matches!(wrong, KeyError::WrongPassphrase { .. }));
    read_export(&file, || Some(passphrase("between us"))).unwrap()
}

#[test]
fn a_collaborator_reads_and_does_not_write() {
    let place = Place::new();
    let (owner, reader) = (place.path("owner"), place.path("reader"));
    let made = store(&owner, &["clinical", "private"]);
    let mut theirs = store(&reader, &[]);
    let chosen = made.ring().extract(&["clinical".to_owned()], Rights::Read, Some(now() + 60)).unwrap();
    let export = hand_over(&place, &chosen);
    assert_eq!(theirs.ring().compare(&export), [("clinical".to_owned(), Effect::Adds)]);
    theirs.change(|ring| ring.adopt(&export, &[("clinical".to_owned(), Effect::Adds)])).unwrap();

    let (owner, mine) = (keys(&owner), keys(&reader));
    let key = Secret32::from_bytes(KEY);
    let wrapped = owner.wrap("clinical", 1, b"context", &key).unwrap();
    assert_eq!(mine.unwrap("clinical", 1, b"context", &wrapped).unwrap(), key);
    assert_eq!(mine.verifying_key("clinical", 1), owner.verifying_key("clinical", 1));
    assert!(!mine.label("clinical").unwrap().may_write);
    assert!(mine.label("clinical").unwrap().expires.is_some() && owner.label("clinical").unwrap().expires.is_none());
    assert!(matches!(mine.label("private"), Err(KeyError::NoLabel { .. })));
    for refused in [mine.wrap("clinical", 1, b"", &key).map(drop), mine.sign("clinical", 1, b"").map(drop)] {
        assert!(matches!(refused, Err(KeyError::MayNotWrite { .. })));
    }
    let clinical = &["clinical".to_owned()];
    for refused in [
        theirs.change(|ring| ring.rotate("clinical", None).map(drop)),
        theirs.change(|ring| ring.expire("clinical", None, None)),
        theirs.ring().extract(clinical, Rights::ReadAndWrite, None).map(drop),
    ] {
        assert!(matches!(refused, Err(KeyError::MayNotWrite { .. })));
    }
    theirs.ring().extract(clinical, Rights::Read, None).unwrap();
}

#[test]
fn an_import_adds_and_never_takes_what_is_newer() {
    let place = Place::new();
    let clinical = ["clinical".to_owned()];
    let mut owner = store(&place.path("owner"), &["clinical"]);
    let mut reader = store(&place.path("reader"), &[]);
    let export = |owner: &Store, rights| owner.ring().extract(&clinical, rights, None).unwrap();
    let first = export(&owner, Rights::Read);
    reader.change(|ring| ring.adopt(&first, &ring.compare(&first))).unwrap();
    assert_eq!(reader.ring().compare(&first)[0].1, Effect::Keeps);

    // Another version, then the right to write; an older export takes neither away.
    owner.change(|ring| ring.rotate("clinical", None)).unwrap();
    for (rights, may_write) in [(Rights::Read, false), (Rights::ReadAndWrite, true)] {
        let next = export(&owner, rights);
        assert_eq!(reader.ring().compare(&next)[0].1, Effect::Extends);
        reader.change(|ring| ring.adopt(&next, &ring.compare(&next))).unwrap();
        assert_eq!(reader.ring().compare(&first)[0].1, Effect::Keeps);
        reader.change(|ring| ring.adopt(&first, &ring.compare(&first))).unwrap();
        let label = keys(&place.path("reader")).label("clinical").unwrap();
        assert_eq!((label.version, label.may_write), (2, may_write));
    }

    // A lifetime for readers does not become its owner's.
    let limited = owner.ring().extract(&clinical, Rights::Read, Some(now() + 60)).unwrap();
    assert_eq!(owner.ring().compare(&limited)[0].1, Effect::Keeps);

    // Somebody else's label of the same name.
    let other = store(&place.path("other"), &["clinical"]);
    let mut newer = other.ring().extract(&clinical, Rights::ReadAndWrite, None).unwrap();
    assert_eq!(owner.ring().compare(&newer)[0].1, Effect::Replaces);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    owner.change(|ring| ring.rotate("clinical", None)).unwrap();
    assert_eq!(owner.ring().compare(&newer)[0].1, Effect::Refuses);
    let refused = owner.change(|ring| ring.adopt(&newer, &ring.compare(&newer))).unwrap_err();
    assert!(matches!(refused, KeyError::Newer { .. }));
    newer.rotate("clinical", None).unwrap();
    assert_eq!(owner.ring().compare(&newer)[0].1, Effect::Replaces);
    owner.change(|ring| ring.adopt(&newer, &ring.compare(&newer))).unwrap();
    let theirs = newer.labels()[0].newest().verifying_key;
    assert_eq!(keys(&place.path("owner")).label("clinical").unwrap().verifying_key, theirs);
}

#[test]
fn an_export_is_no_store_and_nothing_else_is_an_export() {
    let place = Place::new();
    let made = store(&place.path("keys"), &["clinical"]);
    let refused = read_export(&place.path("keys/store"), || Some(passphrase("x"))).unwrap_err();
    assert!(matches!(refused, KeyError::NoExport { .. }), "{refused}");
    let export = place.path("keys/export");
    let chosen = made.ring().extract(&["clinical".to_owned()], Rights::Read, None).unwrap();
    write_export(&export, &chosen, &passphrase("between us"), cheap()).unwrap();
    assert!(matches!(read_export(&export, || None), Err(KeyError::Locked { .. })));
    assert!(write_export(&export, &chosen, &passphrase("between us"), cheap()).is_err(), "nothing is overwritten");
    let mut altered = fs::read(&export).unwrap();
    *altered.last_mut().unwrap() ^= 1;
    fs::write(&export, &altered).unwrap();
    let refused = read_export(&export, || Some(passphrase("between us"))).unwrap_err();
    assert!(matches!(refused, KeyError::Altered { .. }), "{refused}");
    fs::rename(&export, place.path("keys/store")).unwrap();
    assert!(matches!(reopen(&place.path("keys")), Err(KeyError::Altered { .. })));
}

#[test]
fn anchors_only_go_forward_unless_they_are_told_to() {
    let place = Place::new();
    store(&place.path("keys"), &[]);
    let keys = keys(&place.path("keys"));
    let (file, other) = ([7; 16], [8; 16]);
    let anchor = |generation, root| Anchor { generation, root: [root; 32] };
    assert_eq!(keys.anchor(&file).unwrap(), None);
    for next in [anchor(1, 1), anchor(1, 2), anchor(5, 3), anchor(5, 3)] {
        keys.set_anchor(&file, &[], &next).unwrap();
        assert_eq!(keys.anchor(&file).unwrap(), Some(next));
    }
    let refused = keys.set_anchor(&file, &[], &anchor(4, 3)).unwrap_err();
    assert!(matches!(refused, KeyError::OlderAnchor { held: 5, given: 4, .. }));
    assert_eq!(keys.anchor(&other).unwrap(), None);
    keys.put_anchor_back(&file, &[], &anchor(4, 3)).unwrap();
    assert_eq!(keys.anchor(&file).unwrap(), Some(anchor(4, 3)));

    // An anchor cannot be altered, nor stand for another file.
    let path = |file: &[u8; 16]| {
        let name: String = file.iter().map(|byte| format!("{byte:02x}")).collect();
        place.path("keys/anchors").join(name)
    };
    let whole = fs::read(path(&file)).unwrap();
    fs::copy(path(&file), path(&other)).unwrap();
    assert!(matches!(keys.anchor(&other), Err(KeyError::Altered { .. })));
    for bit in 0..whole.len() * 8 {
        let mut altered = whole.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        fs::write(path(&file), &altered).unwrap();
        assert!(matches!(keys.anchor(&file), Err(KeyError::Altered { .. })), "bit {bit}");
    }
    fs::write(path(&file), &whole[..71]).unwrap();
    assert!(matches!(keys.anchor(&file), Err(KeyError::Altered { .. })));
}

#[test]
fn of_many_anchors_at_once_the_latest_stays() {
    let place = Place::new();
    store(&place.path("keys"), &[]);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = place.path("keys");
            scope.spawn(move || {
                let keys = keys(&path);
                for step in 0..25_u64 {
                    let anchor = Anchor { generation: step * 4 + writer, root: [0; 32] };
                    match keys.set_anchor(&[1; 16], &[], &anchor) {
                        Ok(()) | Err(KeyError::OlderAnchor { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(keys(&place.path("keys")).anchor(&[1; 16]).unwrap().unwrap().generation, 99);
}

#[test]
fn the_session_remembers_an_unlocked_store_until_it_is_locked() {
    let place = Place::new();
    let path = place.path("keys");
    let made = Store::create(&path, Protection::Passphrase(passphrase("correct horse"), cheap())).unwrap();
    if let Err(error) = made.remember(Some(600)) {
        // Containers may forbid it; that is said, and nothing is open.
        assert!(error.to_string().contains("keyring"), "{error}");
        assert!(matches!(reopen(&path), Err(KeyError::Locked { .. })));
        return;
    }
    assert_eq!(gambeson_keys::state(&path).unwrap(), State::Unlocked);
    let mut opened = reopen(&path).unwrap();
    opened.change(|ring| ring.create("clinical", None)).unwrap();
    assert!(gambeson_keys::forget(&path).unwrap());
    assert!(!gambeson_keys::forget(&path).unwrap());
    assert!(matches!(reopen(&path), Err(KeyError::Locked { .. })));
    // Another passphrase locks it again everywhere.
    opened.remember(None).unwrap();
    opened.change_passphrase(&passphrase("another horse"), cheap()).unwrap();
    assert!(matches!(reopen(&path), Err(KeyError::Locked { .. })));
}
