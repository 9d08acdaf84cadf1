//! Traces in columns: NPBT1, zstd over a JSON header and little-endian columns, one rank after the other.
//!
//! ```text
//!   "NPBT1\0\0\0" | u32 header length | header | rank 0: op comm peer tag bytes req gap_ns | rank 1: ...
//! ```
//! The header names the columns and their types; columns of other names are passed over. An `op` is 1 send, 2 isend,
//! 3 recv, 4 irecv, 5 wait, 10 barrier, 11 bcast, 12 reduce, 13 allreduce, 14 alltoall, or 15 alltoallv, of which there
//! is a record for each destination. A `peer` is a rank of the world, 65535 none or any; `comm` counts the rank's own
//! communicators; `gap_ns` is the processor time since the previous call.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::program::{Program, Rank};
use super::{ANY_SOURCE, ANY_TAG, Call, Collective, Context, Job};
use crate::Error;
use crate::time::NS;

pub(crate) const MAGIC: &[u8; 8] = b"NPBT1\0\0\0";
const NO_PEER: u64 = 0xffff;
/// Traces that unpack to more than this are taken for damage.
const UNPACKED_MAX: u64 = 8 << 30;
const COLUMNS: [&str; 7] = ["op", "comm", "peer", "tag", "bytes", "req", "gap_ns"];

#[derive(Deserialize)]
struct Header {
    name: String,
    ranks: u32,
    counts: Vec<u32>,
    comms: Vec<Vec<Vec<u32>>>,
    columns: Vec<String>,
}

/// Reads a trace, compressed or not.
///
/// # Errors
/// What cannot be read or breaks the format, with rank and record.
pub fn read(path: &Path) -> Result<Job, Error> {
    let bytes = std::fs::read(path).map_err(|cause| Error::File { file: path.to_owned(), cause })?;
    parse(&bytes, &path.display().to_string())
}

/// Decodes a trace, compressed or not; `file` is what errors call it.
///
/// # Errors
/// What breaks the format, with rank and record.
pub fn parse(bytes: &[u8], file: &str) -> Result<Job, Error> {
    let wrong = |what: String| Error::trace(file, None, None, what);
    if bytes.starts_with(MAGIC) {
        return decode(bytes, file);
    }
    let mut unpacked = Vec::new();
    zstd::stream::read::Decoder::new(bytes)
        .and_then(|stream| stream.take(UNPACKED_MAX).read_to_end(&mut unpacked))
        .map_err(|cause| wrong(format!("it does not unpack ({cause}); fetch or record it again")))?;
    decode(&unpacked, file)
}

fn decode(bytes: &[u8], file: &str) -> Result<Job, Error> {
    let wrong = |what: String| Error::trace(file, None, None, what);
    let short = || wrong("it ends within its header; fetch or record it again".to_owned());
    let body = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| wrong("it does not begin with NPBT1; name a trace that gambeson records or knows".to_owned()))?;
    let (length, body) = body.split_first_chunk::<4>().ok_or_else(short)?;
    let (header, body) = body.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(short)?;
    let header: Header = serde_json::from_slice(header)
        .map_err(|cause| wrong(format!("its header is wrong ({cause}); record it again")))?;
    let ranks = header.ranks as usize;
    if ranks == 0 || header.ranks > 0xffff || header.counts.len() != ranks || header.comms.len() != ranks {
        return Err(wrong(format!(
            "its header speaks of {ranks} ranks, counts for {} and communicators of {}; these must agree, from 1 to \
             65535",
            header.counts.len(),
            header.comms.len()
        )));
    }
    let columns = Columns::new(&header.columns).map_err(wrong)?;
    let records: u64 = header.counts.iter().map(|&count| u64::from(count)).sum();
    if records.checked_mul(columns.record as u64) != Some(body.len() as u64) {
        return Err(wrong(format!(
            "its header counts {records} records of {} bytes, but {} bytes follow; fetch or record it again",
            columns.record,
            body.len()
        )));
    }
    let mut program = Program::new(&header.name, file, header.ranks);
    let mut body = body;
    for (rank, (&count, comms)) in header.counts.iter().zip(&header.comms).enumerate() {
        let comms = communicators(&mut program, comms, rank as u32, header.ranks, file)?;
        let (table, rest) = body.split_at(count as usize * columns.record);
        body = rest;
        Records { columns: &columns, table, count: count as usize, comms, ranks: header.ranks }
            .decode(&mut program.rank(rank as u32))?;
    }
    Ok(program.finish())
}

