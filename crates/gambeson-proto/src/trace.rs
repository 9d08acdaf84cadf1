//! What a traced job writes down of its messages: sizes, peers and times, never a byte of what they say.
//!
//! Each endpoint of each process leaves a file of records in the job's directory; at the end the launcher makes one file
//! of them, sorted and matched. Both consist of the same [`Record`]s:
//!
//! ```text
//! wall ns u64 | thread's CPU ns u64 | gap ns u64 | number u64 | bytes u64 | peer u32 | kind u8 | lane u8 | thread u16
//! ```
//!
//! ```text
//! an endpoint's file:  page of 4096: magic u64, written u64, lost u64, cause u64, pid u64, rank u64, endpoint u64,
//!                      clock u64, boot id 16, host 64 | records
//! a trace:             magic 8 | header length u32 | header, JSON | rank 0: the first byte of all its records, the
//!                      second byte of all ... | rank 1: ...
//! ```
//! All little endian. Bytes stand together by their place in the record since that makes them small when a trace is
//! compressed, as it is (zstd) on disk.

use serde::{Deserialize, Serialize};

use crate::endpoint::Lane;

/// The size of a record.
pub const RECORD_LEN: usize = 48;

/// One thing that happened at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When: on the host's monotonic clock in an endpoint's file, since the job's start in a trace.
    pub wall_ns: u64,
    /// The processor time that the calling thread had used by then.
    pub cpu_ns: u64,
    /// Of that, what it used since its previous record outside of the provider, and not waiting either: what it computed.
    pub gap_ns: u64,
    /// Which message between the two: both ends number all messages from one to the other from 0.
    pub number: u64,
    /// Its size.
    pub bytes: u64,
    /// The peer: in an endpoint's file by a [`Kind::Peer`] of that number, in a trace a rank of it.
    pub peer: u32,
    /// What happened.
    pub kind: Kind,
    /// How the message is matched.
    pub lane: Lane,
    /// The thread, in the order in which threads of the process came to the provider.
    pub thread: u16,
}

/// What a record tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Who a peer is: `number` is its endpoint, `bytes` its rank or [`RANK_UNKNOWN`]. In endpoints' files alone.
    Peer = 1,
    /// The program sends a message.
    Send = 2,
    /// A message that could not go at once has gone: its memory is the program's again.
    Sent = 3,
    /// A message stands in the program's memory.
    Received = 4,
    /// The endpoint is closed.
    Closed = 5,
}

impl Record {
    /// The record's bytes.
    pub fn encode(&self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        let words = [self.wall_ns, self.cpu_ns, self.gap_ns, self.number, self.bytes];
        for (into, word) in bytes.chunks_exact_mut(8).zip(words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes[40..44].copy_from_slice(&self.peer.to_le_bytes());
        bytes[44] = self.kind as u8;
        bytes[45] = self.lane as u8;
        bytes[46..].copy_from_slice(&self.thread.to_le_bytes());
        bytes
    }

    /// The record that bytes are, if they are one.
    pub fn decode(bytes: &[u8; RECORD_LEN]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
        let kind = match bytes[44] {
            1 => Kind::Peer,
            2 => Kind::Send,
            3 => Kind::Sent,
            4 => Kind::Received,
            5 => Kind::Closed,
            _ => return None,
        };
        let lane = match bytes[45] {
            0 => Lane::Message,
            1 => Lane::Tagged,
            2 => Lane::Service,
            _ => return None,
        };
        Some(Self {
            wall_ns: word(0),
            cpu_ns: word(1),
            gap_ns: word(2),
            number: word(3),
            bytes: word(4),
            peer: u32::from_le_bytes(bytes[40..44].try_into().expect("four bytes")),
            kind,
            lane,
            thread: u16::from_le_bytes(bytes[46..].try_into().expect("two bytes")),
        })
    }
}

/// The size of the page before an endpoint's records.
pub const PAGE_LEN: usize = 4096;
/// Where the page counts the records that are complete, for the provider's atomics.
pub const WRITTEN_OFFSET: usize = 8;
/// Where it counts the records for which there was no room.
pub const LOST_OFFSET: usize = 16;
/// Where it says why: 0 for the limit, else the system's error number.
pub const CAUSE_OFFSET: usize = 24;
/// The rank of a process that does not know its rank.
pub const RANK_UNKNOWN: u64 = u64::MAX;

/// Whose records an endpoint's file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The process.
    pub pid: u64,
    /// Its rank, or [`RANK_UNKNOWN`].
    pub rank: u64,
    /// The endpoint: the beginning of its public key, which its peers know it by.
    pub endpoint: u64,
    /// What to add to the monotonic clock for the time since 1970, in ns.
    pub clock_ns: u64,
    /// The host's boot, as the kernel names it: records of one boot have one clock.
    pub boot: [u8; 16],
    /// The name of the host.
    pub host: String,
}

