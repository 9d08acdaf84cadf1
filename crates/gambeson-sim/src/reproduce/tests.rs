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
    let page = page(&sections, "the command", None);
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

/// The cells that the paper's choice of keys hangs on.
#[test]
fn keys_decide_what_an_attacker_can_do() {
    let sections = run("iba-attacks", 2).unwrap();
    let table = &sections[0].tables[0];
    let cells = |attack: &str, place: &str| -> Vec<&str> {
        let row = table.rows.iter().find(|row| row[0] == attack && row[1] == place).unwrap();
        row[2..].iter().map(String::as_str).collect()
    };
    let check = |attack: &str, place: &str, [plain, partition, pair]: [&str; 3]| {
        for (level, expected) in [plain, partition, pair].into_iter().enumerate() {
            for (defence, expected) in expected.split(" / ").cycle().take(2).enumerate() {
                let cell = cells(attack, place)[level * 2 + defence];
                assert!(cell.starts_with(expected), "{attack} from {place}, level {level}, defence {defence}: {cell}");
            }
        }
    };
    let (taken, tag) = ("all taken", "0 %: wrong tag");
    for key in ["II: captured P_Key", "II: captured R_Key", "III: P_Key, false sender", "III: R_Key, false sender"] {
        check(key, "same partition", [taken, taken, tag]);
        check(key, "another", [taken, tag, tag]);
    }
    // All who may speak to a datagram's queue pair have its key.
    check("III: Q_Key, false sender", "same partition", [taken, taken, taken]);
    check("III: Q_Key, false sender", "another", [taken, tag, tag]);
    check("I: listen, connections", "same partition", ["100 % read", "100 % read", "0 % read"]);
    check("I: listen, connections", "another", ["100 % read", "0 % read", "0 % read"]);
    check("I: listen, datagrams", "same partition", ["100 % read", "100 % read", "100 % read"]);
    // Who can make a tag gives what it sends again a new number.
    check("replay", "same partition", [taken, taken, "all taken / 0 %: sent before"]);
    check("replay", "another", [taken, "all taken / 0 %: sent before", "all taken / 0 %: sent before"]);
    check("IV: flood, SIF", "another", ["latency x 1.0"; 3]);
    let differ: Vec<&str> =
        sections[0].findings.iter().filter(|f| f.verdict == Verdict::Differs).map(|f| &*f.figure).collect();
    assert_eq!(
        differ,
        ["5.1.2", "6.2", "5.2", "6.1"],
        "datagrams' keys, time stamps of a second, the field in the BTH, alerts"
    );
    let again = &sections[0].tables[1].rows;
    let share = |row: usize, column: usize| again[row][column].trim_end_matches(" %").parse::<f64>().unwrap();
    // By the defence, at once and later: none, stamps of 1 s, of 0.1 ms, a window.
    let taken = [0, 1, 3, 5].map(|row| [1, 2].map(|column| share(row, column)));
    assert_eq!(taken[..3], [[100.0, 100.0], [100.0, 100.0], [100.0, 0.0]], "{again:?}");
    // Those that overtake their originals are no second ones.
    assert!(taken[3][0] < 5.0 && taken[3][0] > 0.0 && taken[3][1] == 0.0, "{again:?}");
    assert!(share(3, 3) == 0.0 && share(4, 3) > 0.0, "{again:?}");
}
