//! How keys reach those who need them: the message sequences of the paper (IBA paper, sections 5.1.3 to 5.1.5), and
//! beside them a key in the address, as this project has it, and keys derived by the receiver, as Google's PSP has it.
//! Each with its packets, bytes and time.

use serde::Serialize;

use super::gcm::{Gcm, GcmTiming};
use crate::time::{self, Time};

/// Bytes of a key and its 32-bit MAC, as the paper stores and sends them.
pub const WRAPPED_KEY_LEN: u32 = 20;
/// A management datagram of 256 bytes with LRH, BTH, DETH, ICRC and VCRC.
pub const MANAGEMENT_PACKET_LEN: u32 = 256 + 8 + 12 + 8 + 4 + 2;
/// A card: the address with an X25519 key in it.
pub const CARD_LEN: u32 = 64;
/// X25519 once, on one core of a 3.65 GHz Zen 4 (aws-lc).
pub const AGREEMENT_NS: f64 = 24_000.0;
/// AES-CMAC once, from which PSP has a connection's key (same machine).
pub const DERIVATION_NS: f64 = 4.0;

/// A key of the paper, as it is sent or as what another is sealed under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// CA_SK: an adapter's, from its manufacturer.
    Adapter,
    /// SM_SK: one a subnet. All its adapters have it, so one that is broken into gives away every partition's key.
    Subnet,
    /// SSM_SK: the one that all subnet managers share.
    Managers,
    /// P_SK: a partition's.
    Partition,
    /// CA_SK_ij: that of a pair of adapters.
    AdapterPair,
    /// SK: a queue pair's.
    Session,
    /// None: nothing secret is sent, or nothing seals it.
    None,
}

/// One message of a sequence, sent by some to some at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Who sends to whom what.
    pub name: &'static str,
    /// The key that it carries.
    pub carries: Key,
    /// The key that seals that one.
    pub sealed_under: Key,
    /// Senders at the same time.
    pub senders: u64,
    /// Packets of each sender, one after the other.
    pub packets: u64,
    /// Bytes of such a packet; 0 packets may yet add bytes to those that go anyway.
    pub packet_bytes: u32,
    /// Bytes that this step adds to packets which are sent without it.
    pub added_bytes: u64,
    /// Time of a sender's or receiver's CPU for all of its packets.
    pub compute: Time,
}

impl Step {
    const NOTHING: Step = Step {
        name: "",
        carries: Key::None,
        sealed_under: Key::None,
        senders: 0,
        packets: 0,
        packet_bytes: MANAGEMENT_PACKET_LEN,
        added_bytes: 0,
        compute: 0,
    };
}

/// What the packets of a distribution go through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// A sender's link in Gb/s.
    pub rate_gbps: f64,
    /// From the last bit out to the receiver.
    pub latency: Time,
    /// What seals and opens the keys.
    pub gcm: Gcm,
}

impl Default for Path {
    fn default() -> Self {
        Path { rate_gbps: 2.5, latency: 2 * time::US, gcm: Gcm::IBA_PAPER }
    }
}

/// What a sequence costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Packets that would not be sent without it.
    pub packets: u64,
    /// Their bytes, and those it adds to others.
    pub bytes: u64,
    /// From the first message to the last key in place.
    pub time: Time,
}

/// The cost of steps that follow one another.
#[must_use]
pub fn cost(steps: &[Step], path: &Path) -> Cost {
    let gcm = GcmTiming::new(&path.gcm);
    steps.iter().fold(Cost::default(), |cost, step| {
        let serialisation = time::from_ns(f64::from(step.packet_bytes) * 8.0 / path.rate_gbps);
        let sealed = step.sealed_under != Key::None;
        let each = serialisation.max(if sealed { gcm.occupancy(WRAPPED_KEY_LEN) } else { 0 });
        let ends = path.latency + if sealed { 2 * gcm.latency(WRAPPED_KEY_LEN) } else { 0 };
        let sending = if step.packets == 0 { 0 } else { each * step.packets + ends };
        Cost {
            packets: cost.packets + step.senders * step.packets,
            bytes: cost.bytes + step.senders * step.packets * u64::from(step.packet_bytes) + step.added_bytes,
            time: cost.time + sending + step.compute,
        }
    })
}

/// SM_SK to every adapter of a subnet, under each one's own key (section 5.1.3).
#[must_use]
pub fn initial(adapters: u64) -> Vec<Step> {
    let name = "SM -> each CA: E_CA_SK(SM_SK)";
    vec![Step {
        name,
        carries: Key::Subnet,
        sealed_under: Key::Adapter,
        senders: 1,
        packets: adapters,
        ..Step::NOTHING
    }]
}

