//! How long it takes to call a group, flat and by a tree: domains of one process over TCP.
//!
//! `cargo run --release -p gambeson-link --example link_group [MEMBERS] [RUNS]`: medians, calls of both kinds in alternation.

use std::time::{Duration, Instant};

use gambeson_link::{Attributes, Config, Domain, Group, Handlers, Identity, Operation, Trust};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const PATIENCE: Duration = Duration::from_secs(20);

fn config() -> Config {
    let job_secret = Secret32::from_bytes([1; 32]);
    let job = JobKeys { job_id: [1; 16], job_secret, policy_hash: [1; 32], suite: Suite::Aes256Gcm };
    Config::new(Identity::generate().expect("a key"), Trust::default().job(job))
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse().expect("a number"));
    let (members, runs) = (words.next().unwrap_or(32), words.next().unwrap_or(300));
    let owners: Vec<_> = (0..members)
        .map(|_| {
            let mut config = config().listen("127.0.0.1:0".parse().expect("an address"));
            config.shm = false;
            let domain = Domain::open(config).expect("a domain");
            let handlers = Handlers::new()
                .inline(0, |call| call.answer(&call.payload[..8]))
                // As a handler that computes for a millisecond, on another machine.
                .threaded(1, |request| {
                    std::thread::sleep(Duration::from_millis(1));
                    let number = request.payload[..8].to_vec();
                    request.answer(&number);
                })
                .forwards([]);
            let endpoint = domain.endpoint(Attributes::default(), handlers).expect("an endpoint");
            (domain, endpoint)
        })
        .collect();
    let root = Domain::open(config()).expect("a domain");
    let startpoints = || owners.iter().map(|(_, endpoint)| endpoint.startpoint([]).expect("a startpoint"));
    let (flat, tree) = (root.group(startpoints()).flat(), root.group(startpoints()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{members} members over TCP in one process of {threads} processors, sealed, medians of {runs} calls, us");
    println!("{:>8} {:>10} {:>10} {:>14} {:>14}", "bytes", "call flat", "by tree", "reduce flat", "by tree");
    for (handler, len) in [(0, 8), (1, 8), (0, 4096), (0, 65_536), (0, 1 << 20)] {
        let payload = vec![1; len];
        let call = |group: &Group| {
            let answers = group.call(handler, &payload, PATIENCE);
            assert!(answers.iter().all(Result::is_ok));
        };
        let reduce = |group: &Group| {
            group.reduce(handler, &payload, &Operation::SUM_I64, PATIENCE).expect("a sum");
        };
        let mut times: [Vec<Duration>; 4] = Default::default();
        let runs = if len > 100_000 { runs / 10 } else { runs };
        for run in 0..runs + 5 {
            for (times, work) in times
                .iter_mut()
                .zip([&|| call(&flat), &|| call(&tree), &|| reduce(&flat), &|| reduce(&tree) as _] as [&dyn Fn(); 4])
            {
                let began = Instant::now();
                work();
                // The first ones connect.
                if run >= 5 {
                    times.push(began.elapsed());
                }
            }
        }
        let [a, b, c, d] = times.map(median);
        let what = if handler == 1 { format!("{len}, 1 ms") } else { len.to_string() };
        println!("{what:>8} {a:>10.0} {b:>10.0} {c:>14.0} {d:>14.0}");
    }
}
