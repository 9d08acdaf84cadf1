//! Fig. 5 of the SKC paper: one application, a process on each node.

use super::figure::{Figure, Panel, Scale, Series, Shape};
use super::key_cache::{Keys, percent, preset};
use super::request_reply::RequestReply;
use super::traces::{BENCHMARKS, Met, Trace, figures, met};
use super::{Finding, Outcome, Setting, Table, mean, us};
use crate::error::Error;
use crate::experiment::{Experiment, ReplayConfig};
use crate::fabric::{FabricConfig, Queueing, Rate};
use crate::routing::Routing;
use crate::topology::TopologyConfig;

const ALL: [Keys; 8] = [
    Keys::Plain,
    Keys::Uncached,
    Keys::Cached(1, 0),
    Keys::Cached(2, 0),
    Keys::Cached(4, 0),
    Keys::Cached(6, 0),
    Keys::Cached(8, 0),
    Keys::Cached(10, 0),
];
/// Those that ratios are made of.
const THREE: [Keys; 3] = [Keys::Plain, Keys::Uncached, Keys::Cached(6, 0)];

pub(super) fn alone(setting: &Setting<'_>) -> Result<Outcome, Error> {
    let claims = [
        ("Fig. 5a", "latency by cache"),
        ("Fig. 5b", "hit rates"),
        ("Fig. 5c", "completion"),
        ("Fig. 5d", "by packet length"),
    ];
    figures(setting, &BENCHMARKS, &claims, |traces, whole| {
        let values = each(setting, traces, &ALL, |_| {})?;
        let mut outcome = by_cache(&values);
        outcome.add(by_length(setting, &traces[..1])?);
        // What stands in for SPECjbb2000 is no trace.
        let mut stood = vec![None; ALL.len()];
        if !whole {
            let (values, finding, table) = stand_in(setting)?;
            stood = values.into_iter().map(Some).collect();
            outcome.findings.push(finding);
            outcome.tables.extend([table, sensitivity(setting, traces)?]);
        }
        outcome.figures.splice(0..0, by_cache_figures(&values, &stood));
        Ok(outcome)
    })
}

/// Every trace with every adapter, under the preset with other values.
fn each(
    setting: &Setting<'_>,
    traces: &[Trace],
    adapters: &[Keys],
    change: impl Fn(&mut Experiment) + Sync,
) -> Result<Vec<Met>, Error> {
    let runs: Vec<(&Trace, Keys)> =
        traces.iter().flat_map(|trace| adapters.iter().map(move |&keys| (trace, keys))).collect();
    setting.each(&runs, |&(trace, keys)| {
        let mut experiment = Experiment { security: keys.config(), ..preset() };
        change(&mut experiment);
        met(setting, &experiment, std::slice::from_ref(trace))
    })
}

