//! Guests: owners of keys that nobody knows, and what they reach of a domain that lets them in.

use std::net::SocketAddr;
use std::time::Duration;

use data_encoding::BASE64;
use gambeson_link::{
    Attributes, Config, Domain, Endpoint, Error, Expected, GUEST, Handlers, Identity, Startpoint, Trust,
};
use rcgen::string::Ia5String;
use rcgen::{CertificateParams, KeyPair, SanType};

const PATIENCE: Duration = Duration::from_secs(10);
const SAY: u32 = 0;
const BINDING: u32 = 1;

/// A house with a hall for guests and a room for friends.
struct House {
    domain: Domain,
    hall: Endpoint,
    room: Endpoint,
}

fn house(trust: Trust) -> House {
    let listen = "127.0.0.1:0".parse().expect("an address");
    let domain = Domain::open(Config::new(Identity::generate().expect("a key"), trust).listen(listen));
    let domain = domain.expect("a domain");
    let handlers = || {
        let say = Handlers::new().inline(SAY, |call| call.answer(call.peer.roles.join(" ").as_bytes()));
        say.threaded(BINDING, |asked| {
            let binding = asked.binding().expect("a session");
            asked.answer(&binding);
        })
    };
    let [hall, room] = ["hall", "room"].map(|name| {
        let endpoint = domain.endpoint(Attributes::default(), handlers()).expect("an endpoint");
        endpoint.publish(name, &[if name == "hall" { GUEST } else { "friend" }], []).expect("a name");
        endpoint
    });
    House { domain, hall, room }
}

impl House {
    fn at(&self) -> SocketAddr {
        self.domain.listening()[0]
    }

    fn visitor(&self, identity: Identity) -> Domain {
        let known = Trust::default().pinned(self.domain.key_hash(), "the house", &["house"]);
        Domain::open(Config::new(identity, known)).expect("a domain")
    }

    fn stranger(&self) -> Domain {
        self.visitor(Identity::generate().expect("a key"))
    }

    fn attach(&self, who: &Domain, name: &str) -> Result<Startpoint, Error> {
        who.attach(self.at(), &Expected::Role("house".into()), name, PATIENCE)
    }
}

#[test]
fn guests_reach_what_is_for_guests_and_nothing_else() {
    let friend = Identity::generate().expect("a key");
    let house = house(Trust::default().guests().pinned(friend.key_hash(), "a friend", &["friend"]));
    let guest = house.stranger();
    let hall = house.attach(&guest, "hall").expect("it is for guests");
    assert_eq!(hall.call(SAY, &[], PATIENCE).expect("an answer"), b"guest");
    let refused = house.attach(&guest, "room").err().expect("it is for friends").to_string();
    assert!(refused.contains("nothing published as \"room\" that is for this domain"), "{refused}");
    // A startpoint for whoever holds it is for whoever is known; what is open to guests stays so.
    let bearer = house.room.startpoint([]).expect("a startpoint");
    let stolen = guest.startpoint(&bearer, PATIENCE).expect("it is bound when it is used");
    let refused = stolen.call(SAY, &[], PATIENCE).expect_err("a guest has it").to_string();
    assert!(refused.contains("nothing but what is published for guests"), "{refused}");
    let open = guest.startpoint(&house.hall.startpoint([]).expect("a startpoint"), PATIENCE).expect("bound");
    assert_eq!(open.call(SAY, &[], PATIENCE).expect("an answer"), b"guest");
    // Friends are friends all the same.
    let friend = house.visitor(friend);
    let room = house.attach(&friend, "room").expect("it is for friends");
    assert_eq!(room.call(SAY, &[], PATIENCE).expect("an answer"), b"friend");
    assert_eq!(friend.startpoint(&bearer, PATIENCE).expect("bound").call(SAY, &[], PATIENCE).expect("said"), b"friend");
    assert!(house.attach(&friend, "hall").is_err());
    let counts = house.domain.refusals().expect("counts");
    assert_eq!((counts.names, counts.startpoints.iter().map(|(_, count)| count).sum::<u64>()), (2, 1));
}

#[test]
fn a_session_has_a_binding_of_its_own_that_both_ends_know() {
    let house = house(Trust::default().guests());
    let mut bindings = Vec::new();
    for guest in [house.stranger(), house.stranger()] {
        let hall = house.attach(&guest, "hall").expect("it is for guests");
        let binding = hall.binding().expect("a session");
        assert_eq!(hall.call(BINDING, &[], PATIENCE).expect("an answer"), binding);
        assert_eq!(hall.peer().expect("a session").name, "the house");
        bindings.push(binding);
    }
    assert_ne!(bindings[0], bindings[1]);
}

#[test]
fn only_who_listens_and_says_so_has_guests() {
    // Nobody asked for any.
    let closed = house(Trust::default());
    let refused = closed.attach(&closed.stranger(), "hall").err().expect("a stranger").to_string();
    assert!(refused.contains("refuses this one"), "{refused}");
    // Who connects knows whom he wants, whomever he lets in.
    let trust = Trust::default().guests();
    let host = Domain::open(Config::new(Identity::generate().expect("a key"), trust)).expect("a domain");
    let refused = host.startpoint(&closed.room.startpoint([]).expect("a startpoint"), PATIENCE).err();
    let refused = refused.expect("its key is not known").to_string();
    assert!(refused.contains("neither pinned here nor certified"), "{refused}");
}

#[test]
fn who_claims_something_that_nobody_here_vouches_for_is_no_guest() {
    let house = house(Trust::default().guests());
    let key = KeyPair::generate().expect("a key");
    for (claim, comes_in) in [("gambeson:role:friend", false), ("gambeson:role:guest", true), ("urn:x", true)] {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(Ia5String::try_from(claim).expect("ASCII"))];
        let certificate = pem("CERTIFICATE", params.self_signed(&key).expect("a certificate").der());
        let key = pem("PRIVATE KEY", &key.serialize_der());
        let identity = Identity::from_pem(certificate.as_bytes(), key.as_bytes()).expect("an identity");
        assert_eq!(house.attach(&house.visitor(identity), "hall").is_ok(), comes_in, "{claim}");
    }
}

fn pem(what: &str, der: &[u8]) -> String {
    format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", BASE64.encode(der))
}

#[test]
fn of_too_many_guests_the_first_goes() {
    let house = house(Trust::default().guests());
    let mut guests: Vec<(Domain, Startpoint)> = Vec::new();
    for _ in 0..66 {
        let guest = house.stranger();
        let hall = house.attach(&guest, "hall").expect("newcomers come in");
        guests.push((guest, hall));
    }
    let gone = |(_, hall): &(Domain, Startpoint)| hall.call(SAY, &[], PATIENCE).is_err();
    let gone: Vec<_> = guests.iter().map(gone).collect();
    assert_eq!(gone.iter().position(|gone| !gone), Some(2), "{gone:?}");
    assert!(!gone[2..].contains(&true), "{gone:?}");
}
