//! What a job would want of its machine's adapters: the keys that each looks up, seen in one replay.

use std::sync::Arc;

use crate::error::Error;
use crate::experiment::{Experiment, Outcome, ReplayConfig};
use crate::fabric::Watch;
use crate::security::{CacheConfig, KeyLevel, Placement, PrefetchConfig, SecurityConfig, StackDistances, UnitStats};
use crate::trace::Job;

/// What a replay showed.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Of all adapters, each with a cache of its own.
    pub distances: StackDistances,
    /// Whether messages arrive for processes that are not on their processors, which is what fills a prefetch buffer.
    pub prefetches: bool,
}

/// A machine for a job of so many ranks, where nothing is said about it: the session-key-cache paper's adapters on a mesh
/// as square as can be, a node for each rank.
#[must_use]
pub fn machine(ranks: u32) -> Experiment {
    let rows = f64::from(ranks).sqrt().floor().max(1.0) as u32;
    let text = format!("topology = {{ kind = 'mesh', dims = [{rows}, {}] }}", ranks.div_ceil(rows).max(2));
    let machine = Experiment::parse(&text, None).expect("the rest has defaults");
    Experiment { security: SecurityConfig::skc_paper(), replay: Some(ReplayConfig::default()), ..machine }
}

/// The machine with a fully associative cache of so many entries in each adapter, or none, and perhaps a buffer of so
/// many keys beside it.
#[must_use]
pub fn with_cache(machine: &Experiment, entries: Option<u32>, buffer: Option<u32>) -> Experiment {
    let mut machine = machine.clone();
    let access_ns = machine.security.cache.unwrap_or_default().access_ns;
    let cache = |entries| CacheConfig { access_ns, ..CacheConfig::of_entries(entries) };
    machine.security.cache = entries.map(cache);
    let before = machine.security.prefetch.unwrap_or_default();
    machine.security.prefetch = buffer.map(|entries| PrefetchConfig { entries, ..before });
    machine
}

/// Replays jobs on a machine once and notes which keys each adapter looks up.
///
/// # Errors
/// A machine that looks no keys up, and what [`Experiment::run_jobs_watched`] finds wrong.
pub fn observe(machine: &Experiment, jobs: &[Arc<Job>], watch: Watch<'_>) -> Result<(Observation, Outcome), Error> {
    if machine.security.level != KeyLevel::QueuePair || machine.security.placement == Placement::Host {
        return Err(Error::config(
            "this machine's adapters look up no key for each pair; set security.level to queue-pair and \
             security.placement to adapter or coprocessor",
        ));
    }
    let Some(config) = &machine.replay else { return Err(Error::config("jobs without a [replay] to say how")) };
    let mut fabric = machine.fabric()?;
    fabric.observe_keys();
    let outcome = machine.replay_jobs(config, jobs, &mut fabric, watch)?;
    let stats: UnitStats = fabric.unit_stats();
    Ok((Observation { distances: fabric.stack_distances(), prefetches: stats.prefetched > 0 }, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Scheduler;
    use crate::trace::goal;

    /// Every rank of four sends to every other in turn, a few times.
    fn job() -> Arc<Job> {
        let mut text = String::from("num_ranks 4\n");
        for rank in 0..4 {
            text += &format!("rank {rank} {{\n");
            for round in 0..20 {
                for step in 1..4 {
                    let (to, from) = ((rank + step) % 4, (rank + 4 - step) % 4);
                    let label = round * 3 + step;
                    text += &format!("r{label}: recv 100b from {from}\ns{label}: send 100b to {to}\n");
                    text += &format!("c{label}: calc 20000\nc{label} requires r{label}\n");
                    if label > 1 {
                        text += &format!("s{label} requires c{}\n", label - 1);
                    }
                }
            }
            text += "}\n";
        }
        Arc::new(goal::parse(&text, "all.goal").unwrap())
    }

    #[test]
    fn distances_of_one_replay_are_the_hits_of_replays_with_every_cache() {
        let machine = machine(4);
        let jobs = [job()];
        let (seen, _) = observe(&with_cache(&machine, Some(2), Some(4)), &jobs, &|_| true).unwrap();
        assert!(!seen.prefetches, "each process has its processor for itself");
        assert_eq!(seen.distances.keys(), 3);
        for entries in 1..=4 {
            let outcome = with_cache(&machine, Some(entries), None).run_jobs(&jobs).unwrap();
            assert_eq!(outcome.lookups, seen.distances.lookups());
            let told = seen.distances.hit_rate(entries);
            assert!((outcome.hit_rate - told).abs() < 0.1, "{entries}: {} for {told}", outcome.hit_rate);
        }
    }

    #[test]
    fn processes_that_share_processors_make_a_buffer_useful() {
        let mut machine = machine(4);
        let replay = machine.replay.as_mut().unwrap();
        (replay.processes.scheduler, replay.processes.spin_us) = (Scheduler::SpinBlock, 10.0);
        let (seen, _) = observe(&with_cache(&machine, Some(2), Some(4)), &[job(), job(), job()], &|_| true).unwrap();
        assert!(seen.prefetches && seen.distances.keys() == 9);
    }

    #[test]
    fn a_machine_without_keys_cannot_be_advised() {
        let mut machine = machine(4);
        machine.security = SecurityConfig::default();
        assert!(observe(&machine, &[job()], &|_| true).unwrap_err().to_string().contains("security.level"));
    }
}
