//! What startpoints allow, and what each attacker can make of them.

mod attacks;
mod book;
mod model;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};

use super::*;
use crate::key_schedule::{LinkKeys, SessionKeys};
use crate::secret::Secret32;
use crate::suite::Suite;

const ENDPOINT: u64 = 7;
const NOW: u64 = 1_000;
const ANY: Terms<'static> = Terms { floor: Protection::None, partition: None };

/// What is applied on every link here.
fn transforms() -> Transforms {
    Transforms::new(["zstd", "mask"]).expect("names")
}

/// A process with its key.
struct Domain {
    key: Ed25519KeyPair,
    hash: KeyHash,
}

impl Domain {
    fn new(seed: u8) -> Self {
        let key = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a seed has 32 bytes");
        let hash = key_hash(key.public_key().as_ref().try_into().expect("32 bytes"));
        Domain { key, hash }
    }

    fn voucher(&self, message: &[u8]) -> Voucher {
        Voucher {
            key: self.key.public_key().as_ref().try_into().expect("32 bytes"),
            signature: self.key.sign(message).as_ref().try_into().expect("64 bytes"),
        }
    }

    /// A copy of what this domain holds, or bears.
    fn copy(&self, startpoint: &Startpoint, holder: &Domain, id: u8) -> Startpoint {
        startpoint.copy_for(holder.hash, [id; 16], |message| self.voucher(message)).expect("it can be copied")
    }
}

/// An endpoint, its owner, and who else there is.
struct World {
    book: StartpointBook,
    owner: Domain,
    alice: Domain,
    bob: Domain,
    mallory: Domain,
    sessions: u64,
}

impl World {
    fn new() -> Self {
        World::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let owner = Domain::new(1);
        let mut book = StartpointBook::new(owner.hash, limits);
        let key = EndpointKey::from_bytes([0x4b; 32]);
        book.open_endpoint(ENDPOINT, key, "control", transforms()).expect("a class");
        World { book, owner, alice: Domain::new(2), bob: Domain::new(3), mallory: Domain::new(4), sessions: 0 }
    }

    fn mint(&mut self, root: u8, caveats: impl IntoIterator<Item = Caveat>) -> Startpoint {
        let address = Address { kind: AddressKind::Tcp, text: "10.77.0.1:4000".to_owned() };
        self.book.mint(ENDPOINT, [root; 16], vec![address], caveats).expect("it can be made")
    }

    /// Both ends of a new session that `opener` opens to the owner.
    fn session(&mut self, opener: &KeyHash) -> (Session, Session) {
        self.sessions += 1;
        let mut exporter = [0x5e; 32];
        exporter[..8].copy_from_slice(&self.sessions.to_be_bytes());
        let keys = |own, peer| SessionKeys {
            exporter: Secret32::from_bytes(exporter),
            own,
            peer,
            job_id: [0; 16],
            policy_hash: [0; 32],
            suite: Suite::Aes256Gcm,
        };
        let (here, there) = (keys(*opener, self.owner.hash), keys(self.owner.hash, *opener));
        (Session::new(here, End::Startpoint), Session::new(there, End::Endpoint))
    }

    fn admit(&mut self, session: &mut Session, activation: &Activation) -> Result<Admitted, Refusal> {
        self.book.admit(session, &activation.encode(), NOW, |_| ANY)
    }

    /// Opens a link in a session of its own, as honest code does.
    fn open(&mut self, startpoint: &Startpoint, opener: &KeyHash) -> Result<Grant, Refusal> {
        let (mut here, mut there) = self.session(opener);
        let opening = startpoint.activate(&mut here, [9; 16], Protection::Privacy, None).expect("it is the opener's");
        let admitted = self.admit(&mut there, &opening.activation)?;
        assert!(opening.is_answered_by(&admitted.keys.answer));
        assert_eq!(print(&opening.keys), print(&admitted.keys));
        Ok(admitted.grant)
    }

    /// Opens a link without asking whether the startpoint is the opener's, as attackers do.
    fn force(&mut self, startpoint: &Startpoint, opener: &KeyHash) -> Result<Grant, Refusal> {
        let (here, mut there) = self.session(opener);
        let (activation, _) = forge(startpoint, &here.keys, 1, Protection::Privacy);
        self.admit(&mut there, &activation).map(|admitted| admitted.grant)
    }
}

/// What anybody can compute who has a startpoint's bytes and a session.
fn forge(startpoint: &Startpoint, keys: &SessionKeys, number: u64, protection: Protection) -> (Activation, LinkKeys) {
    let terms = LinkTerms { number, nonce: [9; 16], name: startpoint.chain.name, protection, partition: None };
    let keys = link_roots(keys, End::Startpoint, Some(&startpoint.chain.secret), &terms);
    let activation = Activation {
        number,
        nonce: terms.nonce,
        protection,
        endpoint: startpoint.origin.endpoint,
        root: startpoint.origin.root,
        caveats: startpoint.caveats.clone(),
        proof: keys.proof,
    };
    (activation, keys)
}

/// Tells keys apart without showing them.
fn print(keys: &LinkKeys) -> [(u64, [u8; 16]); 2] {
    [&keys.from_startpoint, &keys.from_endpoint]
        .map(|root| (root.connection_id(), root.epoch(0, Suite::Aes256Gcm, Protection::Privacy).mac(0, b"fingerprint")))
}

/// A region that no window goes beyond.
const WHOLE: Option<u64> = Some(u64::MAX);

fn window(region: u64, offset: u64, length: u64, rights: u8) -> Window {
    Window { region, offset, length, rights }
}

/// Never called: of a bearer's startpoint, which nobody need vouch for.
fn nobody(_: &[u8]) -> Voucher {
    unreachable!("nobody holds it yet")
}
