//! The one policy decides about links: by where they lead, what they are for, and when they are opened.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gambeson_link::{
    Attributes, Capability, Config, Domain, Endpoint, Error, Handlers, Identity, KeyHash, Policy, Protection,
    Startpoint, Trust,
};

const PATIENCE: Duration = Duration::from_secs(10);
const ECHO: u32 = 0;

/// Two domains that know each other's keys.
struct Pair {
    owner: Domain,
    opener: Domain,
}

fn policy(text: &str) -> Policy {
    Policy::parse(text, "gambeson.toml").expect("a policy")
}

fn config(host: &str, policy: &Policy, identity: Identity, other: KeyHash) -> Config {
    let mut config = Config::new(identity, Trust::default().pinned(other, "the other", &[]));
    config.host = host.into();
    config.policy = policy.clone();
    config.shm = false;
    config
}

/// The owner of endpoints, on the host `ocean`, and who opens links to them, on the host `sky`.
fn pair(owners: &Policy, openers: &Policy, place: impl Fn(&mut Config)) -> Pair {
    let [here, there] = [(); 2].map(|()| Identity::generate().expect("a key"));
    let (here_key, there_key) = (here.key_hash(), there.key_hash());
    let mut owner = config("ocean", owners, here, there_key).listen("127.0.0.1:0".parse().expect("an address"));
    let mut opener = config("sky", openers, there, here_key);
    place(&mut owner);
    place(&mut opener);
    Pair { owner: Domain::open(owner).expect("a domain"), opener: Domain::open(opener).expect("a domain") }
}

fn echo(domain: &Domain, class: &str) -> (Endpoint, Capability) {
    let handlers = Handlers::new().inline(ECHO, |call| call.answer(call.payload));
    let endpoint = domain.endpoint(Attributes::default().class(class), handlers).expect("an endpoint");
    let capability = endpoint.startpoint([]).expect("a startpoint");
    (endpoint, capability)
}

impl Pair {
    /// A link of a class, with what holds it open.
    fn link(&self, class: &str) -> (Endpoint, Startpoint) {
        let (endpoint, capability) = echo(&self.owner, class);
        let startpoint = self.opener.startpoint(&capability, PATIENCE).expect("a link, as far as is known here");
        (endpoint, startpoint)
    }

    /// How a link of a class comes to be protected.
    fn protection(&self, class: &str) -> Protection {
        let (_endpoint, startpoint) = self.link(class);
        assert_eq!(startpoint.call(ECHO, b"there?", PATIENCE).expect("an answer"), b"there?");
        startpoint.protection()
    }
}

fn nowhere(_: &mut Config) {}

#[test]
fn one_program_is_protected_by_three_policies_in_three_ways() {
    let none = policy("protection = \"none\"");
    let coupler = policy(
        "protection = \"none\"\n[[rule]]\nbetween = [\"ocean\", \"sky\"]\nclass = \"fluxes\"\nprotection = \"privacy\"",
    );
    for (policy, fluxes, data, control) in [
        (&none, Protection::None, Protection::None, Protection::Integrity),
        (&coupler, Protection::Privacy, Protection::None, Protection::Integrity),
        (&Policy::default(), Protection::Privacy, Protection::Privacy, Protection::Privacy),
    ] {
        let pair = pair(policy, policy, nowhere);
        let found = ["fluxes", "data", "control"].map(|class| pair.protection(class));
        assert_eq!(found, [fluxes, data, control]);
    }
}

#[test]
fn what_an_endpoint_or_a_startpoint_asks_for_is_added_to_the_policy() {
    let open = Policy::uniform(Protection::None);
    let pair = pair(&open, &open, nowhere);
    let handlers = || Handlers::new().inline(ECHO, |call| call.answer(call.payload));
    let attributes = Attributes::default().protection(Protection::Integrity);
    let endpoint = pair.owner.endpoint(attributes, handlers()).expect("an endpoint");
    let startpoint = |capability| pair.opener.startpoint(&capability, PATIENCE).expect("a link");
    let capability = endpoint.startpoint([]).expect("a startpoint");
    assert_eq!(startpoint(capability.clone()).protection(), Protection::Integrity);
    let mut narrowed = capability;
    narrowed.narrow(gambeson_link::Caveat::Protection(Protection::Privacy)).expect("a caveat");
    let startpoint = startpoint(narrowed);
    assert_eq!(startpoint.protection(), Protection::Privacy);
    startpoint.call(ECHO, &[1; 100_000], PATIENCE).expect("an answer");
}

#[test]
fn subnets_are_judged_by_what_both_ends_state_and_never_by_sockets() {
    let rule = "[[rule]]\nbetween = [\"10.77.0.0/24\", \"10.77.0.0/24\"]\nprotection = \"integrity\"\n";
    let rule = policy(rule);
    let stated = |config: &mut Config| {
        let last = if config.host == "ocean" { 1 } else { 2 };
        config.address = Some([10, 77, 0, last].into());
    };
    assert_eq!(pair(&rule, &rule, stated).protection("data"), Protection::Integrity);
    let half = |config: &mut Config| config.address = (config.host == "ocean").then(|| [10, 77, 0, 1].into());
    assert_eq!(pair(&rule, &rule, half).protection("data"), Protection::Privacy);
    // Both sockets are on the loopback, and nobody stated that.
    let loopback = policy("[[rule]]\nbetween = [\"127.0.0.0/8\", \"127.0.0.0/8\"]\nprotection = \"none\"\n");
    assert_eq!(pair(&loopback, &loopback, nowhere).protection("data"), Protection::Privacy);
}

