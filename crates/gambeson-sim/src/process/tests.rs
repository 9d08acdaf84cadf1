//! Clusters over a fabric of constant latency.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::*;
use crate::time::{MS, NS};
use crate::trace::{ANY_SOURCE, Call, Context, Job, Op};

const LATENCY: Time = 3 * US;
const INJECTION: Time = US;
const WORLD: Context = Context::program(0);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake(u64),
    Injected(u32),
    Arrived(u32),
}

/// What came of a run.
struct Run {
    cluster: Cluster,
    end: Time,
    messages: u64,
    bytes: u64,
    /// When each job finished.
    finished: Vec<Time>,
    /// The largest number of processes that had one processor at the same time.
    most_running: usize,
}

/// Runs until nothing happens any more; `latency` may depend on the message's number.
fn run_with(config: &Config, jobs: &[Arc<Job>], placement: &Placement, latency: impl Fn(u64) -> Time) -> Run {
    let mut cluster = Cluster::new(config, jobs, placement, 7).unwrap();
    let mut events: BinaryHeap<Reverse<(Time, u64, Event)>> = BinaryHeap::new();
    let mut out = Vec::new();
    let mut run_finished = vec![0; jobs.len()];
    let (mut number, mut messages, mut bytes, mut now, mut most_running) = (0, 0, 0, 0, 0);
    let mut under_way: HashMap<u32, u8> = HashMap::new();
    cluster.start(&mut out);
    loop {
        for action in out.drain(..) {
            let mut push = |at, event| {
                assert!(at >= now);
                number += 1;
                events.push(Reverse((at, number, event)));
            };
            match action {
                Action::Wake { at, token } => push(at, Event::Wake(token)),
                Action::Send { at, message } => {
                    assert_eq!(at, now);
                    assert_ne!(message.from, message.to);
                    assert!(under_way.insert(message.id, 2).is_none(), "a number is used twice");
                    messages += 1;
                    bytes += u64::from(message.bytes);
                    push(at + INJECTION, Event::Injected(message.id));
                    push(at + INJECTION + latency(messages), Event::Arrived(message.id));
                }
                Action::Finished { at, job } => run_finished[job as usize] = at,
            }
        }
        let Some(Reverse((at, _, event))) = events.pop() else { break };
        now = at;
        let mut done = |id| {
            let left = under_way.get_mut(&id).unwrap();
            *left -= 1;
            if *left == 0 {
                under_way.remove(&id);
            }
            id
        };
        match event {
            Event::Wake(token) => cluster.wake(now, token, &mut out),
            Event::Injected(id) => cluster.injected(now, done(id), &mut out),
            Event::Arrived(id) => cluster.arrived(now, done(id), &mut out),
        }
        for node in 0..placement.nodes {
            let local = 0..cluster.processes(node) as u32;
            let running = local.filter(|&local| cluster.running(Process { node, local })).count();
            most_running = most_running.max(running);
        }
    }
    let end = run_finished.iter().copied().max().unwrap();
    Run { cluster, end, messages, bytes, finished: run_finished, most_running }
}

fn run(config: &Config, jobs: &[Arc<Job>], nodes: u32) -> Run {
    let sizes: Vec<usize> = jobs.iter().map(|job| job.ranks.len()).collect();
    run_with(config, jobs, &Placement::cyclic(&sizes, nodes), |_| LATENCY)
}

fn config(scheduler: Scheduler) -> Config {
    Config { scheduler, ..Config::default() }
}

fn job(ranks: Vec<Vec<(Time, Call)>>) -> Arc<Job> {
    let ops = |calls: Vec<(Time, Call)>| {
        calls.into_iter().enumerate().map(|(record, (gap, call))| Op { gap, call, record: record as u32 }).collect()
    };
    Arc::new(Job {
        name: "test".to_owned(),
        file: "test.npbt".to_owned(),
        communicators: vec![(0..ranks.len() as u32).collect()],
        ranks: ranks.into_iter().map(ops).collect(),
        ..Job::default()
    })
}

fn send(to: u32, bytes: u32) -> Call {
    Call::Send { to, bytes, tag: 0, context: WORLD }
}

fn recv(from: u32) -> Call {
    Call::Recv { from, tag: 0, context: WORLD }
}