/// Claims on Fig. 5a, 5b and 5c.
fn by_cache(values: &[Met]) -> Outcome {
    let names = BENCHMARKS.map(str::to_uppercase);
    let of = |benchmark: usize| &values[benchmark * ALL.len()..][..ALL.len()];
    let latency = |keys: Keys| {
        let at = ALL.iter().position(|&other| other == keys).unwrap_or(0);
        mean(values.chunks(ALL.len()).map(|values| values[at].latency))
    };
    let (plain, uncached, six) = (latency(Keys::Plain), latency(Keys::Uncached), latency(Keys::Cached(6, 0)));
    let hits = |benchmark: usize| of(benchmark)[2..].iter().filter_map(|met| met.hits).collect::<Vec<f64>>();
    let by_size = |benchmark: usize| {
        let rates = hits(benchmark).into_iter().map(|rate| format!("{:.0}", 100.0 * rate));
        format!("{} {}", names[benchmark], rates.collect::<Vec<_>>().join(", "))
    };
    let always = |benchmark: usize| hits(benchmark).iter().all(|&rate| rate > 0.95);
    let others_less = [1, 3, 4, 5].iter().any(|&benchmark| hits(benchmark).iter().any(|&rate| rate < 0.9));
    let slower = |benchmark: usize| of(benchmark)[1].ended / of(benchmark)[0].ended - 1.0;
    let (others, ft) = ((0..5).map(slower).fold(0.0, f64::max), slower(5));
    let findings = vec![
        Finding::new(
            "Fig. 5a",
            "NoSKC has 160 % more latency than NoSecurity",
            format!("{:.0} % more: {} to {}", 100.0 * (uncached / plain - 1.0), us(plain), us(uncached)),
            (uncached / plain / 2.6 - 1.0).abs() < 0.25,
            "what NoSKC adds is given: two accesses of 2.5 us and 222 ns of GCM. The share is that of the network's \
             latency, which the paper does not state: 3.26 us would give 160 %; the last table has other networks",
        ),
        Finding::new(
            "Fig. 5a",
            "SKC-6 has half the latency of NoSKC (0.45 to 0.55) and 29 % more than NoSecurity",
            format!("{:.2} of NoSKC, {:.0} % more than NoSecurity", six / uncached, 100.0 * (six / plain - 1.0)),
            (0.45..0.55).contains(&(six / uncached)),
            "the average is over the six benchmarks, each counted once; FT makes most of what SKC-6 adds",
        ),
        Finding::new(
            "Fig. 5b",
            "CG and LU hit nearly always whatever the size, others less with small caches",
            format!("% of hits with 1, 2, 4, 6, 8, 10 keys: {}; {}", by_size(0), by_size(2)),
            always(0) && always(2) && others_less,
            "so from 4 keys on. A process of CG or LU speaks to 3 or 4 others in turn, and with fewer keys each comes \
             back after it has gone; the text names no size but 6, and the smallest of the figure may be larger than ours",
        ),
        Finding::new(
            "Fig. 5c",
            "completion differs little, but for FT and SPECjbb2000",
            format!("NoSKC takes {:.1} % longer at the most, FT {:.1} %", 100.0 * others, 100.0 * ft),
            others < 0.1 && ft > others,
            "CG and LU feel it: today's processors compute far less between two messages than those of the paper, where \
             BT.A took a hundred times as long; with computation stretched as much, in the last table, nothing differs. FT \
             does not feel it: with one packet a message its exchanges are a few packets",
        ),
    ];
    Outcome { findings, ..Outcome::default() }
}

/// From every benchmark's values, by adapter.
fn by_cache_figures(values: &[Met], stood: &[Option<Met>]) -> Vec<Figure> {
    let names = BENCHMARKS.map(str::to_uppercase);
    let with =
        |more: &[&str]| names.iter().cloned().chain(more.iter().map(|&name| name.into())).collect::<Vec<String>>();
    let at = |keys: Keys| ALL.iter().position(|&other| other == keys).expect("all adapters are there");
    let column = |keys: Keys| values.chunks(ALL.len()).map(move |row| (row[0], row[at(keys)]));
    let beside = |keys: Keys| Some((stood[0]?, stood[at(keys)]?));
    let series = |adapters: &[Keys], of: &dyn Fn(Keys) -> Vec<Option<f64>>| -> Vec<Series> {
        adapters.iter().map(|&keys| Series::new(keys.name(), of(keys))).collect()
    };
    // The mean is that of the benchmarks, and the paper's are times what we have without security.
    let plain = mean(column(Keys::Plain).map(|(_, met)| met.latency)) / 1e3;
    let latencies = series(&ALL, &|keys| {
        let latencies = column(keys).map(|(_, met)| met.latency / 1e3);
        latencies.clone().chain([mean(latencies)]).map(Some).collect()
    });
    let latencies = latencies.into_iter().zip(ALL).map(|(series, keys)| match keys {
        Keys::Uncached => series.said([(BENCHMARKS.len(), 2.6 * plain)]),
        Keys::Cached(6, _) => series.said([(BENCHMARKS.len(), 1.29 * plain)]),
        _ => series,
    });
    let hits = series(&ALL[2..], &|keys| column(keys).map(|(_, met)| met.hits.map(|share| 100.0 * share)).collect());
    let hits = hits.into_iter().map(|series| series.said([(0, 100.0), (2, 100.0)]));
    let ended = series(&ALL, &|keys| {
        column(keys).map(Some).chain([beside(keys)]).map(|both| both.map(|(_, met)| met.ended / 1e3)).collect()
    });
    let longer = series(&ALL[1..], &|keys| {
        let longer = |(plain, met): (Met, Met)| 100.0 * (met.ended / plain.ended - 1.0);
        column(keys).map(Some).chain([beside(keys)]).map(|both| both.map(longer)).collect()
    });
    vec![
        Figure::new(
            "skc-fig-5a",
            "Fig. 5a: latency of a packet, one job with a process on each node",
            Shape::Bars,
            ("benchmark", with(&["mean"])),
            vec![Panel::new("mean latency, µs", Scale::Linear, latencies.collect())],
        )
        .beside("paper (2.6 and 1.29 times NoSecurity's here)"),
        Figure::new(
            "skc-fig-5b",
            "Fig. 5b: keys that are in the cache",
            Shape::Bars,
            ("benchmark", names.to_vec()),
            vec![Panel::new("share of hits, %", Scale::Percent, hits.collect())],
        )
        .beside("paper (\"almost 100 %\")"),
        Figure::new(
            "skc-fig-5c",
            "Fig. 5c: completion (stand-in: request-reply, in place of SPECjbb2000, and no trace)",
            Shape::Bars,
            ("benchmark", with(&["stand-in"])),
            vec![
                Panel::new("completion, ms", Scale::Logarithmic, ended),
                Panel::new("longer than NoSecurity, %", Scale::Linear, longer),
            ],
        ),
    ]
}

