//! A second database that follows, and takes the first one's place.

use std::time::Duration;

use gambeson_keyd::audit::events;
use gambeson_keyd::database::{Batch, Role};
use gambeson_keyd::{Database, Error, Event, LabelRecord};

use crate::harness::{Folder, Master, create, delete, get, grant, log, person, rotate, versions, with_label};

const LARGE: usize = 1 << 20;

type Alteration = fn(&mut Batch);

fn standby_of(folder: &Folder, primary: &Database) -> Database {
    Database::create_standby(&folder.path("standby.db"), &Master(9), &primary.seed()).unwrap()
}

/// Ships all that the standby has not got, in batches of a size, as bytes.
fn follow(standby: &Database, primary: &Database, size: usize) {
    while standby.tail() != primary.tail() {
        let batch = primary.since(standby.tail().number, size).unwrap();
        let batch = Batch::decode(&batch.encode()).unwrap();
        standby.apply(batch).unwrap();
        standby.verify(None).unwrap();
    }
}

#[test]
fn a_standby_has_what_its_primary_has_in_pieces_of_any_size() {
    for size in [1, 600, 5000, LARGE] {
        let folder = Folder::new();
        let primary = with_label(&folder);
        let standby = standby_of(&folder, &primary);
        assert_eq!((standby.role(), primary.role()), ((Role::Standby, 0), (Role::Primary, 0)));
        for number in 0..5 {
            create(&primary, &format!("label{number}")).unwrap();
            rotate(&primary, "clinical").unwrap();
            get(&primary, "clinical", &person("ann")).unwrap();
        }
        delete(&primary, "label0").unwrap();
        delete(&primary, "label1").unwrap();
        create(&primary, "label1").unwrap();
        follow(&standby, &primary, size);
        assert_eq!(log(&standby), log(&primary));
        for label in ["clinical", "label0", "label1", "label4"] {
            let keys = |database: &Database| {
                let label = database.read(|snapshot| snapshot.label(label)).unwrap();
                label.map(|record| record.entry.encode().to_vec())
            };
            assert_eq!(keys(&standby), keys(&primary), "{label}");
        }
        // Its own master key opens it.
        drop(standby);
        let standby = Database::open(&folder.path("standby.db"), &Master(9)).unwrap();
        assert_eq!(standby.tail(), primary.tail());
        rotate(&primary, "clinical").unwrap();
        follow(&standby, &primary, size);
        assert_eq!(versions(&standby, "clinical"), Some(7));
    }
}

#[test]
fn a_standby_gives_keys_and_changes_nothing() {
    let folder = Folder::new();
    let primary = with_label(&folder);
    let standby = standby_of(&folder, &primary);
    follow(&standby, &primary, LARGE);
    let tail = standby.tail();
    get(&standby, "clinical", &person("ann")).unwrap();
    get(&standby, "clinical", &person("eve")).unwrap_err();
    for refused in [
        create(&standby, "x"),
        delete(&standby, "clinical"),
        rotate(&standby, "clinical").map(drop),
        standby.change_master(&Master(8), true, &person("root")),
    ] {
        assert!(matches!(refused, Err(Error::Standby { .. })), "{refused:?}");
    }
    // Another master key of its own it may have.
    standby.change_master(&Master(8), false, &person("root")).unwrap();
    assert_eq!(standby.tail(), tail);
    let aside = standby.aside(10).unwrap();
    assert_eq!(aside.iter().map(|row| row.event.as_str()).collect::<Vec<_>>(), ["get", "refusal", "master"]);
    // They are handed on, and if the answer is lost once more.
    for _ in 0..2 {
        primary.take_aside("keys2", standby.aside(2).unwrap()).unwrap();
    }
    standby.aside_given(2).unwrap();
    primary.take_aside("keys2", standby.aside(10).unwrap()).unwrap();
    standby.aside_given(3).unwrap();
    assert_eq!(standby.aside(10).unwrap(), []);
    assert_eq!(log(&primary), ["init", "create", "get", "refusal", "aside", "master", "aside"]);
    let row = primary.read(|snapshot| snapshot.log(4, 1)).unwrap().remove(0);
    assert_eq!((row.who().unwrap(), row.about()["aside"]["standby"].as_str()), (person("eve"), Some("keys2")));
    follow(&standby, &primary, LARGE);
    assert_eq!(log(&standby), log(&primary));
    let mut rows = aside;
    rows[1].about = "{}".into();
    assert!(matches!(primary.take_aside("keys3", rows), Err(Error::NotNext { .. })));
}

