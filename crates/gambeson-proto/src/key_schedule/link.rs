//! The keys of a session's links, and the chain of secrets that a startpoint is.
//!
//! A link's keys come from its session, from the startpoint that it was opened with and from the
//! partition. They depend on both domains' keys, on the startpoint's whole public content (through
//! its name), on the number that the link has in the session and never shares, on a nonce of the
//! opener, and on the protection agreed on: two ends that see any of it differently have different
//! keys, and their proofs say so before the first record.

use aws_lc_rs::digest::{Context, SHA256, digest};

use super::{Agreed, Info, Label, PartitionKey, Root, combine, derive};
use crate::primitives::expand;
use crate::secret::Secret32;
use crate::suite::{Protection, Suite};

/// Names a domain: SHA-256 of its public key as a SubjectPublicKeyInfo (RFC 5280, 4.1).
pub type KeyHash = [u8; 32];

/// What one end of a session brings to the keys of its links.
#[derive(Clone, Debug)]
pub struct SessionKeys {
    /// Exported from the session's TLS handshake (RFC 8446, 7.5) for this purpose alone.
    pub exporter: Secret32,
    /// Our domain.
    pub own: KeyHash,
    /// The domain that the handshake authenticated.
    pub peer: KeyHash,
    /// The job that both belong to, or zeros.
    pub job_id: [u8; 16],
    /// Hash of the policy that both follow, or zeros.
    pub policy_hash: [u8; 32],
    /// Suite of all links.
    pub suite: Suite,
}

/// Which end of a link we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The one that opened it. Of a control link: the one that opened the session.
    Startpoint,
    /// The one it was opened to.
    Endpoint,
}

/// What tells a link from all others.
#[derive(Clone, Debug)]
pub struct LinkTerms<'k> {
    /// Its number in the session, of which none is used twice; 0 is the control link.
    pub number: u64,
    /// Fresh random bytes of the opener.
    pub nonce: [u8; 16],
    /// The startpoint's name.
    pub name: [u8; 32],
    /// How its records are protected.
    pub protection: Protection,
    /// The partition that both ends are in.
    pub partition: Option<&'k PartitionKey>,
}

/// The roots of a link's two directions, and what shows each end that the other has them.
#[derive(Debug)]
pub struct LinkKeys {
    /// From the startpoint to the endpoint.
    pub from_startpoint: Root,
    /// From the endpoint to the startpoint.
    pub from_endpoint: Root,
    /// Sent by the startpoint's end.
    pub proof: [u8; 16],
    /// Sent by the endpoint's end.
    pub answer: [u8; 16],
}

/// Derives the keys of a link; `startpoint` is the secret it is opened with, which the control link lacks.
pub fn link_roots(session: &SessionKeys, end: End, startpoint: Option<&Secret32>, terms: &LinkTerms<'_>) -> LinkKeys {
    assert!(!session.exporter.is_wiped(), "a forked process has no sessions");
    let secret = startpoint.map_or(Secret32::from_bytes([0; 32]), |startpoint| {
        Secret32::filled(|out| expand(startpoint, Info::new(Label::StartpointLink).bytes(), out))
    });
    let prk = combine(&session.exporter, &secret, terms.partition);
    let (opener, owner) = match end {
        End::Startpoint => (&session.own, &session.peer),
        End::Endpoint => (&session.peer, &session.own),
    };
    let agreed = Agreed {
        suite: session.suite,
        job_id: &session.job_id,
        policy_hash: &session.policy_hash,
        partition: terms.partition,
    };
    let info = |label, from: End| {
        // Both ends may be one domain, so the direction stands by itself.
        let (sender, receiver, direction) = match from {
            End::Startpoint => (opener, owner, 1),
            End::Endpoint => (owner, opener, 2),
        };
        agreed
            .info(label, sender, receiver)
            .field(&[direction])
            .field(&[u8::from(startpoint.is_some())])
            .field(&terms.number.to_be_bytes())
            .field(&terms.nonce)
            .field(&terms.name)
            .field(&[terms.protection as u8])
    };
    let root = |from| Root::derive(&prk, &info(Label::LinkDirection, from), &info(Label::LinkConnection, from));
    let proof = |from| {
        let mut proof = [0; 16];
        expand(&prk, info(Label::LinkProof, from).bytes(), &mut proof);
        proof
    };
    LinkKeys {
        from_startpoint: root(End::Startpoint),
        from_endpoint: root(End::Endpoint),
        proof: proof(End::Startpoint),
        answer: proof(End::Endpoint),
    }
}

