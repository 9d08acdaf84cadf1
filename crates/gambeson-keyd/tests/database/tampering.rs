//! What is altered in the file behind the database's back is noticed.

use std::fs;

use gambeson_keyd::{Database, Error, Event, Tail};
use rusqlite::Connection;

use crate::harness::{
    Folder, Master, behind_its_back, create, delete, fresh, get, open, person, rotate, versions, with_label,
};

/// A database with a few rows, altered by SQL: what opening it says.
fn altered(sql: &str) -> String {
    let folder = Folder::new();
    let database = with_label(&folder);
    rotate(&database, "clinical").unwrap();
    create(&database, "open.data").unwrap();
    get(&database, "clinical", &person("ann")).unwrap();
    get(&database, "nowhere", &person("bob")).unwrap_err();
    drop(database);
    behind_its_back(&folder.database(), sql);
    match open(&folder) {
        Err(why @ Error::Altered { .. }) => why.to_string(),
        other => panic!("{sql}: {other:?}"),
    }
}

#[test]
fn each_alteration_of_the_log_is_noticed_where_it_is() {
    let columns = ["time = 1", "event = 'x'", "label = NULL", "label = 'x'", "file = zeroblob(16)", "who = '{}'"];
    let columns =
        columns.into_iter().chain(["about = '{\"x\":1}'", "hash = zeroblob(32)", "record = NULL", "sealed = NULL"]);
    for column in columns {
        let said = altered(&format!("UPDATE log SET {column} WHERE number = 3"));
        assert!(said.contains("row 3 of its log"), "{column}: {said}");
    }
    let removed = altered("DELETE FROM log WHERE number = 4");
    assert!(removed.contains("row 4 of its log"), "{removed}");
    let closed_up = altered("DELETE FROM log WHERE number = 4; UPDATE log SET number = number - 1 WHERE number > 4");
    assert!(closed_up.contains("row 4 of its log"), "{closed_up}");
    let cut = altered("DELETE FROM log WHERE number > 4");
    assert!(cut.contains("its log, which ends with 4:"), "{cut}");
    let reordered = altered(
        "UPDATE log SET number = -1 WHERE number = 4; UPDATE log SET number = 4 WHERE number = 5; \
         UPDATE log SET number = 5 WHERE number = -1",
    );
    assert!(reordered.contains("row 4 of its log"), "{reordered}");
    let inserted = altered(
        "INSERT INTO log SELECT number + 1, time, event, label, file, record, sealed, who, about, hash FROM log \
         ORDER BY number DESC LIMIT 1",
    );
    assert!(inserted.contains("row 7 of its log"), "{inserted}");
}

#[test]
fn a_chain_that_was_computed_anew_ends_otherwise_than_was_sealed() {
    let folder = Folder::new();
    let database = with_label(&folder);
    get(&database, "clinical", &person("eve")).unwrap_err();
    get(&database, "clinical", &person("ann")).unwrap();
    let rows = database.read(|snapshot| snapshot.log(1, 100)).unwrap();
    let id = database.id();
    drop(database);
    // Everything that the chain is over is in clear, so who can write can compute it: here without the refusal.
    let start = sha256(&[&b"gambeson keyd log v1"[..], &id].concat());
    let mut before = start;
    let mut sql = String::from("DELETE FROM log;");
    for (at, row) in rows.iter().filter(|row| row.event != "refusal").enumerate() {
        let mut row = row.clone();
        row.number = at as u64 + 1;
        before = chained(&before, &row);
        if at < 2 {
            assert_eq!(before, row.hash, "the documented hash is the hash");
        }
        let hex = |bytes: &[u8]| format!("x'{}'", data_encoding::HEXLOWER.encode(bytes));
        let text = |text: &Option<String>| text.as_ref().map_or("NULL".into(), |text| format!("'{text}'"));
        sql += &format!(
            "INSERT INTO log VALUES({}, {}, '{}', {}, NULL, {}, {}, '{}', '{}', {});",
            row.number,
            row.time,
            row.event,
            text(&row.label),
            text(&row.record),
            row.sealed.map_or("NULL".into(), |sealed| hex(&sealed)),
            row.who,
            row.about,
            hex(&before)
        );
    }
    behind_its_back(&folder.database(), &sql);
    let said = open(&folder).unwrap_err().to_string();
    assert!(said.contains("its log, which ends with 3:"), "{said}");
}