/// Requests and replies in the place of SPECjbb2000: with the usual think time and every adapter, and what they show.
fn stand_in(setting: &Setting<'_>) -> Result<(Vec<Met>, Finding, Table), Error> {
    const THINK: [f64; 4] = [0.0, 5.0, 50.0, 500.0];
    let usual = THINK.iter().position(|&us| us == RequestReply::default().think_us).expect("it is one of them");
    let loads = THINK.map(|think_us| RequestReply { think_us, ..RequestReply::default() });
    let traces = loads.map(|load| Trace::made(load.job(), format!("{load:?}")));
    let values = each(setting, &traces, &THREE, |_| {})?;
    let head =
        ["mean think time", "latency NoSecurity", "NoSKC", "SKC-6", "hits", "completion NoSecurity", "NoSKC", "SKC-6"];
    let mut table = Table::new("Fig. 5c: request-reply, which stands in for SPECjbb2000", &head);
    for (think, row) in THINK.iter().zip(values.chunks(3)) {
        let latencies = row.iter().map(|met| us(met.latency));
        let ends = row.iter().map(|met| us(met.ended * 1e3));
        let cells = latencies.chain([percent(row[2].hits)]).chain(ends);
        table.row(std::iter::once(us(think * 1e3)).chain(cells));
    }
    let slower = |row: &[Met], at: usize| 100.0 * (row[at].ended / row[0].ended - 1.0);
    let (short, long) = (&values[..3], &values[9..12]);
    let finding = Finding::missing("Fig. 5c", "SPECjbb2000's completion is sensitive to latency", JBB).with(format!(
        "its stand-in: without a cache {:.0} % longer at no think time and {:.1} % at 500 us, with 6 keys {:.0} and {:.1} %",
        slower(short, 1),
        slower(long, 1),
        slower(short, 2),
        slower(long, 2)
    ));
    Ok((each(setting, &traces[usual..=usual], &ALL, |_| {})?, finding, table))
}

/// Why the paper's SPECjbb2000 is missing.
pub(super) const JBB: &str = "its traffic was recorded in a full-system simulator by the authors and is not to be had. In \
     its place stands request-reply: 16 processes ask one another, drawn at random, and wait for the answer; 500 rounds, \
     5 us for an answer, exponential think times; all of that is ours";

/// Fig. 5d: CG by packet length.
fn by_length(setting: &Setting<'_>, cg: &[Trace]) -> Result<Outcome, Error> {
    const LENGTHS: [u16; 7] = [32, 64, 128, 256, 512, 1024, 2048];
    let mut lengths = Vec::new();
    for bytes in LENGTHS {
        let values = each(setting, cg, &THREE, |experiment| {
            if let Some(replay) = &mut experiment.replay {
                replay.packets.packet_bytes = bytes;
            }
        })?;
        lengths.extend(values);
    }
    let overhead =
        |row: usize, column: usize| 100.0 * (lengths[3 * row + column].latency / lengths[3 * row].latency - 1.0);
    let series = |adapters: std::ops::Range<usize>, of: &dyn Fn(usize, usize) -> f64| -> Vec<Series> {
        let values = |adapter| (0..LENGTHS.len()).map(move |row| of(row, adapter));
        adapters.map(|adapter| Series::new(THREE[adapter].name(), values(adapter))).collect()
    };
    let mut overheads = series(1..3, &overhead);
    overheads[0] = overheads[0].clone().said([(0, 180.0), (LENGTHS.len() - 1, 28.0)]);
    let figure = Figure::new(
        "skc-fig-5d",
        "Fig. 5d: CG by the length of packets",
        Shape::Lines,
        ("bytes of a packet", LENGTHS),
        vec![
            Panel::new(
                "mean latency, µs",
                Scale::Logarithmic,
                series(0..3, &|row, at| lengths[3 * row + at].latency / 1e3),
            ),
            Panel::new("more than NoSecurity, %", Scale::Logarithmic, overheads),
            Panel::new("completion, ms", Scale::Linear, series(0..3, &|row, at| lengths[3 * row + at].ended / 1e3)),
        ],
    )
    .beside("paper");
    let findings = vec![
        Finding::new(
            "Fig. 5d",
            "CG without a cache: 180 % more with packets of 32 B, 28 % more with 2048 B",
            format!("{:.0} % and {:.0} %", overhead(0, 1), overhead(6, 1)),
            (overhead(0, 1) / 180.0 - 1.0).abs() < 0.25 && (overhead(6, 1) / 28.0 - 1.0).abs() < 0.25,
            "falling alike; the two values imply latencies of 2.84 and 21.6 us without security, 2.5 us + 9.3 ns a byte: \
             about 3 times the link's 3.2 ns a byte, as from storing and forwarding, and 2.5 us at any length which this \
             network does not have",
        ),
        Finding::new(
            "Fig. 5d",
            "with the cache, latency is close to that without security",
            format!("SKC-6 adds {:.0} % at 32 B, {:.0} % at 2048 B", overhead(0, 2), overhead(6, 2)),
            overhead(6, 2) < 0.5 * overhead(6, 1) && overhead(0, 2) < 0.5 * overhead(0, 1),
            "",
        ),
    ];
    Ok(Outcome { findings, figures: vec![figure], ..Outcome::default() })
}

