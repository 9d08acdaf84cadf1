//! A fabric against what is known without it.

use super::*;
use crate::statistics::Distribution;
use crate::time::{MS, NS, US};
use crate::topology::TopologyConfig;
use crate::traffic::{Arrivals, Pattern, Plan, SourceConfig, Synthetic, Window};

/// Sends what it is told at the beginning and notes what arrives.
#[derive(Default)]
struct Once {
    latencies: Vec<(u32, Time)>,
    hops: u32,
}

impl Traffic for Once {
    fn wake(&mut self, _: Time, _: u32, _: &mut Fabric) {}

    fn arrived(&mut self, now: Time, packet: &Packet, _: &mut Fabric) {
        self.latencies.push((packet.token, now - packet.created));
        self.hops = packet.hops;
    }

    fn left(&mut self, _: Time, _: u32, _: &mut Fabric) {}

    fn is_running(&self, _: &Packet) -> bool {
        true
    }

    fn is_valid(&self, _: &Packet) -> bool {
        true
    }
}

const DRAGONFLY: &str = "kind = 'dragonfly'\nrouters = 4\nhosts = 2\nglobals = 2";
const IRREGULAR: &str = concat!("kind = 'file'\npath = '", env!("CARGO_MANIFEST_DIR"), "/tests/data/irregular.txt'");

fn fabric(topology: &str, config: &FabricConfig, routing: Routing) -> Fabric {
    let topology: TopologyConfig = toml::from_str(topology).unwrap();
    let topology = Topology::new(&topology).unwrap();
    Fabric::new(topology, config, routing, &SecurityConfig::default(), &FilterConfig::default(), 1024).unwrap()
}

#[test]
fn latency_in_an_empty_network_is_the_closed_form_to_the_picosecond() {
    let cut_through = FabricConfig { rate: Rate::parse("1x-sdr").unwrap(), wire_ns: 12.0, ..FabricConfig::default() };
    let stored = FabricConfig { store_and_forward: true, ..cut_through.clone() };
    assert_eq!(stored.zero_load(250, 3) - cut_through.zero_load(250, 3), 3000 * NS);
    for (topology, to, switches) in [
        ("kind = 'mesh'\ndims = [4, 4]", 15, 7),
        ("kind = 'torus'\ndims = [4, 4]", 15, 3),
        ("kind = 'hypercube'\ndimension = 4", 15, 5),
        ("kind = 'fat-tree'\narity = 4\nlevels = 3", 63, 5),
        ("kind = 'fat-tree'\narity = 4\nlevels = 3", 1, 1),
        (DRAGONFLY, 1, 1),
    ] {
        for (bytes, config) in [(64, &cut_through), (1000, &cut_through), (64, &stored), (1000, &stored)] {
            let mut fabric = fabric(topology, config, Routing::Deterministic);
            let mut once = Once::default();
            fabric.send(0, &Send { from: 0, to, bytes, ..Send::default() });
            fabric.run(&mut once, MS).unwrap();
            assert_eq!(once.latencies, [(0, config.zero_load(bytes.into(), switches))], "{topology}");
        }
    }
}

#[test]
fn a_long_way_has_all_its_links() {
    let mut fabric = fabric("kind = 'mesh'\ndims = [300, 1]", &FabricConfig::default(), Routing::Deterministic);
    let mut once = Once::default();
    fabric.send(0, &Send { from: 0, to: 299, bytes: 64, ..Send::default() });
    fabric.run(&mut once, MS).unwrap();
    assert_eq!(once.hops, 301);
}

