//! A sweep's pictures: each measured quantity over the first swept key, with a line for each combination of the others.

use gambeson_sim::experiment::{FlowOutcome, Outcome};

use super::Sweep;
use super::table::{hit_rate, jobs_ended_us};
use crate::chart::{Axis, Chart, Dot, Picture, Series, Shape};

/// Something that every run measured.
struct Quantity {
    name: &'static str,
    title: &'static str,
    unit: Unit,
    /// Whether each flow has its own.
    each_flow: bool,
    of: fn(&Outcome, &FlowOutcome) -> Option<f64>,
}

#[derive(Clone, Copy)]
enum Unit {
    Nanoseconds,
    Share,
    Percent,
    Packets,
}

const QUANTITIES: [Quantity; 7] = [
    Quantity {
        name: "mean-latency",
        title: "Mean latency of packets",
        unit: Unit::Nanoseconds,
        each_flow: true,
        of: |_, flow| (flow.latency.count > 0).then_some(flow.latency.mean_ns),
    },
    Quantity {
        name: "p99-latency",
        title: "Latency that 99 of 100 packets stay below",
        unit: Unit::Nanoseconds,
        each_flow: true,
        of: |_, flow| (flow.latency.count > 0).then_some(flow.latency.p99_ns),
    },
    Quantity {
        name: "accepted",
        title: "Accepted traffic, share of a link's rate at each node",
        unit: Unit::Share,
        each_flow: true,
        of: |outcome, flow| outcome.jobs.is_empty().then_some(flow.accepted),
    },
    Quantity {
        name: "completion",
        title: "Time until the last job ended",
        unit: Unit::Nanoseconds,
        each_flow: false,
        of: |outcome, _| jobs_ended_us(outcome).map(|us| us * 1e3),
    },
    Quantity {
        name: "hit-rate",
        title: "Keys found in cache or buffer",
        unit: Unit::Percent,
        each_flow: false,
        of: |outcome, _| hit_rate(outcome).map(|rate| rate * 100.0),
    },
    Quantity {
        name: "leaked",
        title: "Packets under forged keys that came through",
        unit: Unit::Packets,
        each_flow: false,
        of: |outcome, _| {
            let forged = outcome.experiment.traffic.iter().any(|source| source.forged_keys > 0);
            forged.then_some(outcome.leaked as f64)
        },
    },
    Quantity {
        name: "busiest-link",
        title: "Time that the busiest link was sending",
        unit: Unit::Percent,
        each_flow: false,
        of: |outcome, _| Some(outcome.busiest_link * 100.0),
    },
];

/// The pictures of what was measured in at least one run.
pub(super) fn pictures(sweep: &Sweep, outcomes: &[Outcome]) -> Vec<Picture> {
    QUANTITIES.iter().filter_map(|quantity| picture(quantity, sweep, outcomes)).collect()
}

fn picture(quantity: &Quantity, sweep: &Sweep, outcomes: &[Outcome]) -> Option<Picture> {
    let (x_title, values) = match sweep.over.first() {
        Some(over) => (over.key.clone(), over.values.clone()),
        None => ("seed".into(), vec![sweep.points[0].experiment.seed.to_string()]),
    };
    let (x, places) = Axis::of_values(&values);
    // Every measured value: its line, its place and itself.
    let mut measured: Vec<(String, usize, f64)> = Vec::new();
    let mut labels: Vec<String> = Vec::new();
    let several_flows = outcomes.iter().any(|outcome| outcome.flows.len() > 1);
    for (point, outcome) in sweep.points.iter().zip(outcomes) {
        let place = point.values.first().and_then(|value| values.iter().position(|other| other == value)).unwrap_or(0);
        let others = sweep.over.iter().zip(&point.values).skip(1);
        let others: Vec<String> = others.map(|(over, value)| format!("{} {value}", last_word(&over.key))).collect();
        for flow in outcome.flows.iter().take(if quantity.each_flow { usize::MAX } else { 1 }) {
            let mut parts = others.clone();
            if quantity.each_flow && several_flows {
                parts.insert(0, flow.name.clone());
            }
            let label = parts.join(", ");
            if !labels.contains(&label) {
                labels.push(label.clone());
            }
            if let Some(value) = (quantity.of)(outcome, flow) {
                measured.push((label, place, value));
            }
        }
    }
    let largest = measured.iter().map(|(.., value)| *value).reduce(f64::max)?;
    let (factor, unit) = quantity.unit.shown(largest);
    let line = |(number, label): (usize, &String)| {
        let dot = |(place, &x): (usize, &f64)| {
            let here = measured.iter().filter(|(other, at, _)| other == label && *at == place);
            let here: Vec<f64> = here.map(|(.., value)| value * factor).collect();
            let mean = here.iter().sum::<f64>() / here.len() as f64;
            let least = here.iter().copied().reduce(f64::min)?;
            Some(Dot { x, mean, least, most: here.iter().copied().fold(least, f64::max) })
        };
        let mut dots: Vec<Dot> = places.iter().enumerate().filter_map(dot).collect();
        dots.sort_by(|one, other| one.x.total_cmp(&other.x));
        Series { label: label.clone(), number, dots, said: Vec::new() }
    };
    let lines: Vec<Series> = labels.iter().enumerate().map(line).filter(|line| !line.dots.is_empty()).collect();
    let all: Vec<f64> = lines.iter().flat_map(|line| &line.dots).flat_map(|dot| [dot.least, dot.most]).collect();
    let mut title = if unit.is_empty() { quantity.title.into() } else { format!("{}, {unit}", quantity.title) };
    if sweep.repeat > 1 {
        title += " (mean, least, most)";
    }
    let y = Axis::of_measures(&all, quantity.unit.most());
    let chart = Chart { x_title, x, y_title: String::new(), y, shape: Shape::Lines, series: lines };
    Some(Picture {
        name: quantity.name.into(),
        title,
        columns: Vec::new(),
        rows: vec![vec![chart]],
        said: String::new(),
    })
}

/// `traffic.0.load` is well known as `load`.
fn last_word(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

impl Unit {
    /// The most that there can be.
    fn most(self) -> Option<f64> {
        matches!(self, Self::Percent).then_some(100.0)
    }

    /// What values are multiplied by, and what they are called then.
    fn shown(self, largest: f64) -> (f64, &'static str) {
        match self {
            Self::Nanoseconds if largest < 1e4 => (1.0, "ns"),
            Self::Nanoseconds if largest < 1e7 => (1e-3, "µs"),
            Self::Nanoseconds if largest < 1e10 => (1e-6, "ms"),
            Self::Nanoseconds => (1e-9, "s"),
            Self::Percent => (1.0, "%"),
            Self::Share | Self::Packets => (1.0, ""),
        }
    }
}