/// A communicator of a rank: its number in the job, and its members.
type Communicator = (u16, Arc<[u32]>);

fn communicators(
    program: &mut Program,
    comms: &[Vec<u32>],
    rank: u32,
    ranks: u32,
    file: &str,
) -> Result<Vec<Communicator>, Error> {
    let mut known: Vec<Communicator> = Vec::with_capacity(comms.len());
    for (index, members) in comms.iter().enumerate() {
        let named: BTreeSet<u32> = members.iter().copied().collect();
        if !named.contains(&rank) || named.len() < members.len() || named.last().is_some_and(|&last| last >= ranks) {
            let what = format!(
                "its communicator {index} lacks the rank, or names one that is none or that is in it already; record it \
                 again"
            );
            return Err(Error::trace(file, Some(rank), None, what));
        }
        let members: Arc<[u32]> = members.as_slice().into();
        let nth = known.iter().filter(|(_, others)| *others == members).count() as u32;
        known.push((program.communicator(&members, nth)?, members));
    }
    Ok(known)
}

/// Where each column of a rank's table is.
struct Columns {
    /// For each of [`COLUMNS`]: the bytes of the columns before it in a record, its width, whether it has a sign.
    places: [(usize, usize, bool); 7],
    record: usize,
}

impl Columns {
    fn new(named: &[String]) -> Result<Self, String> {
        let mut places = [None; 7];
        let mut record = 0;
        for column in named {
            let parts = column.split_once(':').and_then(|(name, kind)| {
                let width = kind.get(1..)?.parse().ok().filter(|width| [1, 2, 4, 8].contains(width))?;
                let signed = match kind.get(..1)? {
                    "u" => false,
                    "i" => true,
                    _ => return None,
                };
                Some((name, width, signed))
            });
            let (name, width, signed) = parts.ok_or_else(|| {
                format!("its column {column:?} is none; columns are name:u1, u2, u4, u8, or i1 to i8")
            })?;
            if let Some(known) = COLUMNS.iter().position(|known| *known == name) {
                places[known] = Some((record, width, signed));
            }
            record += width;
        }
        let missing = COLUMNS.iter().zip(&places).find(|(_, place)| place.is_none());
        match missing {
            Some((name, _)) => Err(format!("it has no column {name}; record it again")),
            None => Ok(Self { places: places.map(|place| place.expect("none is missing")), record }),
        }
    }
}

/// The table of one rank.
struct Records<'t> {
    columns: &'t Columns,
    table: &'t [u8],
    count: usize,
    comms: Vec<Communicator>,
    ranks: u32,
}

struct Record {
    op: u64,
    comm: u64,
    peer: u64,
    tag: i32,
    bytes: u64,
    req: u64,
    gap_ns: u64,
}

