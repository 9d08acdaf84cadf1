//! What is cheap, again and again: the findings that need no trace and no fabric, as they were.

use std::collections::BTreeMap;

use super::request_reply::RequestReply;
use super::traces::{Trace, met};
use super::*;

struct Nobody;

impl Progress for Nobody {
    fn planned(&self, _: usize) {}
    fn done(&self) {}
}

fn run(name: &str, threads: usize) -> Result<Vec<Section>, Error> {
    reproduce(name, &Setting { traces: None, full: false, held: None, threads, progress: &Nobody })
}

#[test]
fn tables_and_estimates_are_as_they_were() {
    let differ = |name: &str| -> Vec<String> {
        let sections = run(name, 2).unwrap();
        let findings = sections.into_iter().flat_map(|section| section.findings);
        findings.filter(|finding| finding.verdict != Verdict::Agrees).map(|finding| finding.claim).collect()
    };
    assert_eq!(
        differ("iba-tables"),
        [
            "keys of all pairs of 2^10 adapters: 262144",
            "sending them, one in 1,024 B (\"less than 1 second\"): 1 s",
            "random numbers in 10 years, log2: 61",
            "P_collision of that traffic: 0.0078",
            "packets of 1,024 B in a second at 2.5 Gb/s: 262144",
            "diameter of a 20 x 20 mesh: 39 hops",
            "2-dimensional torus side, log2: 18",
            "3-dimensional torus side, log2: 11",
            "bits of a 2^18 x 2^18 mesh: 34",
            "bits of a 2^11 x 2^11 x 2^11 mesh: 30",
            "hops of 24-port switches: 9",
        ]
    );
    let key_cache = differ("skc-tables");
    assert_eq!(key_cache[..2], ["GCM, 256 B at one end: 30 cycles", "overhead that SKC-6 saves of NoSKC's: 50 %"]);
    assert!(key_cache[2].starts_with("measured / simulated seconds: CG 3.72 / 3.85") && key_cache.len() == 3);
}

#[test]
fn results_are_the_same_on_any_number_of_threads() {
    let of = |threads| serde_json::to_string(&run("skc-fig-9", threads).unwrap()).unwrap();
    let one = of(1);
    assert_eq!(one, of(3));
    assert!(one.contains("\"agrees\""), "{one}");
}

#[test]
fn figures_say_which_traces_they_lack_and_which_names_there_are() {
    for name in ["skc-fig-5", "skc-fig-6", "skc-fig-7"] {
        let sections = run(name, 1).unwrap();
        let missing = |finding: &Finding| finding.reason.contains("--traces");
        assert!(!sections[0].findings.is_empty() && sections[0].findings.iter().all(missing), "{name}");
    }
    assert!(run("fig-5", 1).unwrap_err().to_string().contains("one of iba-tables, skc-tables"));
}

#[test]
fn the_page_has_every_claim_and_every_parameter() {
    let sections = run("iba-tables", 1).unwrap();
    let page = page(&sections, "the command");
    assert!(page.contains("`the command`") && page.contains("| diameter of a 20 x 20 mesh: 39 hops | 38 hops |"));
    assert!(parameters(Paper::InfiniBandSecurity).iter().all(|parameter| page.contains(parameter.name)));
    for paper in [Paper::InfiniBandSecurity, Paper::SessionKeyCache] {
        let unswept: Vec<&str> =
            parameters(paper).iter().filter(|one| one.stated != one.swept.is_empty()).map(|one| one.name).collect();
        assert!(unswept.is_empty(), "unstated and without other values, or stated and swept: {unswept:?}");
    }
    assert!(!page.contains("session key caching and prefetching"));
}

#[derive(Default)]
struct Memory(Mutex<BTreeMap<String, String>>);

impl Held for Memory {
    fn find(&self, key: &str) -> Option<String> {
        self.0.lock().unwrap().get(key).cloned()
    }

    fn keep(&self, key: &str, value: &str) -> Result<(), Error> {
        assert!(self.0.lock().unwrap().insert(key.into(), value.into()).is_none(), "{key} was run again");
        Ok(())
    }
}

/// What is made of all that a run is made of is not run a second time; anything else is.
#[test]
fn runs_that_are_held_are_not_carried_out_again() {
    let held = Memory::default();
    let setting = Setting { traces: None, full: false, held: Some(&held), threads: 1, progress: &Nobody };
    let load = |rounds| RequestReply { rounds, think_us: 1.0, ..RequestReply::default() };
    let trace = |rounds| [Trace::made(load(rounds).job(), format!("{rounds} rounds"))];
    let preset = preset(Paper::SessionKeyCache);
    let run = |experiment: &Experiment, rounds| met(&setting, experiment, &trace(rounds)).unwrap();
    let first = run(&preset, 3);
    let again = run(&preset, 3);
    assert_eq!((again.latency, again.hits, again.ended), (first.latency, None, first.ended));
    assert_ne!(run(&preset, 4).ended, first.ended);
    assert_ne!(run(&Experiment { seed: 2, ..preset.clone() }, 3).latency, 0.0);
    assert_eq!(held.0.lock().unwrap().len(), 3);
    // It is what is held that counts, and only of exactly the same run.
    held.0.lock().unwrap().values_mut().for_each(|value| *value = r#"{"latency":1.5,"hits":0.5,"ended":2.5}"#.into());
    assert_eq!((run(&preset, 3).latency, run(&preset, 3).hits), (1.5, Some(0.5)));
}
