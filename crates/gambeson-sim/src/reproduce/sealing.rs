//! Fig. 7 of the IBA paper: what sealing costs, by the length of packets and the rate of links.

use super::figure::{Figure, Panel, Scale, Series, Shape};
use super::infiniband::{LOAD, latency, preset};
use super::{Finding, Outcome, Setting, Table, mean, us};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::fabric::{Queueing, Rate};
use crate::model::estimates::implied_base_ns;
use crate::routing::Routing;
use crate::security::SecurityConfig;
use crate::topology::TopologyConfig;
use crate::traffic::{Arrivals, Pattern};

/// Fig. 7a and 7b.
pub(super) fn sealing(setting: &Setting<'_>) -> Result<Outcome, Error> {
    const LENGTHS: [u16; 5] = [64, 128, 256, 512, 1024];
    const PRINTED: [f64; 5] = [12.4, 5.5, 2.6, 1.2, 0.7];
    let pair = |change: &dyn Fn(&mut Experiment)| {
        let mut plain = preset();
        change(&mut plain);
        let sealed = Experiment { security: SecurityConfig::iba_paper(), ..plain.clone() };
        [plain, sealed]
    };
    let overheads = |experiments: &[Experiment]| -> Result<Vec<(f64, f64)>, Error> {
        let latencies = latency(setting, experiments, "traffic")?;
        let pairs = latencies.chunks(2).map(|pair| {
            let base = mean(pair[0].iter().copied());
            (base, mean(pair[1].iter().copied()) - base)
        });
        Ok(pairs.collect())
    };
    let by_length = |store_and_forward, load| {
        LENGTHS.map(|bytes| {
            pair(&|experiment| {
                experiment.traffic[0].bytes = bytes;
                experiment.traffic[0].load = load;
                experiment.fabric.store_and_forward = store_and_forward;
            })
        })
    };
    let variants = [(true, LOAD), (true, 0.5), (true, 0.7), (true, 0.9), (false, 0.5), (false, LOAD)];
    let runs: Vec<Experiment> =
        variants.into_iter().flat_map(|(stored, load)| by_length(stored, load)).flatten().collect();
    let values = overheads(&runs)?;
    let (drawn, others) = values.split_at(LENGTHS.len());
    let said = (0..).zip(PRINTED);
    let implied = said.clone().map(|(place, printed)| (place, implied_base_ns(320.0, printed / 100.0) / 1e3));
    let mut figures = vec![
        figure(
            "iba-fig-7a",
            "Fig. 7a: what sealing adds, by the length of packets",
            ("bytes of a packet", LENGTHS.map(f64::from)),
            drawn,
            said,
            implied,
        )
        .beside("paper (latency: what its percentage implies)"),
    ];
    let title = "Fig. 7a with other loads and switches: overhead in % (latency without sealing)";
    let mut table = Table::new(title, &["switches, load", "64 B", "128 B", "256 B", "512 B", "1024 B"]);
    for ((stored, load), values) in variants[1..].iter().zip(others.chunks(LENGTHS.len())) {
        let name = format!("{}, {load}", if *stored { "store and forward" } else { "cut-through" });
        let cells = values.iter().map(|&(base, more)| format!("{:.1} ({})", 100.0 * more / base, us(base)));
        table.row(std::iter::once(name).chain(cells));
    }
    let ours: Vec<f64> = drawn.iter().map(|&(base, more)| 100.0 * more / base).collect();
    let off = ours.iter().zip(PRINTED).map(|(ours, printed)| (ours / printed - 1.0).abs()).fold(0.0, f64::max);
    let text = ours.iter().map(|value| format!("{value:.1}")).collect::<Vec<_>>().join(", ");
    let mut findings = vec![Finding::new(
        "Fig. 7a",
        "overhead of sealing 12.4, 5.5, 2.6, 1.2, 0.7 % with packets of 64, 128, 256, 512, 1024 B",
        format!("{text} %; the farthest is {:.0} % off", 100.0 * off),
        off <= 0.25,
        "the load is unstated: the preset's was chosen by the value at 256 B, the four others follow. (The text calls \
         the falling overhead a falling latency.)",
    )];

    const RATES: [f64; 5] = [2.5, 10.0, 20.0, 30.0, 60.0];
    let runs = RATES.map(|rate| {
        pair(&|experiment| {
            experiment.fabric.rate = Rate::Gbps(rate);
            experiment.traffic[0].load = LOAD * 2.5 / rate;
        })
    });
    let values = overheads(&runs.concat())?;
    figures.push(
        figure(
            "iba-fig-7b",
            "Fig. 7b: what sealing adds to 256 B by the link's rate, as many packets a second at each",
            ("Gb/s of a link", RATES),
            &values,
            [(0, PRINTED[2])],
            [],
        )
        .beside("paper (of Fig. 7a; Fig. 7b's are not in its text)"),
    );
    let shares: Vec<f64> = values.iter().map(|(base, more)| more / base).collect();
    let most = values.iter().map(|&(_, more)| more).fold(0.0, f64::max);
    findings.push(Finding::new(
        "Fig. 7b",
        "overhead in proportion rises with the link's rate up to 60 Gb/s; the added latency stays below 1 us",
        format!(
            "{:.1} % at 2.5 Gb/s to {:.0} % at 60; {:.0} ns at the most",
            shares[0] * 100.0,
            shares[4] * 100.0,
            most
        ),
        shares.windows(2).all(|pair| pair[0] < pair[1]) && most < 1000.0,
        "the bars' values are not in the text",
    ));
    Ok(Outcome { findings, figures, tables: vec![table, sealing_otherwise(setting)?] })
}