/// A packet leaves no gap on a link: before a faster one it is held back by what the slower one still has of it.
#[test]
fn links_of_different_rates_have_their_own_closed_form() {
    let [slow, fast] = ["4x-sdr", "12x-sdr"].map(|name| Rate::parse(name).unwrap());
    let latency = |config: &FabricConfig, bytes: u16| {
        let mut fabric = fabric("kind = 'fat-tree'\narity = 2\nlevels = 2", config, Routing::Deterministic);
        let mut once = Once::default();
        fabric.send(0, &Send { from: 0, to: 3, bytes, ..Send::default() });
        fabric.run(&mut once, MS).unwrap();
        once.latencies[0].1
    };
    for bytes in [64, 1000] {
        let [long, short] = [slow, fast].map(|rate| rate.serialisation(bytes.into()));
        for (hosts, trunks, cut_through) in
            [(slow, fast, 2 * long - short), (fast, slow, long), (fast, fast, short), (slow, slow, long)]
        {
            let config = FabricConfig { host_rate: Some(hosts), level_rates: vec![trunks], ..FabricConfig::default() };
            let empty = config.zero_load(0, 3);
            assert_eq!(latency(&config, bytes) - empty, cut_through, "{hosts:?} before {trunks:?}");
            let links = 2 * (hosts.serialisation(bytes.into()) + trunks.serialisation(bytes.into()));
            let stored = FabricConfig { store_and_forward: true, ..config };
            assert_eq!(latency(&stored, bytes) - empty, links, "{hosts:?} before {trunks:?}, stored");
        }
    }
}

#[test]
fn security_units_and_their_key_misses_are_in_the_latency() {
    let security = SecurityConfig::iba_paper();
    let topology: TopologyConfig = toml::from_str("kind = 'mesh'\ndims = [2, 1]").unwrap();
    let config = FabricConfig::default();
    let network = || Topology::new(&topology).unwrap();
    let mut sealed =
        Fabric::new(network(), &config, Routing::Deterministic, &security, &FilterConfig::default(), 256).unwrap();
    let mut once = Once::default();
    sealed.send(0, &Send { from: 0, to: 1, bytes: 256, ..Send::default() });
    sealed.run(&mut once, MS).unwrap();
    assert_eq!(once.latencies[0].1, config.zero_load(256, 2) + 320 * NS);
}

/// Poisson packets of one length to one sink: the wait at its link is that of M/D/1.
#[test]
fn the_wait_for_a_link_is_that_of_a_queue_with_regular_service() {
    let config = FabricConfig { buffer_bytes: 1 << 20, ..FabricConfig::default() };
    let mut fabric = fabric("kind = 'mesh'\ndims = [2, 1]", &config, Routing::Deterministic);
    let load = 0.7;
    let source = SourceConfig { load, bytes: 256, nodes: Some(1), ..SourceConfig::default() };
    let window = Window { from: MS, until: 60 * MS };
    let mut synthetic = synthetic(&mut fabric, &[source], window);
    fabric.run(&mut synthetic, window.until).unwrap();
    let latency = synthetic.flows()[0].latency.summary();
    let service = time::to_ns(config.serialisation(256));
    let expected = time::to_ns(config.zero_load(256, 2)) + service * load / (2.0 * (1.0 - load));
    assert!(latency.count > 1_000_000);
    assert!((latency.mean_ns / expected - 1.0).abs() < 0.01, "{} ns, theory {expected} ns", latency.mean_ns);
    let busy = fabric.busy(0).max(fabric.busy(1)) as f64 / fabric.now() as f64;
    assert!((busy / load - 1.0).abs() < 0.01, "utilisation {busy}");
}

fn synthetic(fabric: &mut Fabric, sources: &[SourceConfig], window: Window) -> Synthetic {
    let filter = FilterConfig::default();
    let plan = Plan {
        sources,
        level: KeyLevel::None,
        filter: &filter,
        partitions: 1,
        window,
        interval: None,
        attack: None,
        seed: 1,
    };
    Synthetic::new(&plan, fabric).unwrap()
}

