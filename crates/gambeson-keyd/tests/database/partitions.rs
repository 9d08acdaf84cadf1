//! Partitions in the database: sealed, changed by whom the log says, the same at a standby, and moved there whole.

use gambeson_keyd::audit::events;
use gambeson_keyd::database::Batch;
use gambeson_keyd::partitions::{PARTITION, Vault, all, make, take};
use gambeson_keyd::{Database, Error};
use gambeson_launch::partitions::{Cabinet, Change, Record, Shelf};
use gambeson_link::{KeyHash, Peer};

use crate::harness::{Folder, Master, fresh, log, open, person};

fn changed(database: &Database, name: &str, what: Change) -> Result<Option<u32>, Error> {
    let name = name.to_owned();
    database.change(move |open| make(open, &person("olga"), &name, &what))
}

fn create(database: &Database, name: &str) {
    let hosts = vec!["h1".to_owned(), "H2".to_owned()];
    assert_eq!(changed(database, name, Change::Create { hosts }).unwrap(), Some(1));
}

fn record(database: &Database, name: &str) -> Vec<u8> {
    database.read(|here| here.record(PARTITION, name)).unwrap().unwrap().to_vec()
}

fn host() -> Peer {
    Peer {
        key: KeyHash::parse(&"ab".repeat(32)).unwrap(),
        name: "h3".into(),
        roles: vec!["host".into(), "dns:h3".into()],
        host: "h3".into(),
        address: None,
    }
}

fn vault(database: &Database) -> Vault {
    Vault::new(database.clone(), || Ok(()))
}

#[test]
fn a_partition_is_sealed_and_the_log_says_who_changed_it() {
    let folder = Folder::new();
    let database = fresh(&folder);
    create(&database, "clinic");
    let first = record(&database, "clinic");
    assert_eq!(changed(&database, "clinic", Change::Rotate).unwrap(), Some(2));
    changed(&database, "clinic", Change::Add { hosts: vec!["h3".into()], site: None }).unwrap();
    let refused = changed(&database, "clinic", Change::Add { hosts: vec!["h3".into()], site: None });
    assert!(matches!(refused, Err(Error::Senseless { .. })), "{refused:?}");
    let refused = changed(&database, "ward", Change::Rotate);
    assert!(matches!(refused, Err(Error::Declined { .. })), "{refused:?}");
    let rows = database.read(|here| here.log(2, usize::MAX)).unwrap();
    let told: Vec<_> = rows.iter().map(|row| row.event.as_str()).collect();
    let change = events::PARTITION_CHANGE;
    assert_eq!(told, [change, change, change, events::REFUSAL, events::REFUSAL]);
    assert!(rows.iter().all(|row| row.who().is_some_and(|who| who.name == "user:olga")));
    let listed = database.read(all).unwrap();
    assert_eq!((listed[0].epoch.unwrap().0, listed[0].members.len()), (2, 3));
    drop(database);
    // Neither epoch's secret, nor a member, is in any file as it is in the record.
    let database = open(&folder).unwrap();
    let second = record(&database, "clinic");
    assert_ne!(first, second);
    drop(database);
    for entry in std::fs::read_dir(folder.path("")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for record in [&first, &second] {
            let line = &record[..record.iter().position(|&byte| byte == b'\n').unwrap()];
            let digits = &line[line.len() - 64..];
            let secret = data_encoding::HEXLOWER.decode(digits).unwrap();
            assert!(!bytes.windows(64).any(|window| window == digits));
            assert!(!bytes.windows(32).any(|window| window == secret));
        }
    }
}

#[test]
fn a_standby_has_them_and_writes_down_who_asks() {
    let folder = Folder::new();
    let primary = fresh(&folder);
    let standby = Database::create_standby(&folder.path("standby.db"), &Master(9), &primary.seed()).unwrap();
    create(&primary, "clinic");
    while standby.tail() != primary.tail() {
        let batch = primary.since(standby.tail().number, 1 << 20).unwrap();
        standby.apply(Batch::decode(&batch.encode()).unwrap()).unwrap();
    }
    let (here, there) = (vault(&primary), vault(&standby));
    assert_eq!(there.names().unwrap(), ["clinic"]);
    assert_eq!(there.partition("clinic").unwrap(), here.partition("clinic").unwrap());
    assert_eq!(there.epoch("clinic").unwrap(), here.epoch("clinic").unwrap());
    let before = (standby.tail(), there.mark());
    let decide = Box::new(|shelf: &dyn Shelf| {
        assert!(shelf.partition("clinic").unwrap().is_some());
        let no = gambeson_launch::Error::Refused("h3 is no member".into());
        (vec![("partition", "clinic".into())], Err(no))
    });
    assert!(there.give(&host(), decide.clone()).is_err());
    assert_eq!((standby.tail(), there.mark()), before, "its own rows are aside");
    let rows = primary.tail();
    let replaced = Vault::new(primary.clone(), || Err(Error::Replaced { host: "k1".into(), by: None }));
    assert!(replaced.give(&host(), decide.clone()).is_err());
    assert_eq!(primary.tail(), rows, "who was replaced neither decides nor writes");
    assert!(here.give(&host(), decide).is_err());
    assert_eq!(log(&primary).last().unwrap(), events::REFUSAL);
    assert!(matches!(changed(&standby, "clinic", Change::Rotate), Err(Error::Standby { .. })));
}

#[test]
fn partitions_are_taken_in_all_or_none() {
    let (from, to) = (Folder::new(), Folder::new());
    let (from, to) = (fresh(&from), fresh(&to));
    for name in ["clinic", "ward"] {
        create(&from, name);
    }
    let taken = |names: &[&str]| {
        let records: Vec<_> = names.iter().map(|&name| (name.to_owned(), record(&from, name))).collect();
        to.change(move |open| {
            take(open, &person("root"), records.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])))
        })
    };
    create(&to, "ward");
    assert!(matches!(taken(&["clinic", "ward"]), Err(Error::Declined { .. })));
    assert_eq!(vault(&to).names().unwrap(), ["ward"], "none, if one is there that is another");
    taken(&["clinic"]).unwrap();
    // As after an answer that was lost.
    taken(&["clinic"]).unwrap();
    assert_eq!(record(&to, "clinic"), record(&from, "clinic"));
    assert!(Record::decode(&record(&to, "clinic")).is_some());
    let nonsense = to.change(|open| take(open, &person("root"), [("x", &b"1 2 3\nhosts = []\n"[..])]));
    assert!(matches!(nonsense, Err(Error::Senseless { .. })));
}