/// Names a startpoint as its endpoint made it. Public, as all names are. Without transform modules there is no field for
/// them.
pub(crate) fn root_name(owner: &KeyHash, endpoint: u64, root: &[u8; 16], class: &str, transforms: &str) -> [u8; 32] {
    let mut info = Info::new(Label::StartpointName)
        .field(owner)
        .field(&endpoint.to_be_bytes())
        .field(root)
        .field(class.as_bytes());
    if !transforms.is_empty() {
        info = info.field(transforms.as_bytes());
    }
    digest(&SHA256, info.bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The name after one caveat more.
pub(crate) fn caveat_name(name: &[u8; 32], caveat: &[u8]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    context.update(name);
    context.update(caveat);
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The secret of a startpoint as its endpoint made it.
pub(crate) fn root_secret(endpoint_key: &Secret32, name: &[u8; 32]) -> Secret32 {
    assert!(!endpoint_key.is_wiped(), "a forked process has no endpoints");
    derive(endpoint_key, &Info::new(Label::StartpointRoot).field(name))
}

/// The secret after one caveat more, which `name` includes. There is no way back.
pub(crate) fn caveat_secret(secret: &Secret32, name: &[u8; 32]) -> Secret32 {
    Secret32::filled(|out| expand(secret, Info::new(Label::StartpointCaveat).field(name).bytes(), out))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn session() -> SessionKeys {
        SessionKeys {
            exporter: Secret32::from_bytes([1; 32]),
            own: [2; 32],
            peer: [3; 32],
            job_id: [4; 16],
            policy_hash: [5; 32],
            suite: Suite::Aes256Gcm,
        }
    }

    fn other_end(session: &SessionKeys) -> SessionKeys {
        SessionKeys { own: session.peer, peer: session.own, ..session.clone() }
    }

    fn terms() -> LinkTerms<'static> {
        LinkTerms { number: 1, nonce: [6; 16], name: [7; 32], protection: Protection::Privacy, partition: None }
    }

    /// Everything that the two ends compare or use, without showing a key.
    fn prints(keys: &LinkKeys) -> [Vec<u8>; 4] {
        let root = |root: &Root| {
            let tag = root.epoch(0, Suite::Aes256Gcm, Protection::Privacy).mac(0, b"fingerprint");
            [&root.connection_id().to_le_bytes()[..], &tag[..]].concat()
        };
        [root(&keys.from_startpoint), root(&keys.from_endpoint), keys.proof.to_vec(), keys.answer.to_vec()]
    }

    #[test]
    fn both_ends_derive_the_same_keys() {
        let secret = Secret32::from_bytes([8; 32]);
        let partition = PartitionKey { epoch: 1, key: Secret32::from_bytes([9; 32]) };
        for partition in [None, Some(&partition)] {
            for startpoint in [None, Some(&secret)] {
                let terms = LinkTerms { partition, ..terms() };
                let here = link_roots(&session(), End::Startpoint, startpoint, &terms);
                let there = link_roots(&other_end(&session()), End::Endpoint, startpoint, &terms);
                assert_eq!(prints(&here), prints(&there));
            }
        }
    }

    #[test]
    fn everything_that_two_ends_must_agree_on_changes_every_key() {
        let secret = Secret32::from_bytes([8; 32]);
        let partition = |key: u8, epoch| PartitionKey { epoch, key: Secret32::from_bytes([key; 32]) };
        let (zero, six, next) = (partition(0, 0), partition(6, 0), partition(6, 1));
        let of =
            |session: SessionKeys, terms: LinkTerms<'_>| link_roots(&session, End::Startpoint, Some(&secret), &terms);
        let others = [
            of(session(), terms()),
            of(SessionKeys { exporter: Secret32::from_bytes([9; 32]), ..session() }, terms()),
            of(SessionKeys { own: [9; 32], ..session() }, terms()),
            of(SessionKeys { peer: [9; 32], ..session() }, terms()),
            of(other_end(&session()), terms()),
            of(SessionKeys { job_id: [9; 16], ..session() }, terms()),
            of(SessionKeys { policy_hash: [9; 32], ..session() }, terms()),
            of(SessionKeys { suite: Suite::Aes128Gcm, ..session() }, terms()),
            // A session with oneself still has two directions.
            of(SessionKeys { peer: [2; 32], ..session() }, terms()),
            of(session(), LinkTerms { number: 2, ..terms() }),
            of(session(), LinkTerms { nonce: [9; 16], ..terms() }),
            of(session(), LinkTerms { name: [9; 32], ..terms() }),
            of(session(), LinkTerms { protection: Protection::None, ..terms() }),
            of(session(), LinkTerms { partition: Some(&zero), ..terms() }),
            of(session(), LinkTerms { partition: Some(&six), ..terms() }),
            of(session(), LinkTerms { partition: Some(&next), ..terms() }),
            link_roots(&session(), End::Startpoint, Some(&Secret32::from_bytes([9; 32])), &terms()),
            link_roots(&session(), End::Startpoint, None, &terms()),
        ];
        let all: HashSet<Vec<u8>> = others.iter().flat_map(prints).collect();
        assert_eq!(all.len(), 4 * others.len());
    }

    #[test]
    fn a_startpoint_of_zeros_is_not_the_same_as_none() {
        let name = [7; 32];
        let secret = caveat_secret(&root_secret(&Secret32::from_bytes([1; 32]), &name), &name);
        assert_ne!(secret, root_secret(&Secret32::from_bytes([1; 32]), &name));
        let some = link_roots(&session(), End::Startpoint, Some(&Secret32::from_bytes([0; 32])), &terms());
        let none = link_roots(&session(), End::Startpoint, None, &terms());
        assert_ne!(prints(&some), prints(&none));
    }

    #[test]
    #[should_panic(expected = "forked process")]
    fn a_wiped_session_gives_no_keys() {
        let session = SessionKeys { exporter: Secret32::from_bytes([0; 32]), ..session() };
        link_roots(&session, End::Startpoint, None, &terms());
    }

    #[test]
    #[should_panic(expected = "forked process")]
    fn a_wiped_endpoint_makes_no_startpoints() {
        root_secret(&Secret32::from_bytes([0; 32]), &[1; 32]);
    }
}
