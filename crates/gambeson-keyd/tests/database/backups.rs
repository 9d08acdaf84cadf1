//! Backups and changes of keys while writers run; and that no secret is ever in a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use gambeson_keyd::{Database, Error};

use crate::harness::{Folder, Master, create, delete, fresh, get, log, open, person, rotate, versions, with_label};

/// Runs something while four threads rotate and get, and says how often they did, at least.
fn under_load<T>(database: &Database, act: impl FnOnce() -> T) -> (T, u64) {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let outcome = thread::scope(|scope| {
        for number in 0..4 {
            let (stop, done) = (&stop, &done);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if number == 0 {
                        rotate(database, "clinical").unwrap();
                    } else {
                        get(database, "clinical", &person("ann")).unwrap();
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while done.load(Ordering::Relaxed) < 20 {
            thread::sleep(Duration::from_millis(1));
        }
        let outcome = act();
        let then = done.load(Ordering::Relaxed);
        while done.load(Ordering::Relaxed) < then + 20 {
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        outcome
    });
    (outcome, done.load(Ordering::Relaxed))
}

#[test]
fn a_backup_made_under_load_is_restored_as_it_was_at_one_moment() {
    let folder = Folder::new();
    let database = with_label(&folder);
    let (tails, _) = under_load(&database, || {
        let backup = |number| database.backup(&folder.path(&format!("backup{number}"))).unwrap();
        (0..5).map(backup).collect::<Vec<_>>()
    });
    assert!(tails.windows(2).all(|pair| pair[0].number <= pair[1].number));
    for (number, tail) in tails.iter().enumerate() {
        let (backup, place) = (folder.path(&format!("backup{number}")), folder.path(&format!("restored{number}")));
        assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!folder.path(&format!("backup{number}-wal")).exists());
        let verified = Database::restore(&backup, &place, &Master(1), &person("root")).unwrap();
        assert_eq!((&verified.tail, verified.labels), (tail, 1));
        let restored = Database::open(&place, &Master(1)).unwrap();
        assert_eq!(restored.verify(Some(tail)).unwrap().tail.number, tail.number + 1);
        assert_eq!(log(&restored).last().unwrap(), "restore");
        let rotations = log(&restored).iter().filter(|event| *event == "rotate").count();
        assert_eq!(versions(&restored, "clinical"), Some(1 + rotations));
        database.verify(Some(tail)).unwrap();
    }
}

#[test]
fn what_is_in_the_way_of_a_backup_or_is_none_is_refused() {
    let folder = Folder::new();
    let database = with_label(&folder);
    let (backup, place) = (folder.path("backup"), folder.path("restored"));
    database.backup(&backup).unwrap();
    assert!(matches!(database.backup(&backup), Err(Error::Exists { .. })));
    let restore = |backup: &Path, place: &Path, master| Database::restore(backup, place, &Master(master), &person("x"));
    assert!(matches!(restore(&backup, &folder.database(), 1), Err(Error::InUse { .. })));
    drop(database);
    assert!(matches!(restore(&backup, &folder.database(), 1), Err(Error::Exists { .. })));
    assert!(matches!(restore(&backup, &place, 2), Err(Error::Master { .. })));
    assert!(matches!(restore(&folder.path("nothing"), &place, 1), Err(Error::NoBackup { .. })));
    // Another database's journal would be written into it.
    fs::write(folder.path("restored-wal"), b"of another database").unwrap();
    let refused = restore(&backup, &place, 1).unwrap_err().to_string();
    assert!(refused.contains("the journal of another database stands beside it") && !place.exists(), "{refused}");
    fs::remove_file(folder.path("restored-wal")).unwrap();
    let connection = rusqlite::Connection::open(&backup).unwrap();
    connection.execute_batch("UPDATE records SET name = 'other'").unwrap();
    drop(connection);
    assert!(matches!(restore(&backup, &place, 1), Err(Error::Altered { .. })));
    fs::set_permissions(&backup, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(restore(&backup, &place, 1), Err(Error::Exposed { .. })));
    assert!(!place.exists() && !folder.path("restored.new").exists());
}

#[test]
fn another_master_key_under_load() {
    let folder = Folder::new();
    let database = with_label(&folder);
    let ((), _) = under_load(&database, || {
        for master in [2, 3] {
            database.change_master(&Master(master), false, &person("root")).unwrap();
        }
    });
    let (tail, rotations) = (database.tail(), versions(&database, "clinical"));
    drop(database);
    for master in [1, 2] {
        assert!(matches!(Database::open(&folder.database(), &Master(master)), Err(Error::Master { .. })));
    }
    let database = Database::open(&folder.database(), &Master(3)).unwrap();
    assert_eq!((database.tail(), versions(&database, "clinical")), (tail, rotations));
    assert_eq!(log(&database).iter().filter(|event| *event == "master").count(), 2);
}

#[test]
fn another_database_key_under_load_seals_everything_anew() {
    let folder = Folder::new();
    let database = with_label(&folder);
    create(&database, "open.data").unwrap();
    let sealed = |database: &Database| {
        let connection = rusqlite::Connection::open(database.path()).unwrap();
        let mut read = connection.prepare("SELECT sealed FROM records ORDER BY name").unwrap();
        let read = read.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
        read.collect::<Result<Vec<_>, _>>().unwrap()
    };
    let before = sealed(&database);
    let old = database.seed().key;
    let ((), _) = under_load(&database, || database.change_master(&Master(2), true, &person("root")).unwrap());
    assert!(database.seed().key != old);
    assert_eq!(log(&database).iter().filter(|event| *event == "reseal").count(), 2);
    database.verify(None).unwrap();
    drop(database);
    // What the old key opens is not even in the journal.
    for file in ["keys.db", "keys.db-wal"] {
        let bytes = fs::read(folder.path(file)).unwrap_or_default();
        assert!(before.iter().all(|sealed| !contains(&bytes, sealed)), "{file}");
    }
    assert!(matches!(open(&folder), Err(Error::Master { .. })));
    let database = Database::open(&folder.database(), &Master(2)).unwrap();
    assert!(get(&database, "open.data", &person("ann")).is_ok());
}

#[test]
fn a_master_key_that_does_not_serve_changes_nothing() {
    struct Broken;
    impl gambeson_master::MasterKey for Broken {
        fn name(&self) -> String {
            "broken".into()
        }
        fn wrap(
            &self,
            _: &[u8],
            _: &gambeson_proto::secret::Secret32,
        ) -> Result<Vec<u8>, gambeson_master::MasterError> {
            Ok(vec![1])
        }
        fn unwrap(&self, _: &[u8], _: &[u8]) -> Result<gambeson_proto::secret::Secret32, gambeson_master::MasterError> {
            Ok(gambeson_proto::secret::Secret32::from_bytes([1; 32]))
        }
    }
    let folder = Folder::new();
    let database = with_label(&folder);
    let tail = database.tail();
    for new_database_key in [false, true] {
        let refused = database.change_master(&Broken, new_database_key, &person("root"));
        assert!(matches!(refused, Err(Error::Master { .. })));
    }
    assert!(matches!(Database::create(&folder.path("other"), &Broken), Err(Error::Master { .. })));
    assert!(!folder.path("other").exists());
    assert_eq!(database.tail(), tail);
    drop(database);
    open(&folder).unwrap();
}

#[test]
fn no_secret_is_ever_in_a_file() {
    let folder = Folder::new();
    let database = fresh(&folder);
    let mut secrets: Vec<Vec<u8>> = vec![database.seed().key.as_bytes().to_vec(), vec![1; 32], vec![2; 32]];
    let mut gather = |database: &Database| {
        for record in database.read(|snapshot| snapshot.labels()).unwrap() {
            // Name, count; then versions of 125 bytes, each with the wrapping key and the seed.
            let bytes = record.entry.encode();
            for version in bytes[1 + record.name().len() + 2..].chunks(125) {
                secrets.extend([version[60..92].to_vec(), version[93..125].to_vec()]);
            }
        }
        secrets.len()
    };
    for number in 0..10 {
        let name = format!("label{number}");
        create(&database, &name).unwrap();
        for _ in 0..number {
            rotate(&database, &name).unwrap();
        }
        get(&database, &name, &person("ann")).unwrap();
    }
    assert_eq!(gather(&database), 3 + 2 * 55);
    delete(&database, "label9").unwrap();
    database.backup(&folder.path("backup")).unwrap();
    database.change_master(&Master(2), true, &person("root")).unwrap();
    secrets.push(database.seed().key.as_bytes().to_vec());
    rotate(&database, "label1").unwrap();
    database.backup(&folder.path("backup2")).unwrap();
    assert!(fs::metadata(folder.path("keys.db-wal")).unwrap().len() > 0, "the journal has something to search");
    let mut searched = 0;
    for file in fs::read_dir(folder.path("")).unwrap() {
        let file = file.unwrap().path();
        let bytes = fs::read(&file).unwrap();
        searched += bytes.len();
        for secret in &secrets {
            // Half of one would be as bad.
            for half in [&secret[..16], &secret[16..]] {
                assert!(!contains(&bytes, half), "{} has a secret in clear", file.display());
            }
        }
    }
    assert!(searched > 200_000, "{searched}");
}

fn contains(bytes: &[u8], sought: &[u8]) -> bool {
    let first = sought[0];
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| byte == first) {
        if rest[at..].starts_with(sought) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}
