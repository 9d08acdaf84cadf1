//! Seals a record for a peer and hands it to the carrier.

use std::collections::VecDeque;

use super::host::{Host, PeerId};
use super::peer::Peer;
use super::{Counters, Violation};
use crate::key_cache::KeyCache;
use crate::record::{Envelope, INLINE_MAX, INTRODUCTION_LEN, Mode, Origin, Plan};
use crate::suite::Protection;

/// Largest record that is sealed on the stack for [`Host::inject`], in bytes.
const INJECT_MAX: usize = 512;

/// What all of an endpoint's outgoing records share.
pub(super) struct Wire {
    /// Expanded keys of both directions of all peers.
    pub(super) cache: KeyCache,
    /// Our card and the first bytes of our policy's hash.
    pub(super) introduction: [u8; INTRODUCTION_LEN],
    /// What `--stats` shows.
    pub(super) counters: Counters,
    /// Peers that have work which the carrier could not take; each stands here once.
    pub(super) dirty: VecDeque<PeerId>,
    /// Times sealing and opening.
    pub(super) stopwatch: Stopwatch,
    /// Found while sealing; the endpoint reports it as soon as it is back at its surface.
    pub(super) violation: Option<Violation>,
}

/// Times every large record and one in [`SAMPLE`] small ones, which stands for the rest: reading the
/// clock takes a good part of the time that sealing a small record does.
#[derive(Default)]
pub(super) struct Stopwatch {
    small: u32,
}

/// One small record in this many is timed.
const SAMPLE: u32 = 64;

/// A record being timed, and how many it stands for.
#[derive(Clone, Copy)]
pub(super) struct Watch {
    since_ns: u64,
    weight: u64,
}

impl Stopwatch {
    pub(super) fn start(&mut self, host: &impl Host, payload: usize) -> Watch {
        let weight = if payload > INLINE_MAX {
            1
        } else {
            self.small = self.small.wrapping_add(1);
            if self.small % SAMPLE == 1 { u64::from(SAMPLE) } else { 0 }
        };
        Watch { since_ns: if weight > 0 { host.clock_ns() } else { 0 }, weight }
    }
}

impl Watch {
    /// Time since the start in ns, times the records that it stands for.
    pub(super) fn stop(self, host: &impl Host) -> u64 {
        if self.weight > 0 { host.clock_ns().saturating_sub(self.since_ns) * self.weight } else { 0 }
    }
}

/// A sealed record that the carrier could not take. It is offered again as it is, never resealed.
pub(super) enum Stuck<B> {
    Pooled(B, usize),
    /// All pooled buffers were in flight.
    Copied(Vec<u8>),
}

/// Whether a record went out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Emitted {
    /// Sealed: on its way, or stuck but sure to go before anything else to that peer.
    Sealed,
    /// Nothing was sealed: no buffer, or an earlier record is stuck.
    Blocked,
}

impl Wire {
    /// Seals one record for `peer` and sends it. `protection` is the payload's; `None`: there is no payload.
    pub(super) fn emit<H: Host>(
        &mut self,
        host: &mut H,
        peer: &mut Peer<H>,
        envelope: Envelope,
        protection: Option<Protection>,
        payload: usize,
        origin: impl Origin,
    ) -> Emitted {
        let Some(link) = peer.link.as_mut().filter(|_| peer.stuck.is_none()) else {
            return Emitted::Blocked;
        };
        let introduction = (!link.introduced).then_some(&self.introduction);
        let connection = link.send.connection_id();
        // A message that asks for more than its frame has takes the frame with it.
        let raised = link.raised[0] || protection.is_some_and(|protection| protection < link.protection);
        let frame = link.frame(raised);
        let protection = protection.unwrap_or(frame);
        let mode = Mode { raised, apart: (protection != frame).then_some(protection) };
        let mut plan = Plan { stamp: Default::default(), connection, introduction, envelope, payload, mode };
        let len = plan.len();
        let small = len <= INJECT_MAX && len <= host.inject_size();
        let mut pooled = None;
        if !small {
            match host.buffer(len) {
                Some(buffer) => pooled = Some(buffer),
                None => return Emitted::Blocked,
            }
        }
        let Ok(stamp) = link.send.take(1, len) else {
            self.violation = Some(Violation::Exhausted { peer: peer.name.clone() });
            return Emitted::Blocked;
        };
        plan.stamp = stamp;
        match protection {
            Protection::Privacy => self.counters.records_sealed += 1,
            Protection::Integrity => self.counters.records_integrity += 1,
            Protection::None => self.counters.records_plain += 1,
        }
        link.introduced = true;
        let watch = self.stopwatch.start(host, payload);
        let (cache, slot) = (&mut self.cache, &mut link.slots[0]);
        let seal = |record: &mut [u8]| {
            if mode.apart.is_some() {
                plan.seal_payload(
                    link.send.context_of(slot, cache, stamp.epoch, protection),
                    protection,
                    origin,
                    record,
                );
                plan.seal_frame(link.send.context_of(slot, cache, stamp.epoch, frame), frame, record);
            } else {
                plan.seal(link.send.context_of(slot, cache, stamp.epoch, frame), frame, origin, record);
            }
        };
        match pooled {
            None => {
                let mut space = [0; INJECT_MAX];
                seal(&mut space);
                self.counters.crypto_ns += watch.stop(host);
                if host.inject(peer.id, &space[..len]).is_err() {
                    let record = &space[..len];
                    let mut pooled = host.buffer(len);
                    if let Some(buffer) = &mut pooled {
                        buffer.as_mut()[..len].copy_from_slice(record);
                    }
                    let copied = || Stuck::Copied(record.to_vec());
                    self.stick(peer, pooled.map_or_else(copied, |buffer| Stuck::Pooled(buffer, len)));
                }
            }
            Some(mut buffer) => {
                seal(buffer.as_mut());
                self.counters.crypto_ns += watch.stop(host);
                if let Err(buffer) = host.transmit(peer.id, buffer, len) {
                    self.stick(peer, Stuck::Pooled(buffer, len));
                }
            }
        }
        Emitted::Sealed
    }

    fn stick<H: Host>(&mut self, peer: &mut Peer<H>, record: Stuck<H::Buffer>) {
        self.counters.carrier_busy += 1;
        peer.stuck = Some(record);
        self.mark(peer);
    }

    /// Offers a stuck record again. `false`: it is still stuck.
    pub(super) fn unstick<H: Host>(&mut self, host: &mut H, peer: &mut Peer<H>) -> bool {
        match peer.stuck.take() {
            None => return true,
            Some(Stuck::Copied(record)) => {
                if host.inject(peer.id, &record).is_ok() {
                    return true;
                }
                peer.stuck = Some(Stuck::Copied(record));
            }
            Some(Stuck::Pooled(buffer, len)) => match host.transmit(peer.id, buffer, len) {
                Ok(()) => return true,
                Err(buffer) => peer.stuck = Some(Stuck::Pooled(buffer, len)),
            },
        }
        self.mark(peer);
        false
    }

    /// Remembers that this peer has work to go on with.
    pub(super) fn mark<H: Host>(&mut self, peer: &mut Peer<H>) {
        if !peer.dirty {
            peer.dirty = true;
            self.dirty.push_back(peer.id);
        }
    }
}
