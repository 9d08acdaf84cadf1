//! What is cheap, again and again: the findings that need no trace and no fabric, as they were.

use super::*;

struct Nobody;

impl Progress for Nobody {
    fn planned(&self, _: usize) {}
    fn done(&self) {}
}

fn run(name: &str, threads: usize) -> Result<Vec<Section>, Error> {
    reproduce(name, &Setting { traces: None, full: false, threads, progress: &Nobody })
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
    assert!(!page.contains("session key caching and prefetching"));
}
