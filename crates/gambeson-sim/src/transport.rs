//! Transport services and what each puts on the wire beside its data (InfiniBand Architecture specification, volume 1,
//! chapters 5 and 9).
//!
//! ```text
//!  LRH  [GRH]  BTH  [RDETH]  [DETH]  [RETH | AETH]  data, padded to 4  ICRC or tag  VCRC
//!   8    40    12      4       8       16     4                             4         2
//! ```

use serde::{Deserialize, Serialize};

/// Local route header.
pub const LRH: u32 = 8;
/// Global route header.
pub const GRH: u32 = 40;
/// Base transport header.
pub const BTH: u32 = 12;
/// Reliable datagram extended transport header.
pub const RDETH: u32 = 4;
/// Datagram extended transport header, which has the Q_Key.
pub const DETH: u32 = 8;
/// RDMA extended transport header, which has the R_Key.
pub const RETH: u32 = 16;
/// Acknowledgement extended transport header.
pub const AETH: u32 = 4;
/// Invariant CRC, or a tag of 32 bits in its place.
pub const ICRC: u32 = 4;
/// Variant CRC.
pub const VCRC: u32 = 2;

/// What a queue pair promises, and to how many others it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Reliable connection: one peer, acknowledged.
    Rc,
    /// Unreliable connection: one peer.
    #[default]
    Uc,
    /// Reliable datagram: any number of peers, acknowledged.
    Rd,
    /// Unreliable datagram: any number of peers.
    Ud,
}

impl Service {
    /// Whether a queue pair hears any sender that has its Q_Key, and not one peer alone.
    #[must_use]
    pub fn is_datagram(self) -> bool {
        matches!(self, Self::Rd | Self::Ud)
    }

    /// Whether the receiver acknowledges.
    #[must_use]
    pub fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Rd)
    }
}

/// What a message does at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// It goes into a buffer that the receiver posted.
    #[default]
    Send,
    /// It is written to the memory that its R_Key names.
    Write,
}

/// How messages travel. The default is the least that a packet can have: unreliable connections within a subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Transport {
    /// Of the queue pairs.
    pub service: Service,
    /// Of the messages.
    pub operation: Operation,
    /// Whether packets have a global route header, in which marks and time stamps have their place.
    pub global: bool,
}

impl Transport {
    /// Bytes of a data packet that are not data; the first packet of a message says more than the others.
    #[must_use]
    pub fn headers(self, first: bool) -> u32 {
        let datagram = match self.service {
            Service::Rc | Service::Uc => 0,
            Service::Rd => RDETH + DETH,
            Service::Ud => DETH,
        };
        let write = if first && self.operation == Operation::Write { RETH } else { 0 };
        self.route() + BTH + datagram + write + ICRC + VCRC
    }

    /// Length of a data packet on the wire.
    #[must_use]
    pub fn wire(self, data: u32, first: bool) -> u32 {
        self.headers(first) + data.next_multiple_of(4)
    }

    /// Length of an acknowledgement on the wire; 0 where there is none.
    #[must_use]
    pub fn acknowledgement(self) -> u32 {
        let rest = self.route() + BTH + AETH + ICRC + VCRC;
        match self.service {
            Service::Rc => rest,
            Service::Rd => rest + RDETH,
            Service::Uc | Service::Ud => 0,
        }
    }

    fn route(self) -> u32 {
        LRH + if self.global { GRH } else { 0 }
    }

    /// What is wrong with it, as a sentence with the remedy.
    pub fn validate(self) -> Result<(), String> {
        if self.service == Service::Ud && self.operation == Operation::Write {
            return Err("an unreliable datagram cannot write memory; use the service rc, uc or rd, or send".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(service: Service, operation: Operation, data: u32, [first, next, acknowledgement]: [u32; 3]) {
        let local = Transport { service, operation, global: false };
        assert_eq!(local.wire(data, true), first, "{local:?}");
        assert_eq!(local.wire(data, false), next, "{local:?}");
        assert_eq!(local.acknowledgement(), acknowledgement, "{local:?}");
        let global = Transport { global: true, ..local };
        assert_eq!(global.wire(data, true), first + 40);
        assert_eq!(global.acknowledgement(), if acknowledgement == 0 { 0 } else { acknowledgement + 40 });
    }

    /// Sums of the specification's header lengths, written out.
    #[test]
    fn packets_are_as_long_as_the_specification_has_them() {
        use Operation::{Send, Write};
        check(Service::Rc, Send, 2048, [2074, 2074, 30]);
        check(Service::Rc, Write, 2048, [2090, 2074, 30]);
        check(Service::Uc, Send, 0, [26, 26, 0]);
        check(Service::Uc, Write, 256, [298, 282, 0]);
        check(Service::Rd, Send, 256, [294, 294, 34]);
        check(Service::Rd, Write, 256, [310, 294, 34]);
        // A management datagram.
        check(Service::Ud, Send, 256, [290, 290, 0]);
        // One byte is padded to four.
        check(Service::Ud, Send, 1, [38, 38, 0]);
        assert!(Transport { service: Service::Ud, operation: Write, global: false }.validate().is_err());
    }
}
