//! What a traced job's endpoint writes down: a record for each message that it sends and receives, in a file of the
//! job's directory that stays whole when the process is killed. What a message says is not in it.
//!
//! The file is mapped; a record is a copy into it and a word that counts it. Every 21,845 records the file grows, up to a
//! limit; beyond that records are counted as lost. The time that a thread computes is the processor time between its
//! calls of the provider. Reading that clock is a system call on Linux: twice for a call that does something, once for a
//! poll that brings nothing.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use gambeson_proto::endpoint::{Lane, PeerId, Received, SendRequest};
use gambeson_proto::identity::PublicKey;
use gambeson_proto::trace::{
    CAUSE_OFFSET, Kind, LOST_OFFSET, PAGE_LEN, Page, RANK_UNKNOWN, RECORD_LEN, Record, WRITTEN_OFFSET, boot_of,
};

use crate::job::Membership;
use crate::live::Engine;
use crate::report::say;

/// The file of one endpoint, mapped.
pub(crate) struct Trace {
    base: NonNull<u8>,
    file: File,
    /// Records that the file has room for now, and will have at most.
    room: u64,
    limit: u64,
    written: u64,
    /// Peers that the file names so far.
    named: u32,
    /// The send under way: its completion says nothing new if it comes now.
    sending: Option<Sending>,
}

/// A message as its completion finds it again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) peer: PeerId,
    pub(crate) number: u64,
    pub(crate) lane: Lane,
}

/// A message that is being offered to the protocol.
struct Sending {
    message: Message,
    gap_ns: u64,
    /// Whether there was room for its record.
    stands: bool,
}

// SAFETY: the mapping is the file's alone and is written under the domain's lock.
unsafe impl Send for Trace {}

impl Trace {
    /// Begins the file of an endpoint, if the job is traced.
    pub(crate) fn begin(membership: &Membership, public_key: &PublicKey) -> Option<Box<Self>> {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let limit = membership.trace_limit?;
        let page = Page {
            pid: u64::from(std::process::id()),
            rank: membership.rank.map_or(RANK_UNKNOWN, u64::from),
            endpoint: endpoint_of(public_key),
            clock_ns: clock_offset(),
            boot: boot(),
            host: membership.host_name.clone(),
        };
        let name = format!("trace-{}-{}", page.pid, FILES.fetch_add(1, Ordering::Relaxed));
        let path = membership.directory.join(name);
        let trace = Self::create(&path, &page, limit).inspect_err(|error| {
            say(format_args!(
                "{} cannot be written ({error}), so this process's messages will not be in the trace; make room in \
                 /dev/shm, or ask for less with --trace-limit",
                path.display()
            ));
        });
        trace.ok().map(Box::new)
    }

