//! Endpoints' records become ranks' records: one clock, peers by rank, every send beside its receive.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::io;

use gambeson_proto::trace::{EndpointFile, Header, Kind, RANK_UNKNOWN, RankHeader, Record};

/// What the launcher knows of the job.
pub(crate) struct About {
    pub(crate) command: Vec<String>,
    pub(crate) mpi: String,
    /// When the job started: on this host's monotonic clock, and what makes that the time since 1970.
    pub(crate) started_ns: u64,
    pub(crate) clock_ns: u64,
    pub(crate) boot: [u8; 16],
}

/// A process of the job, or a rank that others talked to and that left nothing.
struct Process {
    rank: Option<u32>,
    pid: u64,
    host: String,
    files: Vec<EndpointFile>,
}

/// One end of a message: its pair of ranks, its number, and where and when that was.
type End = (u32, u32, u64, (usize, u64));

/// The trace called `name`, of the endpoints' files and of those that are damaged.
pub(crate) fn merge(
    name: String,
    (files, damaged): (Vec<EndpointFile>, Vec<String>),
    about: About,
) -> (Header, Vec<Vec<Record>>) {
    let one_clock = files.iter().all(|file| file.page.boot == about.boot);
    let mut missing: Vec<String> = damaged
        .iter()
        .map(|of| format!("what process {of} wrote down is damaged or was cut off on its way, and is left out"))
        .collect();
    let processes = processes(files, &mut missing);
    let ranks = translate(&processes, |file, wall_ns| {
        if file.page.boot == about.boot {
            return wall_ns.saturating_sub(about.started_ns);
        }
        (wall_ns.saturating_add(file.page.clock_ns)).saturating_sub(about.started_ns.saturating_add(about.clock_ns))
    });
    let (matched, early_ns) = matched(&ranks, &mut missing);
    let mut hosts: Vec<String> = Vec::new();
    let mut headers = Vec::new();
    for (process, records) in processes.iter().zip(&ranks) {
        let host = hosts.iter().position(|host| *host == process.host).unwrap_or_else(|| {
            hosts.push(process.host.clone());
            hosts.len() - 1
        });
        headers.push(RankHeader {
            world_rank: process.rank,
            pid: process.pid,
            host: host as u32,
            records: records.len() as u64,
            lost: process.files.iter().map(|file| file.lost).sum(),
            closed: process.is_closed(),
        });
    }
    let mut clock = "ns since gambeson run started the launcher, on the monotonic clock of the one host".to_owned();
    if !one_clock {
        clock = "ns since gambeson run started the launcher, by each host's own time of day".to_owned();
        let _ = write!(clock, ": the hosts' clocks disagree by {early_ns} ns or more");
    }
    let About { command, mpi, .. } = about;
    (Header { name, command, mpi, clock, hosts, ranks: headers, matched, missing }, ranks)
}

/// The processes, each at the place of its rank. Those that were spawned, and so have a rank that another has too, come
/// after the ranks of the first world.
fn processes(files: Vec<EndpointFile>, missing: &mut Vec<String>) -> Vec<Process> {
    let mut by_process: BTreeMap<(String, [u8; 16], u64), Vec<EndpointFile>> = BTreeMap::new();
    for file in files {
        by_process.entry((file.page.host.clone(), file.page.boot, file.page.pid)).or_default().push(file);
    }
    let mut found: Vec<Process> = by_process
        .into_iter()
        .map(|((host, _, pid), files)| {
            let rank = files.iter().map(|file| file.page.rank).find(|&rank| rank != RANK_UNKNOWN);
            Process { rank: rank.and_then(|rank| u32::try_from(rank).ok()), pid, host, files }
        })
        .collect();
    found.sort_by_key(|process| (process.rank.unwrap_or(u32::MAX), process.began_ns()));
    let known: BTreeSet<u64> = found.iter().flat_map(|process| &process.files).map(|file| file.page.endpoint).collect();
    let silent = found
        .iter()
        .flat_map(|process| &process.files)
        .flat_map(|file| &file.records)
        .filter(|record| record.kind == Kind::Peer && record.bytes <= RANKS_MAX && !known.contains(&record.number));
    let silent: BTreeSet<u32> = silent.map(|record| record.bytes as u32).collect();
    let last = found.iter().filter_map(|process| process.rank).filter(|&rank| u64::from(rank) <= RANKS_MAX).max();
    let last = last.max(silent.last().copied());
    let mut world: Vec<Option<Process>> = Vec::new();
    world.resize_with(last.map_or(0, |last| last as usize + 1), || None);
    let mut later = Vec::new();
    for process in found {
        match process.rank.and_then(|rank| world.get_mut(rank as usize)) {
            Some(place @ None) => *place = Some(process),
            _ => later.push(process),
        }
    }
    let mut all: Vec<Process> = (0..)
        .zip(world)
        .map(|(rank, process)| {
            process.unwrap_or_else(|| {
                missing.push(format!("rank {rank} wrote nothing down, so that its side of every message is missing"));
                Process { rank: Some(rank), pid: 0, host: String::new(), files: Vec::new() }
            })
        })
        .chain(later)
        .collect();
    for (number, process) in all.iter_mut().enumerate() {
        process.say_what_is_missing(number, missing);
    }
    all
}

