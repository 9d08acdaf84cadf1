//! Startpoints: capabilities to another process's endpoint (secure-nexus paper, 3.2 and 7.1; threat-model rule 12).
//!
//! ```text
//!  owner: book.mint ──> bearer ── narrow ──> bearer ── copy_for(A) ──> A's ── narrow ──> A's ── copy_for(B) ──> B's
//!                                                                 A's signature vouches for B's ─┘
//!
//!  A: activate ── Activation ──> owner: book.admit ──> Grant: permit, access      keys of the link at both ends
//! ```
//!
//! A startpoint is a secret and a list of caveats, and each caveat's secret comes from the one before by a MAC: whoever
//! has it can append caveats without asking anybody, and nobody can take one off, alter or move it. A copy is bound to
//! its recipient's key by a caveat of its own, and is worth nothing to anybody else:
//!
//! | who | can | cannot |
//! |---|---|---|
//! | a holder | use, narrow, copy and revoke copies | widen, or take off what an ancestor put on |
//! | an ancestor | all that with its own; compute a copy's secret | open links as the copy's holder, or read them |
//! | a thief of the bytes | see what they allow | open links or copy further: both take the holder's private key |
//! | a thief of a bearer's bytes | all that the bearer could | widen |
//! | who replays an activation | | open anything: keys and proof depend on the session, and its number is used up |
//! | who alters the bytes on the way | keep them from working | lead a holder to another endpoint unnoticed |
//!
//! A startpoint is worth as much as its giver: an ancestor, or who both read and altered the bytes on their way, can name
//! another owner in them, who then answers as the endpoint. Nobody can with a startpoint that he has not read.
//!
//! What an endpoint keeps of one takes at most 512 bytes, a link's two sessions included:
//! `cargo test -p gambeson-proto --test startpoint_memory -- --nocapture` prints how many.
//!
//! ```text
//! version u8 | owner 32 | endpoint u64 | root id 16 | class u8, text | transforms u8, text
//! addresses u8 x { kind u8 | u8, text } | caveats u8 x { caveat } | secret 32          (big endian)
//! ```

mod activation;
mod book;
mod caveat;
mod chain;
mod grant;
mod refusal;
mod rules;
mod transforms;
mod wire;

use std::fmt;

use zeroize::Zeroizing;

pub use activation::{Activation, Opening, Session};
pub use book::{Admitted, Limits, StartpointBook, Terms};
pub use caveat::{CAVEAT_BYTES_MAX, CAVEATS_MAX, Caveat, CopyCaveat, Voucher, Window};
pub use chain::{EndpointKey, key_hash};
pub use grant::Grant;
pub use refusal::Refusal;
pub use transforms::{TRANSFORMS_MAX, Transforms};
pub use wire::StartpointError;

use activation::Revocation;
use caveat::Caveats;
use chain::{Chain, Origin};
use wire::{Reader, VERSION};

use crate::key_schedule::{End, KeyHash, LinkTerms, PartitionKey, link_roots};
use crate::suite::Protection;

/// A capability to an endpoint of another process, or of ours.
#[derive(Clone)]
pub struct Startpoint {
    origin: Origin,
    addresses: Vec<Address>,
    caveats: Caveats,
    chain: Chain,
}

/// Where the endpoint's owner listens. A hint: a session with anybody else does not come about, or does not pass for
/// one with the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// How to get there.
    pub kind: AddressKind,
    /// `10.1.2.3:4000`, `host-id/name`, or `provider/hexadecimal`.
    pub text: String,
}

/// How to get to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AddressKind {
    /// TCP.
    Tcp = 1,
    /// Shared memory on one host.
    Shm = 2,
    /// An endpoint of one of libfabric's providers.
    Fabric = 3,
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressKind::Tcp => "TCP",
            AddressKind::Shm => "shared memory",
            AddressKind::Fabric => "libfabric",
        })
    }
}

