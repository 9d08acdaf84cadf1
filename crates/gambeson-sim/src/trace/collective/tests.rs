//! Collectives run with messages that take no time: who learns what, and what is sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::trace::{Collective, Op};

const KINDS: [Collective; 11] = [
    Collective::Barrier,
    Collective::Bcast,
    Collective::Reduce,
    Collective::Allreduce,
    Collective::Gather,
    Collective::Scatter,
    Collective::Allgather,
    Collective::Alltoall,
    Collective::Alltoallv,
    Collective::ReduceScatter,
    Collective::Scan,
];

fn others() -> Algorithms {
    Algorithms {
        barrier: Barrier::Ring,
        rooted: Rooted::Linear,
        allreduce: Allreduce::Ring,
        allgather: Allgather::Bruck,
        alltoall: Alltoall::Linear,
        scan: Scan::Linear,
    }
}

/// One collective among the odd ranks of a job of `2 n` ranks.
fn job(kind: Collective, n: u32, root: u32, bytes: u32) -> Job {
    let members: Arc<[u32]> = (0..n).map(|place| 2 * place + 1).collect();
    let call = |rank: u32| Call::Collective {
        kind,
        communicator: 1,
        root: members[root as usize],
        bytes,
        counts: if kind == Collective::Alltoallv { rank / 2 * n } else { 0 },
    };
    let ops = |rank: u32| vec![Op { gap: 3, call: call(rank), record: 4 }];
    Job {
        ranks: (0..2 * n).map(|rank| if rank % 2 == 1 { ops(rank) } else { Vec::new() }).collect(),
        communicators: vec![(0..2 * n).collect(), members.clone()],
        counts: (0..n * n).collect(),
        ..Job::default()
    }
}

/// Runs the ranks with messages that take no time, and gives the messages and what each rank may know at the end
/// of each other one's input.
fn run(job: &Job) -> (Vec<(u32, u32, u32)>, Vec<u64>) {
    let n = job.ranks.len();
    let mut known: Vec<u64> = (0..n).map(|rank| 1 << rank).collect();
    let mut at = vec![0; n];
    let mut slots: Vec<BTreeMap<u32, Option<u32>>> = vec![BTreeMap::new(); n];
    let mut messages = Vec::new();
    let mut under_way: BTreeMap<(u32, u32), std::collections::VecDeque<u64>> = BTreeMap::new();
    loop {
        let mut moved = false;
        for rank in 0..n {
            while let Some(op) = job.ranks[rank].get(at[rank]) {
                let source = match op.call {
                    Call::Send { to, bytes, .. } | Call::Isend { to, bytes, .. } => {
                        messages.push((rank as u32, to, bytes));
                        under_way.entry((rank as u32, to)).or_default().push_back(known[rank]);
                        if let Call::Isend { slot, .. } = op.call {
                            assert!(slots[rank].insert(slot, None).is_none());
                        }
                        None
                    }
                    Call::Irecv { from, slot, .. } => {
                        assert!(slots[rank].insert(slot, Some(from)).is_none());
                        None
                    }
                    Call::Recv { from, .. } => Some(from),
                    Call::Wait { slot } => slots[rank][&slot],
                    Call::Compute => None,
                    Call::Collective { .. } => panic!("it was expanded"),
                };
                if let Some(from) = source {
                    let Some(news) = under_way.get_mut(&(from, rank as u32)).and_then(|queue| queue.pop_front()) else {
                        break;
                    };
                    known[rank] |= news;
                }
                if let Call::Wait { slot } = op.call {
                    slots[rank].remove(&slot);
                }
                at[rank] += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    for rank in 0..n {
        assert_eq!(at[rank], job.ranks[rank].len(), "rank {rank} waits for ever");
        assert!(slots[rank].is_empty());
    }
    assert!(under_way.values().all(|queue| queue.is_empty()), "a message that nobody receives");
    (messages, known)
}

#[test]
fn everybody_learns_what_the_collective_says() {
    for algorithms in [Algorithms::default(), others()] {
        for n in 1..=13 {
            let all = (0..n).fold(0_u64, |all, place| all | 1 << (2 * place + 1));
            for kind in KINDS {
                for root in [0, n / 2, n - 1] {
                    let (_, known) = run(&expand(&job(kind, n, root, 100), &algorithms).unwrap());
                    for place in 0..n {
                        let mine = known[2 * place as usize + 1];
                        let least = match kind {
                            Collective::Bcast | Collective::Scatter => 1 << (2 * root + 1),
                            Collective::Reduce | Collective::Gather if place != root => 0,
                            Collective::Scan => all & ((1 << (2 * place + 2)) - 1),
                            _ => all,
                        };
                        assert_eq!(mine & least, least, "{kind:?} of {n} ranks from {root}, place {place}");
                    }
                }
            }
        }
    }
}

#[test]
fn sends_the_bytes_the_algorithms_are_known_for() {
    // Messages and bytes of the textbook forms for 8 ranks and 100 bytes.
    let cases = [
        (Collective::Barrier, Algorithms::default(), 24, 0),
        (Collective::Bcast, Algorithms::default(), 7, 700),
        (Collective::Allreduce, Algorithms::default(), 24, 2400),
        (Collective::Allreduce, others(), 112, 14 * 100),
        (Collective::Gather, Algorithms::default(), 7, 12 * 100),
        (Collective::Gather, others(), 7, 700),
        (Collective::Allgather, Algorithms::default(), 56, 5600),
        (Collective::Allgather, others(), 24, 5600),
        (Collective::Alltoall, Algorithms::default(), 56, 5600),
        (Collective::Alltoallv, Algorithms::default(), 56, (0..64).sum::<u32>() - (0..8).map(|i| 9 * i).sum::<u32>()),
        (Collective::Scan, Algorithms::default(), 17, 1700),
    ];
    for (kind, algorithms, messages, bytes) in cases {
        let (sent, _) = run(&expand(&job(kind, 8, 0, 100), &algorithms).unwrap());
        assert_eq!((sent.len(), sent.iter().map(|sent| sent.2).sum()), (messages, bytes), "{kind:?}");
    }
}

#[test]
fn keeps_the_time_before_and_refuses_messages_too_long() {
    let expanded = expand(&job(Collective::Barrier, 3, 0, 0), &Algorithms::default()).unwrap();
    for rank in [1, 3, 5] {
        assert_eq!(expanded.ranks[rank].iter().map(|op| op.gap).sum::<u64>(), 3);
        assert_eq!((expanded.ranks[rank][0].gap, expanded.ranks[rank][0].record), (3, 4));
    }
    assert_eq!(expand(&job(Collective::Barrier, 1, 0, 0), &Algorithms::default()).unwrap().ranks[1].len(), 1);
    let error = expand(&job(Collective::Gather, 8, 0, 1 << 31), &Algorithms::default()).unwrap_err();
    assert!(error.to_string().contains("rank 5, record 4: a message of this collective"), "{error}");
}