impl Process {
    fn began_ns(&self) -> u64 {
        let first = self.files.iter().filter_map(|file| Some(file.records.first()?.wall_ns + file.page.clock_ns));
        first.min().unwrap_or(0)
    }

    fn is_closed(&self) -> bool {
        let last = |file: &EndpointFile| file.records.last().is_some_and(|record| record.kind == Kind::Closed);
        !self.files.is_empty() && self.files.iter().all(last)
    }

    fn say_what_is_missing(&self, number: usize, missing: &mut Vec<String>) {
        let lost: u64 = self.files.iter().map(|file| file.lost).sum();
        if lost > 0 {
            let why = match self.files.iter().map(|file| file.cause).find(|&cause| cause != 0) {
                None => "they had reached the limit; record again with a higher --trace-limit".to_owned(),
                Some(cause) => format!(
                    "the file did not grow ({}); make room in /dev/shm and record again",
                    io::Error::from_raw_os_error(cause as i32)
                ),
            };
            missing.push(format!("rank {number} could not write down {lost} records at its end, since {why}"));
        } else if !self.files.is_empty() && !self.is_closed() {
            missing.push(format!(
                "rank {number} on {} ended without closing its endpoint, so that nothing is known of it after its last call",
                self.host
            ));
        }
    }
}

/// The records of each process in order of time, with ranks for peers and one numbering for each pair of ranks.
fn translate(processes: &[Process], wall: impl Fn(&EndpointFile, u64) -> u64) -> Vec<Vec<Record>> {
    let mut owner: HashMap<u64, u32> = HashMap::new();
    for (number, process) in (0_u32..).zip(processes) {
        owner.extend(process.files.iter().map(|file| (file.page.endpoint, number)));
    }
    // Several endpoints of a rank each number their messages; the numbers of the second follow on those of the first.
    let mut lanes: BTreeMap<(u32, u32), BTreeMap<(u64, u64), u64>> = BTreeMap::new();
    let each_file =
        || (0_u32..).zip(processes).flat_map(|(own, process)| process.files.iter().map(move |file| (own, file)));
    for (own, file) in each_file() {
        let peers = Peers::of(file, &owner);
        for record in &file.records {
            if let (Some((rank, endpoint)), Some(sends)) = (peers.find(record), direction(record.kind)) {
                let (ranks, endpoints) = ends(sends, (own, file.page.endpoint), (rank, endpoint));
                let next = lanes.entry(ranks).or_default().entry(endpoints).or_default();
                *next = (*next).max(record.number.saturating_add(1));
            }
        }
    }
    for lanes in lanes.values_mut() {
        let mut first = 0_u64;
        for count in lanes.values_mut() {
            let next = first.saturating_add(*count);
            (*count, first) = (first, next);
        }
    }
    let mut ranks = vec![Vec::new(); processes.len()];
    for (own, file) in each_file() {
        let peers = Peers::of(file, &owner);
        let records = file.records.iter().filter(|record| record.kind != Kind::Peer).filter_map(|record| {
            let wall_ns = wall(file, record.wall_ns);
            let Some(sends) = direction(record.kind) else {
                return Some(Record { wall_ns, peer: own, ..*record });
            };
            let (rank, endpoint) = peers.find(record)?;
            let (pair, endpoints) = ends(sends, (own, file.page.endpoint), (rank, endpoint));
            Some(Record {
                wall_ns,
                peer: rank,
                number: lanes[&pair][&endpoints].saturating_add(record.number),
                ..*record
            })
        });
        ranks[own as usize].extend(records);
    }
    for (records, process) in ranks.iter_mut().zip(processes) {
        if process.files.len() > 1 {
            records.sort_by_key(|record: &Record| record.wall_ns);
        }
    }
    ranks
}

