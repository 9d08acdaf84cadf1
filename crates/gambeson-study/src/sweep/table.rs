//! A sweep's results as columns: a row for each run and flow.

use std::fmt::Write;

use gambeson_sim::experiment::{FlowOutcome, Outcome};
use gambeson_sim::traffic::AttackOutcome;

use super::{Over, store};
use crate::{VERSION, number};

/// Columns of equal length.
#[derive(Clone, Debug)]
pub struct Table {
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// How long each is.
    pub rows: usize,
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name, with the unit last.
    pub name: String,
    /// What is in it.
    pub values: Values,
}

/// The values of a column.
#[derive(Clone, Debug)]
pub enum Values {
    /// Words.
    Text(Vec<String>),
    /// Whole numbers.
    Count(Vec<u64>),
    /// Measured values; none, where nothing was measured.
    Number(Vec<Option<f64>>),
}

/// Columns from here on say what a row came from; the page shows that once and not in each row.
pub(super) const EXPERIMENT: &str = "experiment";

impl Table {
    /// Outcomes, each with its value of every swept key.
    #[must_use]
    pub fn new(over: &[Over], points: &[&[String]], outcomes: &[Outcome]) -> Self {
        let rows: Vec<(usize, &Outcome, &FlowOutcome)> = outcomes
            .iter()
            .enumerate()
            .flat_map(|(at, outcome)| outcome.flows.iter().map(move |flow| (at, outcome, flow)))
            .collect();
        let mut columns = Vec::new();
        let mut add = |name: &str, values| columns.push(Column { name: name.into(), values });
        for (index, over) in over.iter().enumerate().filter(|(_, over)| over.key != "seed") {
            let text: Vec<String> = rows.iter().map(|(at, ..)| points[*at][index].clone()).collect();
            let numbers: Option<Vec<f64>> = over.values.iter().map(|value| number(value)).collect();
            add(
                &over.key,
                match numbers {
                    Some(_) => Values::Number(text.iter().map(|value| number(value)).collect()),
                    None => Values::Text(text),
                },
            );
        }
        let count = |of: &dyn Fn(&Outcome, &FlowOutcome) -> u64| {
            Values::Count(rows.iter().map(|(_, outcome, flow)| of(outcome, flow)).collect())
        };
        let measure = |of: &dyn Fn(&Outcome, &FlowOutcome) -> Option<f64>| {
            Values::Number(rows.iter().map(|(_, outcome, flow)| of(outcome, flow)).collect())
        };
        let text = |of: &dyn Fn(&Outcome, &FlowOutcome) -> String| {
            Values::Text(rows.iter().map(|(_, outcome, flow)| of(outcome, flow)).collect())
        };
        add("seed", count(&|outcome, _| outcome.experiment.seed));
        add("nodes", count(&|outcome, _| outcome.nodes.into()));
        add("flow", text(&|_, flow| flow.name.clone()));
        add("packets", count(&|_, flow| flow.latency.count));
        let latency = |of: fn(&FlowOutcome) -> f64| {
            measure(&move |_: &Outcome, flow: &FlowOutcome| (flow.latency.count > 0).then(|| of(flow)))
        };
        add("mean_ns", latency(|flow| flow.latency.mean_ns));
        add("deviation_ns", latency(|flow| flow.latency.deviation_ns));
        add("min_ns", latency(|flow| flow.latency.min_ns));
        add("p50_ns", latency(|flow| flow.latency.p50_ns));
        add("p99_ns", latency(|flow| flow.latency.p99_ns));
        add("max_ns", latency(|flow| flow.latency.max_ns));
        add("accepted", measure(&|outcome, flow| outcome.jobs.is_empty().then_some(flow.accepted)));
        add("links", measure(&|outcome, flow| outcome.jobs.is_empty().then_some(flow.hops)));
        add("jobs_ended_us", measure(&|outcome, _| jobs_ended_us(outcome)));
        add("simulated_us", measure(&|outcome, _| Some(outcome.simulated_us)));
        add("sent", count(&|outcome, _| outcome.sent));
        add("arrived", count(&|outcome, _| outcome.arrived));
        add("dropped", count(&|outcome, _| outcome.dropped));
        add("leaked", count(&|outcome, _| outcome.leaked));
        add("traps", count(&|outcome, _| outcome.traps));
        add("acknowledged", count(&|outcome, _| outcome.acknowledged));
        add("refused", count(&|outcome, _| outcome.refused.sum()));
        let attack = |of: fn(&AttackOutcome) -> u64| {
            measure(&move |outcome: &Outcome, _: &FlowOutcome| outcome.attack.as_ref().map(|attack| of(attack) as f64))
        };
        add("attack_overheard", attack(|attack| attack.overheard));
        add("attack_readable", attack(|attack| attack.readable));
        add("attack_sent", attack(|attack| attack.sent));
        add("attack_taken", attack(|attack| attack.taken));
        add("attack_refused", attack(|attack| attack.refused.sum()));
        add("attack_traced", attack(|attack| attack.sender_traced[0]));
        add("lookups", count(&|outcome, _| outcome.lookups));
        add("hit_rate", measure(&|outcome, _| hit_rate(outcome)));
        add("busiest_link", measure(&|outcome, _| Some(outcome.busiest_link)));
        add("events", count(&|outcome, _| outcome.events));
        add("version", text(&|_, _| VERSION.into()));
        add(EXPERIMENT, text(&|outcome, _| store::json(&outcome.experiment)));
        Self { columns, rows: rows.len() }
    }

    /// Comma-separated values as RFC 4180 has them.
    pub(super) fn csv(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|column| quoted(&column.name)).collect();
        let mut csv = names.join(",") + "\n";
        for row in 0..self.rows {
            let cells: Vec<String> = self.columns.iter().map(|column| quoted(&column.values.cell(row))).collect();
            let _ = writeln!(csv, "{}", cells.join(","));
        }
        csv
    }
}

impl Values {
    pub(super) fn cell(&self, row: usize) -> String {
        match self {
            Self::Text(values) => values[row].clone(),
            Self::Count(values) => values[row].to_string(),
            Self::Number(values) => values[row].map_or(String::new(), |value| value.to_string()),
        }
    }
}

/// When the last job ended; none, where there is no job or one did not end.
pub(super) fn jobs_ended_us(outcome: &Outcome) -> Option<f64> {
    outcome.jobs.iter().map(|job| job.ended_us).try_fold(None, |latest: Option<f64>, ended| {
        let ended = ended?;
        Some(Some(latest.map_or(ended, |latest| latest.max(ended))))
    })?
}

/// The share of key look-ups that hit; none, where no key was looked up.
pub(super) fn hit_rate(outcome: &Outcome) -> Option<f64> {
    (outcome.lookups > 0).then_some(outcome.hit_rate)
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.into() }
}
