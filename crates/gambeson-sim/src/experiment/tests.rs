//! Experiments from their text to their outcome, and what is said of those that cannot be.

use super::*;

const SMALL: &str = "topology = { kind = 'mesh', dims = [4, 4] }\n\
                     measure = { warmup_us = 20, for_us = 200 }\n";

#[test]
fn an_experiment_runs_from_its_file_and_says_what_it_was() {
    let text = format!(
        "{SMALL}fabric = {{ rate = '4x-sdr' }}\n[[traffic]]\nload = 0.3\n\
         [security]\nlevel = 'queue-pair'\ncache = {{ entries = 32 }}\n"
    );
    let experiment = Experiment::parse(&text, None).unwrap();
    let outcome = experiment.run().unwrap();
    let flow = &outcome.flows[0];
    assert!(flow.latency.count > 3_000 && (flow.accepted / 0.3 - 1.0).abs() < 0.1, "{flow:?}");
    assert!(outcome.lookups > 2 * flow.latency.count && (3.0..5.0).contains(&flow.hops));
    // What is written down can be run again.
    let again: Experiment = toml::from_str(&toml::to_string(&outcome.experiment).unwrap()).unwrap();
    assert_eq!(again, experiment);
    assert_eq!(again.run().unwrap().flows[0].latency, flow.latency);
}

#[test]
fn whoever_watches_can_stop_a_run_and_changes_nothing_else() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let text = format!("{SMALL}[[traffic]]\nload = 0.6\n");
    let experiment = Experiment::parse(&text, None).unwrap();
    let asked = AtomicU32::new(0);
    let watched = |most| {
        asked.store(0, Ordering::Relaxed);
        experiment.run_watched(&|_| asked.fetch_add(1, Ordering::Relaxed) < most)
    };
    let whole = watched(u32::MAX).unwrap();
    assert!(asked.load(Ordering::Relaxed) > 5);
    assert!(matches!(watched(3), Err(Error::Stopped)));
    // The fabric by itself, without anybody who asks.
    let topology = Topology::new(&experiment.topology).unwrap();
    let Experiment { fabric, routing, security, filter, .. } = &experiment;
    let mut fabric = Fabric::new(topology, fabric, *routing, security, filter, 256).unwrap();
    let window = experiment.measure.window();
    let (sources, level) = (&experiment.traffic[..], security.level);
    let plan =
        Plan { sources, level, filter, partitions: 1, window, interval: None, attack: None, seed: experiment.seed };
    let mut traffic = Synthetic::new(&plan, &mut fabric).unwrap();
    fabric.run(&mut traffic, window.until).unwrap();
    assert_eq!((fabric.events(), fabric.counts().arrived), (whole.events, whole.arrived));
    assert_eq!(traffic.flows()[0].latency.summary(), whole.flows[0].latency);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let error = |text: &str| {
        let parsed = Experiment::parse(text, Some(Path::new("x.toml")));
        parsed.and_then(|experiment| experiment.run().map(drop)).unwrap_err().to_string()
    };
    assert!(error("seed = 1\ntopology = 3\n").starts_with("x.toml:2: "));
    assert!(error(&format!("{SMALL}[[traffic]]\nlod = 1\n")).starts_with("x.toml:4: unknown field `lod`"));
    assert!(error(SMALL).starts_with("x.toml: no traffic"));
    assert!(error(&format!("{SMALL}[[traffic]]\nbytes = 70000\n")).contains("a whole number from 0 to 65535"));
    // What only shows when it is carried out.
    for (text, said) in [
        ("[[traffic]]\nload = 0.2\n[[traffic]]\nload = 1.5\n", "x.toml:6: traffic traffic: a load of 1.5"),
        ("[[traffic]]\nclass = 1\n", "x.toml:4: traffic traffic: class 1 of 1 classes"),
        ("security = { cache = { entries = 0 } }\n[[traffic]]\n", "x.toml:3: the session-key cache has no entry"),
        ("marking_bits = 4\n[[traffic]]\n", "x.toml:3: marks of this topology take 6 bits and the field has 4"),
        ("routing = 'adaptive'\n[fabric]\nrate = 1\nadaptive_lanes = 0\n[[traffic]]\n", "x.toml:6: adaptive"),
        ("partitions = 9\n[[traffic]]\n", "x.toml:3: 9 partitions of 16 nodes"),
        ("[replay]\ncopies = 2\ntraces = []\n", "x.toml:5: replay.traces names no trace"),
        ("[replay]\ncopies = 5000\ntraces = ['x']\n", "x.toml:4: replay.copies is 5000"),
        ("[[traffic]]\nfrom_us = 1e30\n", "x.toml:4: traffic traffic: from_us"),
        ("[[traffic]]\nload = 1e-300\n", "x.toml:4: traffic traffic: a load of"),
        ("[fabric]\nweights = [4_194_305]\n[[traffic]]\n", "x.toml:4: fabric.weights needs a weight from 1 to"),
    ] {
        let sentence = error(&format!("{SMALL}{text}"));
        assert!(sentence.starts_with(said), "{said}: {sentence}");
    }
    assert!(error(&format!("{SMALL}[replay]\ntraces = ['/nowhere']\n")).contains("/nowhere cannot be read"));
}