/// An endpoint's file as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointFile {
    /// Whose it is.
    pub page: Page,
    /// Its records, in order.
    pub records: Vec<Record>,
    /// Records for which there was no room.
    pub lost: u64,
    /// Why: 0 for the limit, else the system's error number.
    pub cause: u64,
}

impl Page {
    /// Fills a page.
    pub fn write(&self, page: &mut [u8; PAGE_LEN]) {
        page.fill(0);
        let words = [PAGE_MAGIC, 0, 0, 0, self.pid, self.rank, self.endpoint, self.clock_ns];
        for (into, word) in page.chunks_exact_mut(8).zip(words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        page[BOOT_OFFSET..HOST_OFFSET].copy_from_slice(&self.boot);
        let end = self.host.floor_char_boundary(HOST_LEN);
        page[HOST_OFFSET..][..end].copy_from_slice(&self.host.as_bytes()[..end]);
    }
}

impl EndpointFile {
    /// How many bytes of a file that begins with this page are in use.
    pub fn used(page: &[u8]) -> Option<u64> {
        let page = page.first_chunk::<PAGE_LEN>().filter(|page| word(page, 0) == PAGE_MAGIC)?;
        word(page, WRITTEN_OFFSET).checked_mul(RECORD_LEN as u64)?.checked_add(PAGE_LEN as u64)
    }

    /// Reads a file. `None`: it is none, or damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let used = usize::try_from(Self::used(bytes)?).ok()?;
        let (page, records) = bytes.get(..used)?.split_first_chunk::<PAGE_LEN>()?;
        let records = records.as_chunks::<RECORD_LEN>().0;
        let host = &page[HOST_OFFSET..][..HOST_LEN];
        let end = host.iter().position(|&byte| byte == 0).unwrap_or(HOST_LEN);
        Some(Self {
            page: Page {
                pid: word(page, 32),
                rank: word(page, 40),
                endpoint: word(page, 48),
                clock_ns: word(page, 56),
                boot: page[BOOT_OFFSET..HOST_OFFSET].try_into().expect("sixteen bytes"),
                host: String::from_utf8_lossy(&host[..end]).into_owned(),
            },
            records: records.iter().map(Record::decode).collect::<Option<_>>()?,
            lost: word(page, LOST_OFFSET),
            cause: word(page, CAUSE_OFFSET),
        })
    }
}

/// How a trace begins, unpacked.
pub const MAGIC: &[u8; 8] = b"GBT1\0\0\0\0";

/// What a trace says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The program's name.
    pub name: String,
    /// The launcher's command line.
    pub command: Vec<String>,
    /// The MPI, as it names itself.
    pub mpi: String,
    /// What the times mean.
    pub clock: String,
    /// The hosts' names.
    pub hosts: Vec<String>,
    /// The ranks, in the order of their records.
    pub ranks: Vec<RankHeader>,
    /// Messages whose send and receive are both there.
    pub matched: u64,
    /// What is missing, in sentences.
    pub missing: Vec<String>,
}

/// What a trace says of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankHeader {
    /// Its rank in the world that MPI started it in, if it knew; processes that were spawned have worlds of their own.
    pub world_rank: Option<u32>,
    /// The process.
    pub pid: u64,
    /// The host's place among the hosts.
    pub host: u32,
    /// How many records it has.
    pub records: u64,
    /// Records that were lost.
    pub lost: u64,
    /// Whether it closed its endpoints.
    pub closed: bool,
}

/// A trace's bytes, not yet compressed.
///
/// # Panics
/// When the header does not count the records.
pub fn encode(header: &Header, ranks: &[Vec<Record>]) -> Vec<u8> {
    let text = serde_json::to_vec(header).expect("a header is plain data");
    let records: usize = ranks.iter().map(Vec::len).sum();
    let mut bytes = Vec::with_capacity(MAGIC.len() + 4 + text.len() + records * RECORD_LEN);
    bytes.extend(MAGIC);
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text);
    for (rank, records) in header.ranks.iter().zip(ranks) {
        assert_eq!(rank.records, records.len() as u64, "the header counts the records");
        let rows: Vec<[u8; RECORD_LEN]> = records.iter().map(Record::encode).collect();
        for place in 0..RECORD_LEN {
            bytes.extend(rows.iter().map(|row| row[place]));
        }
    }
    bytes
}

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The rank, if it is in one's records.
    pub rank: Option<u32>,
    /// The record, from 0 within the rank.
    pub record: Option<u64>,
    /// What, and what to do about it.
    pub what: String,
}

