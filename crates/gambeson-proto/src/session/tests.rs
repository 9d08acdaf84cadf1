use std::collections::HashSet;
use std::ptr;

use super::*;
use crate::aead::{Tag, Unauthentic};
use crate::identity::Identity;
use crate::key_schedule::{JobKeys, PairRoots, pair_roots};
use crate::secret::Secret32;

const NO_LIMITS: EpochLimits = EpochLimits { records: u64::MAX, blocks: u64::MAX };

/// One direction of a pair, both its ends, each with a cache.
struct Direction {
    send: SendSession,
    receive: ReceiveSession,
    cache: KeyCache,
    far_cache: KeyCache,
}

impl Direction {
    fn new(limits: EpochLimits) -> Self {
        Direction {
            send: SendSession::new(roots(1).send, Suite::Aes256Gcm, Protection::Privacy, limits),
            receive: ReceiveSession::new(roots(1).receive, Suite::Aes256Gcm, Protection::Privacy),
            cache: KeyCache::new(2),
            far_cache: KeyCache::new(2),
        }
    }

    fn seal(&mut self) -> (Stamp, Tag) {
        let stamp = self.send.take(1, 16).expect("not exhausted");
        (stamp, self.send.context(&mut self.cache, stamp.epoch).mac(stamp.sequence, b"record"))
    }

    fn open(&mut self, stamp: Stamp, tag: &Tag) -> Result<(), Unauthentic> {
        let context = self.receive.context(&mut self.far_cache, stamp.epoch).map_err(|_| Unauthentic)?;
        context.verify(stamp.sequence, b"record", tag)
    }

    fn deliver(&mut self, (stamp, tag): (Stamp, Tag)) {
        assert_eq!(self.open(stamp, &tag), Ok(()), "{stamp:?}");
        assert_eq!(self.receive.expected(), stamp.sequence);
        self.receive.accept(stamp, 1);
    }
}

/// The roots of the pair's two ends: what one sends with, the other receives with.
fn roots(job: u8) -> PairRoots {
    let keys = JobKeys {
        job_id: [job; 16],
        job_secret: Secret32::from_bytes([2; 32]),
        policy_hash: [3; 32],
        suite: Suite::Aes256Gcm,
    };
    let (here, there) = (Identity::from_seed([4; 32]), Identity::from_seed([5; 32]));
    let send = pair_roots(&keys, &here, &there.public, None).expect("an honest peer").send;
    let receive = pair_roots(&keys, &there, &here.public, None).expect("an honest peer").receive;
    PairRoots { send, receive }
}

fn sender(limits: EpochLimits) -> SendSession {
    Direction::new(limits).send
}

fn stamp(epoch: u32, sequence: u64) -> Stamp {
    Stamp { epoch, sequence }
}

#[test]
fn an_epoch_ends_before_its_records_pass_the_limit() {
    let mut send = sender(EpochLimits { records: 3, ..NO_LIMITS });
    let taken: Vec<Stamp> = (0..7).map(|_| send.take(1, 0).expect("far from the end")).collect();
    let expected = [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5), (2, 6)];
    assert_eq!(taken, expected.map(|(epoch, sequence)| stamp(epoch, sequence)));
    assert_eq!((send.rekeys(), send.next_sequence()), (2, 7));
}

#[test]
fn an_epoch_ends_before_its_blocks_pass_the_limit() {
    let mut send = sender(EpochLimits { blocks: 10, ..NO_LIMITS });
    // 17 bytes are two blocks, and two more for the record.
    assert_eq!(send.take(1, 17), Ok(stamp(0, 0)));
    assert_eq!(send.take(1, 17), Ok(stamp(0, 1)));
    assert_eq!(send.take(1, 17), Ok(stamp(1, 2)));
    assert_eq!(send.take(1, 60), Ok(stamp(1, 3)));
    assert_eq!(send.take(1, 0), Ok(stamp(2, 4)));
}

#[test]
fn what_is_taken_together_is_in_one_epoch() {
    let mut send = sender(EpochLimits { records: 10, ..NO_LIMITS });
    assert_eq!(send.take(8, 0), Ok(stamp(0, 0)));
    assert_eq!(send.take(3, 0), Ok(stamp(1, 8)));
    assert_eq!(send.take(7, 0), Ok(stamp(1, 11)));
    // More than a lowered limit has an epoch to itself.
    assert_eq!(send.take(11, 0), Ok(stamp(2, 18)));
    assert_eq!(send.take(1, 0), Ok(stamp(3, 29)));
}

