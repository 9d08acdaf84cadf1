//! Making, opening, and changing one.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;
use std::{fs, thread};

use gambeson_keyd::audit::events;
use gambeson_keyd::{Database, Error, Event};

use crate::harness::{Folder, Master, create, fresh, get, log, open, person, rotate, versions, with_label};

#[test]
fn what_was_written_is_there_when_it_is_opened_again() {
    let folder = Folder::new();
    let database = with_label(&folder);
    let before = get(&database, "clinical", &person("ann")).unwrap();
    assert_eq!(rotate(&database, "clinical"), Ok(2));
    let tail = database.tail();
    drop(database);
    let database = open(&folder).unwrap();
    assert_eq!(database.tail(), tail);
    assert_eq!(versions(&database, "clinical"), Some(2));
    let after = get(&database, "clinical", &person("ann")).unwrap();
    // A name, a count, and what the first version has.
    assert_eq!(before[1 + 8 + 2..][..28], after[1 + 8 + 2..][..28]);
    assert_eq!(log(&database), ["init", "create", "get", "rotate", "get"]);
    database.verify(Some(&tail)).unwrap();
    let mode = fs::metadata(folder.database()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn another_master_key_opens_nothing_and_says_whose_it_is() {
    let folder = Folder::new();
    drop(with_label(&folder));
    let refused = Database::open(&folder.database(), &Master(2)).unwrap_err();
    assert!(matches!(refused, Error::Master { .. }), "{refused:?}");
    let said = refused.to_string();
    assert!(said.contains("master 1") && said.contains("master 2"), "{said}");
    open(&folder).unwrap();
}

#[test]
fn places_that_will_not_do_are_refused() {
    let folder = Folder::new();
    assert!(matches!(open(&folder), Err(Error::NoDatabase { .. })));
    let database = fresh(&folder);
    assert!(matches!(open(&folder), Err(Error::InUse { .. })));
    drop(database);
    assert!(matches!(Database::create(&folder.database(), &Master(1)), Err(Error::Exists { .. })));
    let set = |name: &str, mode| fs::set_permissions(folder.path(name), fs::Permissions::from_mode(mode)).unwrap();
    set("keys.db", 0o640);
    assert!(matches!(open(&folder), Err(Error::Exposed { .. })));
    set("keys.db", 0o600);
    set("", 0o770);
    assert!(matches!(open(&folder), Err(Error::Exposed { .. })));
    set("", 0o700);
    drop(open(&folder).unwrap());
    fs::write(folder.path("other.db"), "no database, and long enough to be looked at as one").unwrap();
    set("other.db", 0o600);
    assert!(matches!(Database::open(&folder.path("other.db"), &Master(1)), Err(Error::Altered { .. })));
}

#[test]
fn changes_that_wait_share_a_commit_and_each_hears_of_its_own() {
    let folder = Folder::new();
    let database = fresh(&folder);
    let (held, hold) = mpsc::channel::<()>();
    // The first change keeps the writer busy until all others wait.
    let first = database.clone();
    let first = thread::spawn(move || {
        first.change(move |_| {
            hold.recv().unwrap();
            Ok(())
        })
    });
    let (told, tells) = mpsc::channel();
    for number in 0..100_u64 {
        let told = told.clone();
        let change = move |transaction: &mut gambeson_keyd::Transaction<'_>| {
            transaction.log(&Event::new("test", &person("ann")).about("number", number))?;
            if number % 3 == 0 { Err(Error::Refused { answer: format!("no {number}") }) } else { Ok(number) }
        };
        database.submit(change, move |outcome| told.send((number, outcome)).unwrap());
    }
    held.send(()).unwrap();
    first.join().unwrap().unwrap();
    for (number, outcome) in tells.iter().take(100) {
        let wanted = if number % 3 == 0 { Err(Error::Refused { answer: format!("no {number}") }) } else { Ok(number) };
        assert_eq!(outcome, wanted);
    }
    assert_eq!(log(&database).len(), 1 + 66);
    database.verify(None).unwrap();
}

#[test]
fn a_change_that_says_no_leaves_its_refusals_alone() {
    let folder = Folder::new();
    let database = with_label(&folder);
    let refused = database.change(|transaction| -> Result<(), Error> {
        let ann = person("ann");
        transaction.delete_label("clinical", &Event::new(events::DELETE, &ann))?;
        assert!(transaction.label("clinical")?.is_none(), "a change sees what it has changed");
        transaction.log(&Event::new(events::GET, &ann))?;
        transaction.refuse(Event::refusal(&ann, "delete", "told to").label("clinical"));
        Err(Error::Refused { answer: "no".into() })
    });
    assert_eq!(refused, Err(Error::Refused { answer: "no".into() }));
    assert_eq!(versions(&database, "clinical"), Some(1));
    assert_eq!(log(&database), ["init", "create", "refusal"]);
    // Somebody else's panic is not the others' end.
    let panicked: Result<(), Error> = database.change(|transaction| {
        transaction.log(&Event::new(events::GET, &person("ann")))?;
        panic!("as a test");
    });
    assert!(matches!(panicked, Err(Error::System { .. })));
    create(&database, "open.data").unwrap();
    assert_eq!(log(&database), ["init", "create", "refusal", "create"]);
    drop(database);
    open(&folder).unwrap().verify(None).unwrap();
}

#[test]
fn readers_see_one_moment_while_writers_go_on() {
    let folder = Folder::new();
    let database = with_label(&folder);
    let (rotations, begin) = (Arc::new(AtomicU64::new(0)), Arc::new(Barrier::new(5)));
    thread::scope(|scope| {
        for _ in 0..2 {
            let (database, rotations, begin) = (database.clone(), Arc::clone(&rotations), Arc::clone(&begin));
            scope.spawn(move || {
                begin.wait();
                for _ in 0..50 {
                    rotate(&database, "clinical").unwrap();
                    rotations.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..3 {
            let (database, begin, rotations) = (database.clone(), Arc::clone(&begin), Arc::clone(&rotations));
            scope.spawn(move || {
                begin.wait();
                while rotations.load(Ordering::Relaxed) < 100 {
                    let seen = database.read(|snapshot| {
                        let (tail, record) = (snapshot.tail()?, snapshot.label("clinical")?.unwrap());
                        thread::sleep(Duration::from_micros(200));
                        assert_eq!(snapshot.tail()?, tail);
                        assert_eq!(snapshot.log(tail.number + 1, 1)?, []);
                        Ok((tail.number, record.entry.versions().len() as u64))
                    });
                    let (rows, versions) = seen.unwrap();
                    assert_eq!(rows, versions + 1);
                }
            });
        }
    });
    assert_eq!(versions(&database, "clinical"), Some(101));
    database.verify(None).unwrap();
}

#[test]
fn who_waits_for_rows_is_woken_by_them() {
    let folder = Folder::new();
    let database = fresh(&folder);
    let tail = database.tail();
    assert_eq!(database.wait_past(tail.number, Duration::from_millis(5)), tail);
    let waits = database.clone();
    let waits = thread::spawn(move || waits.wait_past(tail.number, Duration::from_secs(60)));
    create(&database, "clinical").unwrap();
    assert_eq!(waits.join().unwrap().number, tail.number + 1);
}

#[test]
fn the_last_handle_may_go_in_a_listener() {
    let folder = Folder::new();
    let database = fresh(&folder);
    let (told, tells) = mpsc::channel();
    let last = database.clone();
    database.submit(
        |transaction| transaction.log(&Event::new("test", &person("ann"))),
        move |outcome| {
            thread::sleep(Duration::from_millis(20));
            drop(last);
            told.send(outcome).unwrap();
        },
    );
    drop(database);
    tells.recv().unwrap().unwrap();
    for _ in 0..100 {
        match open(&folder) {
            // The thread is about to let go of it.
            Err(Error::InUse { .. }) => thread::sleep(Duration::from_millis(10)),
            opened => return assert_eq!(log(&opened.unwrap()), ["init", "test"]),
        }
    }
    panic!("it is never let go of");
}

#[test]
fn a_row_that_is_too_long_is_refused_alone() {
    let folder = Folder::new();
    let database = fresh(&folder);
    let long = Event::new("test", &person("ann")).about("text", "x".repeat(100_000));
    let refused = database.change({
        let long = long.clone();
        move |transaction| transaction.log(&long)
    });
    assert!(matches!(refused, Err(Error::System { .. })));
    // What was changed does not stay where its refusal cannot be written.
    let refused = database.change(move |transaction| {
        transaction.log(&Event::new("test", &person("ann")))?;
        transaction.refuse(long);
        Ok(())
    });
    assert!(matches!(refused, Err(Error::System { .. })));
    assert_eq!(log(&database), ["init"]);
    database.verify(None).unwrap();
}
