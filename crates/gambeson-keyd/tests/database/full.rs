//! A disk that is full: changes fail, nothing of them stays, and when there is room again all goes on.
//!
//! The test starts itself under a limit of how long a file may be, with the signal of that ignored: then writing beyond it
//! fails as on a full disk.

use std::collections::BTreeSet;
use std::env;
use std::process::Command;
use std::thread;

use gambeson_keyd::{Database, Error, Event};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::{Folder, Master, create, fresh, open, person};

#[test]
fn a_full_disk_fails_changes_whole() {
    let folder = Folder::new();
    create(&fresh(&folder), "clinical").unwrap();
    let done = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "full::child", "--ignored", "--nocapture", "--test-threads=1"])
        .env("GAMBESON_FULL_CHILD", folder.database())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    let told = |what: &str| {
        let marks = said.lines().filter_map(|line| line.strip_prefix(what)).map(str::to_owned);
        marks.collect::<BTreeSet<String>>()
    };
    let database = open(&folder).unwrap();
    let rows = database.read(|snapshot| snapshot.log(1, usize::MAX)).unwrap();
    let marks: BTreeSet<String> =
        rows.iter().filter_map(|row| Some(row.about().get("mark")?.as_str()?.to_owned())).collect();
    assert_eq!(marks, told("made "));
    assert!(told("made ").len() > 20 && told("failed ").len() > 20, "{said}");
    assert!(told("made ").contains("last"));
}

/// Started by the test above; by itself it does nothing.
#[test]
#[ignore = "is what the test above starts"]
fn child() {
    let Some(path) = env::var_os("GAMBESON_FULL_CHILD") else { return };
    let database = Database::open(path.as_ref(), &Master(1)).unwrap();
    let limit = |current: Option<u64>| {
        let maximum = getrlimit(Resource::Fsize).maximum;
        setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
    };
    println!();
    limit(Some(300_000));
    thread::scope(|scope| {
        for thread in 0..4 {
            let database = &database;
            scope.spawn(move || {
                (0..60).for_each(|number| mark(database, &format!("{thread}-{number}"), number % 2 == 0))
            });
        }
    });
    // Without room, there is still all that was made.
    assert!(database.read(|snapshot| snapshot.label("clinical")).unwrap().is_some());
    mark(&database, "none", false);
    let trouble = database.health().trouble().unwrap();
    assert!(trouble.why.contains("cannot be used") && database.health().failures() > 0, "{trouble:?}");
    limit(None);
    mark(&database, "last", false);
    assert_eq!(database.health().trouble(), None);
    database.verify(None).unwrap();
}

/// Writes a mark, as a row or as a refusal, and says whether it was told that it is there.
fn mark(database: &Database, mark: &str, refuse: bool) {
    let event = Event::new("test", &person("ann")).about("mark", mark).about("text", "x".repeat(3000));
    let outcome = database.change(move |transaction| -> Result<(), Error> {
        if refuse {
            transaction.log(&Event::new("test", &person("ann")).about("text", "y".repeat(3000)))?;
            transaction.refuse(event);
            return Err(Error::Refused { answer: "no".into() });
        }
        // Going on after that is careless, and is not to do any harm.
        let first = transaction.log(&event);
        transaction.log(&Event::new("test", &person("ann")))?;
        first
    });
    match outcome {
        Ok(()) | Err(Error::Refused { .. }) => println!("made {mark}"),
        Err(Error::System { .. }) => println!("failed {mark}"),
        Err(why) => panic!("{why}"),
    }
}
