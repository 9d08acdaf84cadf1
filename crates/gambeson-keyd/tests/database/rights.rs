//! Who may do what, and until when.

use gambeson_keyd::access::{decide, keys_for, may_see};
use gambeson_keyd::{Error, Grant, LabelRecord, Right, Rights, Who};
use gambeson_keys::Rights::{Read, ReadAndWrite};

use crate::harness::{Folder, create, get, grant, log, person, with_label};

const READ: Rights = Rights { read: true, write: false, administer: false };
const WRITE: Rights = Rights { read: false, write: true, administer: false };
const ADMINISTER: Rights = Rights { read: false, write: false, administer: true };
const NOW: u64 = 2_000_000_000;

#[test]
fn each_right_allows_what_it_says() {
    let mut record = LabelRecord::create("clinical", None, &person("ann")).unwrap();
    record.grant(Grant::new("user:bob", READ, None).unwrap());
    record.grant(Grant::new("user:carl", WRITE, None).unwrap());
    record.grant(Grant::new("user:olga", ADMINISTER, None).unwrap());
    let may = |name: &str| {
        let rights = [Right::Read, Right::Write, Right::Administer].into_iter();
        rights.map(|right| decide("clinical", Some(&record), &person(name), right, NOW).is_ok()).collect::<Vec<_>>()
    };
    assert_eq!(may("ann"), [true, true, true]);
    assert_eq!(may("bob"), [true, false, false]);
    assert_eq!(may("carl"), [true, true, false]);
    // An officer may revoke without reading.
    assert_eq!(may("olga"), [false, false, true]);
    assert_eq!(may("dora"), [false, false, false]);
    assert!(may_see(&record, &person("olga"), NOW) && !may_see(&record, &person("dora"), NOW));
    let signs = |name: &str, rights| {
        keys_for("clinical", Some(&record), &person(name), rights, NOW).map(|entry| entry.newest().may_write())
    };
    assert_eq!(signs("carl", ReadAndWrite), Ok(true));
    assert_eq!(signs("carl", Read), Ok(false));
    assert_eq!(signs("bob", Read), Ok(false));
    assert!(signs("bob", ReadAndWrite).unwrap_err().answer.contains("user:bob may read label \"clinical\""));
    assert_eq!(record.revoke("user:carl").unwrap().rights, WRITE);
    assert!(decide("clinical", Some(&record), &person("carl"), Right::Read, NOW).is_err());
}

#[test]
fn strangers_hear_the_same_whether_a_label_exists_or_not() {
    let record = LabelRecord::create("clinical", None, &person("ann")).unwrap();
    for right in [Right::Read, Right::Write, Right::Administer] {
        let there = decide("clinical", Some(&record), &person("bob"), right, NOW).unwrap_err();
        let nowhere = decide("clinical", None, &person("bob"), right, NOW).unwrap_err();
        assert_eq!(there.answer, nowhere.answer);
        assert!(there.answer.contains("nobody granted it to user:bob"), "{}", there.answer);
        assert_ne!(there.reason, nowhere.reason);
    }
}

#[test]
fn roles_are_matched_whole_or_by_their_kind() {
    let host = Who { name: "h1".into(), roles: vec!["host".into(), "dns:h1".into()], ..person("x") };
    let for_all = |role: &str, who: &Who| Grant::new(role, READ, None).unwrap().is_for(who);
    assert!(for_all("user:*", &person("ann")) && !for_all("user:*", &host));
    assert!(for_all("dns:h1", &host) && for_all("dns:*", &host) && !for_all("dns:h", &host));
    assert!(!for_all("user:an", &person("ann")) && !for_all("user:anna", &person("ann")));
    let nameless = Who { roles: vec!["user:".into()], ..person("x") };
    assert!(!for_all("user:*", &nameless));
    assert_eq!((person("ann").principal(), host.principal()), ("user:ann", "dns:h1"));
    for role in ["", "*", "user:", ":ann", "user:a*", "u*:ann", "*:*", "user:ann\n", "user:a b", "ann"] {
        assert!(matches!(Grant::new(role, READ, None), Err(Error::NoRole { .. })), "{role:?}");
    }
}

#[test]
fn grants_and_versions_end_when_they_should() {
    let mut record = LabelRecord::create("clinical", Some(NOW + 100), &person("ann")).unwrap();
    record.grant(Grant::new("user:bob", READ, Some(NOW + 50)).unwrap());
    record.grant(Grant::new("user:*", READ, Some(NOW + 20)).unwrap());
    let expires = |record: &LabelRecord, name: &str, now| {
        keys_for("clinical", Some(record), &person(name), Read, now).map(|entry| entry.newest().expires)
    };
    // The earlier of the version's end and the grant's; the later of two grants.
    assert_eq!(expires(&record, "ann", NOW), Ok(Some(NOW + 100)));
    assert_eq!(expires(&record, "bob", NOW), Ok(Some(NOW + 50)));
    assert_eq!(expires(&record, "dora", NOW), Ok(Some(NOW + 20)));
    assert_eq!(expires(&record, "bob", NOW + 49), Ok(Some(NOW + 50)));
    let ended = expires(&record, "bob", NOW + 50).unwrap_err();
    assert!(ended.answer.contains("to user:bob ended on"), "{}", ended.answer);
    let over = expires(&record, "ann", NOW + 100).unwrap_err();
    assert!(over.answer.contains("gambeson key expire clinical --on never"), "{}", over.answer);
    // What is over is not given; what is served on is.
    assert_eq!(record.rotate(None), Ok(2));
    let entry = keys_for("clinical", Some(&record), &person("ann"), ReadAndWrite, NOW + 100).unwrap();
    assert_eq!(entry.versions().iter().map(|version| version.number).collect::<Vec<_>>(), [2]);
    // An older version that is served longer is no way to go on sealing.
    record.expire(Some(1), None).unwrap();
    record.expire(Some(2), Some(NOW)).unwrap();
    let refused = keys_for("clinical", Some(&record), &person("ann"), ReadAndWrite, NOW).unwrap_err();
    assert!(refused.answer.contains("gambeson key rotate clinical"), "{}", refused.answer);
    assert!(keys_for("clinical", Some(&record), &person("ann"), Read, NOW).is_ok());
}

#[test]
fn every_get_and_refusal_is_a_row_with_who_and_why() {
    let folder = Folder::new();
    let database = with_label(&folder);
    grant(&database, "clinical", "user:bob", READ);
    get(&database, "clinical", &person("bob")).unwrap();
    let refused = get(&database, "clinical", &person("dora")).unwrap_err();
    let nowhere = get(&database, "nowhere", &person("dora")).unwrap_err();
    assert_eq!(refused.to_string().replace("clinical", "nowhere"), nowhere.to_string());
    create(&database, "open.data").unwrap();
    assert_eq!(log(&database), ["init", "create", "grant", "get", "refusal", "refusal", "create"]);
    let rows = database.read(|snapshot| snapshot.log_of("clinical", u64::MAX, 2)).unwrap();
    assert_eq!(rows.iter().map(|row| row.event.as_str()).collect::<Vec<_>>(), ["refusal", "get"]);
    assert_eq!(rows[0].who(), Some(person("dora")));
    assert_eq!(rows[0].about()["reason"], "no grant is for any of his roles");
    let older = database.read(|snapshot| snapshot.log_of("clinical", rows[1].number, 10)).unwrap();
    assert_eq!(older.len(), 2);
}