/// What other values of what the paper leaves open would make of Fig. 5a and 5c.
fn sensitivity(setting: &Setting<'_>, traces: &[Trace]) -> Result<Table, Error> {
    fn fabric(experiment: &mut Experiment) -> &mut FabricConfig {
        &mut experiment.fabric
    }
    fn replay(experiment: &mut Experiment) -> &mut ReplayConfig {
        experiment.replay.as_mut().expect("the preset replays traces")
    }
    type Change = fn(&mut Experiment);
    let variants: [(&str, Change); 17] = [
        ("preset", |_| {}),
        ("4 x 4 torus", |e| e.topology = TopologyConfig::Torus { dims: vec![4, 4], hosts: 1 }),
        ("fat tree, two levels of 4-port switches", |e| e.topology = TopologyConfig::FatTree { arity: 4, levels: 2 }),
        ("adaptive routing", |e| e.routing = Routing::Adaptive),
        ("cut-through", |e| fabric(e).store_and_forward = false),
        ("500 ns in a switch", |e| fabric(e).switch_ns = 500.0),
        ("100 ns of wire", |e| fabric(e).wire_ns = 100.0),
        ("2 Gb/s (1X data rate)", |e| fabric(e).rate = Rate::Gbps(2.0)),
        ("10 Gb/s", |e| fabric(e).rate = Rate::Gbps(10.0)),
        ("1,024 B of buffer, one queue at an input", |e| {
            fabric(e).buffer_bytes = 1024;
            fabric(e).queueing = Queueing::Fifo;
        }),
        ("processes anywhere", |e| replay(e).shuffled = true),
        ("messages cut into packets", |e| replay(e).packets.one_a_message = false),
        ("computation 100 times as long", |e| replay(e).processes.gap_scale = 100.0),
        ("computation 10 times as long", |e| replay(e).processes.gap_scale = 10.0),
        ("memory of 1.25 us (or one access a packet)", |e| e.security.memory.access_ns = 1250.0),
        ("memory of 100 ns", |e| e.security.memory.access_ns = 100.0),
        ("one memory access at a time", |e| e.security.memory.outstanding = 1),
    ];
    let head = [
        "what is other",
        "NoSecurity",
        "NoSKC by NoSecurity",
        "SKC-6 by NoSKC",
        "SKC-6 by NoSecurity",
        "NoSKC's completion, at most",
    ];
    let mut table = Table::new("Fig. 5a and 5c with other values (paper: latencies 2.6, 0.496, 1.29)", &head);
    for (name, change) in variants {
        let values = each(setting, traces, &THREE, change)?;
        let latency = |adapter: usize| mean(values.chunks(3).map(|row| row[adapter].latency));
        let ratio = |a: usize, b: usize| format!("{:.2}", latency(a) / latency(b));
        let slowest = values.chunks(3).map(|row| row[1].ended / row[0].ended - 1.0).fold(0.0, f64::max);
        let slowest = format!("+{:.1} %", 100.0 * slowest);
        table.row([name.into(), us(latency(0)), ratio(1, 0), ratio(2, 1), ratio(2, 0), slowest]);
    }
    Ok(table)
}
