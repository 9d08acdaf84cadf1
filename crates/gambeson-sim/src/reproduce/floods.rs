//! Fig. 1 of the IBA paper: what floods do to others.

use super::figure::{Figure, Panel, Scale, Series, Shape};
use super::infiniband::{LOAD_FLOODED, preset, seeded};
use super::{Finding, Outcome, Setting, Table, mean, us};
use crate::error::Error;
use crate::experiment::{self, Experiment};
use crate::traffic::{Arrivals, Pattern, SourceConfig};

/// Fig. 1: attackers flood random victims at the full rate.
pub(super) fn floods(setting: &Setting<'_>) -> Result<Outcome, Error> {
    const ATTACKERS: [u32; 6] = [0, 1, 2, 3, 4, 6];
    /// Variants of the figure; the others are in its tables.
    const DRAWN: usize = 3;
    let flood = |attackers: u32, change: &dyn Fn(&mut Experiment)| {
        let mut experiment = preset();
        experiment.fabric.classes = 2;
        experiment.fabric.priority = true;
        let honest =
            SourceConfig { load: LOAD_FLOODED / 2.0, pattern: Pattern::Partition, apart: true, ..Default::default() };
        let real_time = SourceConfig { name: "real time".into(), arrivals: Arrivals::Regular, ..honest.clone() };
        let best_effort = SourceConfig { name: "best effort".into(), class: 1, ..honest };
        experiment.traffic = vec![real_time, best_effort];
        if attackers > 0 {
            let attack = SourceConfig {
                name: "flood".into(),
                load: 1.0,
                class: 1,
                nodes: Some(attackers),
                forged_keys: 1,
                ..Default::default()
            };
            experiment.traffic.insert(0, attack);
        }
        change(&mut experiment);
        experiment
    };
    let shared = |experiment: &mut Experiment| {
        experiment.fabric.classes = 1;
        experiment.fabric.priority = false;
        experiment.traffic.iter_mut().for_each(|source| source.class = 0);
    };
    let scale = |experiment: &mut Experiment, by: f64| {
        experiment.traffic.iter_mut().filter(|source| source.forged_keys == 0).for_each(|source| source.load *= by);
    };
    let (less, more) = (|e: &mut Experiment| scale(e, 2.0 / 3.0), |e: &mut Experiment| scale(e, 7.0 / 6.0));
    let both = |experiment: &mut Experiment| {
        shared(experiment);
        more(experiment);
    };
    let long = |experiment: &mut Experiment| experiment.measure.for_us *= 4.0;
    type Change<'c> = &'c dyn Fn(&mut Experiment);
    let variants: [(&str, Change<'_>); 6] = [
        ("preset: lanes of their own, real time first", &|_| {}),
        ("the same lanes, no priority", &shared),
        ("the same lanes, a load of 0.7", &both),
        ("honest load of 0.4", &less),
        ("honest load of 0.7", &more),
        ("measured four times as long", &long),
    ];
    let runs: Vec<Experiment> =
        variants.iter().flat_map(|(_, change)| ATTACKERS.map(|attackers| flood(attackers, change))).collect();
    let outcomes = seeded(setting, &runs)?;
    let value = |outcomes: &[experiment::Outcome], flow: &str| {
        mean(outcomes.iter().filter_map(|outcome| {
            outcome.flows.iter().find(|other| other.name == flow).map(|flow| flow.latency.mean_ns)
        }))
    };
    let said_of_best_effort = [(5, 18.0 * value(&outcomes[0], "best effort") / 1e3)];
    let panels: [(_, _, _, _, &[(usize, f64)]); 2] = [
        (
            "iba-fig-1a",
            "Fig. 1a: real time under floods",
            "real time",
            "paper (120 µs at a number of attackers that its text leaves open)",
            &[(0, 20.0), (1, 70.0), (5, 120.0)],
        ),
        (
            "iba-fig-1b",
            "Fig. 1b: best effort under floods",
            "best effort",
            "paper (18 times the latency without attackers, at a number that its text leaves open)",
            &said_of_best_effort,
        ),
    ];
    let (mut figures, mut tables) = (Vec::new(), Vec::new());
    for (name, title, flow, paper, said) in panels {
        let mut by_variant = variants.iter().map(|(name, _)| *name).zip(outcomes.chunks(ATTACKERS.len()));
        let drawn = by_variant.by_ref().take(DRAWN).enumerate();
        let series = drawn.map(|(place, (name, outcomes))| {
            let series = Series::new(name, outcomes.iter().map(|seeds| value(seeds, flow) / 1e3));
            if place == 0 { series.said(said.iter().copied()) } else { series }
        });
        let panel = Panel::new("mean latency, µs", Scale::Logarithmic, series.collect());
        figures.push(Figure::new(name, title, Shape::Lines, ("attackers", ATTACKERS), vec![panel]).beside(paper));
        let title = format!("{} with other values: mean latency of {flow} by the number of attackers", &title[..7]);
        let mut table = Table::new(title, &["what is other", "0", "1", "2", "3", "4", "6"]);
        for (name, outcomes) in by_variant {
            let cells = outcomes.iter().map(|seeds| us(value(seeds, flow)));
            table.row(std::iter::once(name.to_owned()).chain(cells));
        }
        tables.push(table);
    }
    let factor = |flow, attackers: usize| value(&outcomes[attackers], flow) / value(&outcomes[0], flow);
    let (real_time, best_effort) = ([1, 4].map(|n| factor("real time", n)), [1, 4].map(|n| factor("best effort", n)));
    let findings = vec![
        Finding::new(
            "Fig. 1a",
            "real time: 20 us without attackers, 50 us more with one, 120 us (6 times) with more",
            format!(
                "{}; {:.1} times with one attacker, {:.1} times with four",
                us(value(&outcomes[0], "real time")),
                real_time[0],
                real_time[1]
            ),
            (4.0..9.0).contains(&real_time[1]),
            "with lanes of its own and priority, real time waits for at most one packet of the flood at each link; more \
             needs buffers that both share near saturation, as in the figure's last variant. 20 us without an attack, five \
             times the way through an empty network, say that the paper's network was near saturation",
        ),
        Finding::new(
            "Fig. 1b",
            "best effort: 18 times the latency; hurt more than real time",
            format!("{:.0} times with one attacker, {:.0} times with four", best_effort[0], best_effort[1]),
            (9.0..36.0).contains(&best_effort[0]) || (9.0..36.0).contains(&best_effort[1]),
            "hurt more than real time, as the paper says; the factor is that of the honest load, unstated: with more of \
             it a flood takes links beyond what they carry, queues grow for as long as it lasts, and the factor is that \
             of the time measured",
        ),
    ];
    Ok(Outcome { findings, figures, tables })
}