/// Far more than it can carry, through buffers of one packet: everything still arrives once the sources end.
#[test]
fn nothing_is_lost_and_nothing_sticks_under_overload() {
    let tight = FabricConfig { buffer_bytes: 1024, classes: 2, weights: vec![3, 1], ..FabricConfig::default() };
    for routing in [Routing::Deterministic, Routing::Adaptive] {
        for queueing in [Queueing::Voq, Queueing::Fifo] {
            for topology in [
                "kind = 'mesh'\ndims = [5, 4]",
                "kind = 'torus'\ndims = [5, 4]",
                "kind = 'torus'\ndims = [3, 2, 4]",
                "kind = 'hypercube'\ndimension = 5",
                "kind = 'fat-tree'\narity = 3\nlevels = 3",
                DRAGONFLY,
                IRREGULAR,
            ] {
                // Of different rates as well, with what that holds back.
                let host_rate = (queueing == Queueing::Fifo).then_some(Rate::Gbps(250.0));
                let mut fabric = fabric(topology, &FabricConfig { queueing, host_rate, ..tight.clone() }, routing);
                let source = |class, bytes, pattern| SourceConfig {
                    load: 0.7,
                    class,
                    bytes,
                    pattern,
                    until_us: Some(10.0),
                    arrivals: Arrivals::Poisson,
                    ..SourceConfig::default()
                };
                let sources = [
                    source(0, 1024, Pattern::Uniform),
                    source(1, 200, Pattern::Complement),
                    source(1, 64, Pattern::Hotspot { node: 3, share: 0.3 }),
                ];
                let window = Window { from: 0, until: Time::MAX };
                let mut synthetic = synthetic(&mut fabric, &sources, window);
                fabric.run(&mut synthetic, Time::MAX - 1).unwrap_or_else(|error| panic!("{topology}: {error}"));
                let counts = fabric.counts();
                assert!(counts.sent > 5000 && counts.sent == counts.arrived, "{topology}, {routing:?}: {counts:?}");
                assert!(fabric.packets.len() == 0);
                let (ports, lanes) = (fabric.ports.len(), fabric.lanes_a_port);
                for (index, number) in (0..ports).flat_map(|index| (0..lanes).map(move |number| (index, number))) {
                    let back = fabric.returning[index].all().filter(|&(_, lane, _)| usize::from(lane) == number);
                    let back: u32 = back.map(|(.., bytes)| u32::from(bytes)).sum();
                    let lane = fabric.lane(index, number);
                    assert_eq!((lane.credit + back, lane.queued), (1024, 0), "credit is neither lost nor made");
                }
            }
        }
    }
}

#[test]
fn priority_goes_before_and_weights_share() {
    let run = |config: &FabricConfig| {
        let mut fabric = fabric("kind = 'mesh'\ndims = [3, 1]", config, Routing::Deterministic);
        let source = |class| SourceConfig {
            class,
            load: 0.9,
            bytes: 512,
            pattern: Pattern::Hotspot { node: 2, share: 1.0 },
            ..SourceConfig::default()
        };
        let window = Window { from: 100 * US, until: MS };
        let mut synthetic = synthetic(&mut fabric, &[source(0), source(1)], window);
        fabric.run(&mut synthetic, window.until).unwrap();
        let bytes: Vec<f64> = synthetic.flows().iter().map(|flow| flow.bytes as f64).collect();
        bytes[0] / bytes[1]
    };
    let two = FabricConfig { classes: 2, ..FabricConfig::default() };
    let equal = run(&two);
    assert!((equal - 1.0).abs() < 0.1, "{equal}");
    let weighted = run(&FabricConfig { weights: vec![1, 3], ..two.clone() });
    assert!((weighted * 3.0 - 1.0).abs() < 0.15, "{weighted}");
    let first = run(&FabricConfig { priority: true, ..two });
    assert!(first > 8.0, "{first}");
}

#[test]
fn a_queue_for_each_output_carries_more_than_one_queue() {
    let carried = |queueing| {
        let config = FabricConfig { queueing, buffer_bytes: 4096, ..FabricConfig::default() };
        let mut fabric = fabric("kind = 'mesh'\ndims = [4, 4]", &config, Routing::Deterministic);
        let window = Window { from: 100 * US, until: MS };
        let source = SourceConfig { load: 1.0, ..SourceConfig::default() };
        let mut synthetic = synthetic(&mut fabric, &[source], window);
        fabric.run(&mut synthetic, window.until).unwrap();
        synthetic.flows()[0].bytes
    };
    assert!(carried(Queueing::Voq) as f64 > 1.1 * carried(Queueing::Fifo) as f64);
}

#[test]
fn equal_seeds_give_equal_results() {
    let run = |topology, seed| {
        let mut fabric = fabric(topology, &FabricConfig::default(), Routing::Adaptive);
        fabric.draw_ways(seed);
        let window = Window { from: 0, until: 200 * US };
        let mut synthetic = synthetic(&mut fabric, &[SourceConfig::default()], window);
        fabric.run(&mut synthetic, window.until).unwrap();
        let latency: &Distribution = &synthetic.flows()[0].latency;
        (fabric.events(), fabric.counts(), latency.summary())
    };
    for topology in ["kind = 'torus'\ndims = [4, 4]", DRAGONFLY, IRREGULAR] {
        assert_eq!(run(topology, 1), run(topology, 1), "{topology}");
    }
    assert_ne!(run(DRAGONFLY, 1), run(DRAGONFLY, 2), "other ways are drawn");
}