/// Two ranks that compute `gap` and answer each other, `rounds` times.
fn ping_pong(gap: Time, rounds: usize) -> Arc<Job> {
    let first = (0..rounds).flat_map(|_| [(gap, send(1, 100)), (0, recv(1))]).collect();
    let second = (0..rounds).flat_map(|_| [(0, recv(0)), (gap, send(0, 100))]).collect();
    job(vec![first, second])
}

#[test]
fn a_gap_begins_when_the_operation_before_has_completed() {
    let done = run(&config(Scheduler::Batch), &[ping_pong(10 * US, 5)], 2);
    // Each way: the gap, then until the message has arrived; the sends complete long before.
    assert_eq!(done.end, 10 * (10 * US + INJECTION + LATENCY));
    let half = Config { gap_scale: 0.5, ..Config::default() };
    assert_eq!(run(&half, &[ping_pong(10 * US, 5)], 2).end, 10 * (5 * US + INJECTION + LATENCY));
    let stats = done.cluster.stats();
    assert_eq!((stats.messages, stats.context_switches), (10, 0));
    assert_eq!(stats.computing, 100 * US);
    assert!(stats.spinning > 0);
    done.cluster.verify().unwrap();
}

#[test]
fn rendezvous_asks_before_it_sends() {
    let config = Config { eager_bytes: Some(99), control_bytes: 8, ..Config::default() };
    let one = job(vec![vec![(0, send(1, 100))], vec![(50 * US, recv(0))]]);
    let done = run(&config, std::slice::from_ref(&one), 2);
    // The request waits for the receive; then the answer and the message go over.
    assert_eq!(done.end, 50 * US + 2 * (INJECTION + LATENCY));
    assert_eq!((done.messages, done.bytes), (3, 116));
    let eager = Config { eager_bytes: Some(100), ..config };
    assert_eq!(run(&eager, &[one], 2).messages, 1);
    assert_eq!(done.cluster.flights.under_way(), 0);
}

#[test]
fn a_rank_may_send_to_itself_and_receive_from_any() {
    let isend = Call::Isend { to: 0, bytes: 1 << 20, tag: 0, context: WORLD, slot: 1 };
    let first =
        vec![(0, isend), (0, recv(0)), (0, Call::Wait { slot: 1 }), (0, recv(ANY_SOURCE)), (0, recv(ANY_SOURCE))];
    let other = || vec![(0, send(0, 1))];
    let config = Config { eager_bytes: Some(0), ..Config::default() };
    let done = run(&config, &[job(vec![first, other(), other()])], 3);
    done.cluster.verify().unwrap();
    assert_eq!(done.messages, 6, "two messages with their requests and answers, none to itself");
}

#[test]
fn messages_match_in_the_order_they_were_sent() {
    let long_and_short = |tag, bytes| Call::Send { to: 1, bytes, tag, context: WORLD };
    let sends = (0..20).map(|index| (0, long_and_short(index % 3, 1))).collect();
    let any = Call::Recv { from: 0, tag: crate::trace::ANY_TAG, context: WORLD };
    let receives = (0..20).map(|_| (0, any)).collect();
    let jobs = [job(vec![sends, receives])];
    // Each message overtakes those before it.
    let latency = |message: u64| (100 - message) * US;
    let done = run_with(&config(Scheduler::Batch), &jobs, &Placement::cyclic(&[2], 2), latency);
    done.cluster.verify().unwrap();
}

#[test]
fn says_who_waits_for_ever_and_what_nobody_received() {
    let said = |ranks| run(&config(Scheduler::Batch), &[job(ranks)], 2).cluster.verify().unwrap_err().to_string();
    let waits = said(vec![vec![(0, send(1, 1))], vec![(0, recv(0)), (0, recv(0))]]);
    assert!(
        waits.starts_with("test.npbt, rank 1, record 1: this receive from rank 0 (tag 0, communicator 0)"),
        "{waits}"
    );
    assert!(waits.contains("rank 0 has ended"), "{waits}");
    let both = said(vec![vec![(0, recv(1)), (0, send(1, 1))], vec![(0, recv(0)), (0, send(0, 1))]]);
    assert!(both.contains("rank 0, record 0") && both.contains("rank 1 waits in record 0"), "{both}");
    let left = said(vec![vec![(0, Call::Compute), (0, send(1, 5))], vec![(0, Call::Compute)]]);
    assert!(left.contains("rank 0, record 1: rank 1 never receives this send of 5 bytes"), "{left}");
    let irecv = Call::Irecv { from: 0, tag: 2, context: WORLD, slot: 1 };
    let posted = said(vec![vec![], vec![(0, irecv)]]);
    assert!(posted.contains("rank 1, record 0: nothing matches this receive from rank 0"), "{posted}");
    let waited = said(vec![vec![], vec![(0, irecv), (0, Call::Wait { slot: 1 })]]);
    assert!(waited.contains("rank 1, record 0: this receive"), "{waited}");
}