/// As docs/key-service-format.md has it, without the crate's own.
fn chained(before: &[u8; 32], row: &gambeson_keyd::Row) -> [u8; 32] {
    let mut bytes = before.to_vec();
    bytes.extend(row.number.to_be_bytes());
    bytes.extend(row.time.to_be_bytes());
    let text = |text: &str| Some(text.as_bytes().to_vec());
    for field in [
        text(&row.event),
        row.label.as_deref().and_then(text),
        row.file.map(|file| file.to_vec()),
        row.record.as_deref().and_then(text),
        row.sealed.map(|sealed| sealed.to_vec()),
        text(&row.who),
        text(&row.about),
    ] {
        bytes.extend(field.as_ref().map_or(u32::MAX, |field| field.len() as u32).to_be_bytes());
        bytes.extend(field.unwrap_or_default());
    }
    sha256(&bytes)
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref().try_into().unwrap()
}

#[test]
fn an_older_record_put_back_is_noticed() {
    let folder = Folder::new();
    let database = with_label(&folder);
    let copy = || {
        let connection = Connection::open(folder.database()).unwrap();
        let sql = "SELECT serial, hex(sealed) FROM records WHERE name = 'clinical'";
        connection.query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))).unwrap()
    };
    let (serial, sealed) = copy();
    rotate(&database, "clinical").unwrap();
    let put_back = format!("UPDATE records SET serial = {serial}, sealed = x'{sealed}' WHERE name = 'clinical'");
    // While it is open: nobody gets it.
    Connection::open(folder.database()).unwrap().execute_batch(&put_back).unwrap();
    let said = get(&database, "clinical", &person("ann")).unwrap_err();
    assert!(matches!(said, Error::Altered { .. }), "{said}");
    assert!(matches!(database.read(|snapshot| snapshot.label("clinical")), Err(Error::Altered { .. })));
    assert!(matches!(database.verify(None), Err(Error::Altered { .. })));
    drop(database);
    // And when it is opened.
    let said = open(&folder).unwrap_err().to_string();
    assert!(said.contains("the label \"clinical\""), "{said}");
}

#[test]
fn records_taken_out_moved_or_brought_back_are_noticed() {
    let said = altered("DELETE FROM records WHERE name = 'clinical'");
    assert!(said.contains("record label/clinical, which is gone"), "{said}");
    for sql in [
        "UPDATE records SET name = 'clinical2' WHERE name = 'clinical'",
        "UPDATE records SET kind = 'partition' WHERE name = 'clinical'",
        "UPDATE records SET sealed = zeroblob(100) WHERE name = 'clinical'",
        "UPDATE records SET sealed = (SELECT sealed FROM records WHERE name = 'open.data') WHERE name = 'clinical'",
        "UPDATE records SET serial = serial + 1 WHERE name = 'clinical'",
        "INSERT INTO records SELECT kind, 'other', serial, sealed FROM records WHERE name = 'clinical'",
    ] {
        altered(sql);
    }
    let folder = Folder::new();
    let database = with_label(&folder);
    let connection = Connection::open(folder.database()).unwrap();
    connection.execute_batch("CREATE TEMP TABLE kept AS SELECT * FROM records").unwrap();
    delete(&database, "clinical").unwrap();
    connection.execute_batch("INSERT INTO records SELECT * FROM kept").unwrap();
    assert!(matches!(get(&database, "clinical", &person("ann")), Err(Error::Altered { .. })));
    drop((connection, database));
    assert!(matches!(open(&folder), Err(Error::Altered { .. })));
}

#[test]
fn what_is_not_in_the_log_or_the_records_is_noticed_too() {
    for (sql, what) in [
        ("UPDATE meta SET value = zeroblob(60) WHERE name = 'state'", "the sealed end of its log"),
        ("DELETE FROM meta WHERE name = 'state'", "the sealed end of its log"),
        ("CREATE TRIGGER more AFTER INSERT ON log BEGIN DELETE FROM records; END", "tables, indices and triggers"),
        ("DROP INDEX log_records", "tables, indices and triggers"),
        ("CREATE TABLE more(x)", "tables, indices and triggers"),
        ("PRAGMA application_id = 1", "no key database's"),
    ] {
        let said = altered(sql);
        assert!(said.contains(what), "{sql}: {said}");
    }
    let folder = Folder::new();
    drop(with_label(&folder));
    // Another database's id: nothing is bound to it.
    behind_its_back(&folder.database(), "UPDATE meta SET value = zeroblob(16) WHERE name = 'id'");
    assert!(matches!(open(&folder), Err(Error::Master { .. })));
}