#[test]
fn no_row_aside_is_too_long_to_be_taken_in() {
    let folder = Folder::new();
    let primary = with_label(&folder);
    let standby = standby_of(&folder, &primary);
    follow(&standby, &primary, LARGE);
    let log_of = |database: &Database, length: usize| {
        let event = Event::refusal(&person("mal"), "read", "there is no such label").label(&"x".repeat(length));
        database.change(move |change| change.log(&event))
    };
    // As long as a row aside may be.
    let (mut fits, mut fails) = (0, 64 << 10);
    while fails - fits > 1 {
        let middle = (fits + fails) / 2;
        if log_of(&standby, middle).is_ok() { fits = middle } else { fails = middle }
    }
    assert!(fits > 60 << 10, "{fits}");
    let count = standby.aside(100).unwrap().len();
    primary.take_aside("keys2", standby.aside(100).unwrap()).unwrap();
    assert_eq!(log(&primary).iter().filter(|event| *event == "refusal").count(), count);
    standby.promote(&person("root")).unwrap();
    assert_eq!(log(&standby).iter().filter(|event| *event == "refusal").count(), count);
    standby.verify(None).unwrap();
}

#[test]
fn a_standbys_rows_tell_of_no_change() {
    let folder = Folder::new();
    let primary = with_label(&folder);
    let standby = standby_of(&folder, &primary);
    follow(&standby, &primary, LARGE);
    let rows = log(&primary);
    for event in [events::ANCHOR, events::CREATE, events::GRANT] {
        let event = Event::new(event, &person("mal")).label("clinical").file(&[1; 16]).about("generation", "none");
        standby.change(move |change| change.log(&event)).unwrap();
        let aside = standby.aside(10).unwrap();
        let refused = primary.take_aside("keys2", aside);
        assert!(matches!(refused, Err(Error::NotNext { .. })), "{refused:?}");
    }
    assert_eq!(log(&primary), rows);
    drop(primary);
    Database::open(&folder.database(), &Master(1)).unwrap();
}

#[test]
fn what_does_not_go_on_is_refused() {
    let folder = Folder::new();
    let primary = with_label(&folder);
    let standby = standby_of(&folder, &primary);
    follow(&standby, &primary, LARGE);
    rotate(&primary, "clinical").unwrap();
    grant(&primary, "clinical", "user:bob", gambeson_keyd::Rights::ALL);
    create(&primary, "open.data").unwrap();
    let good = primary.since(standby.tail().number, LARGE).unwrap();
    assert_eq!((good.rows.len(), good.records.len()), (3, 2));
    let bad: [(&str, Alteration); 11] = [
        ("another beginning", |batch| batch.from.hash[0] ^= 1),
        ("a row less at its beginning", |batch| drop(batch.rows.remove(0))),
        ("a row less in it", |batch| drop(batch.rows.remove(1))),
        ("a row less at its end", |batch| drop(batch.rows.pop())),
        ("an altered row", |batch| batch.rows[1].who.push(' ')),
        ("an altered end", |batch| batch.end[20] ^= 1),
        ("an altered record", |batch| batch.records[0].sealed[30] ^= 1),
        ("an altered serial", |batch| batch.records[0].serial += 100),
        ("a record under another name", |batch| batch.records[0].name = "x".into()),
        ("a record twice", |batch| batch.records.push(batch.records[0].clone())),
        ("records that changed places", |batch| {
            let names: Vec<String> = batch.records.iter().rev().map(|record| record.name.clone()).collect();
            batch.records.iter_mut().zip(names).for_each(|(record, name)| record.name = name);
        }),
    ];
    let tail = standby.tail();
    for (what, alter) in bad {
        let mut batch = good.clone();
        alter(&mut batch);
        let refused = standby.apply(batch);
        assert!(matches!(refused, Err(Error::NotNext { .. })), "{what}: {refused:?}");
        assert_eq!(standby.tail(), tail, "{what}");
        standby.verify(None).unwrap();
    }
    assert!(matches!(primary.apply(good.clone()), Err(Error::NotNext { .. })));
    standby.apply(good.clone()).unwrap();
    assert!(matches!(standby.apply(good), Err(Error::NotNext { .. })), "a second time");
    // Who is further on than the primary has another history.
    assert!(matches!(primary.since(standby.tail().number + 1, LARGE), Err(Error::NotNext { .. })));
    // And what is sealed by another key is of another database, or after a change of the key.
    primary.change_master(&Master(1), true, &person("root")).unwrap();
    let resealed = primary.since(standby.tail().number, LARGE).unwrap();
    let said = standby.apply(resealed).unwrap_err().to_string();
    assert!(said.contains("another database key"), "{said}");
}