    /// Makes the file, with room for the first records and up to `limit` bytes of them.
    pub(crate) fn create(path: &Path, page: &Page, limit: u64) -> io::Result<Self> {
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600).custom_flags(flags);
        let file = options.open(path)?;
        let limit = (limit / RECORD_LEN as u64).min(largest_file().saturating_sub(PAGE_LEN as u64) / RECORD_LEN as u64);
        let len = PAGE_LEN + limit as usize * RECORD_LEN;
        let (access, nothing) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::null_mut());
        // SAFETY: a fresh shared mapping; no byte of it is touched before the file has it.
        let base = unsafe { libc::mmap(nothing, len, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        let mut trace = Trace { base, file, room: 0, limit, written: 0, named: 0, sending: None };
        trace.grow()?;
        let mut bytes = [0; PAGE_LEN];
        page.write(&mut bytes);
        // SAFETY: the mapping begins with a page, which the file has now.
        unsafe { base.copy_from_nonoverlapping(NonNull::from(&bytes).cast(), PAGE_LEN) };
        Ok(trace)
    }

    /// A message is about to be offered to the protocol.
    pub(crate) fn send(&mut self, request: &SendRequest, number: u64) -> Message {
        let record = Record {
            number,
            bytes: request.len as u64,
            peer: request.peer.0,
            lane: request.lane,
            ..Record::now(Kind::Send)
        };
        let stands = self.put(record);
        let message = Message { peer: request.peer, number, lane: request.lane };
        self.sending = Some(Sending { message, gap_ns: record.gap_ns, stands });
        message
    }

    /// The protocol has taken that message, or not, so that it was not sent.
    pub(crate) fn offered(&mut self, taken: bool) {
        let Some(sending) = self.sending.take().filter(|_| !taken) else { return };
        if sending.stands {
            self.written -= 1;
            self.word(WRITTEN_OFFSET).store(self.written.to_le(), Ordering::Release);
        } else {
            let lost = self.word(LOST_OFFSET);
            lost.store((u64::from_le(lost.load(Ordering::Relaxed)) - 1).to_le(), Ordering::Relaxed);
        }
        let mut thread = THREAD.get();
        thread.gap_ns += sending.gap_ns;
        THREAD.set(thread);
    }

    /// A message is complete at its sender.
    pub(crate) fn sent(&mut self, message: Message, bytes: usize) {
        if self.sending.as_ref().is_some_and(|sending| sending.message == message) {
            return;
        }
        let Message { peer, number, lane } = message;
        self.put(Record { number, bytes: bytes as u64, peer: peer.0, lane, ..Record::now(Kind::Sent) });
    }

    /// A message is complete at its receiver.
    pub(crate) fn received(&mut self, message: &Received) {
        let &Received { source, number, len, overflow, lane, .. } = message;
        let bytes = (len + overflow) as u64;
        self.put(Record { number, bytes, peer: source.0, lane, ..Record::now(Kind::Received) });
    }

    /// Names the peers that came in since the last time.
    pub(crate) fn name_peers(&mut self, engine: &Engine) {
        while (self.named as usize) < engine.peers().len() {
            let card = engine.peer_card(PeerId(self.named));
            let record = Record {
                number: endpoint_of(&card.public_key),
                bytes: card.rank.map_or(RANK_UNKNOWN, u64::from),
                peer: self.named,
                gap_ns: 0,
                ..Record::now(Kind::Peer)
            };
            self.named += 1;
            self.put(record);
        }
    }

    /// Writes a record. `false`: there is no room.
    fn put(&mut self, record: Record) -> bool {
        if self.written == self.room && !self.has_grown() {
            return false;
        }
        let at = PAGE_LEN + self.written as usize * RECORD_LEN;
        // SAFETY: the record lies inside the mapping, and the file has room for it.
        unsafe { self.base.add(at).copy_from_nonoverlapping(NonNull::from(&record.encode()).cast(), RECORD_LEN) };
        self.written += 1;
        self.word(WRITTEN_OFFSET).store(self.written.to_le(), Ordering::Release);
        true
    }

    #[cold]
    fn has_grown(&mut self) -> bool {
        let lost = self.word(LOST_OFFSET);
        let before = u64::from_le(lost.load(Ordering::Relaxed));
        if before == 0 && self.written < self.limit {
            match self.grow() {
                Ok(()) => return true,
                Err(error) => {
                    let error = error.raw_os_error().unwrap_or(libc::EIO) as u64;
                    self.word(CAUSE_OFFSET).store(error.to_le(), Ordering::Relaxed);
                }
            }
        }
        self.word(LOST_OFFSET).store((before + 1).to_le(), Ordering::Relaxed);
        false
    }

    /// Without this a full file system ends the process later, by a signal.
    fn grow(&mut self) -> io::Result<()> {
        let room = (self.room + STEP).min(self.limit);
        let end = PAGE_LEN as u64 + room * RECORD_LEN as u64;
        // SAFETY: the descriptor is open.
        let error = unsafe { libc::posix_fallocate(self.file.as_raw_fd(), 0, end as libc::off_t) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        self.room = room;
        Ok(())
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offsets are those of aligned words in the page, which stays mapped as long as this lives.
        unsafe { self.base.add(offset).cast::<AtomicU64>().as_ref() }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.put(Record::now(Kind::Closed));
        let used = PAGE_LEN as u64 + self.written * RECORD_LEN as u64;
        // SAFETY: the mapping is of this size, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGE_LEN + self.limit as usize * RECORD_LEN) };
        // The rest is zeros, which a longer file keeps.
        let _ = self.file.set_len(used);
    }
}

/// What a record has in common with all others of its moment.
trait Now {
    fn now(kind: Kind) -> Self;
}

impl Now for Record {
    fn now(kind: Kind) -> Self {
        let mut thread = THREAD.get();
        if !thread.inside {
            thread.enters(false);
        }
        let gap_ns = std::mem::take(&mut thread.gap_ns);
        THREAD.set(thread);
        Record {
            wall_ns: clock(libc::CLOCK_MONOTONIC),
            cpu_ns: thread.entered_ns,
            gap_ns,
            number: 0,
            bytes: 0,
            peer: 0,
            kind,
            lane: Lane::Message,
            thread: thread.number,
        }
    }
}

/// What is known of the time that a thread spends in the program, in ns of its processor time.
#[derive(Clone, Copy)]
struct Thread {
    number: u16,
    /// Whether it is in a call of the provider.
    inside: bool,
    /// Whether its last call was a poll that brought nothing: then `left_ns` is when that began.
    idle: bool,
    entered_ns: u64,
    left_ns: u64,
    gap_ns: u64,
}

thread_local! {
    static THREAD: Cell<Thread> =
        const { Cell::new(Thread { number: 0, inside: false, idle: false, entered_ns: 0, left_ns: 0, gap_ns: 0 }) };
}

static THREADS: AtomicU16 = AtomicU16::new(0);

impl Thread {
    fn enters(&mut self, polls: bool) {
        self.entered_ns = clock(libc::CLOCK_THREAD_CPUTIME_ID);
        if self.left_ns == 0 {
            self.number = THREADS.fetch_add(1, Ordering::Relaxed);
            self.left_ns = self.entered_ns;
        }
        let outside = self.entered_ns.saturating_sub(self.left_ns);
        if !(self.idle && polls && outside < WAITING_NS) {
            self.gap_ns += outside;
        }
        (self.left_ns, self.idle) = (self.entered_ns, false);
    }
}

/// The program calls the provider.
pub(crate) fn enter(polls: bool) {
    let mut thread = THREAD.get();
    thread.enters(polls);
    thread.inside = true;
    THREAD.set(thread);
}

/// And goes on; `idle` after a poll that brought nothing.
pub(crate) fn leave(idle: bool) {
    let mut thread = THREAD.get();
    if !idle {
        thread.left_ns = clock(libc::CLOCK_THREAD_CPUTIME_ID);
    }
    (thread.inside, thread.idle) = (false, idle);
    THREAD.set(thread);
}

/// How the trace names an endpoint.
pub(crate) fn endpoint_of(public_key: &PublicKey) -> u64 {
    u64::from_le_bytes(*public_key.first_chunk().expect("a key is longer"))
}

/// What makes the monotonic clock the time since 1970, in ns.
pub(crate) fn clock_offset() -> u64 {
    clock(libc::CLOCK_REALTIME).saturating_sub(clock(libc::CLOCK_MONOTONIC))
}

/// The kernel's name for this boot of the host; zeros where it has none.
pub(crate) fn boot() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot_of(&text)
}