#[test]
fn refuses_what_cannot_run() {
    let said = |config: &Config, jobs: &[Arc<Job>], placement: &Placement| {
        Cluster::new(config, jobs, placement, 0).unwrap_err().to_string()
    };
    let one = [ping_pong(0, 1)];
    let cases = [
        (config(Scheduler::Batch), Placement { nodes: 1, jobs: vec![vec![0, 0]] }, "more processes on node 0"),
        (config(Scheduler::Local), Placement { nodes: 1, jobs: vec![vec![0, 1]] }, "rank 1 on node 1, but there are 1"),
        (config(Scheduler::Local), Placement { nodes: 1, jobs: vec![vec![0]] }, "2 ranks, but its placement has 1"),
        (config(Scheduler::Local), Placement { nodes: 1, jobs: vec![] }, "for 0 jobs"),
        (Config { spin_us: f64::NAN, ..Config::default() }, Placement::cyclic(&[2], 2), "spin_us is NaN"),
        (Config { cpus: 0, ..Config::default() }, Placement::cyclic(&[2], 2), "cpus is 0"),
    ];
    for (config, placement, what) in cases {
        let error = said(&config, &one, &placement);
        assert!(error.contains(what), "{error}");
    }
    let empty = [job(vec![vec![], vec![]])];
    assert!(said(&Config::default(), &empty, &Placement::cyclic(&[2], 2)).contains("no operations"));
}

#[test]
fn batch_jobs_wait_their_turn() {
    let jobs = [ping_pong(10 * US, 5), ping_pong(10 * US, 5)];
    let one = run(&config(Scheduler::Batch), &jobs[..1], 2).end;
    let done = run(&config(Scheduler::Batch), &jobs, 2);
    assert_eq!(done.finished[0], one);
    assert_eq!(done.cluster.times(1).0, Some(one));
    assert_eq!(done.end, 2 * one + 5 * US, "the second after the first, and a context switch");
    let two = Config { cpus: 2, ..config(Scheduler::Batch) };
    assert_eq!(run(&two, &jobs, 2).end, one, "two processors run both at once");
}

const ALL: [Scheduler; 6] = [
    Scheduler::Batch,
    Scheduler::Local,
    Scheduler::SpinBlock,
    Scheduler::DcsSpinBlock,
    Scheduler::PeriodicBoost,
    Scheduler::Gang,
];

#[test]
fn every_scheduler_finishes_a_mix_and_runs_one_process_a_processor() {
    let mix: Vec<Arc<Job>> = (1..=4).map(|index| ping_pong(index * 300 * US, 100)).collect();
    let least: Time = mix.iter().map(|job| job.ranks[0].iter().map(|op| op.gap).sum::<Time>()).sum();
    for scheduler in ALL {
        let done = run(&config(scheduler), &mix, 2);
        assert!(done.cluster.finished());
        done.cluster.verify().unwrap();
        assert_eq!(done.cluster.flights.under_way(), 0);
        assert_eq!(done.most_running, 1);
        assert!(done.end >= least, "{scheduler:?} computes more than one process at a time");
        assert_eq!(done.messages, 800);
        let again = run(&config(scheduler), &mix, 2);
        assert_eq!((done.end, done.cluster.stats()), (again.end, again.cluster.stats()), "{scheduler:?}");
        let two = Config { cpus: 2, ..config(scheduler) };
        let done = run(&two, &mix, 2);
        assert_eq!(done.most_running, 2);
        done.cluster.verify().unwrap();
    }
}

