//! Traces of each format: what is read can be expanded, cut and replayed; what is not is said in a sentence.

#[path = "../../crates/gambeson-sim/tests/support/replay.rs"]
mod loops;

use std::sync::Arc;

use gambeson_sim::process::{Cluster, Config, Placement, Scheduler};
use gambeson_sim::trace::window::{self, Window};
use gambeson_sim::trace::{Job, collective, dumpi, gbt, goal, npbt};

use super::input::Input;

pub fn trace(data: &[u8]) {
    let Some((format, data)) = data.split_first() else { return };
    let read = match format % 4 {
        0 => npbt::parse(data, "fuzz"),
        1 => goal::parse(&String::from_utf8_lossy(data), "fuzz"),
        2 => dumpi::parse("fuzz", &files(data), "fuzz"),
        _ => {
            // What a rank left is read by the launcher before anything else looks at it.
            let _ = gambeson_proto::trace::EndpointFile::decode(data);
            gbt::parse(data, "fuzz")
        }
    };
    let job = match read {
        Ok(job) => job,
        Err(error) => return assert!(error.to_string().starts_with("fuzz"), "{error}"),
    };
    if job.ranks.len() > 64 {
        return;
    }
    for algorithms in [collective::Algorithms::default(), others()] {
        let Ok(expanded) = collective::expand(&job, &algorithms) else { return };
        if let Ok(cut) = window::cut(&expanded, Window { from: 0, iterations: 1 }) {
            replay(cut.job);
        }
        replay(expanded);
    }
}

/// The files of up to eight ranks, each after its length.
fn files(data: &[u8]) -> Vec<Vec<u8>> {
    let mut input = Input(data);
    let mut files = Vec::new();
    while files.len() < 8 && !input.is_empty() {
        let length = input.short().into();
        files.push(input.bytes(length).to_vec());
    }
    files
}

fn others() -> collective::Algorithms {
    collective::Algorithms {
        barrier: collective::Barrier::Ring,
        rooted: collective::Rooted::Linear,
        allreduce: collective::Allreduce::Ring,
        allgather: collective::Allgather::Bruck,
        alltoall: collective::Alltoall::Linear,
        scan: collective::Scan::Linear,
    }
}

/// Replays until nothing more happens; then either all has ended or the sentence says who waits.
fn replay(job: Job) {
    let computed: u128 = job.ranks.iter().flatten().map(|op| u128::from(op.gap)).sum();
    if computed > 1 << 50 || job.ranks.iter().all(Vec::is_empty) {
        return;
    }
    let placement = Placement::cyclic(&[job.ranks.len()], 2);
    let config = Config { scheduler: Scheduler::DcsSpinBlock, eager_bytes: Some(1000), ..Config::default() };
    let mut cluster = Cluster::new(&config, &[Arc::new(job)], &placement, 1).expect("it is a job");
    // Processes that spin beside others take turns for ever when they wait for what never comes.
    let times = |number| [1_000, 2_000 + number % 7 * 500];
    if loops::replay(&mut cluster, times, 1 << 52, 100_000).cut_off {
        return;
    }
    match cluster.verify() {
        Ok(()) => assert!(cluster.finished()),
        Err(error) => assert!(error.to_string().contains("rank"), "{error}"),
    }
}
