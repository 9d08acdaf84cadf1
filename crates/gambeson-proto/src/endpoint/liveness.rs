//! Notices what never arrives, and closes in order.
//!
//! A record that is deleted shows when the next one comes. When none comes, the side that waits
//! asks: a [`Kind::Query`] is a record with a sequence of its own, so it shows the peer what it
//! missed; the peer's [`Kind::Position`] shows us what we missed, and what of ours it never got.
//! A peer that is asked and stays silent for the gap time-out ends the job.

use super::host::{Host, PeerId};
use super::report::Violation;
use super::{Endpoint, Peer};
use crate::record::{Envelope, Kind};

/// Peers asked in one tick, so that a large job is not flooded with questions.
const QUERIES_PER_TICK: usize = 256;

impl<H: Host> Endpoint<H> {
    /// Tells the time, in ns from any origin, and lets time-outs act. Call it several times per
    /// gap time-out; more often does no harm.
    pub fn tick(&mut self, host: &mut H, now_ns: u64) {
        if self.now_ns == 0 {
            // Peers that were heard before the first tick were heard now.
            for peer in &mut self.peers {
                peer.heard_ns = now_ns;
            }
        }
        self.now_ns = now_ns;
        let limit = self.config.gap_timeout_ns;
        if limit == 0 || self.dead || self.closing {
            return;
        }
        let mut asked = 0;
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            if !peer.has_talked() || peer.final_received {
                continue;
            }
            match peer.asked_ns {
                Some(since) if now_ns.saturating_sub(since) > limit => {
                    let (peer, seconds) = (peer.name.clone(), (now_ns - since) / 1_000_000_000);
                    return self.end(host, Violation::Silent { peer, seconds });
                }
                Some(_) => {}
                None if now_ns.saturating_sub(peer.heard_ns) > limit / 4 && asked < QUERIES_PER_TICK => {
                    asked += 1;
                    peer.asked_ns = Some(now_ns);
                    peer.control.push_back(Envelope::new(Kind::Query));
                    self.pump(host, PeerId(index as u32));
                }
                None => {}
            }
        }
        self.report(host);
    }

    /// With how many peers there are keys.
    pub fn links(&self) -> usize {
        self.by_connection.len()
    }

    /// A peer asks for our position.
    pub(super) fn answer(&mut self, id: PeerId) {
        let peer = &mut self.peers[id.0 as usize];
        // One answer serves all questions that wait, so that nobody can pile them up.
        if peer.control.iter().any(|envelope| envelope.kind == Kind::Position) {
            return;
        }
        if let Some(link) = &peer.link {
            let size = link.receive.expected();
            peer.control.push_back(Envelope { size, ..Envelope::new(Kind::Position) });
        }
    }

    /// A peer says what it expects next of us. What it has not got may still be on its way, since
    /// the two directions do not wait for each other; what we never sent can't be there.
    pub(super) fn position(&mut self, id: PeerId, expected: u64) -> Result<(), &'static str> {
        let peer = &self.peers[id.0 as usize];
        match &peer.link {
            Some(link) if expected <= link.send.next_sequence() => Ok(()),
            _ => Err("claims to have records that were never sent"),
        }
    }

    /// The carrier lost a record on its way to a peer for good. After the goodbyes nobody minds.
    pub fn unreachable(&mut self, host: &mut H, id: PeerId, why: &str) {
        let peer = &self.peers[id.0 as usize];
        if !self.closing && !peer.final_received {
            let violation = Violation::Unreachable { peer: peer.name.clone(), why: why.to_owned() };
            self.end(host, violation);
        }
    }

    /// Says goodbye to all peers: what is queued goes out, then a last record with the final
    /// sequence. Nothing may be sent afterwards.
    pub fn begin_close(&mut self, host: &mut H) {
        self.closing = true;
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            let to_tell = peer.has_talked() && !peer.final_sent;
            let Some(link) = peer.link.as_ref().filter(|_| to_tell) else { continue };
            let size = link.receive.expected();
            peer.final_sent = true;
            peer.control.push_back(Envelope { size, ..Envelope::new(Kind::Final) });
            self.pump(host, PeerId(index as u32));
        }
        self.report(host);
    }

    /// Whether all goodbyes are out and those of the peers have come.
    pub fn is_closed(&self) -> bool {
        let settled = |peer: &Peer<H>| !peer.has_talked() || (peer.final_received && peer.is_idle());
        self.dead || (self.closing && self.peers.iter().all(settled))
    }

    /// Whether nothing waits to be sent.
    pub fn is_idle(&self) -> bool {
        self.dead || (self.outgoing.is_empty() && self.peers.iter().all(Peer::is_idle))
    }
}