#[test]
fn a_record_left_out_of_a_batch_is_not_taken_for_one_that_was_removed() {
    let folder = Folder::new();
    let primary = with_label(&folder);
    let standby = standby_of(&folder, &primary);
    let mut batch = primary.since(0, LARGE).unwrap();
    batch.records.clear();
    // It cannot know: a batch that is cut looks the same. So it knows that it has less than its log says,
    standby.apply(batch).unwrap();
    assert_eq!(versions(&standby, "clinical"), None);
    standby.verify(None).unwrap();
    // and the next row that tells of the label brings it.
    rotate(&primary, "clinical").unwrap();
    follow(&standby, &primary, LARGE);
    assert_eq!(versions(&standby, "clinical"), Some(2));
}

#[test]
fn promotion_keeps_what_came_ahead_of_the_log_and_what_was_told_aside() {
    let folder = Folder::new();
    let primary = with_label(&folder);
    create(&primary, "gone").unwrap();
    let standby = standby_of(&folder, &primary);
    rotate(&primary, "clinical").unwrap();
    rotate(&primary, "clinical").unwrap();
    delete(&primary, "gone").unwrap();
    // The piece ends in front of the rotations and the removal.
    let batch = primary.since(0, LARGE).unwrap();
    let size = batch.rows[..3].iter().map(|row| row.who.len() + row.about.len()).sum::<usize>();
    let mut cut = primary.since(0, size).unwrap();
    for size in size.. {
        cut = primary.since(0, size).unwrap();
        if cut.rows.len() >= 3 {
            break;
        }
    }
    assert_eq!((cut.rows.len(), cut.records.len()), (3, 1));
    standby.apply(cut).unwrap();
    standby.verify(None).unwrap();
    assert_eq!((versions(&standby, "clinical"), versions(&standby, "gone")), (Some(3), None));
    get(&standby, "clinical", &person("ann")).unwrap();
    let (tail, keys) = (standby.tail(), get(&primary, "clinical", &person("ann")).unwrap());
    drop(standby);
    let standby = Database::open(&folder.path("standby.db"), &Master(9)).unwrap();
    standby.promote(&person("root")).unwrap();
    assert_eq!(standby.role(), (Role::Primary, 1));
    assert!(standby.promote(&person("root")).is_err());
    assert!(primary.begin_term(Role::Primary, 1, &person("root")).is_ok());
    assert_eq!((primary.role(), log(&primary).last().unwrap().as_str()), ((Role::Primary, 2), "promote"));
    assert_eq!(log(&standby), ["init", "create", "create", "promote", "adopt", "adopt", "get"]);
    standby.verify(Some(&tail)).unwrap();
    rotate(&standby, "clinical").unwrap();
    assert_eq!(versions(&standby, "clinical"), Some(4));
    let given = get(&standby, "clinical", &person("ann")).unwrap();
    // The first three versions are the primary's, but for the time at which they were narrowed.
    let secrets =
        |keys: &[u8]| keys[1 + 8 + 2..].chunks(93).take(3).map(|version| version[60..92].to_vec()).collect::<Vec<_>>();
    assert_eq!(secrets(&given), secrets(&keys));
    assert_eq!(versions(&standby, "gone"), None);
    create(&standby, "gone").unwrap();
    drop(standby);
    Database::open(&folder.path("standby.db"), &Master(9)).unwrap();
}

