//! Traces of real jobs, as `gambeson run --trace` writes them: zstd over the records of [`gambeson_proto::trace`].
//!
//! Every message is there, those within collectives too, so that nothing is expanded. A receive stands where its message
//! was complete, and takes that very message: which one, the reader says with a tag. A message that was the `c`-th of its
//! sender to be complete and the `n`-th to be sent has tag `c - n`, 0 where none overtakes another. Messages with equal tags
//! are complete in the order in which they were sent, so that first in, first out finds each its own.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use gambeson_proto::trace::{self, Kind, Record};

use super::program::{Program, Rank};
use super::{Call, Context, Job};
use crate::Error;
use crate::error::Place;
use crate::time::NS;

/// Traces that unpack to more than this are taken for damage.
const UNPACKED_MAX: u64 = 8 << 30;
/// The tag of a message that nobody received.
const NEVER: i32 = i32::MAX;

/// Reads a trace.
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
    let (header, ranks) = unpack(bytes, file)?;
    let count = u32::try_from(ranks.len()).ok().filter(|&count| (1..0xffff).contains(&count));
    let count = count.ok_or_else(|| {
        Error::trace(file, None, None, format!("it has {} ranks; there must be 1 to 65534", ranks.len()))
    })?;
    let tags = tags(&ranks, file)?;
    let mut program = Program::new(&header.name, file, count);
    let times = || ranks.iter().flatten().map(|record| record.wall_ns);
    let took_ns = times().max().unwrap_or(0) - times().min().unwrap_or(0);
    if let Some(took) = took_ns.checked_mul(NS).filter(|_| header.missing.is_empty()) {
        program.took(took);
    }
    for (rank, records) in (0..).zip(&ranks) {
        operations(&mut program.rank(rank), rank, records, &tags)?;
    }
    Ok(program.finish())
}

fn unpack(bytes: &[u8], file: &str) -> Result<(trace::Header, Vec<Vec<Record>>), Error> {
    let mut unpacked = Vec::new();
    let mut bytes = bytes;
    if !bytes.starts_with(trace::MAGIC) {
        zstd::stream::read::Decoder::new(bytes)
            .and_then(|stream| stream.take(UNPACKED_MAX).read_to_end(&mut unpacked))
            .map_err(|cause| {
                Error::trace(file, None, None, format!("it does not unpack ({cause}); fetch or record it again"))
            })?;
        bytes = &unpacked;
    }
    trace::decode(bytes).map_err(|trace::Damage { rank, record, what }| {
        let place = record.map(|record| Place::Record(record.try_into().unwrap_or(u32::MAX)));
        Error::trace(file, rank, place, what)
    })
}

/// The tag of each message that was received, by sender, receiver and number.
type Tags = HashMap<(u32, u32, u64), i32>;

fn tags(ranks: &[Vec<Record>], file: &str) -> Result<Tags, Error> {
    let mut tags = Tags::new();
    let mut complete: HashMap<(u32, u32), u64> = HashMap::new();
    for (rank, records) in (0_u32..).zip(ranks) {
        for (at, record) in (0..).zip(records).filter(|(_, record)| record.kind == Kind::Received) {
            let before = complete.entry((record.peer, rank)).or_default();
            let tag = before.wrapping_sub(record.number) as i64;
            *before += 1;
            let wrong = |what: String| Error::trace(file, Some(rank), Some(Place::Record(at)), what);
            let tag =
                i32::try_from(tag).ok().filter(|&tag| tag != NEVER && tag != super::ANY_TAG).ok_or_else(|| {
                    wrong(format!(
                        "message {} of rank {} cannot be among those; record it again",
                        record.number, record.peer
                    ))
                })?;
            if tags.insert((record.peer, rank, record.number), tag).is_some() {
                return Err(wrong(format!("message {} of rank {} is received twice", record.number, record.peer)));
            }
        }
    }
    Ok(tags)
}