/// Passes everything on between one connection and an address, and keeps a copy.
fn listener(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let copy = heard.clone();
    std::thread::spawn(move || {
        let (one, _) = listener.accept().expect("somebody");
        let other = TcpStream::connect(to).expect("the owner listens");
        let ways = [(&one, &other), (&other, &one)].map(|(from, to)| (from.try_clone(), to.try_clone()));
        let pass = ways.map(|(from, to)| {
            let (mut from, mut to, copy) = (from.expect("a socket"), to.expect("a socket"), copy.clone());
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count) = from.read(&mut buffer) {
                    copy.lock().expect("no panic").extend_from_slice(&buffer[..count]);
                    if count == 0 || to.write_all(&buffer[..count]).is_err() {
                        let _ = to.shutdown(Shutdown::Both);
                        return;
                    }
                }
            })
        });
        pass.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    (address, heard)
}

/// The same startpoint with its owner at another port of this host.
fn moved(capability: &Capability, from: SocketAddr, to: SocketAddr) -> Capability {
    let mut bytes = capability.encode().to_vec();
    let [from, to] = [from, to].map(|address| address.to_string().into_bytes());
    assert_eq!(from.len(), to.len(), "ports that the system chooses have five digits");
    let at = bytes.windows(from.len()).position(|window| window == from).expect("the address is in it");
    bytes[at..at + to.len()].copy_from_slice(&to);
    Capability::decode(&bytes).expect("a startpoint")
}

#[test]
fn the_stronger_end_holds_names_its_rule_and_nothing_was_said_before() {
    const MARK: &[u8] = b"nobody on the wire may read this";
    let strict = policy("\n[[rule]]\nbetween = [\"ocean\", \"*\"]\nclass = \"fluxes\"\nprotection = \"privacy\"\n");
    for weak in [Protection::Integrity, Protection::None] {
        for (owners, refused) in [(&strict, true), (&Policy::uniform(weak), false)] {
            let pair = pair(owners, &Policy::uniform(weak), nowhere);
            let (_endpoint, capability) = echo(&pair.owner, "fluxes");
            let owner = pair.owner.listening()[0];
            let (relay, heard) = listener(owner);
            let startpoint = pair.opener.startpoint(&moved(&capability, owner, relay), PATIENCE).expect("a link");
            let answer = startpoint.call(ECHO, MARK, PATIENCE);
            let is_heard = heard.lock().expect("no panic").windows(MARK.len()).any(|window| window == MARK);
            assert_eq!(is_heard, !refused, "what goes in clear is heard, and nothing goes before both ends agree");
            let Err(why) = answer else {
                assert!(!refused);
                continue;
            };
            assert!(refused && matches!(why, Error::Startpoint(_)), "{why:?}");
            let why = why.to_string();
            assert!(why.contains("links of class fluxes between ocean and sky have \"privacy\" here"), "{why}");
            assert!(why.contains(&format!("by the rule at gambeson.toml:2, and this one has \"{weak}\"")), "{why}");
            startpoint.send(ECHO, MARK).expect_err("it stays refused");
        }
    }
    // The opener's own policy is as good.
    assert_eq!(pair(&Policy::uniform(Protection::None), &strict, nowhere).protection("fluxes"), Protection::Privacy);
}

#[test]
fn a_policy_that_gets_stronger_ends_the_links_that_are_too_weak_and_no_others() {
    let weak = policy("[[rule]]\nbetween = [\"*\", \"*\"]\nclass = \"pictures\"\nprotection = \"none\"");
    for by_owner in [true, false] {
        let pair = pair(&weak, &weak, nowhere);
        let ((_one, pictures), (_other, data)) = (pair.link("pictures"), pair.link("data"));
        for link in [&pictures, &data] {
            link.call(ECHO, b"before", PATIENCE).expect("an answer");
        }
        assert_eq!((pictures.protection(), data.protection()), (Protection::None, Protection::Privacy));
        let changed = if by_owner { &pair.owner } else { &pair.opener };
        changed.set_policy(policy("protection = \"privacy\"")).expect("a policy");
        let why = pictures.call(ECHO, b"after", PATIENCE).expect_err("it has ended").to_string();
        assert!(why.contains("links of class pictures") && why.contains("have \"privacy\" here"), "{why}");
        pictures.send(ECHO, b"after").expect_err("it has ended");
        assert_eq!(data.call(ECHO, b"after", PATIENCE).expect("an answer"), b"after");
        // What is opened from now on follows it, once both ends do.
        pair.owner.set_policy(Policy::default()).expect("a policy");
        pair.opener.set_policy(Policy::default()).expect("a policy");
        assert_eq!(pair.protection("pictures"), Protection::Privacy);
        // A weaker one is for new links.
        pair.owner.set_policy(weak.clone()).expect("a policy");
        pair.opener.set_policy(weak.clone()).expect("a policy");
        assert_eq!(pair.protection("pictures"), Protection::None);
        assert_eq!(data.protection(), Protection::Privacy);
        data.call(ECHO, b"still", PATIENCE).expect("an answer");
    }
}
