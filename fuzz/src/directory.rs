//! Site directories: what comes is refused with a sentence or means one thing, signed or not.

use std::net::{IpAddr, Ipv4Addr};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use gambeson_proto::directory::{Directory, DirectoryError, compose, enclose, message};
use gambeson_proto::suite::Protection;

/// In the middle of what the seeds say they are valid.
const NOW: u64 = 1_796_000_000;

/// The site's key.
pub(crate) fn site() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[5; 32]).expect("a seed has 32 bytes")
}

pub(crate) fn signed(text: &str) -> String {
    let signature = site().sign(&message(text.as_bytes()));
    enclose(text, signature.as_ref().try_into().expect("64 bytes"))
}

pub fn directory(data: &[u8]) {
    let site = site();
    let key = site.public_key().as_ref().try_into().expect("32 bytes");
    let came = Directory::verify(data, key, NOW, 0);
    if let Ok(directory) = &came {
        assert_eq!(Directory::parse(data).as_ref(), Ok(directory));
        agrees(directory);
    }
    // Nobody who fuzzes can sign, so what was written is signed for him.
    let Ok(text) = std::str::from_utf8(data) else { return };
    let again = signed(&compose(text, NOW, NOW + 1));
    assert_eq!(compose(&again, NOW, NOW + 1), compose(text, NOW, NOW + 1), "what is composed twice is the same");
    match Directory::verify(again.as_bytes(), key, NOW, NOW) {
        Ok(directory) => {
            assert_eq!((directory.issued, directory.expires), (NOW, NOW + 1));
            agrees(&directory);
        }
        Err(DirectoryError::Senseless(line, what)) => {
            let lines = again.split('\n').count();
            assert!(!what.is_empty() && line.is_none_or(|line| (1..=lines).contains(&line)), "{line:?}: {what}");
        }
        Err(other) => panic!("it is signed, and its time has come: {other}"),
    }
}

/// Every host is found by its names and addresses, and who hides where it is has nothing weaker for it.
fn agrees(directory: &Directory) {
    for host in &directory.hosts {
        assert_eq!(directory.host(&host.name), Some(host));
        assert!(!host.transports.is_empty() && !host.authentication.is_empty());
        host.addresses.iter().for_each(|&address| assert_eq!(directory.host_at(address), Some(host)));
    }
    let stated = [None, Some([10, 9, 0, 1]), Some([10, 1, 0, 1]), Some([192, 168, 0, 1])];
    let stated = stated.map(|address| address.map(|octets| IpAddr::V4(Ipv4Addr::from(octets))));
    let strength = |ends| directory.floor(ends).map_or(Protection::None, |network| network.protection);
    let first = directory.hosts.first().map_or("nobody", |host| &host.name);
    for here in stated {
        for there in stated {
            let ends = [(first, here), ("elsewhere", there)];
            assert_eq!(directory.floor(ends), directory.floor([ends[1], ends[0]]));
            assert!(strength([ends[0], ("elsewhere", None)]) <= strength(ends));
        }
    }
}