fn operations(program: &mut Rank<'_>, rank: u32, records: &[Record], tags: &Tags) -> Result<(), Error> {
    let context = Context::program(0);
    let completes_later: HashMap<(u32, u64), usize> = (0..)
        .zip(records)
        .filter(|(_, record)| record.kind == Kind::Sent)
        .map(|(at, record)| ((record.peer, record.number), at))
        .collect();
    program.reserve(records.len());
    let mut sent = HashMap::new();
    for (at, record) in records.iter().enumerate() {
        let place = at as u32;
        let &Record { peer, number, .. } = record;
        let bytes = u32::try_from(record.bytes)
            .map_err(|_| program.wrong(place, format!("it sends {} bytes at once; the most is 4 GiB", record.bytes)))?;
        let call = match record.kind {
            Kind::Send => {
                let tag = tags.get(&(rank, peer, number)).copied().unwrap_or(NEVER);
                if sent.insert((peer, number), ()).is_some() {
                    return Err(program.wrong(place, format!("message {number} to rank {peer} is sent twice")));
                }
                match completes_later.get(&(peer, number)) {
                    Some(&later) if later > at => {
                        let slot = program.open(later as u64, place)?;
                        Call::Isend { to: peer, bytes, tag, context, slot }
                    }
                    _ => Call::Send { to: peer, bytes, tag, context },
                }
            }
            Kind::Sent => program.close(at as u64).map_or(Call::Compute, |slot| Call::Wait { slot }),
            Kind::Received => Call::Recv { from: peer, tag: tags[&(peer, rank, number)], context },
            Kind::Peer | Kind::Closed => Call::Compute,
        };
        let gap = record.gap_ns.checked_mul(NS);
        let gap = gap.ok_or_else(|| program.wrong(place, "it computes for centuries; record it again"))?;
        program.push(gap, call, place);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gambeson_proto::endpoint::Lane;
    use gambeson_proto::trace::{Header, RankHeader};

    use super::*;

    fn record(kind: Kind, peer: u32, number: u64) -> Record {
        let gap_ns = 10 * (number + 1);
        Record { wall_ns: 7, cpu_ns: 5, gap_ns, number, bytes: 100 + number, peer, kind, lane: Lane::Tagged, thread: 0 }
    }

    fn trace(ranks: &[Vec<Record>]) -> Vec<u8> {
        let rank = |records: &Vec<Record>| RankHeader {
            world_rank: None,
            pid: 1,
            host: 0,
            records: records.len() as u64,
            lost: 0,
            closed: true,
        };
        let header = Header {
            name: "t".to_owned(),
            command: Vec::new(),
            mpi: String::new(),
            clock: String::new(),
            hosts: vec!["h".to_owned()],
            ranks: ranks.iter().map(rank).collect(),
            matched: 0,
            missing: Vec::new(),
        };
        trace::encode(&header, ranks)
    }

    fn wrong(ranks: &[Vec<Record>]) -> String {
        parse(&trace(ranks), "t.gbt").unwrap_err().to_string()
    }

    #[test]
    fn every_receive_takes_its_own_message() {
        use Kind::{Closed, Received, Send, Sent};
        let sender =
            vec![record(Send, 1, 0), record(Send, 1, 1), record(Send, 1, 2), record(Sent, 1, 1), record(Closed, 0, 0)];
        let receiver = vec![record(Received, 0, 1), record(Received, 0, 0), record(Received, 0, 2)];
        let job = parse(&trace(&[sender, receiver]), "t.gbt").unwrap();
        let context = Context::program(0);
        let calls = |rank: usize| job.ranks[rank].iter().map(|op| op.call).collect::<Vec<_>>();
        let send = |bytes, tag| Call::Send { to: 1, bytes, tag, context };
        let begun = Call::Isend { to: 1, bytes: 101, tag: -1, context, slot: 1 };
        assert_eq!(calls(0), [send(100, 1), begun, send(102, 0), Call::Wait { slot: 1 }, Call::Compute]);
        assert_eq!(calls(1), [-1, 1, 0].map(|tag| Call::Recv { from: 0, tag, context }));
        assert_eq!(job.ranks[0][1].gap, 20 * NS);
        assert_eq!(job.recorded, Some(0));
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        use Kind::{Received, Send};
        let said = wrong(&[vec![record(Send, 1, 0), record(Send, 1, 0)], vec![]]);
        assert!(said.starts_with("t.gbt, rank 0, record 1: message 0 to rank 1 is sent twice"), "{said}");
        let said = wrong(&[vec![], vec![record(Received, 0, 5), record(Received, 0, 5)]]);
        assert!(said.starts_with("t.gbt, rank 1, record 1: message 5 of rank 0 is received twice"), "{said}");
        let said = wrong(&[vec![record(Received, 3, 0)]]);
        assert!(said.starts_with("t.gbt, rank 0, record 0: it is none of GBT1, or names a rank"), "{said}");
        let large = Record { bytes: 1 << 33, ..record(Send, 0, 0) };
        assert!(wrong(&[vec![large]]).contains("rank 0, record 0: it sends 8589934592 bytes"));
        assert!(wrong(&[vec![record(Received, 0, 1 << 40)]]).contains("cannot be among those"));
        assert!(parse(b"junk", "t.gbt").unwrap_err().to_string().starts_with("t.gbt: it does not unpack"));
    }
}
