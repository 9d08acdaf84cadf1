use std::fs;
use std::path::PathBuf;

use gambeson_proto::secret::Secret32;

use super::message::{Ask, Fetch, Grant, decode, encode};
use super::registry::Wanting;
use super::*;
use crate::{Error, wire};

/// A registry in a folder that goes with the test.
struct Room(PathBuf, Registry);

impl Room {
    fn new(name: &str) -> Self {
        let room = std::env::temp_dir().join(format!("gambeson-partitions-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&room);
        fs::create_dir_all(room.join("authority")).expect("a test may write there");
        let registry = Registry::of(&room);
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

fn grant(registry: &Registry, host: &str) -> Result<Grant, String> {
    registry.grant("clinic", &Wanting::Host(&hosts(&[host]))).map_err(|cause| cause.to_string())
}

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

#[test]
fn members_get_the_secret_of_the_epoch_that_is() {
    let room = Room::new("members");
    let registry = &room.1;
    registry.create("clinic", &hosts(&["H1", "h2"])).unwrap();
    let first = grant(registry, "h1").unwrap();
    assert_eq!((first.epoch, grant(registry, "h2").unwrap()), (1, first.clone()));
    assert!(grant(registry, "h3").unwrap_err().contains("h3 is no member of partition clinic"));
    assert_eq!(registry.rotate("clinic").unwrap(), 2);
    registry.add("clinic", &hosts(&["h3"]), None).unwrap();
    assert!(registry.add("clinic", &hosts(&["H3"]), None).is_err());
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
    registry.create("clinic", &hosts(&["h1", "h2", "h3"])).unwrap();
    assert!(registry.remove("clinic", &hosts(&["h1", "h9"]), true).is_err());
    assert!(grant(registry, "h1").is_ok(), "all or none");
    assert_eq!(registry.remove("clinic", &hosts(&["h2"]), true).unwrap(), Some(2));
    assert!(grant(registry, "h2").is_err());
    assert_eq!(registry.remove("clinic", &hosts(&["h3"]), false).unwrap(), None);
    assert_eq!(grant(registry, "h1").unwrap().epoch, 2);
}

#[test]
fn a_site_gets_secrets_for_its_own_hosts_alone() {
    let room = Room::new("sites");
    let registry = &room.1;
    registry.create("clinic", &hosts(&["h1"])).unwrap();
    assert!(registry.add("clinic", &hosts(&["w1"]), Some("west")).is_err(), "it is not shared yet");
    registry.share("clinic", "west", KEY).unwrap();
    assert!(registry.share("clinic", "east", KEY).is_err(), "one key, one name");
    assert!(registry.share("clinic", "west", &KEY[2..]).is_err());
    registry.add("clinic", &hosts(&["w1"]), Some("west")).unwrap();
    assert!(registry.add("clinic", &hosts(&["h1"]), Some("west")).is_err(), "a job tells hosts by their names");
    let ask = |site, host: &str| registry.grant("clinic", &Wanting::Site(site, &hosts(&[host]))).is_ok();
    assert!(ask("west", "w1") && !ask("west", "h1") && !ask("east", "w1"));
    assert!(grant(registry, "w1").is_err(), "a host of this site that is called so is another");
    assert_eq!(registry.unshare("clinic", "west").unwrap(), 2);
    assert!(!ask("west", "w1") && registry.partners().unwrap().is_empty());
}

#[test]
fn a_partition_of_another_site_is_decided_there() {
    let room = Room::new("followed");
    let registry = &room.1;
    let source = Source { address: "east:7200".into(), key: KEY.into() };
    registry.follow("clinic", source.clone()).unwrap();
    assert!(registry.follow("clinic", source).is_err() && registry.create("clinic", &[]).is_err());
    for refused in [registry.rotate("clinic").map(drop), registry.add("clinic", &hosts(&["h1"]), None)] {
        assert!(refused.unwrap_err().to_string().contains("another site's"));
    }
    assert_eq!(registry.partners().unwrap().into_values().collect::<Vec<_>>(), [None]);
    assert_eq!(registry.list().unwrap()[0].source.as_deref(), Some("east:7200"));
}

#[test]
fn files_that_were_altered_give_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let room = Room::new("altered");
    let registry = &room.1;
    for name in ["", "a/b", "..", ".lock", "a b"] {
        assert!(registry.create(name, &[]).is_err(), "{name:?}");
    }
    registry.create("clinic", &hosts(&["h1"])).unwrap();
    registry.rotate("clinic").unwrap();
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
