//! How a session goes on over another carrier: both sides prove that they are in it, and say how far they have come.
//!
//! ```text
//!  client ── R, name 16, nonce 16 ────────────────> server
//!         <── nonce 16, received 8, proof 32 ──────
//!         ── received 8, proof 32 ────────────────>
//! ```
//!
//! Then each sends again, byte for byte, what the other has not received (threat-model rule 12). Nothing is decided
//! before a proof was checked: whoever knows a session's name from the wire can make its owner answer, and no more.

use gambeson_proto::key_schedule::{Resumption, Side};
use subtle::ConstantTimeEq;

/// The first byte of a carrier that goes on with a session; TLS begins with another.
pub(crate) const FIRST: u8 = b'R';
pub(crate) const OFFER: usize = 33;
pub(crate) const ANSWER: usize = 56;
pub(crate) const CONSENT: usize = 40;

/// What the client begins with.
pub(crate) fn offer(resumption: &Resumption, nonce: &[u8; 16]) -> [u8; OFFER] {
    let mut offer = [FIRST; OFFER];
    offer[1..17].copy_from_slice(&resumption.name);
    offer[17..].copy_from_slice(nonce);
    offer
}

/// The session's name in an offer, and the client's nonce.
pub(crate) fn read_offer(offer: &[u8; OFFER]) -> ([u8; 16], [u8; 16]) {
    (offer[1..17].try_into().expect("16 bytes"), offer[17..].try_into().expect("16 bytes"))
}

/// What the server says to it.
pub(crate) fn answer(resumption: &Resumption, client: &[u8; 16], server: &[u8; 16], received: u64) -> [u8; ANSWER] {
    let mut answer = [0; ANSWER];
    answer[..16].copy_from_slice(server);
    answer[16..24].copy_from_slice(&received.to_be_bytes());
    answer[24..].copy_from_slice(&resumption.proof(Side::Server, client, server, received));
    answer
}

/// The server's nonce, and how far it has come. `None`: it is not in this session.
pub(crate) fn read_answer(
    resumption: &Resumption,
    client: &[u8; 16],
    answer: &[u8; ANSWER],
) -> Option<([u8; 16], u64)> {
    let server: [u8; 16] = answer[..16].try_into().expect("16 bytes");
    let received = u64::from_be_bytes(answer[16..24].try_into().expect("8 bytes"));
    let proof = resumption.proof(Side::Server, client, &server, received);
    bool::from(proof.ct_eq(&answer[24..])).then_some((server, received))
}

/// What the client ends with.
pub(crate) fn consent(resumption: &Resumption, client: &[u8; 16], server: &[u8; 16], received: u64) -> [u8; CONSENT] {
    let mut consent = [0; CONSENT];
    consent[..8].copy_from_slice(&received.to_be_bytes());
    consent[8..].copy_from_slice(&resumption.proof(Side::Client, client, server, received));
    consent
}

/// How far the client has come. `None`: it is not in this session.
pub(crate) fn read_consent(
    resumption: &Resumption,
    client: &[u8; 16],
    server: &[u8; 16],
    consent: &[u8; CONSENT],
) -> Option<u64> {
    let received = u64::from_be_bytes(consent[..8].try_into().expect("8 bytes"));
    let proof = resumption.proof(Side::Client, client, server, received);
    bool::from(proof.ct_eq(&consent[8..])).then_some(received)
}