#[test]
fn an_index_that_leads_elsewhere_is_noticed() {
    let folder = Folder::new();
    let database = with_label(&folder);
    rotate(&database, "clinical").unwrap();
    drop(database);
    // The index says nothing of the newest row, as if somebody had edited its page.
    let sql = "PRAGMA writable_schema = ON; \
               UPDATE sqlite_schema SET sql = 'CREATE INDEX log_records ON log(record, number) WHERE number < 3' \
               WHERE name = 'log_records'";
    behind_its_back(&folder.database(), sql);
    behind_its_back(&folder.database(), "REINDEX log_records");
    let sql = "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET \
               sql = 'CREATE INDEX log_records ON log(record, number) WHERE record IS NOT NULL' \
               WHERE name = 'log_records'";
    behind_its_back(&folder.database(), sql);
    let said = open(&folder).unwrap_err().to_string();
    assert!(said.contains("SQLite's pages"), "{said}");
}

#[test]
fn the_whole_file_as_it_was_shows_to_who_kept_the_tail() {
    let folder = Folder::new();
    let database = with_label(&folder);
    drop(database);
    let older = fs::read(folder.database()).unwrap();
    let database = open(&folder).unwrap();
    rotate(&database, "clinical").unwrap();
    let kept = database.tail();
    create(&database, "open.data").unwrap();
    assert_eq!(database.verify(Some(&kept)).unwrap().tail, database.tail());
    drop(database);
    fs::write(folder.database(), older).unwrap();
    // By itself it is as it was written.
    let database = open(&folder).unwrap();
    assert_eq!(versions(&database, "clinical"), Some(1));
    database.verify(None).unwrap();
    let said = database.verify(Some(&kept)).unwrap_err();
    assert!(matches!(said, Error::RolledBack { .. }), "{said}");
    // Nor does it help to write as many rows again.
    for _ in 0..3 {
        get(&database, "clinical", &person("ann")).unwrap();
    }
    assert!(database.tail().number > kept.number);
    let text = kept.to_string();
    let kept: Tail = text.parse().unwrap();
    assert!(matches!(database.verify(Some(&kept)), Err(Error::RolledBack { since, .. }) if since == text));
}

#[test]
fn the_log_is_neither_altered_nor_cut_by_accident() {
    let folder = Folder::new();
    let database = with_label(&folder);
    let connection = Connection::open(folder.database()).unwrap();
    for sql in [
        "UPDATE log SET who = 'nobody'",
        "DELETE FROM log",
        "DELETE FROM log WHERE number = 2",
        "INSERT OR REPLACE INTO log SELECT * FROM log WHERE number = 1",
        "REPLACE INTO log SELECT 1, time, 'x', label, file, record, sealed, who, about, hash FROM log WHERE number = 2",
        "INSERT INTO aside SELECT * FROM log; DELETE FROM aside",
    ] {
        let refused = connection.execute_batch(sql).unwrap_err().to_string();
        assert!(refused.contains("rows of the log are not"), "{sql}: {refused}");
    }
    connection.execute_batch("ROLLBACK").ok();
    drop(database);
}

#[test]
fn flipped_bytes_never_give_anything_else_than_was_written() {
    let folder = Folder::new();
    let database = fresh(&folder);
    for number in 0..20 {
        create(&database, &format!("label{number}")).unwrap();
        let log = move |transaction: &mut gambeson_keyd::Transaction<'_>| {
            transaction.log(&Event::new("test", &person("ann")).about("text", "x".repeat(300)))
        };
        database.change(log).unwrap();
    }
    let tail = database.tail();
    drop(database);
    let whole = fs::read(folder.database()).unwrap();
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    let (mut refused, rounds) = (0, 150);
    for _ in 0..rounds {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut bytes = whole.clone();
        let at = (random >> 8) as usize % bytes.len();
        bytes[at] ^= 1 << (random % 8);
        fs::write(folder.database(), &bytes).unwrap();
        match Database::open(&folder.database(), &Master(1)) {
            Err(_) => refused += 1,
            // A byte that nothing is in, as in a free part of a page or a page's counter.
            Ok(database) => {
                assert_eq!(database.tail(), tail, "byte {at}");
                assert_eq!(database.read(|snapshot| snapshot.labels()).unwrap().len(), 20);
            }
        }
        let _ = fs::remove_file(folder.path("keys.db-wal"));
        let _ = fs::remove_file(folder.path("keys.db-shm"));
    }
    assert!(refused > rounds / 4, "{refused} of {rounds}");
}