/// The peers that a file names: rank and endpoint.
struct Peers(Vec<Option<(u32, u64)>>);

impl Peers {
    fn of(file: &EndpointFile, owner: &HashMap<u64, u32>) -> Self {
        let mut peers = Vec::new();
        for record in file.records.iter().filter(|record| record.kind == Kind::Peer && record.peer < PEERS_MAX) {
            // Who left no file has a place of his own if he told his rank.
            let rank = owner.get(&record.number).copied();
            let rank = rank.or((record.bytes <= RANKS_MAX).then_some(record.bytes as u32));
            if peers.len() <= record.peer as usize {
                peers.resize(record.peer as usize + 1, None);
            }
            peers[record.peer as usize] = rank.map(|rank| (rank, record.number));
        }
        Self(peers)
    }

    fn find(&self, record: &Record) -> Option<(u32, u64)> {
        self.0.get(record.peer as usize).copied().flatten()
    }
}

/// Whether a record is of a message that its rank sends.
fn direction(kind: Kind) -> Option<bool> {
    match kind {
        Kind::Send | Kind::Sent => Some(true),
        Kind::Received => Some(false),
        Kind::Peer | Kind::Closed => None,
    }
}

fn ends(sends: bool, own: (u32, u64), peer: (u32, u64)) -> ((u32, u32), (u64, u64)) {
    let (from, to) = if sends { (own, peer) } else { (peer, own) };
    ((from.0, to.0), (from.1, to.1))
}

/// How many messages have both ends, and by how much the earliest was received before it was sent.
fn matched(ranks: &[Vec<Record>], missing: &mut Vec<String>) -> (u64, u64) {
    let (mut sends, mut receives): (Vec<End>, Vec<End>) = (Vec::new(), Vec::new());
    for (own, records) in (0..).zip(ranks) {
        for (at, record) in records.iter().enumerate() {
            let place = (at, record.wall_ns);
            match record.kind {
                Kind::Send => sends.push((own, record.peer, record.number, place)),
                Kind::Received => receives.push((record.peer, own, record.number, place)),
                _ => {}
            }
        }
    }
    sends.sort_unstable();
    receives.sort_unstable();
    let (mut matched, mut early_ns) = (0, 0);
    let mut alone: [BTreeMap<(u32, u32), (u64, usize)>; 2] = Default::default();
    let (mut send, mut receive) = (sends.iter().peekable(), receives.iter().peekable());
    loop {
        let key = |end: &&End| (end.0, end.1, end.2);
        let (kind, end) = match (send.peek().map(key), receive.peek().map(key)) {
            (Some(one), Some(other)) if one == other => {
                let (sent, got) = (send.next().expect("it was seen"), receive.next().expect("it was seen"));
                matched += 1;
                early_ns = early_ns.max(sent.3.1.saturating_sub(got.3.1));
                continue;
            }
            (Some(one), Some(other)) if one < other => (0, send.next()),
            (Some(_), None) => (0, send.next()),
            (_, Some(_)) => (1, receive.next()),
            (None, None) => break,
        };
        if let Some(&(from, to, _, (at, _))) = end {
            alone[kind].entry((from, to)).or_insert((0, at)).0 += 1;
        }
    }
    for (kind, pairs) in alone.iter().enumerate() {
        for (&(from, to), &(count, at)) in pairs.iter().take(PAIRS_MAX) {
            missing.push(if kind == 0 {
                format!(
                    "{count} messages from rank {from} to rank {to} have no receive, first record {at} of rank {from}"
                )
            } else {
                format!("{count} messages from rank {from} to rank {to} have no send, first record {at} of rank {to}")
            });
        }
        if pairs.len() > PAIRS_MAX {
            let end = ["receive", "send"][kind];
            missing.push(format!("messages of {} more pairs of ranks have no {end}", pairs.len() - PAIRS_MAX));
        }
    }
    (matched, early_ns)
}

/// Pairs of ranks that have a sentence each.
const PAIRS_MAX: usize = 10;
/// Higher ranks and peers are taken for damage.
const RANKS_MAX: u64 = 0xFF_FFFF;
const PEERS_MAX: u32 = 1 << 24;

#[cfg(test)]
mod tests {
    use gambeson_proto::endpoint::Lane;
    use gambeson_proto::trace::Page;

    use super::*;

    const BOOT: [u8; 16] = [1; 16];