/// A filter at the port that a spoofed address names blocks the wrong node; marks name the right one.
#[test]
fn marks_find_who_spoofs() {
    for topology in [
        "mesh', dims = [4, 4]",
        "torus', dims = [4, 4]",
        "hypercube', dimension = 4",
        "fat-tree', arity = 4, levels = 2",
    ] {
        let text = |marks: &str| {
            format!(
                "topology = {{ kind = '{topology} }}\nrouting = 'adaptive'\n{marks}\n\
                 measure = {{ warmup_us = 0, for_us = 500 }}\n[filter]\nscheme = 'stateful-ingress'\n\
                 [[traffic]]\nload = 0.2\n\
                 [[traffic]]\nname = 'flood'\nnodes = 2\nload = 1.0\nforged_keys = 2\nspoofed = true\n"
            )
        };
        let run = |marks| Experiment::parse(&text(marks), None).unwrap().run().unwrap();
        let (blind, marked) = (run(""), run("marking_bits = 38"));
        assert!(blind.blamed[0] == 0 && blind.blamed[1] > 2, "{topology}: {:?}", blind.blamed);
        assert!(marked.blamed[0] > 0 && marked.blamed[1] == 0, "{topology}: {:?}", marked.blamed);
        assert!(marked.leaked * 2 < blind.leaked, "{topology}: {} of {}", marked.leaked, blind.leaked);
    }
}

#[test]
fn keys_are_given_other_values() {
    let path = std::env::temp_dir().join(format!("gambeson-sim-{}.toml", std::process::id()));
    std::fs::write(&path, format!("{SMALL}[[traffic]]\nload = 0.3\n")).unwrap();
    let read = |changes: &[&str]| {
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        Experiment::read_with(&path, &changes)
    };
    let changed = read(&["traffic.0.load=0.5", "fabric.rate=4x-ndr", "seed = 9", "security.cache.entries=7"]).unwrap();
    assert_eq!((changed.traffic[0].load, changed.seed), (0.5, 9));
    assert!((changed.fabric.rate.gbps() - 400.0).abs() < 1e-9);
    assert_eq!(changed.security.cache.unwrap().entries, Some(7));
    let error = |changes: &[&str]| read(changes).unwrap_err().to_string();
    assert!(error(&["load"]).contains("KEY=VALUE"));
    assert!(error(&["traffic.3.load=1"]).contains("no 3"));
    assert!(error(&["fabric.rte=1"]).contains("unknown field `rte`"));
    assert!(error(&["fabric.rate=5x-sdr"]).contains("as in 1x-sdr, 4x-ndr"));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn floods_under_forged_keys_meet_the_filter() {
    let text = |scheme: &str| {
        format!(
            "{SMALL}partitions = 4\n[filter]\nscheme = '{scheme}'\n\
             [[traffic]]\npattern = 'partition'\nload = 0.2\n\
             [[traffic]]\nname = 'flood'\nnodes = 1\nload = 1.0\nforged_keys = 3\n"
        )
    };
    let run = |scheme| Experiment::parse(&text(scheme), None).unwrap().run().unwrap();
    let open = run("none");
    assert!(open.leaked > 1000 && open.dropped == 0);
    for scheme in ["duplicate-table", "ingress"] {
        let shut = run(scheme);
        assert!(shut.leaked == 0 && shut.dropped > 1000, "{scheme}: {} leaked", shut.leaked);
    }
    let stateful = run("stateful-ingress");
    assert!(stateful.traps > 0 && stateful.dropped > 1000);
    assert!(stateful.leaked > 0 && stateful.leaked < open.leaked / 2, "{} of {}", stateful.leaked, open.leaked);
}
