//! Through a relay: how a domain is reached that can only connect outward.
//!
//! ```text
//!  owner ── hello: OFFER, its key ──> relay             seeker ── hello: SEEK, a key ──> relay
//!        <─ a nonce ────────────────
//!        ── its key, its signature ─>
//!        <─ WAIT, now and then ─────
//!        <─ GO, then the seeker's bytes                        <─ GO, then the owner's bytes; or NOBODY
//! ```
//!
//! An address `HOST:PORT/KEY`, a relay's and an owner's key hash, stands where a TCP address does. From GO on the relay
//! passes bytes, and the two begin as over any connection: it sees handshakes of TLS and sealed records. It is a stranger,
//! so links of a session that may go through one are sealed, whatever policies say.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Weak;
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use gambeson_proto::startpoint::{Address, AddressKind, Voucher, key_hash};

use crate::carrier::tcp::Tcp;
use crate::error::Error;
use crate::identity::KeyHash;
use crate::refusals;
use crate::shared::Shared;

const PROTOCOL: &[u8; 16] = b"gambeson-relay/1";
const SIGNED: &[u8; 23] = b"gambeson-relay/1 offer\0";

/// Bytes of a [`Hello`], and of what proves an offer: a public key and a signature (RFC 8032).
pub const HELLO: usize = 16 + 1 + 32;
/// See [`HELLO`].
pub const PROOF: usize = 32 + 64;

/// What a relay says in a byte.
pub mod word {
    /// Nobody has sought this key yet; the connection is alive.
    pub const WAIT: u8 = b'.';
    /// What follows is the other end's.
    pub const GO: u8 = b'!';
    /// Nobody offers himself under this key.
    pub const NOBODY: u8 = b'-';
    /// This key may not be offered here.
    pub const REFUSED: u8 = b'x';
}

/// A relay says WAIT so often; who hears nothing for three times as long has lost it.
pub const WAIT: Duration = Duration::from_secs(20);
/// A relay lets a seeker wait so long for an owner whose connections are all in use.
pub const SEEKING: Duration = Duration::from_secs(5);

/// Connections that a domain keeps waiting at a relay.
const SPARE: usize = 4;
/// How long a relay may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to reach a relay, at first and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(5)];

/// What somebody wants of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hello {
    /// To be reached by who seeks this key, which is his.
    Offer(KeyHash),
    /// To reach the owner of this key.
    Seek(KeyHash),
}

impl Hello {
    /// As it goes over the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO] {
        let (kind, key) = match self {
            Hello::Offer(key) => (b'O', key),
            Hello::Seek(key) => (b'S', key),
        };
        let mut bytes = [0; HELLO];
        bytes[..16].copy_from_slice(PROTOCOL);
        bytes[16] = kind;
        bytes[17..].copy_from_slice(&key.0);
        bytes
    }

    /// What that says, if it is one.
    #[must_use]
    pub fn decode(bytes: &[u8; HELLO]) -> Option<Self> {
        let key = KeyHash(*bytes.last_chunk().expect("it is longer"));
        match (bytes.starts_with(PROTOCOL), bytes[16]) {
            (true, b'O') => Some(Hello::Offer(key)),
            (true, b'S') => Some(Hello::Seek(key)),
            _ => None,
        }
    }
}

/// Whether who was given this nonce has the private key of what is offered.
#[must_use]
pub fn proves(offered: &KeyHash, nonce: &[u8; 32], proof: &[u8; PROOF]) -> bool {
    let (key, signature) = proof.split_first_chunk::<32>().expect("a proof begins with the key");
    key_hash(key) == offered.0 && UnparsedPublicKey::new(&ED25519, key).verify(&signed(nonce), signature).is_ok()
}

fn signed(nonce: &[u8; 32]) -> Vec<u8> {
    [&SIGNED[..], nonce].concat()
}

/// The address of a domain at a relay.
pub(crate) fn address(relay: &str, owner: KeyHash) -> Address {
    Address { kind: AddressKind::Tcp, text: format!("{relay}/{owner}") }
}

/// The relay and the key in an address, if it is one of a relay.
pub(crate) fn parts(address: &Address) -> Option<(&str, &str)> {
    if address.kind == AddressKind::Tcp { address.text.split_once('/') } else { None }
}

/// A carrier to the owner of a key.
pub(crate) fn seek(relay: &str, key: &str, patience: Duration) -> io::Result<Tcp> {
    // That a relay is not there, or knows nobody at present, does not say that the owner has gone.
    let failed = |cause: io::Error| io::Error::other(format!("cannot go through the relay {relay}: {cause}"));
    let senseless = || io::Error::new(ErrorKind::InvalidInput, format!("{key:?} is no key hash"));
    let key = KeyHash::parse(key).ok_or_else(senseless)?;
    let deadline = Instant::now() + patience;
    let mut stream = connect(relay, patience).map_err(failed)?;
    let word = greet(&mut stream, &Hello::Seek(key)).and_then(|()| {
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            match hear(&mut stream, left)? {
                [word::WAIT] => {}
                [word] => break Ok(word),
            }
        }
    });
    match word.map_err(failed)? {
        word::GO => Tcp::relayed(stream),
        word::NOBODY => Err(failed(io::Error::other("nobody waits there under this key"))),
        _ => Err(failed(io::Error::new(ErrorKind::InvalidData, "it is no relay"))),
    }
}