    fn about() -> About {
        About { command: Vec::new(), mpi: "M".to_owned(), started_ns: 1000, clock_ns: 0, boot: BOOT }
    }

    fn file(rank: u64, endpoint: u64, records: &[(Kind, u32, u64, u64)]) -> EndpointFile {
        let records = records.iter().map(|&(kind, peer, number, wall_ns)| Record {
            wall_ns,
            cpu_ns: 0,
            gap_ns: 0,
            number,
            // The rank of the one peer that these files have.
            bytes: if kind == Kind::Peer { 1 - rank } else { 8 },
            peer,
            kind,
            lane: Lane::Tagged,
            thread: 0,
        });
        let page = Page { pid: 10 + rank, rank, endpoint, clock_ns: 0, boot: BOOT, host: "node".to_owned() };
        EndpointFile { page, records: records.collect(), lost: 0, cause: 0 }
    }

    const CLOSED: (Kind, u32, u64, u64) = (Kind::Closed, 0, 0, 9000);

    #[test]
    fn sends_find_their_receives_whatever_endpoints_they_used() {
        let first = [(Kind::Peer, 0, 77, 1000), (Kind::Send, 0, 0, 2000), (Kind::Send, 0, 1, 5000), CLOSED];
        let second = [(Kind::Peer, 4, 77, 1000), (Kind::Send, 4, 0, 3000), (Kind::Sent, 4, 0, 3500), CLOSED];
        let receiver = [
            (Kind::Peer, 0, 5, 1000),
            (Kind::Peer, 1, 6, 1000),
            (Kind::Received, 1, 0, 4000),
            (Kind::Received, 0, 1, 5500),
            (Kind::Received, 0, 0, 6000),
            CLOSED,
        ];
        let files = vec![file(1, 77, &receiver), file(0, 6, &second), file(0, 5, &first)];
        let (header, ranks) = merge("a".to_owned(), (files, Vec::new()), about());
        assert_eq!((header.matched, header.missing), (3, Vec::new()));
        assert_eq!(header.ranks.iter().map(|rank| rank.world_rank).collect::<Vec<_>>(), [Some(0), Some(1)]);
        let sent: Vec<_> = ranks[0].iter().map(|record| (record.wall_ns, record.kind, record.number)).collect();
        assert_eq!(sent[..3], [(1000, Kind::Send, 0), (2000, Kind::Send, 2), (2500, Kind::Sent, 2)]);
        assert_eq!(ranks[1].iter().map(|record| record.number).collect::<Vec<_>>()[..3], [2, 1, 0]);
    }

    #[test]
    fn what_is_missing_is_said() {
        let sender = [(Kind::Peer, 0, 77, 1000), (Kind::Send, 0, 0, 2000), (Kind::Received, 0, 3, 2500)];
        let mut one = file(0, 5, &sender);
        let (header, ranks) = merge("a".to_owned(), (vec![one.clone()], vec!["9-0".to_owned()]), about());
        let said = header.missing.join("\n");
        assert!(said.contains("process 9-0 wrote down is damaged"), "{said}");
        assert!(said.contains("rank 1 wrote nothing down"), "{said}");
        assert!(said.contains("rank 0 on node ended without closing"), "{said}");
        assert!(said.contains("1 messages from rank 0 to rank 1 have no receive, first record 0 of rank 0"), "{said}");
        assert!(said.contains("1 messages from rank 1 to rank 0 have no send, first record 1 of rank 0"), "{said}");
        assert_eq!((header.ranks.len(), ranks.len(), header.matched), (2, 2, 0));
        (one.lost, one.cause) = (3, 28);
        let said = merge("a".to_owned(), (vec![one], Vec::new()), about()).0.missing.join("\n");
        assert!(said.contains("rank 0 could not write down 3 records") && said.contains("No space left"), "{said}");
    }

    #[test]
    fn other_hosts_have_other_clocks() {
        let mut far = file(1, 77, &[(Kind::Peer, 0, 5, 10), (Kind::Received, 0, 0, 20), CLOSED]);
        (far.page.boot, far.page.clock_ns) = ([2; 16], 3000);
        let near = file(0, 5, &[(Kind::Peer, 0, 77, 1000), (Kind::Send, 0, 0, 4000), CLOSED]);
        let (header, ranks) = merge("a".to_owned(), (vec![near, far], Vec::new()), about());
        assert_eq!(ranks[1][0].wall_ns, 2020);
        assert!(header.clock.contains("disagree by 980 ns or more"), "{}", header.clock);
    }
}