#[test]
fn no_setting_lifts_the_limits_of_a_key() {
    let mut send = sender(NO_LIMITS);
    assert_eq!(send.take(1 << 32, 0), Ok(stamp(0, 0)));
    assert_eq!(send.take(1, 0), Ok(stamp(1, 1 << 32)));
    let before = send.next;
    assert_eq!(send.take((1 << 32) + 1, 0), Err(Exhausted));
    assert_eq!(send.take(1, 1 << 38), Err(Exhausted));
    assert_eq!(send.take(u64::MAX, usize::MAX), Err(Exhausted));
    assert_eq!(send.next, before);
}

#[test]
fn the_end_of_the_sequence_is_the_end() {
    let mut send = sender(NO_LIMITS);
    send.next.sequence = SEQUENCE_LIMIT - 2;
    assert_eq!(send.take(3, 0), Err(Exhausted));
    assert_eq!(send.take(2, 0), Ok(stamp(0, SEQUENCE_LIMIT - 2)));
    assert_eq!(send.take(1, 0), Err(Exhausted));
    assert_eq!(send.next_sequence(), SEQUENCE_LIMIT);
}

#[test]
fn the_end_of_the_epochs_is_the_end() {
    let mut send = sender(EpochLimits { records: 1, ..NO_LIMITS });
    send.next.epoch = u32::MAX;
    assert_eq!(send.take(1, 0), Ok(stamp(u32::MAX, 0)));
    assert_eq!(send.take(1, 0), Err(Exhausted));
    assert_eq!(send.advance_epoch(), Err(Exhausted));
    assert_eq!(send.next, stamp(u32::MAX, 1));
}

#[test]
#[should_panic(expected = "twin")]
fn no_stamp_is_given_for_no_record() {
    let _ = sender(NO_LIMITS).take(0, 0);
}

#[test]
fn an_epoch_without_a_record_does_not_end() {
    let mut direction = Direction::new(NO_LIMITS);
    for _ in 0..3 {
        direction.send.advance_epoch().expect("far from the end");
    }
    let record = direction.seal();
    assert_eq!(record.0.epoch, 0);
    direction.deliver(record);
    for _ in 0..3 {
        direction.send.advance_epoch().expect("far from the end");
    }
    let record = direction.seal();
    assert_eq!(record.0, stamp(1, 1));
    direction.deliver(record);
}

/// Stands for every nonce oracle: whatever happens around a session, no {key, nonce} comes twice,
/// and the numbers are consecutive.
#[test]
fn no_key_meets_a_nonce_twice() {
    for seed in 0..50_u64 {
        let mut state = seed;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let limits = EpochLimits { records: 1 + random(9), blocks: 1 + random(40) };
        let mut cache = KeyCache::new(1 + random(3) as usize);
        let mut sessions: Vec<(SendSession, Stamp)> = (0..4)
            .map(|job| SendSession::new(roots(job).send, Suite::Aes256Gcm, Protection::Privacy, limits))
            .map(|session| (session, Stamp::default()))
            .collect();
        let mut seen = HashSet::new();
        for _ in 0..300 {
            let (session, last) = &mut sessions[random(4) as usize];
            match random(8) {
                0 => session.advance_epoch().expect("far from the end"),
                1 => session.evict(&mut cache),
                _ => {
                    let count = 1 + random(3);
                    let bytes = random(100) as usize;
                    let first = session.take(count, bytes).expect("far from the end");
                    assert_eq!(first.sequence, last.sequence, "seed {seed}");
                    assert!(first.epoch == last.epoch || first.epoch == last.epoch + 1, "seed {seed}");
                    *last = stamp(first.epoch, first.sequence + count);
                    let key = session.context(&mut cache, first.epoch).mac(1 << 63, b"which key");
                    for sequence in first.sequence..first.sequence + count {
                        assert!(seen.insert((key, sequence)), "seed {seed}: {sequence} again");
                    }
                }
            }
        }
    }
}

#[test]
fn eviction_costs_a_derivation_and_nothing_else() {
    let mut direction = Direction::new(NO_LIMITS);
    let first = direction.seal();
    direction.deliver(first);
    direction.send.evict(&mut direction.cache);
    direction.receive.evict(&mut direction.far_cache);
    let second = direction.seal();
    assert_eq!(second.0, stamp(0, 1));
    direction.deliver(second);
    assert_eq!((direction.cache.stats().misses, direction.far_cache.stats().misses), (2, 2));
}

