//! What surrounds an endpoint: the program's memory, the carrier and the completion queue.

use std::net::SocketAddr;

use super::{Alert, Violation};

/// A peer of this endpoint: an index into its peer table, never reused while the endpoint lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u32);

/// The kinds of message that are matched apart from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// fi_send, fi_recv: matched by source alone.
    Message,
    /// fi_tsend, fi_trecv: matched by source and tag.
    Tagged,
    /// What endpoints say to each other beside their programs' messages: matched by source and tag.
    Service,
}

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest {
    /// Receiver.
    pub peer: PeerId,
    /// Kind of matching at the receiver.
    pub lane: Lane,
    /// Match tag; zero for [`Lane::Message`].
    pub tag: u64,
    /// Remote completion data.
    pub data: Option<u64>,
    /// Size in bytes.
    pub len: usize,
    /// Complete only when the message stands in the receiver's buffer, or whole in its endpoint's
    /// memory (FI_DELIVERY_COMPLETE).
    pub delivery: bool,
}

/// A receive to be posted.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest {
    /// Kind of matching.
    pub lane: Lane,
    /// Sender; `None` accepts any.
    pub source: Option<PeerId>,
    /// Match tag; with `ignore` all ones it accepts any.
    pub tag: u64,
    /// Bits of the tag that do not count.
    pub ignore: u64,
    /// Room in bytes.
    pub capacity: usize,
    /// The buffer takes messages until fewer than this many bytes are free (FI_MULTI_RECV).
    pub multi: Option<usize>,
}

/// A posted receive; the zero id is never posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveId(pub u64);

/// A message that was claimed by a peek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimId(pub u64);

/// A message that arrived, whole and verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Kind of matching.
    pub lane: Lane,
    /// Sender.
    pub source: PeerId,
    /// Match tag.
    pub tag: u64,
    /// Remote completion data.
    pub data: Option<u64>,
    /// Which of the messages from that sender, from 0, in the order in which they were sent.
    pub number: u64,
    /// Bytes delivered.
    pub len: usize,
    /// Where they begin in a multi-receive buffer.
    pub offset: usize,
    /// Bytes that did not fit (FI_ETRUNC).
    pub overflow: usize,
}

/// The carrier can't take a record now; nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// What surrounds an [`Endpoint`](super::Endpoint). The provider implements it over libfabric, the
/// simulator over vectors.
pub trait Host {
    /// What the program handed over with a send: its memory, and whatever the completion needs.
    type Send;
    /// What the program handed over with a receive.
    type Receive;
    /// A pooled buffer for one outgoing record.
    type Buffer: AsMut<[u8]>;

    /// `len` bytes of a send from `offset` on, when they are contiguous.
    fn source(send: &Self::Send, offset: usize, len: usize) -> Option<&[u8]>;
    /// Copies bytes of a send from `offset` on.
    fn gather(send: &Self::Send, offset: usize, into: &mut [u8]);
    /// `len` bytes of a receive from `offset` on, when they are contiguous.
    fn sink(receive: &mut Self::Receive, offset: usize, len: usize) -> Option<&mut [u8]>;
    /// Copies bytes into a receive from `offset` on.
    fn scatter(receive: &mut Self::Receive, offset: usize, from: &[u8]);

    /// Largest record that [`Host::inject`] takes, in bytes.
    fn inject_size(&self) -> usize;
    /// Sends a record that the carrier copies before it returns.
    fn inject(&mut self, peer: PeerId, record: &[u8]) -> Result<(), Busy>;
    /// A buffer of at least `len` bytes; `None` while all are in flight.
    fn buffer(&mut self, len: usize) -> Option<Self::Buffer>;
    /// Sends the first `len` bytes of a buffer, which the carrier keeps until they are out. The
    /// buffer comes back when the carrier can't take it now.
    fn transmit(&mut self, peer: PeerId, buffer: Self::Buffer, len: usize) -> Result<(), Self::Buffer>;
    /// Makes a peer reachable that introduced itself before it was added here.
    fn introduce(&mut self, peer: PeerId, address: SocketAddr);

    /// A send is complete: its memory is the program's again.
    fn sent(&mut self, send: Self::Send);
    /// A receive is complete.
    fn received(&mut self, receive: Self::Receive, message: &Received);
    /// A message stands in a multi-receive buffer.
    fn received_part(&mut self, receive: &Self::Receive, message: &Received);
    /// A multi-receive buffer is full and given back.
    fn multi_done(&mut self, receive: Self::Receive);

    /// A monotonic clock in ns, for the time that sealing and opening take. Nothing depends on it.
    fn clock_ns(&self) -> u64;

    /// Something was refused and dropped; the job goes on. Rate-limited by the endpoint.
    fn alert(&mut self, alert: &Alert);
    /// The job can't go on safely and must end. The endpoint does nothing any more.
    fn violation(&mut self, violation: &Violation);
}