fn clock(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct is ours, and every Linux has these clocks.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A file that grows beyond this ends the process by a signal.
fn largest_file() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    // SAFETY: the struct is ours.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

/// How many records more a file has room for each time it grows: about a mebibyte.
const STEP: u64 = (1 << 20) / RECORD_LEN as u64 + 1;
/// A thread that polls in vain and does so again within this time has waited, not computed.
const WAITING_NS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use gambeson_proto::trace::EndpointFile;

    use super::*;

    fn page() -> Page {
        Page { pid: 1, rank: 0, endpoint: 7, clock_ns: clock_offset(), boot: boot(), host: "here".to_owned() }
    }

    fn request(peer: u32) -> SendRequest {
        SendRequest { peer: PeerId(peer), lane: Lane::Tagged, tag: 0, data: None, len: 5, delivery: false }
    }

    fn message(peer: u32, number: u64) -> Message {
        Message { peer: PeerId(peer), number, lane: Lane::Tagged }
    }

    fn path(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("gambeson-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn a_file_holds_what_was_written_and_counts_what_had_no_room() {
        let path = path("room");
        let mut trace = Trace::create(&path, &page(), 4 * RECORD_LEN as u64).unwrap();
        enter(false);
        trace.send(&request(1), 0);
        trace.sent(message(1, 0), 5);
        trace.offered(true);
        trace.send(&request(1), 1);
        trace.offered(false);
        trace.send(&request(2), 0);
        trace.offered(true);
        leave(false);
        trace.sent(message(2, 0), 5);
        // A killed process leaves the file as it is now.
        let killed = EndpointFile::decode(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(killed.page, page_of(&killed));
        let told = |file: &EndpointFile| {
            file.records.iter().map(|record| (record.kind, record.peer, record.number)).collect::<Vec<_>>()
        };
        let expected = [(Kind::Send, 1, 0), (Kind::Send, 2, 0), (Kind::Sent, 2, 0)];
        assert_eq!(told(&killed), expected, "what was refused or complete at once tells nothing more");
        for number in 0..3 {
            trace.sent(message(2, number), 5);
        }
        drop(trace);
        let closed = EndpointFile::decode(&std::fs::read(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((closed.records.len(), closed.lost, closed.cause), (4, 3, 0), "two and the closing had no room");
        assert!(closed.records.windows(2).all(|two| two[0].wall_ns <= two[1].wall_ns));
    }

    fn page_of(file: &EndpointFile) -> Page {
        Page { clock_ns: file.page.clock_ns, ..page() }
    }

    #[test]
    fn computing_counts_and_waiting_does_not() {
        let cpu = || clock(libc::CLOCK_THREAD_CPUTIME_ID);
        let spin = |ns: u64| {
            let until = cpu() + ns;
            while cpu() < until {}
        };
        enter(true);
        leave(true);
        Record::now(Kind::Sent);
        let begin = cpu();
        spin(3_000_000);
        for _ in 0..1000 {
            enter(true);
            leave(true);
        }
        enter(true);
        let gap = Record::now(Kind::Sent).gap_ns;
        leave(false);
        let all = cpu() - begin;
        assert!((3_000_000..3_000_000 + (all - 3_000_000) / 2 + 20_000).contains(&gap), "{gap} of {all}");
    }

    /// What a record costs: `cargo test --release -p gambeson-fabric cost_of_a_record -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn cost_of_a_record() {
        const ROUNDS: u64 = 1_000_000;
        let path = path("cost");
        let mut trace = Trace::create(&path, &page(), (ROUNDS + 1) * RECORD_LEN as u64).unwrap();
        let began = std::time::Instant::now();
        for number in 0..ROUNDS {
            enter(false);
            trace.send(&request(1), number);
            trace.offered(true);
            leave(false);
        }
        println!("a send: {:.0} ns", began.elapsed().as_nanos() as f64 / ROUNDS as f64);
        let began = std::time::Instant::now();
        for _ in 0..ROUNDS {
            enter(true);
            leave(true);
        }
        println!("a poll that brings nothing: {:.0} ns", began.elapsed().as_nanos() as f64 / ROUNDS as f64);
        let began = std::time::Instant::now();
        for _ in 0..ROUNDS {
            clock(libc::CLOCK_THREAD_CPUTIME_ID);
        }
        println!("of these, a look at the thread's clock: {:.0} ns", began.elapsed().as_nanos() as f64 / ROUNDS as f64);
        drop(trace);
        std::fs::remove_file(path).unwrap();
    }
}
