//! Policies: the text of a `gambeson.toml`, and what becomes of it.

use std::net::{IpAddr, Ipv4Addr};

use gambeson_proto::identity::HostIndex;
use gambeson_proto::policy::{CONTROL, Place, Policy};
use gambeson_proto::suite::Protection;

pub fn policy(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Policy::parse(text, "fuzz.toml") {
        Ok(policy) => {
            agrees(&policy);
            // A document that stands alone is one layer, whose first rule that matches holds.
            for path in PATHS {
                assert_eq!(policy.decide_file(path), policy.file_rules().find(|rule| rule.matches(path)));
            }
        }
        Err(error) => {
            assert!(error.to_string().starts_with("fuzz.toml:"), "{error}");
            let lines = text.split('\n').count();
            assert!(error.line().is_none_or(|line| (1..=lines).contains(&line)), "{error} in {lines} lines");
        }
    }
}

const PATHS: [&str; 4] = ["/data/run/x1y.h5", "/data/a.nc", "/", ""];

/// Both ends of a pair come to the same decision, and the canonical form keeps all that counts.
pub(crate) fn agrees(policy: &Policy) {
    let canonical = policy.canonical();
    let again = Policy::from_canonical(&canonical).expect("the canonical form of a policy is one");
    assert_eq!(again.canonical(), canonical);
    assert_eq!(again.hash(), policy.hash());
    for path in PATHS {
        let rule = policy.decide_file(path);
        assert_eq!(rule, again.decide_file(path));
        assert!(rule.is_none_or(|rule| rule.matches(path) && rule.suite.has_integrity()));
    }
    let hosts = [HostIndex(0), HostIndex(1), HostIndex(2), HostIndex::UNLISTED];
    let said = [[10, 77, 0, 1], [10, 77, 1, 1], [127, 0, 0, 1]].map(|ip| Some(IpAddr::V4(Ipv4Addr::from(ip))));
    let [one, two, three] = said;
    let addresses = [one, two, three, None];
    let listed = |host: &HostIndex| *host == HostIndex::UNLISTED || policy.host_name(*host).is_some();
    let places: Vec<Place> =
        hosts.into_iter().filter(listed).flat_map(|host| addresses.map(|address| Place { host, address })).collect();
    let mut classes = policy.classes();
    classes.push(CONTROL);
    for &a in &places {
        for &b in &places {
            let decision = policy.decide(a, b);
            assert_eq!(decision, policy.decide(b, a));
            assert_eq!(decision.protection, again.decide(a, b).protection);
            assert!(decision.partition.is_none_or(|partition| partition < policy.partitions().len()));
            for class in &classes {
                let link = policy.decide_link(class, a, b);
                assert_eq!(link, policy.decide_link(class, b, a));
                assert_eq!(link.protection, again.decide_link(class, a, b).protection);
                assert!(*class != CONTROL || link.protection <= Protection::Integrity);
                // Who does not say where it is has nothing weaker for it.
                let hidden = |place: Place| Place { address: None, ..place };
                assert!(policy.decide_link(class, hidden(a), b).protection <= link.protection);
            }
        }
    }
}