/// A copy or a root as it is revoked: public, and of no use for anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartpointName {
    /// The endpoint.
    pub endpoint: u64,
    /// The first ancestor.
    pub root: [u8; 16],
    /// The copy; without one, the root and all that descends from it.
    pub copy: Option<[u8; 16]>,
}

impl Startpoint {
    /// The domain that owns the endpoint: sessions must lead there.
    pub fn owner(&self) -> &KeyHash {
        &self.origin.owner
    }

    /// The endpoint.
    pub fn endpoint(&self) -> u64 {
        self.origin.endpoint
    }

    /// The class of its links, by which policies choose.
    pub fn class(&self) -> &str {
        &self.origin.class
    }

    /// The transform modules of its links.
    pub fn transforms(&self) -> &Transforms {
        &self.origin.transforms
    }

    /// Where its owner listens.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// What it is narrowed by.
    pub fn caveats(&self) -> impl DoubleEndedIterator<Item = &Caveat> {
        self.caveats.iter()
    }

    /// The domain that it is bound to; `None` is a bearer's.
    pub fn holder(&self) -> Option<&KeyHash> {
        self.caveats.holder()
    }

    /// Narrows it.
    pub fn narrow(&mut self, caveat: Caveat) -> Result<(), StartpointError> {
        match caveat {
            Caveat::Copy(_) => Err(StartpointError::BadCaveat),
            caveat => self.append(caveat),
        }
    }

    /// A copy for another domain, and for it alone: `id` is random. It descends from this one: what narrows or ends this
    /// one narrows or ends the copy.
    ///
    /// If this one is bound to us, `vouch` signs what it is given with our domain's Ed25519 key, without which our
    /// bytes are not enough to copy them. Of a bearer's startpoint it is not called.
    pub fn copy_for(
        &self,
        holder: KeyHash,
        id: [u8; 16],
        vouch: impl FnOnce(&[u8]) -> Voucher,
    ) -> Result<Startpoint, StartpointError> {
        let mut copy = CopyCaveat { id, holder, voucher: None };
        if self.holder().is_some() {
            copy.voucher = Some(vouch(&chain::vouched(&self.chain.name, &copy)));
        }
        if !chain::is_vouched(&self.chain.name, self.holder(), &copy) {
            return Err(StartpointError::NotOurs);
        }
        let mut startpoint = self.clone();
        startpoint.append(Caveat::Copy(copy))?;
        Ok(startpoint)
    }

    /// Its name for [`StartpointBook::revoke`]: that of the last copy, or of the root.
    pub fn name(&self) -> StartpointName {
        let copy = self.caveats.to_last_copy().map(|caveats| rules::place(&caveats.name(self.origin.name())));
        StartpointName { endpoint: self.origin.endpoint, root: self.origin.root, copy }
    }

    /// What the maker of a copy sends to the endpoint's owner to have it revoked ([`StartpointBook::revoke_for`]). It is
    /// no secret. `None`: nobody copied it.
    pub fn revocation(&self) -> Option<Vec<u8>> {
        let caveats = self.caveats.to_last_copy()?;
        Some(Revocation { endpoint: self.origin.endpoint, root: self.origin.root, caveats }.encode())
    }

    /// Opens a link in a session with the endpoint's owner; `nonce` is random.
    pub fn activate(
        &self,
        session: &mut Session,
        nonce: [u8; 16],
        protection: Protection,
        partition: Option<&PartitionKey>,
    ) -> Result<Opening, StartpointError> {
        if session.keys.peer != self.origin.owner {
            return Err(StartpointError::OtherOwner);
        }
        if self.holder().is_some_and(|holder| *holder != session.keys.own) {
            return Err(StartpointError::NotOurs);
        }
        let terms = LinkTerms { number: session.open(), nonce, name: self.chain.name, protection, partition };
        let keys = link_roots(&session.keys, End::Startpoint, Some(&self.chain.secret), &terms);
        let activation = Activation {
            number: terms.number,
            nonce,
            protection,
            endpoint: self.origin.endpoint,
            root: self.origin.root,
            caveats: self.caveats.clone(),
            proof: keys.proof,
        };
        Ok(Opening { activation, keys })
    }

