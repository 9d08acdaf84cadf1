//! The least that can surround an endpoint: memory in vectors, records out into a queue.

use std::collections::VecDeque;
use std::net::SocketAddr;

use gambeson_proto::endpoint::{Alert, Busy, Host, PeerId, Received, Violation};

/// Bytes around a receive's memory that nobody may touch stay what they are.
const FENCE: u8 = 0xee;

pub(crate) struct Memory {
    bytes: Vec<u8>,
    contiguous: bool,
}

impl Memory {
    pub(crate) fn new(len: usize, contiguous: bool) -> Self {
        Memory { bytes: vec![FENCE; len], contiguous }
    }
}

#[derive(Default)]
pub(crate) struct NullHost {
    pub(crate) outbox: VecDeque<(PeerId, Vec<u8>)>,
    /// Buffers that are left, and records that the carrier takes before it is busy.
    pub(crate) buffers: usize,
    pub(crate) sent: u64,
    pub(crate) arrivals: u64,
    pub(crate) violation: Option<Violation>,
}

impl NullHost {
    fn arrived(&mut self, memory: &Memory, message: &Received) {
        assert!(message.offset + message.len <= memory.bytes.len(), "a message stands outside its buffer");
        self.arrivals += 1;
    }
}

impl Host for NullHost {
    type Send = Vec<u8>;
    type Receive = Memory;
    type Buffer = Vec<u8>;

    fn source(send: &Vec<u8>, offset: usize, len: usize) -> Option<&[u8]> {
        (!send.len().is_multiple_of(3)).then(|| &send[offset..offset + len])
    }

    fn gather(send: &Vec<u8>, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&send[offset..offset + into.len()]);
    }

    fn sink(receive: &mut Memory, offset: usize, len: usize) -> Option<&mut [u8]> {
        if receive.contiguous { receive.bytes.get_mut(offset..offset + len) } else { None }
    }

    fn scatter(receive: &mut Memory, offset: usize, from: &[u8]) {
        receive.bytes[offset..offset + from.len()].copy_from_slice(from);
    }

    fn inject_size(&self) -> usize {
        128
    }

    fn inject(&mut self, peer: PeerId, record: &[u8]) -> Result<(), Busy> {
        if self.buffers == 0 {
            return Err(Busy);
        }
        self.outbox.push_back((peer, record.to_vec()));
        Ok(())
    }

    fn buffer(&mut self, len: usize) -> Option<Vec<u8>> {
        self.buffers = self.buffers.checked_sub(1)?;
        Some(vec![0; len])
    }

    fn transmit(&mut self, peer: PeerId, mut buffer: Vec<u8>, len: usize) -> Result<(), Vec<u8>> {
        buffer.truncate(len);
        self.outbox.push_back((peer, buffer));
        Ok(())
    }

    fn clock_ns(&self) -> u64 {
        0
    }

    fn introduce(&mut self, _: PeerId, _: SocketAddr) {}

    fn sent(&mut self, _: Vec<u8>) {
        self.sent += 1;
    }

    fn received(&mut self, receive: Memory, message: &Received) {
        self.arrived(&receive, message);
    }

    fn received_part(&mut self, receive: &Memory, message: &Received) {
        self.arrived(receive, message);
    }

    fn multi_done(&mut self, _: Memory) {}

    fn alert(&mut self, alert: &Alert) {
        assert!(!alert.to_string().is_empty());
    }

    fn violation(&mut self, violation: &Violation) {
        assert!(!violation.to_string().is_empty());
        assert!(self.violation.is_none(), "an endpoint ends once");
        self.violation = Some(violation.clone());
    }
}