#[test]
fn what_is_withheld_over_ten_rekeyings_still_opens() {
    let mut direction = Direction::new(EpochLimits { records: 2, ..NO_LIMITS });
    let withheld: Vec<_> = (0..21).map(|_| direction.seal()).collect();
    assert_eq!(direction.send.rekeys(), 10);
    for record in withheld {
        direction.deliver(record);
    }
    assert_eq!(direction.receive.expected(), 21);
}

#[test]
fn a_new_epoch_states_how_the_one_before_ended() {
    let mut direction = Direction::new(EpochLimits { records: 3, ..NO_LIMITS });
    let records: Vec<_> = (0..4).map(|_| direction.seal()).collect();
    direction.deliver(records[0]);
    direction.deliver(records[1]);
    // The last record of epoch 0 is missing: the first of epoch 1 is authentic, and not the next.
    let (first, tag) = records[3];
    assert_eq!(first, stamp(1, 3));
    assert_eq!(direction.open(first, &tag), Ok(()));
    assert_ne!(direction.receive.expected(), first.sequence);
    // Nobody without the key can call it the next.
    assert_eq!(direction.open(stamp(1, 2), &tag), Err(Unauthentic));
    direction.deliver(records[2]);
    direction.deliver(records[3]);
}

#[test]
fn a_forged_epoch_costs_one_derivation_in_all() {
    let mut direction = Direction::new(EpochLimits { records: 1, ..NO_LIMITS });
    let record = direction.seal();
    direction.deliver(record);
    let before = direction.far_cache.stats();
    let first = ptr::from_ref(direction.receive.context(&mut direction.far_cache, 1).expect("the next epoch"));
    for round in 0..100 {
        assert_eq!(direction.open(stamp(1, round), &[round as u8; 16]), Err(Unauthentic));
        let context = direction.receive.context(&mut direction.far_cache, 1).expect("the next epoch");
        assert!(ptr::eq(first, context), "derived again in round {round}");
        for far in [2, 3, 1000, u32::MAX] {
            assert_eq!(direction.receive.context(&mut direction.far_cache, far).err(), Some(EpochRefused));
        }
    }
    // Neither the cache nor the session has moved: nobody else's key had to go for the forgeries.
    assert_eq!(direction.far_cache.stats(), before);
    assert_eq!(direction.receive.expected(), 1);
    let next = direction.seal();
    assert_eq!(next.0, stamp(1, 1));
    direction.deliver(next);
    assert_eq!(direction.receive.context(&mut direction.far_cache, 0).err(), Some(EpochRefused));
}

#[test]
fn there_is_no_epoch_after_the_last() {
    let mut receive = ReceiveSession::new(roots(1).receive, Suite::Aes256Gcm, Protection::Privacy);
    let mut cache = KeyCache::new(1);
    receive.expected.epoch = u32::MAX;
    assert!(receive.context(&mut cache, u32::MAX).is_ok());
    assert_eq!(receive.context(&mut cache, 0).err(), Some(EpochRefused));
}

#[test]
#[should_panic(expected = "in order")]
fn a_gap_cannot_be_accepted() {
    Direction::new(NO_LIMITS).receive.accept(stamp(0, 1), 1);
}

#[test]
#[should_panic(expected = "in order")]
fn an_epoch_cannot_be_skipped() {
    Direction::new(NO_LIMITS).receive.accept(stamp(2, 0), 1);
}

#[test]
fn without_protection_there_is_no_key() {
    let mut cache = KeyCache::new(1);
    let limits = EpochLimits { records: 1, ..NO_LIMITS };
    let mut send = SendSession::new(roots(1).send, Suite::Aes256Gcm, Protection::None, limits);
    let mut receive = ReceiveSession::new(roots(1).receive, Suite::Aes256Gcm, Protection::None);
    for epoch in 0..3 {
        let stamp = send.take(1, 16).expect("far from the end");
        assert_eq!(stamp.epoch, epoch);
        assert!(send.context(&mut cache, epoch).is_none());
        assert!(receive.context(&mut cache, epoch).expect("the current or the next").is_none());
        receive.accept(stamp, 1);
        assert_eq!(receive.context(&mut cache, epoch + 2).err(), Some(EpochRefused));
    }
    assert_eq!(cache.stats(), Default::default());
}
