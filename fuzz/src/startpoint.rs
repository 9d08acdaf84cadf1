//! Startpoints: bytes as they are, and whatever decodes narrowed, copied and brought to an endpoint.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use gambeson_proto::key_schedule::{End, KeyHash, SessionKeys};
use gambeson_proto::secret::Secret32;
use gambeson_proto::startpoint::{
    Address, AddressKind, Caveat, EndpointKey, Limits, Refusal, Session, Startpoint, StartpointBook, Terms, Transforms,
    Voucher, Window, key_hash,
};
use gambeson_proto::suite::{Protection, Suite};

pub(crate) const ENDPOINT: u64 = 7;
pub(crate) const NOW: u64 = 1_000;

/// A process's key, from its seed.
pub(crate) fn domain(seed: u8) -> (Ed25519KeyPair, KeyHash) {
    let key = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a seed has 32 bytes");
    let hash = key_hash(key.public_key().as_ref().try_into().expect("32 bytes"));
    (key, hash)
}

pub(crate) const OWNER: u8 = 1;
pub(crate) const HOLDER: u8 = 2;
pub(crate) const SECOND: u8 = 3;

/// An endpoint's book, and what was made of its one startpoint.
pub(crate) struct Family {
    pub(crate) book: StartpointBook,
    /// The first holder's copy.
    pub(crate) first: Startpoint,
    /// That one, narrowed.
    pub(crate) narrow: Startpoint,
    /// The second holder's, copied from the first's.
    pub(crate) second: Startpoint,
}

impl Family {
    /// All that were given out, with their holders.
    pub(crate) fn given(&self) -> [(&Startpoint, u8); 3] {
        [(&self.first, HOLDER), (&self.narrow, HOLDER), (&self.second, SECOND)]
    }
}

pub(crate) fn family() -> Family {
    let mut book = StartpointBook::new(domain(OWNER).1, Limits { links: 4, marks: 4 });
    let transforms = Transforms::new(["zstd", "mask"]).expect("names");
    book.open_endpoint(ENDPOINT, EndpointKey::from_bytes([8; 32]), "data", transforms).expect("a class");
    let addresses = vec![
        Address { kind: AddressKind::Tcp, text: "10.77.0.1:4000".to_owned() },
        Address { kind: AddressKind::Shm, text: "h1/solver".to_owned() },
    ];
    let caveats = [
        Caveat::methods([1, 2, 300]),
        Caveat::Expires(2_000),
        Caveat::Uses(3),
        Caveat::Memory(vec![Window { region: 1, offset: 16, length: 64, rights: Window::READ }]),
        Caveat::Protection(Protection::Integrity),
    ];
    let bearer = book.mint(ENDPOINT, [9; 16], addresses, caveats).expect("it can be made");
    let (key, holder) = domain(HOLDER);
    let first = bearer.copy_for(holder, [1; 16], |_| unreachable!("nobody holds it")).expect("it can be copied");
    let vouch = |message: &[u8]| Voucher {
        key: key.public_key().as_ref().try_into().expect("32 bytes"),
        signature: key.sign(message).as_ref().try_into().expect("64 bytes"),
    };
    let second = first.copy_for(domain(SECOND).1, [2; 16], vouch).expect("it can be copied");
    let mut narrow = first.clone();
    narrow.narrow(Caveat::Protection(Protection::Privacy)).expect("there is room");
    Family { book, first, narrow, second }
}

/// Both ends of the one session that a domain opens to the owner.
pub(crate) fn session(opener: KeyHash) -> (Session, Session) {
    let owner = domain(OWNER).1;
    let keys = |own, peer| SessionKeys {
        exporter: Secret32::from_bytes([6; 32]),
        own,
        peer,
        job_id: [0; 16],
        policy_hash: [0; 32],
        suite: Suite::Aes256Gcm,
    };
    (Session::new(keys(opener, owner), End::Startpoint), Session::new(keys(owner, opener), End::Endpoint))
}

pub(crate) fn terms(_: &str) -> Terms<'static> {
    Terms { floor: Protection::None, partition: None }
}

pub fn startpoint(data: &[u8]) {
    let mut decoded = match Startpoint::decode(data) {
        Ok(decoded) => decoded,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert_eq!(decoded.encode()[..], *data, "a startpoint has one encoding");
    let name = decoded.name();
    assert_eq!(decoded.revocation().is_some(), name.copy.is_some());
    let mut family = family();
    // Bytes that were not given out open nothing, whoever brings them; but for addresses, which are hints.
    if *decoded.owner() == domain(OWNER).1 {
        let public = |startpoint: &Startpoint| {
            let caveats: Vec<Caveat> = startpoint.caveats().cloned().collect();
            (startpoint.endpoint(), startpoint.class().to_owned(), startpoint.transforms().clone(), caveats)
        };
        let given = family.given().iter().any(|(given, _)| public(given) == public(&decoded));
        let opener = decoded.holder().copied().unwrap_or([5; 32]);
        let (mut here, mut there) = session(opener);
        let opening = decoded.activate(&mut here, [4; 16], Protection::Privacy, None).expect("its holder opens it");
        match family.book.admit(&mut there, &opening.activation.encode(), NOW, terms) {
            Ok(admitted) => assert!(given && opening.is_answered_by(&admitted.keys.answer), "it was forged"),
            // With another secret, or of another root.
            Err(refusal) => assert!(matches!(refusal, Refusal::Unproven | Refusal::Unknown), "{refusal:?}"),
        }
    }
    // Narrowed, it is still one; its name is its last copy's.
    if decoded.narrow(Caveat::Uses(1)).is_ok() {
        assert_eq!(decoded.name(), name);
        let again = Startpoint::decode(&decoded.encode()).expect("it was just encoded");
        assert_eq!(again.encode(), decoded.encode());
    }
}