/// What a network carries of a load, as a share of it, and the mean latency in ns.
fn carried(topology: &str, routing: Routing, load: f64, pattern: Pattern) -> (f64, f64) {
    let mut fabric = fabric(topology, &FabricConfig::default(), routing);
    let window = Window { from: 50 * US, until: 200 * US };
    let source = SourceConfig { load, pattern, ..SourceConfig::default() };
    let mut synthetic = synthetic(&mut fabric, &[source], window);
    fabric.run(&mut synthetic, window.until).unwrap();
    let flow = &synthetic.flows()[0];
    let link = fabric.host_gbps() / 8.0 * (window.until - window.from) as f64 / NS as f64;
    (flow.bytes as f64 / link / f64::from(fabric.topology().nodes) / load, flow.latency.summary().mean_ns)
}

/// All nodes of a group send to those of one other, all but the middle group's: one link in place of eight of the nodes'.
#[test]
fn ways_by_other_groups_carry_what_the_link_between_two_cannot() {
    let [fixed, adaptive] = [Routing::Deterministic, Routing::Adaptive]
        .map(|routing| carried(DRAGONFLY, routing, 0.3, Pattern::Complement));
    assert!(fixed.0 < 0.55 && adaptive.0 > 0.95, "{fixed:?}, {adaptive:?}");
    assert!(adaptive.1 * 20.0 < fixed.1, "{fixed:?}, {adaptive:?}");
    let [fixed, adaptive] =
        [Routing::Deterministic, Routing::Adaptive].map(|routing| carried(DRAGONFLY, routing, 0.5, Pattern::Uniform));
    assert!(adaptive.0 > 0.98 && adaptive.1 < 1.1 * fixed.1, "few go there needlessly: {fixed:?}, {adaptive:?}");
}

/// Ways up, then down crowd at the top; those that lead closer need not go there.
#[test]
fn adaptive_ways_of_a_network_from_a_file_carry_more() {
    let [fixed, adaptive] =
        [Routing::Deterministic, Routing::Adaptive].map(|routing| carried(IRREGULAR, routing, 0.5, Pattern::Uniform));
    assert!(fixed.0 < 0.6 && adaptive.0 > 0.95, "{fixed:?}, {adaptive:?}");
    assert!(adaptive.1 * 20.0 < fixed.1, "{fixed:?}, {adaptive:?}");
}

#[test]
fn what_does_not_fit_together_is_refused_with_the_remedy() {
    let topology = || Topology::new(&toml::from_str("kind = 'torus'\ndims = [4, 4]").unwrap()).unwrap();
    let check = |config: FabricConfig, routing, word: &str| {
        let made =
            Fabric::new(topology(), &config, routing, &SecurityConfig::default(), &FilterConfig::default(), 2048);
        let error = made.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(word), "{error}");
    };
    let config = FabricConfig::default;
    check(FabricConfig { buffer_bytes: 2000, ..config() }, Routing::Deterministic, "buffer_bytes");
    check(FabricConfig { classes: 0, ..config() }, Routing::Deterministic, "at least one class");
    check(FabricConfig { classes: 8, ..config() }, Routing::Deterministic, "data lanes");
    check(FabricConfig { adaptive_lanes: 0, ..config() }, Routing::Adaptive, "adaptive_lanes");
    check(FabricConfig { weights: vec![1, 2], ..config() }, Routing::Deterministic, "weights");
    check(FabricConfig { rate: Rate::Gbps(0.0), ..config() }, Routing::Deterministic, "rate");
    check(FabricConfig { host_rate: Some(Rate::Gbps(-1.0)), ..config() }, Routing::Deterministic, "rate of -1 Gb/s");
    check(FabricConfig { level_rates: vec![config().rate], ..config() }, Routing::Deterministic, "has 0 levels");
}