    /// Its bytes, secret and all: they travel only where secrets may.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let addresses: usize = self.addresses.iter().map(|address| 2 + address.text.len()).sum();
        // One allocation: a vector that grows leaves copies of the secret behind.
        let length = FIXED
            + self.origin.class.len()
            + self.origin.transforms.as_str().len()
            + addresses
            + self.caveats.encoded_len();
        let mut out = Zeroizing::new(Vec::with_capacity(length));
        out.push(VERSION);
        out.extend(self.origin.owner);
        out.extend(self.origin.endpoint.to_be_bytes());
        out.extend(self.origin.root);
        wire::put_text(&mut out, &self.origin.class);
        wire::put_text(&mut out, self.origin.transforms.as_str());
        out.push(self.addresses.len() as u8);
        for address in &self.addresses {
            out.push(address.kind as u8);
            wire::put_text(&mut out, &address.text);
        }
        self.caveats.encode(&mut out);
        out.extend(self.chain.secret.as_bytes());
        debug_assert_eq!(out.len(), length);
        out
    }

    /// Reads what [`Startpoint::encode`] wrote. Whether its endpoint takes it, only its owner can tell.
    pub fn decode(bytes: &[u8]) -> Result<Self, StartpointError> {
        let mut reader = Reader(bytes);
        reader.version()?;
        let origin = Origin {
            owner: reader.array()?,
            endpoint: reader.word()?,
            root: reader.array()?,
            class: reader.text(CLASS_MAX)?.into(),
            transforms: Transforms::decode(&mut reader)?,
        };
        let count = usize::from(reader.byte()?);
        if count > ADDRESSES_MAX {
            return Err(StartpointError::Malformed);
        }
        let mut addresses = Vec::with_capacity(count);
        for _ in 0..count {
            let kind = match reader.byte()? {
                1 => AddressKind::Tcp,
                2 => AddressKind::Shm,
                3 => AddressKind::Fabric,
                _ => return Err(StartpointError::Malformed),
            };
            addresses.push(Address { kind, text: reader.text(ADDRESS_MAX)?.to_owned() });
        }
        let caveats = Caveats::decode(&mut reader)?;
        let secret = reader.secret()?;
        reader.end()?;
        if secret.is_wiped() {
            return Err(StartpointError::Malformed);
        }
        let chain = Chain { name: caveats.name(origin.name()), secret };
        Ok(Startpoint { origin, addresses, caveats, chain })
    }

    /// The first of an endpoint's: [`StartpointBook::mint`].
    fn root(key: &EndpointKey, origin: Origin, addresses: Vec<Address>) -> Result<Self, StartpointError> {
        let legal = |address: &Address| wire::printable(&address.text, ADDRESS_MAX);
        if addresses.len() > ADDRESSES_MAX || !addresses.iter().all(legal) {
            return Err(StartpointError::BadName);
        }
        let chain = Chain::root(key, &origin);
        Ok(Startpoint { origin, addresses, caveats: Caveats::default(), chain })
    }

    fn append(&mut self, caveat: Caveat) -> Result<(), StartpointError> {
        let encoded = self.caveats.push(caveat)?;
        self.chain.append(&encoded);
        Ok(())
    }
}

impl fmt::Debug for Startpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Startpoint")
            .field("origin", &self.origin)
            .field("addresses", &self.addresses)
            .field("caveats", &self.caveats)
            .finish_non_exhaustive()
    }
}

/// Characters of a class.
pub const CLASS_MAX: usize = 32;
/// Addresses of a startpoint.
pub const ADDRESSES_MAX: usize = 8;
const ADDRESS_MAX: usize = 255;
const FIXED: usize = 1 + 32 + 8 + 16 + 1 + 1 + 1 + 1 + 32;

#[cfg(test)]
mod tests;