impl Records<'_> {
    fn value(&self, column: usize, index: usize) -> u64 {
        let (before, width, signed) = self.columns.places[column];
        let at = before * self.count + index * width;
        let mut word = [0; 8];
        word[..width].copy_from_slice(&self.table[at..at + width]);
        if signed && word[width - 1] & 0x80 != 0 {
            word[width..].fill(0xff);
        }
        u64::from_le_bytes(word)
    }

    fn record(&self, index: usize) -> Record {
        let [op, comm, peer, tag, bytes, req, gap_ns] = std::array::from_fn(|column| self.value(column, index));
        Record { op, comm, peer, tag: tag as i32, bytes, req, gap_ns }
    }

    fn decode(&self, rank: &mut Rank<'_>) -> Result<(), Error> {
        rank.reserve(self.count);
        let mut index = 0;
        while index < self.count {
            let record = self.record(index);
            let (call, records) = self.call(rank, &record, index)?;
            let gap = record.gap_ns.checked_mul(NS);
            let gap = gap.ok_or_else(|| rank.wrong(index as u32, "it computes for centuries; record it again"))?;
            rank.push(gap, call, index as u32);
            index += records;
        }
        Ok(())
    }

    /// The call of a record, and how many records it takes.
    fn call(&self, rank: &mut Rank<'_>, record: &Record, index: usize) -> Result<(Call, usize), Error> {
        let at = index as u32;
        if record.op == 5 {
            let slot = rank.close(record.req).ok_or_else(|| {
                rank.wrong(at, format!("it waits for request {}, which nothing began; record it again", record.req))
            })?;
            return Ok((Call::Wait { slot }, 1));
        }
        let (communicator, members) = self.comms.get(record.comm as usize).ok_or_else(|| {
            rank.wrong(at, format!("communicator {} is not in the header; record it again", record.comm))
        })?;
        let context = Context::program(*communicator);
        let bytes = u32::try_from(record.bytes)
            .map_err(|_| rank.wrong(at, format!("it sends {} bytes at once; the most is 4 GiB", record.bytes)))?;
        let peer = || match u32::try_from(record.peer) {
            Ok(peer) if peer < self.ranks => Ok(peer),
            _ => Err(rank.wrong(at, format!("rank {} is not among the {} of the job", record.peer, self.ranks))),
        };
        let from = || if record.peer == NO_PEER { Ok(ANY_SOURCE) } else { peer() };
        let tag = if record.tag < 0 { ANY_TAG } else { record.tag };
        let kind = match record.op {
            1 => return Ok((Call::Send { to: peer()?, bytes, tag: record.tag, context }, 1)),
            2 => {
                let to = peer()?;
                let slot = rank.open(record.req, at)?;
                return Ok((Call::Isend { to, bytes, tag: record.tag, context, slot }, 1));
            }
            3 => return Ok((Call::Recv { from: from()?, tag, context }, 1)),
            4 => {
                let from = from()?;
                let slot = rank.open(record.req, at)?;
                return Ok((Call::Irecv { from, tag, context, slot }, 1));
            }
            10 => Collective::Barrier,
            11 => Collective::Bcast,
            12 => Collective::Reduce,
            13 => Collective::Allreduce,
            14 => Collective::Alltoall,
            15 => Collective::Alltoallv,
            op => return Err(rank.wrong(at, format!("operation {op} is none of NPBT1; read it with a newer gambeson"))),
        };
        let root = if matches!(kind, Collective::Bcast | Collective::Reduce) { peer()? } else { members[0] };
        if !members.contains(&root) {
            return Err(rank.wrong(at, format!("the root {root} is not in the communicator; record it again")));
        }
        let (counts, records) = match kind {
            Collective::Alltoallv => self.vector(rank, members, index)?,
            _ => (0, 1),
        };
        Ok((Call::Collective { kind, communicator: *communicator, root, bytes, counts }, records))
    }

    /// The counts of an alltoallv, of which each destination has a record.
    fn vector(&self, rank: &mut Rank<'_>, members: &[u32], index: usize) -> Result<(u32, usize), Error> {
        let mut counts = vec![None; members.len()];
        for at in index..(index + members.len()).min(self.count) {
            let record = self.record(at);
            let place = members.iter().position(|&member| u64::from(member) == record.peer);
            if let (15, Some(place), Ok(bytes)) = (record.op, place, u32::try_from(record.bytes)) {
                counts[place] = Some(bytes);
            }
        }
        let all: Option<Vec<u32>> = counts.into_iter().collect();
        let all = all.ok_or_else(|| {
            let members = members.len();
            rank.wrong(index as u32, format!("an alltoallv of {members} ranks lacks some of its {members} records"))
        })?;
        Ok((rank.counts(all), members.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"name": "two", "ranks": 2, "comms": [[[0, 1]], [[0, 1]]], "counts": [2, 2],
        "columns": ["op:u1", "comm:u1", "peer:u2", "tag:i4", "bytes:u4", "req:u4", "gap_ns:u4"]}"#;

    type Row = (u8, u8, u16, i32, u32, u32, u32);

    fn trace(header: &str, ranks: &[&[Row]]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend(header.as_bytes());
        for rows in ranks {
            bytes.extend(rows.iter().map(|row| row.0));
            bytes.extend(rows.iter().map(|row| row.1));
            bytes.extend(rows.iter().flat_map(|row| row.2.to_le_bytes()));
            bytes.extend(rows.iter().flat_map(|row| row.3.to_le_bytes()));
            bytes.extend(rows.iter().flat_map(|row| row.4.to_le_bytes()));
            bytes.extend(rows.iter().flat_map(|row| row.5.to_le_bytes()));
            bytes.extend(rows.iter().flat_map(|row| row.6.to_le_bytes()));
        }
        bytes
    }

    fn wrong(ranks: &[&[Row]]) -> String {
        parse(&trace(HEADER, ranks), "two.npbt").unwrap_err().to_string()
    }

    const SEND: Row = (1, 0, 1, 7, 100, 0, 5);
    const RECV: Row = (3, 0, 0, 7, 100, 0, 6);
    const BARRIER: Row = (10, 0, 65535, 0, 0, 0, 0);

    #[test]
    fn decodes_records() {
        let irecv = (4, 0, 65535, -1, 0, 9, 6);
        let wait = (5, 255, 0, 0, 0, 9, 3);
        let job = parse(&trace(HEADER, &[&[SEND, BARRIER], &[irecv, wait]]), "two.npbt").unwrap();
        let context = Context::program(0);
        assert_eq!(job.ranks[0][0].gap, 5 * NS);
        assert_eq!(job.ranks[0][0].call, Call::Send { to: 1, bytes: 100, tag: 7, context });
        assert_eq!(job.ranks[1][0].call, Call::Irecv { from: ANY_SOURCE, tag: ANY_TAG, context, slot: 1 });
        assert_eq!(job.ranks[1][1].call, Call::Wait { slot: 1 });
        assert_eq!(size_of::<super::super::Op>(), 32, "millions of them are kept");
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        let cases: [(&[&[Row]], &str); 5] = [
            (&[&[SEND, (5, 0, 0, 0, 0, 3, 0)], &[RECV, BARRIER]], "rank 0, record 1: it waits for request 3"),
            (&[&[SEND, BARRIER], &[RECV, (1, 0, 2, 0, 0, 0, 0)]], "rank 1, record 1: rank 2 is not among the 2"),
            (&[&[SEND, (99, 0, 0, 0, 0, 0, 0)], &[RECV, BARRIER]], "rank 0, record 1: operation 99"),
            (&[&[SEND, (10, 1, 0, 0, 0, 0, 0)], &[RECV, BARRIER]], "rank 0, record 1: communicator 1"),
            (&[&[SEND, (15, 0, 0, 0, 8, 0, 0)], &[RECV, BARRIER]], "rank 0, record 1: an alltoallv of 2 ranks"),
        ];
        for (ranks, said) in cases {
            let error = wrong(ranks);
            assert!(error.starts_with("two.npbt, ") && error.contains(said), "{error}");
        }
        assert!(wrong(&[&[SEND], &[RECV]]).contains("counts 4 records of 20 bytes, but 40 bytes follow"));
        let header = HEADER.replace("\"req:u4\", ", "");
        assert!(parse(&trace(&header, &[]), "x").unwrap_err().to_string().contains("no column req"));
        assert!(parse(b"junk", "x").unwrap_err().to_string().contains("does not unpack"));
    }
}
