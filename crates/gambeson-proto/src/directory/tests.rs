use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};

use super::*;

const ISSUED: u64 = 1_795_294_330;
const EXPIRES: u64 = ISSUED + 30 * 86_400;
const NOW: u64 = ISSUED + 500;
const TEXT: &str = r#"issued = 2026-11-21T20:52:10Z
expires = 2026-12-21T20:52:10Z

[[host]]
name = "Ocean1"
addresses = ["10.1.0.1", "fd00::1"]
transports = ["tcp", "shm"]
authentication = ["job"]

[[host]]
name = "sky.site"
transports = ["libfabric"]
authentication = ["pinned", "certificate"]
attach = { addresses = ["10.1.0.7:4000"], role = "model" }

[[host]]
name = "cloud"
transports = ["tcp"]
authentication = ["job"]

[[network]]
subnet = "10.9.0.0/16"
protection = "privacy"

[[network]]
subnet = "10.0.0.0/8"
protection = "integrity"
"#;

fn signed(text: &str, seed: u8) -> Vec<u8> {
    let key = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a key");
    let signature = key.sign(&message(text.as_bytes()));
    enclose(text, signature.as_ref().try_into().expect("64 bytes")).into_bytes()
}

fn verify(bytes: &[u8], now: u64, seen: u64) -> Result<Directory, DirectoryError> {
    let key = Ed25519KeyPair::from_seed_unchecked(&[1; 32]).expect("a key");
    Directory::verify(bytes, key.public_key().as_ref().try_into().expect("32 bytes"), now, seen)
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn what_the_site_signed_is_read() {
    let directory = verify(&signed(TEXT, 1), NOW, ISSUED).expect("a directory");
    assert_eq!(directory, Directory::parse(TEXT.as_bytes()).expect("a text"));
    assert_eq!((directory.issued, directory.expires), (ISSUED, EXPIRES));
    let ocean = directory.host("OCEAN1.").expect("a host");
    assert_eq!(ocean.transports, [AddressKind::Tcp, AddressKind::Shm]);
    assert_eq!(ocean.authentication, [Authentication::Job]);
    assert_eq!(ocean.attach, None);
    let attach = directory.host("sky").and_then(|host| host.attach.clone()).expect("a program");
    assert_eq!(
        (attach.addresses, attach.expected),
        (vec!["10.1.0.7:4000".parse().unwrap()], Expected::Role("model".into()))
    );
    assert_eq!(directory.host_at(address("10.1.0.7")), directory.host("sky"));
    let key = TEXT.replace("role = \"model\"", &format!("key = \"{}\"", "0a".repeat(32)));
    let keyed = Directory::parse(key.as_bytes()).expect("a text");
    assert_eq!(keyed.hosts[1].attach.as_ref().map(|attach| &attach.expected), Some(&Expected::Key([10; 32])));
    for at in ["10.1.0.1", "::ffff:10.1.0.1", "fd00::1"] {
        assert_eq!(directory.host_at(address(at)), Some(ocean), "{at}");
    }
    assert_eq!(directory.host("ocean1.site"), Some(ocean));
    assert_eq!(directory.host("sky").expect("without its domain").transports, [AddressKind::Fabric]);
    assert_eq!((directory.host("sea"), directory.host_at(address("10.1.0.2"))), (None, None));
}

#[test]
fn networks_are_floors_for_whoever_is_in_them_or_may_be() {
    let directory = Directory::parse(TEXT.as_bytes()).expect("a text");
    let floor = |one: (&str, Option<&str>), other: (&str, Option<&str>)| {
        let [one, other] = [one, other].map(|(name, stated)| (name, stated.map(address)));
        let floor = directory.floor([one, other]);
        assert_eq!(floor, directory.floor([other, one]));
        floor.map(|network| (network.protection, network.subnet()))
    };
    let away = ("land", Some("192.168.1.1"));
    assert_eq!(floor(away, away), None);
    assert_eq!(floor(("land", Some("10.1.0.2")), away), Some((Protection::Integrity, "10.0.0.0/8".into())));
    assert_eq!(
        floor(("land", Some("10.1.0.2")), ("sea", Some("10.9.0.2"))),
        Some((Protection::Privacy, "10.9.0.0/16".into()))
    );
    // What the site says of a host is known, and what the host states comes on top of it.
    assert_eq!(floor(("ocean1", None), away), Some((Protection::Integrity, "10.0.0.0/8".into())));
    assert_eq!(floor(("ocean1", Some("10.9.0.2")), away), Some((Protection::Privacy, "10.9.0.0/16".into())));
    for hidden in ["land", "cloud"] {
        assert_eq!(floor((hidden, None), away), Some((Protection::Privacy, "10.9.0.0/16".into())));
    }
}

#[test]
fn unsigned_forged_altered_stale_early_and_old_ones_are_refused() {
    let good = signed(TEXT, 1);
    assert_eq!(verify(TEXT.as_bytes(), NOW, 0), Err(DirectoryError::Unsigned));
    assert_eq!(verify(&[], NOW, 0), Err(DirectoryError::Unsigned));
    assert_eq!(verify(&signed(TEXT, 2), NOW, 0), Err(DirectoryError::Forged));
    for at in 0..good.len() {
        let mut altered = good.clone();
        altered[at] ^= 1;
        let refused = verify(&altered, NOW, 0).expect_err("altered");
        assert!(matches!(refused, DirectoryError::Unsigned | DirectoryError::Forged), "{at}: {refused}");
    }
    assert_eq!(verify(&good, EXPIRES, 0), Err(DirectoryError::Stale { expires: EXPIRES }));
    assert!(verify(&good, EXPIRES - 1, 0).is_ok() && verify(&good, ISSUED - CLOCKS_APART, 0).is_ok());
    assert_eq!(verify(&good, ISSUED - 1000, 0), Err(DirectoryError::Early { issued: ISSUED }));
    let refused = verify(&good, NOW, ISSUED + 1).expect_err("old");
    assert_eq!(refused, DirectoryError::RolledBack { issued: ISSUED, seen: ISSUED + 1 });
    let said = refused.to_string();
    assert!(said.contains("issued 2026-11-21T20:52:10Z, and one of 2026-11-21T20:52:11Z was taken"), "{said}");
}

#[test]
fn what_is_composed_anew_has_new_times_and_the_same_rest() {
    let body = TEXT.split_once("\n\n").expect("two dates in front").1;
    for text in [body, &format!("\n{body}"), TEXT, std::str::from_utf8(&signed(TEXT, 2)).expect("a text")] {
        let anew = compose(text, ISSUED + 60, EXPIRES);
        let directory = verify(&signed(&anew, 1), NOW, 0).expect("a directory");
        assert_eq!((directory.issued, directory.expires), (ISSUED + 60, EXPIRES));
        assert_eq!(directory.hosts, Directory::parse(TEXT.as_bytes()).expect("a text").hosts);
        assert_eq!(compose(&anew, ISSUED + 60, EXPIRES), anew);
        // Whatever ends its lines stays.
        let other = compose(&text.replace('\n', "\r\r\n"), ISSUED, EXPIRES);
        assert_eq!(compose(&other, ISSUED, EXPIRES), other);
        assert!(anew.ends_with(body) && anew.matches("issued").count() == 1, "{anew}");
    }
}

#[test]
fn dates_go_both_ways() {
    for second in [0, 951_827_696, NOW, 4_102_444_799, 253_402_300_799] {
        assert_eq!(seconds(&date(second)), Some(second), "{}", date(second));
    }
    assert_eq!((date(ISSUED).as_str(), seconds("2026-11-21T22:52:10.5+02:00")), ("2026-11-21T20:52:10Z", Some(ISSUED)));
    for none in ["2026-11-21", "2026-11-21T20:52:10", "1969-12-31T23:59:59Z"] {
        assert_eq!(seconds(none), None);
    }
    assert_eq!(date(u64::MAX), format!("{} seconds after 1970", u64::MAX));
}

#[test]
fn what_makes_no_sense_is_named_by_its_line() {
    for (from, to, line, says) in [
        ("2026-12-21T20:52:10Z", "2026-11-21", 2, "a date has its time and zone"),
        ("2026-12-21T20", "2025-12-21T20", 2, "expires before it is issued"),
        ("\"shm\"]", "\"tcp\"]", 7, "transport \"tcp\" is unknown, or there twice"),
        ("\"libfabric\"", "", 12, "there is no transport"),
        ("10.1.0.1\"", "ocean\"", 6, "\"ocean\" is no address"),
        ("sky.site", "ocean1", 10, "host \"ocean1\" is there twice"),
        ("10.1.0.7", "10.1.0.1", 10, "another host has the address 10.1.0.1"),
        ("sky.site", "", 10, "\"\" is no host name"),
        ("[\"job\"]", "[\"password\"]", 8, "authentication \"password\" is unknown"),
        ("10.9.0.0/16", "10.9.0.1/16", 22, "is no subnet"),
        ("\"integrity\"", "\"none\"", 27, "protection \"none\" is none"),
        ("addresses = [\"10.1.0.1\"", "adresses = [\"10.1.0.1\"", 6, "unknown field `adresses`"),
        (":4000", "", 14, "\"10.1.0.7\" is no address and port"),
        ("\"10.1.0.7:4000\"", "", 14, "there is no address to attach at"),
        (", role = \"model\"", "", 14, "name the role, or else the key"),
        ("role = \"model\"", "role = \"model\", key = \"12\"", 14, "name the role, or else the key"),
        ("role = \"model\"", "key = \"12\"", 14, "a key is 64 hexadecimal digits"),
    ] {
        let error = Directory::parse(TEXT.replace(from, to).as_bytes()).expect_err(to);
        let DirectoryError::Senseless(Some(at), what) = &error else { panic!("{to}: {error}") };
        assert!(*at == line && what.contains(says), "{to}: line {at}: {what}");
    }
    let none = Directory::parse(b"").expect_err("nothing");
    assert!(none.to_string().contains("missing field `issued`"), "{none}");
    assert!(Directory::parse(&[0xFF]).is_err() && Directory::parse(&vec![b'#'; LENGTH_MAX + 1]).is_err());
}
