//! kill -9 at any moment: all that was acknowledged is there, and the database opens.
//!
//! The test starts itself: the child opens the database, rotates and gets in several threads, and writes a line into a pipe
//! for each change that it was told is done.

use std::collections::HashMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gambeson_keyd::{Database, Event};

use crate::harness::{Folder, Master, create, fresh, open, person, rotate, versions};

const THREADS: usize = 6;

#[test]
fn nothing_acknowledged_is_lost() {
    let rounds: u32 = env::var("GAMBESON_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(30);
    let folder = Folder::new();
    let database = fresh(&folder);
    for thread in 0..THREADS {
        create(&database, &format!("label{thread}")).unwrap();
    }
    drop(database);
    let (mut all, mut rotated) = (0, HashMap::new());
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for round in 0..rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let acknowledged = killed(&folder, Duration::from_micros(1000 + (random >> 33) % 60_000));
        let database = open(&folder).unwrap_or_else(|why| panic!("round {round}: {why}"));
        let rows = database.read(|snapshot| snapshot.log(1, usize::MAX)).unwrap();
        let marks: Vec<String> =
            rows.iter().filter_map(|row| Some(row.about().get("mark")?.as_str()?.to_owned())).collect();
        let marks: std::collections::HashSet<String> = marks.into_iter().collect();
        for line in &acknowledged {
            match line.split_once(' ').unwrap() {
                ("mark", mark) => assert!(marks.contains(mark), "round {round}: {mark} was acknowledged"),
                (label, version) => {
                    let version: usize = version.parse().unwrap();
                    let held = rotated.entry(label.to_owned()).or_insert(0);
                    *held = version.max(*held);
                }
            }
        }
        for (label, &version) in &rotated {
            assert!(versions(&database, label) >= Some(version), "round {round}: {label} had version {version}");
        }
        all += acknowledged.len();
    }
    println!("{rounds} rounds, {all} changes acknowledged, none lost");
    assert!(all > 10 * rounds as usize, "{all} changes in {rounds} rounds");
}

/// What a child had acknowledged when it was killed.
fn killed(folder: &Folder, after: Duration) -> Vec<String> {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--ignored", "--nocapture", "--test-threads=1"])
        .env("GAMBESON_KILL_CHILD", folder.database())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // It has opened the database, which verifies what the last one left.
    let begun = lines.by_ref().find(|line| line.as_ref().is_ok_and(|line| line == "begun"));
    assert!(begun.is_some(), "the child never began");
    let reader = thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<String>>());
    thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    let lines = reader.join().unwrap();
    // A line that is not whole was not said.
    let whole = |line: &String| line.strip_suffix('.').map(str::to_owned);
    lines.iter().filter_map(whole).collect()
}

/// Started by the test above; by itself it does nothing.
#[test]
#[ignore = "is what the test above kills"]
fn child() {
    let Some(path) = env::var_os("GAMBESON_KILL_CHILD") else { return };
    let database = Database::open(path.as_ref(), &Master(1)).unwrap();
    // The harness's own line about this test is not at its end yet.
    say("\nbegun\n");
    let until = Instant::now() + Duration::from_secs(20);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let database = &database;
            scope.spawn(move || {
                let label = format!("label{thread}");
                for number in 0.. {
                    if Instant::now() > until {
                        return;
                    }
                    if number % 4 == 0 {
                        let version = rotate(database, &label).unwrap();
                        say(&format!("{label} {version}.\n"));
                    } else {
                        let mark = format!("{}-{thread}-{number}", std::process::id());
                        let event = Event::new("test", &person("ann")).about("mark", mark.as_str());
                        database.change(move |transaction| transaction.log(&event)).unwrap();
                        say(&format!("mark {mark}.\n"));
                    }
                }
            });
        }
    });
}

/// In one write, so that lines of several threads never mix.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).unwrap();
}