fn connect(relay: &str, patience: Duration) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(ErrorKind::NotFound, "its name leads to no address");
    for address in relay.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(cause) => failure = cause,
        }
    }
    Err(failure)
}

fn greet(stream: &mut TcpStream, hello: &Hello) -> io::Result<()> {
    stream.write_all(&hello.encode())
}

fn hear<const N: usize>(stream: &mut TcpStream, patience: Duration) -> io::Result<[u8; N]> {
    stream.set_read_timeout(Some(patience))?;
    let mut came = [0; N];
    stream.read_exact(&mut came).map_err(|cause| match cause.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, format!("it said nothing for {patience:?}")),
        ErrorKind::UnexpectedEof => io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection"),
        _ => cause,
    })?;
    Ok(came)
}

/// Keeps connections waiting at a relay as long as the domain is open.
pub(crate) fn offer(shared: &Weak<Shared>, relay: &str) -> Result<(), Error> {
    for at in 0..SPARE {
        let (shared, relay) = (shared.clone(), relay.to_owned());
        let thread = thread::Builder::new().name("gambeson-relay".into());
        let started = thread.spawn(move || keep(&shared, &relay, at == 0));
        started.map_err(Error::system("no thread can be started for a relay"))?;
    }
    Ok(())
}

/// One of those connections after the other; the first of them speaks for all.
fn keep(shared: &Weak<Shared>, relay: &str, speaks: bool) {
    let (mut pause, mut failures) = (PAUSES[0], 0);
    loop {
        let failure = match wait(shared, relay) {
            Ok(carrier) => match shared.upgrade() {
                Some(shared) if shared.arrive(carrier) => {
                    (pause, failures) = (PAUSES[0], 0);
                    continue;
                }
                _ => return,
            },
            Err(Ended::Closed) => return,
            Err(Ended::Failed(cause)) => cause,
        };
        failures += u64::from(speaks);
        refusals::say(failures, || format!("this domain cannot be reached through the relay {relay}: {failure}"));
        thread::sleep(pause);
        pause = (2 * pause).min(PAUSES[1]);
    }
}

enum Ended {
    /// The domain is.
    Closed,
    Failed(io::Error),
}

impl From<io::Error> for Ended {
    fn from(cause: io::Error) -> Self {
        Ended::Failed(cause)
    }
}

/// Offers this domain once, and waits until somebody seeks it.
fn wait(shared: &Weak<Shared>, relay: &str) -> Result<Tcp, Ended> {
    let mut stream = connect(relay, PATIENCE)?;
    {
        let shared = shared.upgrade().ok_or(Ended::Closed)?;
        greet(&mut stream, &Hello::Offer(shared.party.key_hash()))?;
        let nonce = hear(&mut stream, PATIENCE)?;
        let unable = || io::Error::other("this domain has no Ed25519 key, and relays know no others");
        let Voucher { key, signature } = shared.party.vouch(&signed(&nonce)).ok_or_else(unable)?;
        stream.write_all(&[&key[..], &signature].concat())?;
    }
    loop {
        match hear(&mut stream, 3 * WAIT)? {
            [word::WAIT] if shared.upgrade().is_none_or(|shared| shared.is_closing()) => return Err(Ended::Closed),
            [word::WAIT] => {}
            [word::GO] => return Ok(Tcp::relayed(stream)?),
            [word::REFUSED] => Err(io::Error::new(ErrorKind::PermissionDenied, "it does not let this key be offered"))?,
            _ => Err(io::Error::new(ErrorKind::InvalidData, "it is no relay"))?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};

    #[test]
    fn a_hello_is_read_as_it_was_written_and_nothing_else_is() {
        for hello in [Hello::Offer(KeyHash([7; 32])), Hello::Seek(KeyHash([9; 32]))] {
            let bytes = hello.encode();
            assert_eq!(Hello::decode(&bytes), Some(hello));
            for at in 0..=16 {
                let mut altered = bytes;
                altered[at] ^= 1;
                assert_eq!(Hello::decode(&altered), None);
            }
        }
    }

    #[test]
    fn an_offer_is_proved_by_its_own_key_and_for_its_own_nonce() {
        let identity = Identity::generate().expect("a key");
        let pair =
            Ed25519KeyPair::from_pkcs8_maybe_unchecked(identity.private_key().expect("in memory")).expect("its key");
        let proof = |signed: &[u8]| -> [u8; PROOF] {
            [pair.public_key().as_ref(), pair.sign(signed).as_ref()].concat().try_into().expect("of that length")
        };
        let right = proof(&signed(&[3; 32]));
        assert!(proves(&identity.key_hash(), &[3; 32], &right));
        assert!(!proves(&identity.key_hash(), &[4; 32], &right));
        assert!(!proves(&KeyHash([5; 32]), &[3; 32], &right));
        assert!(!proves(&identity.key_hash(), &[3; 32], &proof(&[3; 32])));
    }
}