/// A figure of overheads and of the latencies behind them, from the latency without sealing and what that adds.
fn figure(
    name: &'static str,
    title: &'static str,
    (x_title, x): (&'static str, impl IntoIterator<Item = f64>),
    values: &[(f64, f64)],
    overheads: impl IntoIterator<Item = (usize, f64)>,
    latencies: impl IntoIterator<Item = (usize, f64)>,
) -> Figure {
    let overhead = Series::new("sealed", values.iter().map(|(base, more)| 100.0 * more / base)).said(overheads);
    let plain = Series::new("not sealed", values.iter().map(|(base, _)| base / 1e3)).said(latencies);
    let sealed = Series::new("sealed", values.iter().map(|(base, more)| (base + more) / 1e3));
    let panels = vec![
        Panel::new("overhead, %", Scale::Linear, vec![overhead]),
        Panel::new("mean latency, µs", Scale::Linear, vec![plain, sealed]),
    ];
    Figure::new(name, title, Shape::Bars, (x_title, x), panels)
}

/// What other values of what the paper leaves open would make of Fig. 7a at 256 B.
fn sealing_otherwise(setting: &Setting<'_>) -> Result<Table, Error> {
    type Change = fn(&mut Experiment);
    let variants: [(&str, Change); 14] = [
        ("preset", |_| {}),
        ("4 x 4 torus", |e| e.topology = TopologyConfig::Torus { dims: vec![4, 4], hosts: 1 }),
        ("fat tree, two levels of 4-port switches", |e| e.topology = TopologyConfig::FatTree { arity: 4, levels: 2 }),
        ("adaptive routing", |e| e.routing = Routing::Adaptive),
        ("cut-through", |e| e.fabric.store_and_forward = false),
        ("no time in a switch", |e| e.fabric.switch_ns = 0.0),
        ("500 ns in a switch", |e| e.fabric.switch_ns = 500.0),
        ("100 ns of wire", |e| e.fabric.wire_ns = 100.0),
        ("2,048 B of buffer", |e| e.fabric.buffer_bytes = 2048),
        ("one queue at an input, load 0.6", |e| {
            e.fabric.queueing = Queueing::Fifo;
            e.traffic[0].load = 0.6;
        }),
        ("load 0.6", |e| e.traffic[0].load = 0.6),
        ("regular arrivals", |e| e.traffic[0].arrivals = Arrivals::Regular),
        ("destinations within partitions", |e| e.traffic[0].pattern = Pattern::Partition),
        ("measured four times as long", |e| e.measure.for_us *= 4.0),
    ];
    let runs: Vec<Experiment> = variants
        .iter()
        .flat_map(|(_, change)| {
            let mut plain = preset();
            change(&mut plain);
            [Experiment { security: SecurityConfig::iba_paper(), ..plain.clone() }, plain]
        })
        .collect();
    let latencies: Vec<f64> = latency(setting, &runs, "traffic")?.into_iter().map(mean).collect();
    let title = "Fig. 7a with other values, 256 B (paper: 2.6 % of 12.3 us)";
    let mut table = Table::new(title, &["what is other", "latency without sealing", "overhead"]);
    for ((name, _), pair) in variants.iter().zip(latencies.chunks(2)) {
        table.row([(*name).into(), us(pair[1]), format!("{:.1} %", 100.0 * (pair[0] / pair[1] - 1.0))]);
    }
    Ok(table)
}
