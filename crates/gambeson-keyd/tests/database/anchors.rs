//! Where files were last.

use gambeson_keyd::database::Direction;
use gambeson_keyd::{Database, Error, Rights, Who};
use gambeson_keys::Anchor;

use crate::harness::{Folder, behind_its_back, create, delete, grant, log, open, person, with_label};

const FILE: [u8; 16] = [7; 16];
const LAST: u64 = 1 << 40;
const READ: Rights = Rights { read: true, write: false, administer: false };
const WRITE: Rights = Rights { read: false, write: true, administer: false };

fn at(generation: u64) -> Anchor {
    Anchor { generation, root: [generation as u8; 32] }
}

fn set(database: &Database, who: &Who, label: Option<&str>, anchor: Anchor, direction: Direction) -> Result<(), Error> {
    let (who, label) = (who.clone(), label.map(str::to_owned));
    database.change(move |transaction| transaction.anchor(&who, label.as_deref(), &FILE, &anchor, direction))
}

fn held(database: &Database) -> Option<u64> {
    database.read(|snapshot| Ok(snapshot.anchor(&FILE)?.map(|row| row.anchor.generation))).unwrap()
}

#[test]
fn generations_go_forward_and_have_a_history() {
    let folder = Folder::new();
    let database = with_label(&folder);
    let ann = person("ann");
    assert_eq!(held(&database), None);
    for generation in [3, 5, LAST] {
        set(&database, &ann, Some("clinical"), at(generation), Direction::Forward).unwrap();
    }
    // From the last number on there would be no next.
    let far = set(&database, &ann, None, at(u64::MAX), Direction::Forward);
    assert!(matches!(far, Err(Error::Refused { .. })), "{far:?}");
    let older = set(&database, &ann, Some("clinical"), at(5), Direction::Forward);
    assert_eq!(older, Err(Error::OlderAnchor { file: FILE, held: LAST, given: 5 }));
    // The same once more is no second row; another root of one generation is.
    set(&database, &ann, None, at(LAST), Direction::Forward).unwrap();
    set(&database, &ann, None, Anchor { root: [9; 32], ..at(LAST) }, Direction::Forward).unwrap();
    assert_eq!(log(&database), ["init", "create", "anchor", "anchor", "anchor", "refusal", "refusal", "anchor"]);
    drop(database);
    let database = open(&folder).unwrap();
    let rows = database.read(|snapshot| snapshot.anchors(&FILE, 10)).unwrap();
    let history: Vec<_> = rows.iter().map(|row| (row.anchor.generation, row.anchor.root[0], row.back)).collect();
    assert_eq!(history, [(LAST, 9, false), (LAST, 0, false), (5, 5, false), (3, 3, false)]);
    assert!(rows.iter().all(|row| row.label == "clinical" && row.who == "user:ann"));
    assert_eq!(database.verify(None).unwrap().files, 1);
}

#[test]
fn the_first_anchor_binds_a_file_to_its_label() {
    let folder = Folder::new();
    let database = with_label(&folder);
    create(&database, "open.data").unwrap();
    let (ann, bob) = (person("ann"), person("bob"));
    assert!(matches!(set(&database, &ann, None, at(1), Direction::Forward), Err(Error::Refused { .. })));
    assert!(matches!(set(&database, &ann, Some("nowhere"), at(1), Direction::Forward), Err(Error::Refused { .. })));
    set(&database, &ann, Some("clinical"), at(1), Direction::Forward).unwrap();
    // Who may write under another label gets at no file of this one's, by whatever name.
    grant(&database, "open.data", "user:bob", Rights::ALL);
    for label in [Some("open.data"), Some("clinical"), None] {
        for direction in [Direction::Forward, Direction::Back] {
            let refused = set(&database, &bob, label, at(2), direction);
            assert!(matches!(refused, Err(Error::Refused { .. })), "{label:?} {direction:?}: {refused:?}");
        }
    }
    grant(&database, "clinical", "user:bob", READ);
    assert!(matches!(set(&database, &bob, None, at(2), Direction::Forward), Err(Error::Refused { .. })));
    assert_eq!(held(&database), Some(1));
    grant(&database, "clinical", "user:bob", WRITE);
    set(&database, &bob, None, at(2), Direction::Forward).unwrap();
    assert_eq!(held(&database), Some(2));
    let refusals = log(&database).iter().filter(|event| *event == "refusal").count();
    assert_eq!(refusals, 2 + 6 + 1);
    // Without its label nobody has rights to it, and who makes another of that name has none over what was.
    delete(&database, "clinical").unwrap();
    assert!(matches!(set(&database, &ann, None, at(3), Direction::Forward), Err(Error::Refused { .. })));
    assert_eq!(held(&database), Some(2));
    create(&database, "clinical").unwrap();
    assert_eq!(held(&database), None);
    assert!(matches!(set(&database, &ann, None, at(1), Direction::Back), Err(Error::Refused { .. })));
    let life = database.read(|snapshot| snapshot.life("clinical")).unwrap();
    let first = database.read(|snapshot| snapshot.log(life, 1)).unwrap().remove(0);
    assert_eq!((first.event.as_str(), first.label.as_deref()), ("create", Some("clinical")));
    assert_eq!(database.read(|snapshot| snapshot.life("open.data")).unwrap(), 3);
}

#[test]
fn who_administers_may_put_an_anchor_back() {
    let folder = Folder::new();
    let database = with_label(&folder);
    let (ann, bob) = (person("ann"), person("bob"));
    grant(&database, "clinical", "user:bob", WRITE);
    set(&database, &bob, Some("clinical"), at(7), Direction::Forward).unwrap();
    assert!(matches!(set(&database, &bob, None, at(4), Direction::Back), Err(Error::Refused { .. })));
    set(&database, &ann, None, at(4), Direction::Back).unwrap();
    assert_eq!(held(&database), Some(4));
    set(&database, &bob, None, at(5), Direction::Forward).unwrap();
    let rows = database.read(|snapshot| snapshot.anchors(&FILE, 10)).unwrap();
    assert_eq!(rows.iter().map(|row| row.back).collect::<Vec<_>>(), [false, true, false]);
    drop(database);
    // An anchor is a row of the log: nobody moves one behind the service's back.
    behind_its_back(&folder.database(), "UPDATE log SET file = zeroblob(16) WHERE event = 'anchor-back'");
    assert!(matches!(open(&folder), Err(Error::Altered { .. })));
}