/// Reads what [`encode`] made.
///
/// # Errors
/// What is wrong and where.
pub fn decode(bytes: &[u8]) -> Result<(Header, Vec<Vec<Record>>), Damage> {
    let wrong = |what: String| Damage { rank: None, record: None, what };
    let short = || wrong("it ends within its header; fetch or record it again".to_owned());
    let body = bytes.strip_prefix(MAGIC).ok_or_else(|| {
        wrong("it does not begin with GBT1; name a trace that `gambeson run --trace` wrote".to_owned())
    })?;
    let (length, body) = body.split_first_chunk::<4>().ok_or_else(short)?;
    let (header, mut body) = body.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(short)?;
    let header: Header = serde_json::from_slice(header)
        .map_err(|cause| wrong(format!("its header is wrong ({cause}); record it again")))?;
    let records = header.ranks.iter().try_fold(0_u64, |sum, rank| sum.checked_add(rank.records));
    if records.and_then(|records| records.checked_mul(RECORD_LEN as u64)) != Some(body.len() as u64) {
        return Err(wrong(format!(
            "its header counts records of {RECORD_LEN} bytes that are not the {} bytes that follow; fetch or record it \
             again",
            body.len()
        )));
    }
    let mut ranks = Vec::with_capacity(header.ranks.len());
    for (rank, about) in (0..).zip(&header.ranks) {
        let count = about.records as usize;
        let (table, rest) = body.split_at(count * RECORD_LEN);
        body = rest;
        let record = |at: usize| {
            let row = std::array::from_fn(|place| table[place * count + at]);
            let record = Record::decode(&row).filter(|record| record.kind != Kind::Peer);
            let record = record.filter(|record| (record.peer as usize) < header.ranks.len());
            record.ok_or_else(|| {
                let what = "it is none of GBT1, or names a rank that is not there; read it with a newer gambeson";
                Damage { rank: Some(rank), record: Some(at as u64), what: what.to_owned() }
            })
        };
        ranks.push((0..count).map(record).collect::<Result<_, _>>()?);
    }
    Ok((header, ranks))
}

/// The sixteen bytes of a boot's name as /proc/sys/kernel/random/boot_id has it; zeros for what is none.
pub fn boot_of(text: &str) -> [u8; 16] {
    let mut digits = text.chars().filter_map(|digit| digit.to_digit(16));
    std::array::from_fn(|_| (digits.next().unwrap_or(0) << 4 | digits.next().unwrap_or(0)) as u8)
}

fn word(page: &[u8; PAGE_LEN], offset: usize) -> u64 {
    u64::from_le_bytes(page[offset..][..8].try_into().expect("eight bytes"))
}

const PAGE_MAGIC: u64 = u64::from_le_bytes(*b"GBTREC01");
const BOOT_OFFSET: usize = 64;
const HOST_OFFSET: usize = 80;
const HOST_LEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> Record {
        Record {
            wall_ns: 1,
            cpu_ns: 2,
            gap_ns: 3,
            number,
            bytes: 5,
            peer: 0,
            kind: Kind::Received,
            lane: Lane::Service,
            thread: 8,
        }
    }

    #[test]
    fn an_endpoints_file_is_read_back_as_far_as_it_was_written() {
        let page = Page { pid: 1, rank: 2, endpoint: 3, clock_ns: 4, boot: [5; 16], host: "node".to_owned() };
        let mut file = vec![0; PAGE_LEN];
        page.write((&mut file[..]).try_into().unwrap());
        file[WRITTEN_OFFSET] = 2;
        file[LOST_OFFSET] = 9;
        file.extend((0..3).flat_map(|number| record(number).encode()));
        let found = EndpointFile::decode(&file).unwrap();
        assert_eq!((found.page, found.lost, found.cause), (page, 9, 0));
        assert_eq!(found.records, [record(0), record(1)], "the third was not complete");
        assert_eq!(EndpointFile::decode(&file[..PAGE_LEN + 60]), None, "it counts more than it holds");
        assert_eq!(EndpointFile::decode(&[0; PAGE_LEN]), None);
        file[PAGE_LEN + 44] = 77;
        assert_eq!(EndpointFile::decode(&file), None, "no kind of record");
    }

    #[test]
    fn a_trace_is_read_back_and_damage_is_named() {
        let about = RankHeader { world_rank: Some(0), pid: 7, host: 0, records: 2, lost: 0, closed: true };
        let header = Header {
            name: "ring".to_owned(),
            command: vec!["mpiexec".to_owned()],
            mpi: "MPICH".to_owned(),
            clock: "one".to_owned(),
            hosts: vec!["node".to_owned()],
            ranks: vec![about],
            matched: 0,
            missing: Vec::new(),
        };
        let bytes = encode(&header, &[vec![record(0), record(1)]]);
        assert_eq!(decode(&bytes), Ok((header, vec![vec![record(0), record(1)]])));
        assert!(decode(&bytes[..bytes.len() - 1]).unwrap_err().what.contains("counts records"));
        assert!(decode(b"NPBT").unwrap_err().what.contains("does not begin with GBT1"));
        let mut other = bytes.clone();
        let kinds = bytes.len() - 2 * (RECORD_LEN - 44);
        other[kinds + 1] = 99;
        let damage = decode(&other).unwrap_err();
        assert_eq!((damage.rank, damage.record), (Some(0), Some(1)), "{damage:?}");
    }
}
