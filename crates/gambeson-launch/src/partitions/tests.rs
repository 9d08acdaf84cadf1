use std::fs;
use std::path::PathBuf;

use gambeson_proto::secret::Secret32;

use super::message::{Ask, Fetch, Grant, decode, encode};
use super::registry::{Wanting, grant as given, partners};
use super::*;
use crate::{Error, wire};

/// Partitions in a folder that goes with the test.
struct Room(PathBuf, Folder);

impl Room {
    fn new(name: &str) -> Self {
        let room = std::env::temp_dir().join(format!("gambeson-partitions-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&room);
        fs::create_dir_all(room.join("authority")).expect("a test may write there");
        let registry = Folder::of(&room);
        Room(room, registry)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join("authority/partitions").join(name)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn hosts(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn grant(registry: &Folder, host: &str) -> Result<Grant, String> {
    given(registry, "clinic", &Wanting::Host(hosts(&[host]))).map_err(|cause| cause.to_string())
}

fn create(name: &str, members: &[&str]) -> impl FnOnce(&Folder) -> Result<Option<u32>, Error> {
    let (name, hosts) = (name.to_owned(), hosts(members));
    move |folder| folder.change(&name, &Change::Create { hosts })
}

fn add(members: &[&str], site: Option<&str>) -> Change {
    Change::Add { hosts: hosts(members), site: site.map(str::to_owned) }
}

fn remove(members: &[&str], rotates: bool) -> Change {
    Change::Remove { hosts: hosts(members), rotates }
}

fn share(site: &str, key: &str) -> Change {
    Change::Share { site: site.to_owned(), key: key.to_owned() }
}

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

#[test]
fn members_get_the_secret_of_the_epoch_that_is() {
    let room = Room::new("members");
    let registry = &room.1;
    create("clinic", &["H1", "h2"])(registry).unwrap();
    let first = grant(registry, "h1").unwrap();
    assert_eq!((first.epoch, grant(registry, "h2").unwrap()), (1, first.clone()));
    assert!(grant(registry, "h3").unwrap_err().contains("h3 is no member of partition clinic"));
    assert_eq!(registry.change("clinic", &Change::Rotate).unwrap(), Some(2));
    registry.change("clinic", &add(&["h3"], None)).unwrap();
    assert!(registry.change("clinic", &add(&["H3"], None)).is_err());
    let second = grant(registry, "h3").unwrap();
    assert!(second.epoch == 2 && second.secret != first.secret);
    // The first one is nowhere any more.
    let digits: String = first.secret.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(!fs::read_to_string(room.file("clinic.secret")).unwrap().contains(&digits));
}

#[test]
fn who_was_removed_has_no_secret_of_what_comes() {
    let room = Room::new("removed");
    let registry = &room.1;
    create("clinic", &["h1", "h2", "h3"])(registry).unwrap();
    assert!(registry.change("clinic", &remove(&["h1", "h9"], true)).is_err());
    assert!(grant(registry, "h1").is_ok(), "all or none");
    assert_eq!(registry.change("clinic", &remove(&["h2"], true)).unwrap(), Some(2));
    assert!(grant(registry, "h2").is_err());
    assert_eq!(registry.change("clinic", &remove(&["h3"], false)).unwrap(), None);
    assert_eq!(grant(registry, "h1").unwrap().epoch, 2);
}

#[test]
fn a_site_gets_secrets_for_its_own_hosts_alone() {
    let room = Room::new("sites");
    let registry = &room.1;
    create("clinic", &["h1"])(registry).unwrap();
    assert!(registry.change("clinic", &add(&["w1"], Some("west"))).is_err(), "it is not shared yet");
    registry.change("clinic", &share("west", KEY)).unwrap();
    assert!(registry.change("clinic", &share("east", KEY)).is_err(), "one key, one name");
    assert!(registry.change("clinic", &share("west", &KEY[2..])).is_err());
    registry.change("clinic", &add(&["w1"], Some("west"))).unwrap();
    assert!(registry.change("clinic", &add(&["h1"], Some("west"))).is_err(), "a job tells hosts by their names");
    let ask = |site: &str, host: &str| given(registry, "clinic", &Wanting::Site(site.into(), hosts(&[host]))).is_ok();
    assert!(ask("west", "w1") && !ask("west", "h1") && !ask("east", "w1"));
    // It has another host distribute them, and its members stay.
    let other = format!("ff{}", &KEY[2..]);
    registry.change("clinic", &share("west", &other)).unwrap();
    assert!(ask("west", "w1"));
    assert_eq!(partners(registry).unwrap().into_iter().next().unwrap().0.to_string(), other);
    assert!(grant(registry, "w1").is_err(), "a host of this site that is called so is another");
    assert_eq!(registry.change("clinic", &Change::Unshare { site: "west".into() }).unwrap(), Some(2));
    assert!(!ask("west", "w1") && partners(registry).unwrap().is_empty());
}

#[test]
fn a_partition_of_another_site_is_decided_there() {
    let room = Room::new("followed");
    let registry = &room.1;
    let source = Source { address: "east:7200".into(), key: KEY.into() };
    let follow = Change::Follow { source: source.clone() };
    registry.change("clinic", &follow).unwrap();
    let elsewhere = Source { address: "keys:7201".into(), ..source };
    registry.change("clinic", &Change::Follow { source: elsewhere }).unwrap();
    assert!(create("clinic", &[])(registry).is_err());
    for refused in [registry.change("clinic", &Change::Rotate), registry.change("clinic", &add(&["h1"], None))] {
        assert!(refused.unwrap_err().to_string().contains("another site's"));
    }
    assert_eq!(partners(registry).unwrap().into_values().collect::<Vec<_>>(), [None]);
    assert_eq!(list(registry).unwrap()[0].source.as_deref(), Some("keys:7201"));
}

#[test]
fn partitions_move_with_their_epochs_and_secrets() {
    let (from, to) = (Room::new("from"), Room::new("to"));
    let registry = &from.1;
    create("clinic", &["h1"])(registry).unwrap();
    registry.change("clinic", &Change::Rotate).unwrap();
    let source = Source { address: "east:7200".into(), key: KEY.into() };
    registry.change("ward", &Change::Follow { source }).unwrap();
    let (before, listed) = (grant(registry, "h1").unwrap(), list(registry).unwrap());
    let refused = registry.hand_over(|_| Err(Error::Refused("they stay".into())));
    assert!(refused.is_err() && list(registry).unwrap() == listed, "what nobody took stays");
    // He may have them, and change them: what is here may be old.
    assert!(registry.hand_over(|_| Err(Error::Unavailable("he does not answer".into()))).is_err());
    assert!(list(registry).unwrap().is_empty() && !registry.is_empty().unwrap() && grant(registry, "h1").is_err());
    assert!(registry.change("clinic", &Change::Rotate).is_err() && create("x", &[])(registry).is_err());
    assert!(registry.hand_over(|_| Err(Error::Refused("there is another".into()))).is_err());
    assert!(list(registry).unwrap().is_empty(), "he may have had them before");
    fs::create_dir(to.file("")).expect("a test may write there");
    let mut drawer = to.1.clone();
    let moved = registry.hand_over(|records| {
        for (_, record) in records {
            let bytes = record.encode();
            assert_eq!(Record::decode(&bytes).as_ref(), Some(record));
            assert_ne!(Record::decode(&bytes[1..]).as_ref(), Some(record));
        }
        assert_eq!(take_in(&mut drawer, records).unwrap(), 2);
        assert_eq!(take_in(&mut drawer, records).unwrap(), 0, "once more, as after a lost answer");
        Ok(())
    });
    assert_eq!((moved.unwrap(), registry.hand_over(|_| panic!("there is nothing")).unwrap()), (2, 0));
    assert!(registry.is_empty().unwrap() && !from.file("clinic.secret").exists());
    assert_eq!((grant(&to.1, "h1").unwrap(), list(&to.1).unwrap()), (before, listed));
    // Another of that name stays where it is.
    create("clinic", &["h1"])(registry).unwrap();
    assert!(registry.hand_over(|records| take_in(&mut drawer, records).map(drop)).is_err());
    assert_eq!(list(registry).unwrap().len(), 1);
}

#[test]
fn files_that_were_altered_give_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let room = Room::new("altered");
    let registry = &room.1;
    for name in ["", "a/b", "..", ".lock", "a b"] {
        assert!(create(name, &[])(registry).is_err(), "{name:?}");
    }
    create("clinic", &["h1"])(registry).unwrap();
    registry.change("clinic", &Change::Rotate).unwrap();
    let path = room.file("clinic.secret");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let whole = fs::read_to_string(&path).unwrap();
    let (numbers, _) = whole.rsplit_once(' ').unwrap();
    for spoiled in [
        whole[..whole.len() - 2].to_owned(),
        whole.replacen("2 ", "0 ", 1),
        format!("{whole}{whole}"),
        format!("{numbers} {}\n", "0".repeat(64)),
        String::new(),
    ] {
        fs::write(&path, spoiled).unwrap();
        assert!(grant(registry, "h1").is_err());
    }
    fs::write(&path, &whole).unwrap();
    assert!(grant(registry, "h1").is_ok());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(grant(registry, "h1").unwrap_err().contains("open to others"));
}

#[test]
fn answers_are_read_as_they_were_given() {
    let given = Grant { epoch: 7, secret: Secret32::from_bytes([9; 32]) };
    let bytes = encode(&Ok(given.clone()));
    assert_eq!(decode(&bytes).unwrap(), given);
    for end in 0..bytes.len() {
        assert!(decode(&bytes[..end]).is_err());
    }
    assert!(decode(&[0; 37]).is_err(), "zeros are no secret");
    let told = decode(&encode(&Err(Error::Unavailable("later".into()))));
    assert!(matches!(told, Err(Error::Unavailable(why)) if why == "later"));
    let told = decode(&encode(&Err(Error::Senseless("a\nb".into()))));
    assert!(matches!(told, Err(Error::Refused(why)) if why == "ab"));
    // What is asked is read whole or not at all.
    let fetch = Fetch { partition: "clinic".into(), host: Some(hosts(&["h1"])) };
    let bytes = wire::encode(&fetch);
    assert_eq!(wire::decode::<Fetch>(&bytes).unwrap().host, fetch.host);
    let bytes = wire::encode(&Ask { partition: "clinic".into(), epoch: 0, job: [5; 16] });
    for end in 0..bytes.len() {
        assert!(wire::decode::<Ask>(&bytes[..end]).is_err());
    }
}