/// P_SK to every member of a partition in one subnet (section 5.1.4).
#[must_use]
pub fn partition(members: u64) -> Vec<Step> {
    let name = "SM -> each CA: E_SM_SK(P_SK)";
    vec![Step {
        name,
        carries: Key::Partition,
        sealed_under: Key::Subnet,
        senders: 1,
        packets: members,
        ..Step::NOTHING
    }]
}

/// P_SK to the members of a partition across subnets: the managers first, then each to its own at the same time
/// (section 5.1.4).
#[must_use]
pub fn partition_across(subnets: u64, members_per_subnet: u64) -> Vec<Step> {
    let managers = Step {
        name: "SM -> each other SM: E_SSM_SK(P_SK)",
        carries: Key::Partition,
        sealed_under: Key::Managers,
        senders: 1,
        packets: subnets.saturating_sub(1),
        ..Step::NOTHING
    };
    let members = partition(members_per_subnet).into_iter().map(|step| Step { senders: subnets, ..step });
    std::iter::once(managers).chain(members).collect()
}

/// CA_SK_ij for each pair of adapters, to both of them, so many keys to a packet of so many bytes (section 5.1.5).
///
/// The paper sends one key in 1,024 bytes, and says less than a second for 2^10 adapters: at 2.5 Gb/s it is 3.43 s, as
/// there are n (n - 1) keys to send. With 48 keys to a packet it is 0.07 s.
#[must_use]
pub fn adapter_pairs(adapters: u64, keys_per_packet: u64, packet_bytes: u32) -> Vec<Step> {
    let name = "SM -> each CA: E_SM_SK(CA_SK_ij of its pairs)";
    let packets = adapters * adapters.saturating_sub(1).div_ceil(keys_per_packet.max(1));
    vec![Step {
        name,
        carries: Key::AdapterPair,
        sealed_under: Key::Subnet,
        senders: 1,
        packets,
        packet_bytes,
        ..Step::NOTHING
    }]
}

/// An InfiniBand service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection, and unreliable connection: both directions are under the key of who asks. Both count their
    /// packets from the same numbers, so the same key serves the same counter twice unless the direction is in it.
    Connection,
    /// Reliable datagram: each queue pair has its key, and data goes under the receiver's.
    ReliableDatagram,
    /// Unreliable datagram: the same with SIDR_REQ and SIDR_REP.
    UnreliableDatagram,
}

/// A session's key or keys, for `sessions` that one adapter sets up one after the other (section 5.1.5).
#[must_use]
pub fn session(service: Service, sessions: u64) -> Vec<Step> {
    let (request, reply) = match service {
        Service::Connection => ("CA_i -> CA_j: REQ(E_CA_SKij(SK))", "CA_j -> CA_i: REP"),
        Service::ReliableDatagram => {
            ("CA_i -> CA_j: REQ(Q_Key, E_CA_SKij(SK_l))", "CA_j -> CA_i: REP(Q_Key, E_CA_SKij(SK_r))")
        }
        Service::UnreliableDatagram => {
            ("CA_i -> CA_j: SIDR_REQ(Q_Key, E_CA_SKij(SK_l))", "CA_j -> CA_i: SIDR_REP(Q_Key, E_CA_SKij(SK_r))")
        }
    };
    let message = Step {
        name: request,
        carries: Key::Session,
        sealed_under: Key::AdapterPair,
        senders: 1,
        packets: 1,
        ..Step::NOTHING
    };
    let answer = match service {
        Service::Connection => Step { name: reply, carries: Key::None, sealed_under: Key::None, ..message },
        Service::ReliableDatagram | Service::UnreliableDatagram => Step { name: reply, ..message },
    };
    (0..sessions).flat_map(|_| [message, answer]).collect()
}

/// A key in the address: no packet of its own. Each endpoint's address is a card with its public key, which the job's
/// exchange of addresses carries anyway; a pair's first record in each direction carries the sender's card once more,
/// and each end agrees on the key once.
#[must_use]
pub fn key_in_address(peers: u64) -> Vec<Step> {
    vec![Step {
        name: "first record of each direction: the sender's card; each end: X25519",
        senders: 1,
        added_bytes: 2 * peers * u64::from(CARD_LEN),
        compute: time::from_ns(AGREEMENT_NS) * peers,
        ..Step::NOTHING
    }]
}

/// Keys that the receiver derives from a secret of its device and an index in each packet: no table at the receiver,
/// but each sender must be told its key over a channel that is already secure, in each direction.
#[must_use]
pub fn derived_by_receiver(peers: u64) -> Vec<Step> {
    let exchange = Step {
        name: "each end -> the other: its index and derived key, over a secure channel",
        carries: Key::Session,
        sealed_under: Key::None,
        senders: 2,
        packets: peers,
        compute: time::from_ns(DERIVATION_NS) * peers,
        ..Step::NOTHING
    };
    vec![exchange]
}