#[test]
fn coscheduling_beats_nodes_that_each_go_their_own_way() {
    let mix: Vec<Arc<Job>> = (0..3).map(|_| ping_pong(200 * US, 200)).collect();
    let end = |scheduler| run(&config(scheduler), &mix, 2).end;
    let local = end(Scheduler::Local);
    for scheduler in [Scheduler::SpinBlock, Scheduler::DcsSpinBlock, Scheduler::PeriodicBoost, Scheduler::Gang] {
        assert!(2 * end(scheduler) < local, "{scheduler:?} {} local {local}", end(scheduler));
    }
}

#[test]
fn spin_block_spins_as_long_as_it_is_told_and_then_costs_an_interrupt() {
    let late = |us: Time| job(vec![vec![(us * US, send(1, 1))], vec![(0, recv(0))]]);
    let arrives = |us: Time| us * US + INJECTION + LATENCY;
    let in_time = run(&config(Scheduler::SpinBlock), &[late(745)], 2);
    assert_eq!((in_time.end, in_time.cluster.stats().blocks), (arrives(745), 0));
    let blocked = run(&config(Scheduler::SpinBlock), &[late(900)], 2);
    assert_eq!(blocked.end, arrives(900) + 5 * US);
    assert_eq!((blocked.cluster.stats().blocks, blocked.cluster.stats().interrupts), (1, 1));
    assert_eq!(blocked.cluster.stats().spinning, INJECTION + 750 * US);
}

#[test]
fn dcs_gives_the_processor_to_the_receiver_of_a_message_at_once() {
    // Node 1 computes for another job when the message for its blocked process arrives.
    let pair = job(vec![vec![(2 * MS, send(1, 1))], vec![(0, recv(0))]]);
    let worker = job(vec![vec![(NS, Call::Compute)], vec![(20 * MS, Call::Compute)]]);
    let jobs = [pair, worker];
    let arrives = 2 * MS + INJECTION + LATENCY;
    let dcs = run(&config(Scheduler::DcsSpinBlock), &jobs, 2);
    // The interrupt and the context switch; node 0 may have begun with the other job, too.
    assert!((arrives..=arrives + 5 * US + 5 * US + 6 * US).contains(&dcs.finished[0]), "{}", dcs.finished[0]);
    assert_eq!(dcs.cluster.stats().boosts, 1);
    let sb = run(&config(Scheduler::SpinBlock), &jobs, 2);
    assert!(sb.finished[0] >= arrives && sb.cluster.stats().boosts == 0);
}

#[test]
fn periodic_boost_finds_the_process_with_messages_within_its_period() {
    // Both processes of node 1 spin or compute; the local scheduler would let the worker use up its slice.
    let pair = job(vec![vec![(MS, send(1, 1))], vec![(0, recv(0))]]);
    let worker = job(vec![vec![(NS, Call::Compute)], vec![(90 * MS, Call::Compute)]]);
    for order in [[&pair, &worker], [&worker, &pair]] {
        let jobs = order.map(Arc::clone);
        let boost = run(&config(Scheduler::PeriodicBoost), &jobs, 2);
        let pair_at = jobs.iter().position(|job| Arc::ptr_eq(job, &pair)).unwrap();
        assert!(boost.finished[pair_at] <= 3 * MS + 30 * US, "{}", boost.finished[pair_at]);
    }
}

#[test]
fn the_gang_scheduler_changes_all_nodes_at_once() {
    let jobs: Vec<Arc<Job>> = (0..2).map(|_| ping_pong(100 * US, 400)).collect();
    let one = run(&config(Scheduler::Gang), &jobs[..1], 2).end;
    let done = run(&config(Scheduler::Gang), &jobs, 2);
    // Twice the work and a context switch every 20 ms, but no time lost in waiting for the other node.
    assert!((2 * one..2 * one + 20 * (100 * US + 10 * US)).contains(&done.end), "{} of {one}", done.end);
    let apart = Placement { nodes: 4, jobs: vec![vec![0, 1], vec![2, 3]] };
    let done = run_with(&config(Scheduler::Gang), &jobs, &apart, |_| LATENCY);
    assert_eq!(done.end, one, "jobs on nodes of their own share a row");
}
