//! The seven NPB class A traces, read, expanded and replayed whole over a fabric of constant latency:
//! `GAMBESON_TRACES=directory cargo test --release -p gambeson-sim --test traces -- --ignored --nocapture`.

#[path = "support/replay.rs"]
mod replay;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use gambeson_sim::process::{Cluster, Config, Placement};
use gambeson_sim::time::{NS, US};
use gambeson_sim::trace::window::{self, Window};
use gambeson_sim::trace::{self, Call, Collective, Job, Op, collective};

/// What `npbt.py check` counts: name, sends, receives; none of any source.
const COUNTED: [(&str, u64, u64); 7] = [
    ("bt", 77_280, 77_280),
    ("cg", 47_104, 47_104),
    ("ft", 0, 0),
    ("is", 15, 15),
    ("lu", 759_204, 759_204),
    ("mg", 11_024, 11_024),
    ("sp", 154_080, 154_080),
];

/// Packets of 256 bytes in all seven, with the default algorithms.
const PACKETS: u64 = 51_400_000;

fn traces() -> PathBuf {
    std::env::var_os("GAMBESON_TRACES").expect("GAMBESON_TRACES names the directory of the traces").into()
}

/// Replays a job on 16 nodes; gives the time and how many messages arrived.
fn replay(job: Arc<Job>) -> (u64, u64) {
    let placement = Placement::cyclic(&[job.ranks.len()], 16);
    let mut cluster = Cluster::new(&Config::default(), &[job], &placement, 1).unwrap();
    let replay::Replayed { end, messages, .. } = replay::replay(&mut cluster, |_| [US, 3 * US], u64::MAX, u64::MAX);
    cluster.verify().unwrap();
    (end, messages)
}

/// Sends of a rank but those to itself, which no fabric carries.
fn carried(rank: u32, ops: &[Op]) -> u64 {
    let to_others = |op: &&Op| matches!(op.call, Call::Send { to, .. } | Call::Isend { to, .. } if to != rank);
    ops.iter().filter(to_others).count() as u64
}

#[test]
#[ignore = "needs GAMBESON_TRACES"]
fn all_seven_replay() {
    let mut packets = 0;
    for (name, sends, receives) in COUNTED {
        let begin = Instant::now();
        let job = trace::read(&traces().join(format!("{name}.A.16.npbt.zst"))).unwrap();
        let totals = job.totals();
        assert_eq!((totals.sends, totals.receives, totals.any_source), (sends, receives, 0), "{name}");
        let job = Arc::new(collective::expand(&job, &Default::default()).unwrap());
        let read = begin.elapsed();
        let sends = job.ranks.iter().enumerate().map(|(rank, ops)| carried(rank as u32, ops)).sum::<u64>();
        packets += job.packets(256);
        let begin = Instant::now();
        let (end, messages) = replay(job);
        assert_eq!(messages, sends, "{name}");
        println!(
            "{name}: {messages} messages, {:.3} s simulated; read in {read:.2?}, replayed in {:.2?}",
            end as f64 / 1e12,
            begin.elapsed()
        );
    }
    println!("{packets} packets of 256 bytes");
    assert!(packets.abs_diff(PACKETS) < PACKETS / 100, "{packets}");
}

#[test]
#[ignore = "needs GAMBESON_TRACES"]
fn a_window_of_iterations_can_be_cut_from_each() {
    // The benchmarks' own counts for class A; IS has one more to warm up, LU's last differs in its norms.
    let counts = [200, 15, 6, 11, 249, 4, 400];
    for ((name, ..), iterations) in COUNTED.into_iter().zip(counts) {
        let job = trace::read(&traces().join(format!("{name}.A.16.npbt.zst"))).unwrap();
        let job = collective::expand(&job, &Default::default()).unwrap();
        let whole = job.totals().sends;
        let cut = window::cut(&job, Window { from: 1, iterations: 1 }).unwrap();
        assert_eq!((cut.iterations, cut.crossing), (iterations, 0), "{name}");
        let part = cut.job.totals().sends;
        let (end, _) = replay(Arc::new(cut.job));
        println!(
            "{name}: {} iterations; one has {part} of {whole} messages, {} cross its edges, {:.6} s simulated",
            cut.iterations,
            cut.crossing,
            end as f64 / 1e12
        );
    }
}

/// What libdumpi 13 recorded of data/dumpi/calls.c under Open MPI, 4 ranks.
#[test]
fn a_dumpi_trace_holds_the_calls_of_its_program() {
    let meta = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/dumpi/calls.meta");
    let job = trace::read(meta.as_ref()).unwrap();
    assert_eq!((job.name.as_str(), job.ranks.len()), ("calls", 4));
    let members: Vec<&[u32]> = job.communicators.iter().map(|members| &**members).collect();
    assert_eq!(members, [&[0, 1, 2, 3][..], &[0, 1, 2, 3], &[2, 0], &[3, 1]], "world, dup and the split by parity");

    // For each rank the lengths it sends, in the program's order, and the calls of its collectives.
    for (rank, ops) in (0_u32..).zip(&job.ranks) {
        let sent = ops.iter().filter_map(|op| match op.call {
            Call::Send { bytes, to, .. } | Call::Isend { bytes, to, .. } => Some((to, bytes)),
            _ => None,
        });
        let next = (rank + 1) % 4;
        let ring = [20, 6, 32, 36, 40, 22, 48, 48, 48].map(|bytes| (next, bytes));
        let first = (rank == 0).then_some((1, 24));
        let pair = (rank >= 2).then(|| (rank - 2, 48));
        assert!(sent.eq(first.into_iter().chain(ring).chain(pair)), "rank {rank}");
        let collectives: Vec<(Collective, u16, u32)> = ops
            .iter()
            .filter_map(|op| match op.call {
                Call::Collective { kind, communicator, bytes, .. } => Some((kind, communicator, bytes)),
                _ => None,
            })
            .collect();
        let half = 2 + (rank % 2) as u16;
        assert_eq!(
            collectives,
            [
                (Collective::Barrier, 0, 0),
                (Collective::Barrier, 1, 0),
                (Collective::Barrier, 1, 0),
                (Collective::Bcast, half, 104),
                (Collective::Reduce, 0, 112),
                (Collective::Allreduce, half, 120),
                (Collective::Scan, 1, 64),
                (Collective::Gather, 0, 8),
                (Collective::Scatter, 0, 12),
                (Collective::Allgather, 0, 16),
                (Collective::Alltoall, 0, 5),
                (Collective::Alltoallv, 0, 0),
            ],
            "rank {rank}"
        );
        let counts = &job.counts[4 * rank as usize..][..4];
        assert_eq!(counts, [0, 1, 2, 3].map(|other| 4 * (rank + other)));
    }
    // By dumpi2ascii, MPI_Comm_rank came 12.210 us of processor time after MPI_Init, and so on up to MPI_Barrier.
    assert_eq!(job.ranks[1][0].gap, (12_210 + 3_637 + 3_245) * NS);
    let job = collective::expand(&job, &Default::default()).unwrap();
    replay(Arc::new(job));
}