/// Who needs keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cluster {
    /// Adapters of a subnet.
    pub adapters: u64,
    /// Those of them in a partition.
    pub members: u64,
    /// Subnets that the partition is in, with so many members in each.
    pub subnets: u64,
    /// Others that one adapter speaks to.
    pub peers: u64,
}

/// A way for keys to get around.
#[derive(Clone, Debug)]
pub struct Way {
    /// Which key, to whom.
    pub what: String,
    /// Its messages.
    pub steps: Vec<Step>,
}

/// All ways, those of the paper first.
#[must_use]
pub fn ways(cluster: &Cluster) -> Vec<Way> {
    let Cluster { adapters, members, subnets, peers } = *cluster;
    let way = |what: String, steps| Way { what, steps };
    vec![
        way(format!("SM_SK to each of {adapters} adapters"), initial(adapters)),
        way(format!("P_SK to the {members} members of a partition"), partition(members)),
        way(format!("P_SK across {subnets} subnets with {members} members each"), partition_across(subnets, members)),
        way("CA_SK_ij of all pairs, one to a packet".into(), adapter_pairs(adapters, 1, 1024)),
        way("CA_SK_ij of all pairs, 48 to a packet".into(), adapter_pairs(adapters, 48, 1024)),
        way(format!("sessions with {peers} peers, RC"), session(Service::Connection, peers)),
        way(format!("sessions with {peers} peers, UD"), session(Service::UnreliableDatagram, peers)),
        way(format!("{peers} peers whose addresses hold their keys (this project)"), key_in_address(peers)),
        way(format!("{peers} peers under keys derived by the receiver (as PSP)"), derived_by_receiver(peers)),
    ]
}

/// Bytes that an adapter keeps of keys with their MACs: 20,480 for the 2^10 of the paper.
#[must_use]
pub fn stored_bytes(keys: u64) -> u64 {
    keys * u64::from(WRAPPED_KEY_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(steps: &[Step], packets: u64, bytes: u64, time_ns: f64) {
        let found = cost(steps, &Path::default());
        assert_eq!((found.packets, found.bytes), (packets, bytes), "{steps:?}");
        let off = time::to_ns(found.time) - time_ns;
        assert!(off.abs() < 1e-3 * time_ns + 1e-3, "{} ns in place of {time_ns}: {steps:?}", time::to_ns(found.time));
    }

    /// One management packet on the wire at 2.5 Gb/s, its way, and both ends' cryptography.
    const WIRE: f64 = 928.0;
    const WAY: f64 = 2000.0;
    const SEALED: f64 = 320.0;

    #[test]
    fn a_manager_sends_one_packet_to_each() {
        check(&initial(16), 16, 16 * 290, 16.0 * WIRE + WAY + SEALED);
        check(&partition(4), 4, 4 * 290, 4.0 * WIRE + WAY + SEALED);
        check(&partition_across(3, 4), 2 + 12, 14 * 290, 2.0 * WIRE + 4.0 * WIRE + 2.0 * (WAY + SEALED));
        check(&partition_across(1, 4), 4, 4 * 290, 4.0 * WIRE + WAY + SEALED);
    }

    #[test]
    fn all_pairs_of_a_thousand_adapters_take_3_43_s_and_not_below_one() {
        let found = cost(&adapter_pairs(1024, 1, 1024), &Path::default());
        assert_eq!(found.packets, 1024 * 1023);
        assert!((found.time as f64 / time::S as f64 - 3.4327).abs() < 1e-3, "{}", found.time);
        let packed = cost(&adapter_pairs(1024, 48, 1024), &Path::default());
        assert_eq!(packed.packets, 1024 * 22);
        assert!(packed.time < time::S / 10);
    }

    #[test]
    fn a_session_is_a_request_and_a_reply() {
        check(&session(Service::Connection, 1), 2, 580, 2.0 * (WIRE + WAY) + SEALED);
        check(&session(Service::ReliableDatagram, 1), 2, 580, 2.0 * (WIRE + WAY + SEALED));
        check(&session(Service::UnreliableDatagram, 3), 6, 1740, 6.0 * (WIRE + WAY + SEALED));
    }

    #[test]
    fn a_key_in_the_address_needs_no_packet_and_a_derived_one_a_channel() {
        check(&key_in_address(15), 0, 15 * 128, 15.0 * AGREEMENT_NS);
        check(&derived_by_receiver(15), 30, 30 * 290, 15.0 * WIRE + WAY + 15.0 * DERIVATION_NS);
        assert_eq!(cost(&[], &Path::default()), Cost::default());
    }

    #[test]
    fn a_thousand_keys_take_20_480_bytes() {
        assert_eq!(stored_bytes(1 << 10), 20_480);
    }
}