#[test]
fn who_was_the_primary_steps_down_and_hears_nothing_older() {
    let folder = Folder::new();
    let old = with_label(&folder);
    let new = standby_of(&folder, &old);
    follow(&new, &old, LARGE);
    new.promote(&person("root")).unwrap();
    old.step_down(new.role().1, &person("service")).unwrap();
    assert_eq!(old.role(), (Role::Standby, 1));
    assert!(matches!(create(&old, "x"), Err(Error::Standby { .. })));
    // It had nothing that the new one has not, so it goes on as a standby.
    rotate(&new, "clinical").unwrap();
    follow(&old, &new, LARGE);
    assert_eq!(log(&old), ["init", "create", "promote", "rotate"]);
    get(&old, "clinical", &person("ann")).unwrap();
    // What an older primary would say is not heard.
    let third = Database::create_standby(&folder.path("third.db"), &Master(9), &old.seed()).unwrap();
    follow(&third, &new, LARGE);
    third.promote(&person("root")).unwrap();
    new.step_down(third.role().1, &person("service")).unwrap();
    let stale = old.since(new.tail().number, LARGE).unwrap();
    let refused = new.apply(stale).unwrap_err().to_string();
    assert!(refused.contains("is of term 1, and it has heard of term 2"), "{refused}");
    // One that went another way is told so.
    create(&third, "a").unwrap();
    new.step_down(3, &person("service")).unwrap();
    new.promote(&person("root")).unwrap();
    let ways = third.since(2, LARGE).unwrap();
    new.step_down(4, &person("service")).unwrap();
    assert!(new.apply(ways).unwrap_err().to_string().contains("made anew"));
    drop((old, new, third));
    Database::open(&folder.path("third.db"), &Master(9)).unwrap();
}

#[test]
fn standbys_follow_writers_without_a_pause() {
    let folder = Folder::new();
    let primary = with_label(&folder);
    let standby = standby_of(&folder, &primary);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..200 {
                if number % 10 == 0 {
                    create(&primary, &format!("label{number}")).unwrap();
                }
                rotate(&primary, &format!("label{}", number / 10 * 10)).unwrap();
            }
        });
        while !writer.is_finished() || standby.tail() != primary.tail() {
            let number = standby.tail().number;
            primary.wait_past(number, Duration::from_millis(20));
            standby.apply(primary.since(number, 4000).unwrap()).unwrap();
        }
    });
    assert_eq!(standby.verify(None).unwrap(), primary.verify(None).unwrap());
}

#[test]
fn records_of_other_kinds_go_along() {
    let folder = Folder::new();
    let primary = with_label(&folder);
    let standby = standby_of(&folder, &primary);
    let done = primary.change(|transaction| {
        let event = Event::new("partition", &person("ann"));
        transaction.put_record("partition", "a/b", b"secret", &event)?;
        transaction.put_record("partition", "c", b"other", &event)?;
        transaction.delete_record("partition", "c", &event)?;
        assert!(matches!(transaction.delete_record("partition", "c", &event), Err(Error::NoRecord { .. })));
        let label = LabelRecord::create("x", None, &person("ann"))?;
        transaction.put_label(&label, &Event::new(events::CREATE, &person("ann")))
    });
    done.unwrap();
    follow(&standby, &primary, 1);
    let look = |database: &Database| {
        let look = |snapshot: &gambeson_keyd::Snapshot<'_>| {
            let partition = snapshot.record("partition", "a/b")?.map(|bytes| bytes.to_vec());
            Ok((partition, snapshot.names("partition")?, snapshot.record("partition", "c")?))
        };
        database.read(look).unwrap()
    };
    assert_eq!(look(&standby), (Some(b"secret".to_vec()), vec!["a/b".to_owned()], None));
    assert_eq!(look(&standby), look(&primary));
    assert_eq!(standby.verify(None).unwrap().records, 1);
}
