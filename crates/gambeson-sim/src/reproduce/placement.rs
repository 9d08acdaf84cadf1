//! Where the cryptography sits: the host's CPU, a coprocessor behind the bus, the adapter (SKC paper, section 2.2).
//!
//! The paper compares the three in words alone. Here each carries the same traffic: how late packets are, how many come
//! through, and what is taken of the CPU and of the bus.

use super::infiniband::{LOAD, preset, seeded};
use super::{Finding, Outcome, Setting, Table, mean, us};
use crate::error::Error;
use crate::experiment::{self, Experiment};
use crate::fabric::Rate;
use crate::security::{Placement, SecurityConfig};

/// The table of what the paper leaves open.
pub(super) const OTHERWISE: &str = "Host, coprocessor and adapter with other values";
const PLACES: [Placement; 3] = [Placement::Host, Placement::Coprocessor, Placement::Adapter];
/// The load at which other values are shown: near the most that the bus of the preset can do.
const MIDDLE: f64 = 0.45;

/// What came out of a load and a place, or of none.
struct Met {
    latency: f64,
    /// Shares of a link's rate that nodes handed over, and that arrived at each.
    offered: f64,
    accepted: f64,
    need: Need,
}

/// What it takes to seal all that a node sends and to open all that it gets.
struct Need {
    /// Cores of the host.
    cores: f64,
    /// Share of its time that the bus is taken.
    bus: f64,
}

impl Need {
    fn of(experiment: &Experiment) -> Self {
        let SecurityConfig { placement, host, bus, .. } = &experiment.security;
        let (load, bytes) = (experiment.traffic[0].load, f64::from(experiment.traffic[0].bytes));
        // Packets in a nanosecond, in both directions.
        let passes = 2.0 * load * experiment.fabric.rate.gbps() / (8.0 * bytes);
        let (cores, bus) = match placement {
            Placement::Host => (host.packet_ns + host.byte_ns * bytes, 0.0),
            Placement::Coprocessor => (bus.driver_ns, 2.0 * (bus.transaction_ns + 8.0 * bytes / bus.rate_gbps)),
            Placement::Adapter => (0.0, 0.0),
        };
        Self { cores: passes * cores, bus: passes * bus }
    }
}

impl Met {
    fn of(outcomes: &[experiment::Outcome]) -> Self {
        let experiment = &outcomes[0].experiment;
        let flow =
            |value: &dyn Fn(&experiment::FlowOutcome) -> f64| mean(outcomes.iter().map(|one| value(&one.flows[0])));
        Self {
            latency: flow(&|flow| flow.latency.mean_ns),
            offered: experiment.traffic[0].load,
            accepted: flow(&|flow| flow.accepted),
            need: Need::of(experiment),
        }
    }

    fn keeps_up(&self) -> bool {
        self.accepted > 0.98 * self.offered
    }

    /// Its latency; of what falls behind, that only tells how long one measured.
    fn told(&self) -> String {
        if self.keeps_up() { us(self.latency) } else { "falls behind".into() }
    }
}

const HEAD: [&str; 6] = ["host", "its cores", "coprocessor", "its driver's cores", "bus", "adapter"];

fn cells(host: &Met, card: &Met, adapter: &Met) -> [String; 6] {
    [
        host.told(),
        format!("{:.2}", host.need.cores),
        card.told(),
        format!("{:.2}", card.need.cores),
        format!("{:.0} %", 100.0 * card.need.bus),
        adapter.told(),
    ]
}

fn placed(experiment: Experiment) -> impl Iterator<Item = Experiment> {
    PLACES.into_iter().map(move |placement| {
        let mut experiment = experiment.clone();
        experiment.security.placement = placement;
        experiment
    })
}

pub(super) fn placements(setting: &Setting<'_>) -> Result<Outcome, Error> {
    const LOADS: [f64; 5] = [0.1, 0.3, MIDDLE, 0.6, LOAD];
    let runs: Vec<Experiment> = LOADS
        .iter()
        .flat_map(|&load| {
            let mut plain = preset();
            plain.traffic[0].load = load;
            let sealed = Experiment { security: SecurityConfig::skc_paper(), ..plain.clone() };
            std::iter::once(plain).chain(placed(sealed))
        })
        .collect();
    let met: Vec<Met> = seeded(setting, &runs)?.iter().map(|seeds| Met::of(seeds)).collect();
    let title = "Host, coprocessor and adapter by load: latency; cores of the host and share of the bus that it takes to \
                 keep up, where one core of the host seals";
    let mut table = Table::new(title, &[&["load", "not sealed"][..], &HEAD].concat());
    let rows: Vec<&[Met]> = met.chunks(1 + PLACES.len()).collect();
    for row in &rows {
        let [plain, host, card, adapter] = row else { unreachable!("a row has one without and three with") };
        table.row([plain.offered.to_string(), plain.told()].into_iter().chain(cells(host, card, adapter)));
    }
    let full = rows[rows.len() - 1];
    let (otherwise, in_software) = otherwise(setting)?;
    let most = |place: usize| {
        let loads = rows.iter().filter(|row| row[place].keeps_up()).map(|row| row[place].offered);
        loads.fold(0.0, f64::max)
    };
    let lowest = rows.iter().all(|row| row[3].keeps_up() && row[3].latency <= row[1].latency.min(row[2].latency));
    let findings = vec![
        Finding::new(
            "2.2",
            "on the host's CPU, cryptography takes a large amount of CPU time (IBA paper, 1: a great amount)",
            format!(
                "{:.2} of a core for {LOAD} of 2.5 Gb/s with AES instructions; without them (8 ns a byte) {in_software:.1} \
                 cores for {MIDDLE}",
                full[1].need.cores
            ),
            full[1].need.cores > 0.1,
            "the papers give no number: a tenth of a core is taken for large",
        ),
        Finding::new(
            "2.2",
            "a coprocessor's additional transactions on the bus become a limiting factor",
            format!(
                "the bus keeps up with a load of {}, and its bytes alone would fill it at {:.2}; the adapter keeps up with {}",
                most(2),
                full[2].offered / full[2].need.bus,
                most(3)
            ),
            most(2) < most(3),
            "each packet crosses a bus of 8.5 Gb/s twice at either end. With 126 Gb/s and short transactions the bus is \
             none, but the driver takes more of the CPU than sealing there",
        ),
        Finding::new(
            "2.2, 6",
            "in the adapter, cryptography keeps latencies low",
            format!(
                "the lowest of the three at every load; at {LOAD} {:.0} ns above none, and {:.0} ns below the host",
                full[3].latency - full[0].latency,
                full[1].latency - full[3].latency
            ),
            lowest,
            "with packets of 256 B. With AES instructions the host is nearly as fast, and faster with 1,024 B; without \
             them it falls behind. That the adapter takes nothing of CPU and bus is how it is made, and no result",
        ),
    ];
    Ok(Outcome { findings, tables: vec![table, otherwise], ..Outcome::default() })
}

/// What other values of what the paper leaves open would make of it, and the cores of a host without AES instructions.
fn otherwise(setting: &Setting<'_>) -> Result<(Table, f64), Error> {
    type Change = fn(&mut Experiment);
    fn rate(experiment: &mut Experiment, gbps: f64) {
        experiment.fabric.rate = Rate::Gbps(gbps);
        // As many packets as at the preset's rate.
        experiment.measure.warmup_us *= 2.5 / gbps;
        experiment.measure.for_us *= 2.5 / gbps;
    }
    fn pcie(experiment: &mut Experiment) {
        experiment.security.bus.rate_gbps = 126.0;
    }
    let variants: [(&str, Change); 11] = [
        ("no AES instructions: 8 ns a byte", |e| e.security.host.byte_ns = 8.0),
        ("preset", |_| {}),
        ("PCI, 32 bit at 33 MHz: 1.06 Gb/s", |e| e.security.bus.rate_gbps = 1.06),
        ("PCIe 3.0 x16: 126 Gb/s", pcie),
        ("PCIe, 50 ns a transaction", |e| {
            pcie(e);
            e.security.bus.transaction_ns = 50.0;
        }),
        ("PCIe, no time of a driver", |e| {
            pcie(e);
            e.security.bus.driver_ns = 0.0;
        }),
        ("packets of 64 B", |e| e.traffic[0].bytes = 64),
        ("packets of 1,024 B", |e| e.traffic[0].bytes = 1024),
        ("links of 10 Gb/s, PCIe", |e| {
            rate(e, 10.0);
            pcie(e);
        }),
        ("links of 100 Gb/s, PCIe", |e| {
            rate(e, 100.0);
            pcie(e);
        }),
        ("the same, packets of 1,024 B, 8 GCM units", |e| {
            rate(e, 100.0);
            pcie(e);
            e.traffic[0].bytes = 1024;
            e.security.gcm.units = 8;
        }),
    ];
    let runs: Vec<Experiment> = variants
        .iter()
        .flat_map(|(_, change)| {
            let mut sealed = Experiment { security: SecurityConfig::skc_paper(), ..preset() };
            sealed.traffic[0].load = MIDDLE;
            change(&mut sealed);
            placed(sealed)
        })
        .collect();
    let met = setting.each(&runs, |experiment| Ok(Met::of(&[experiment.run()?])))?;
    let mut table =
        Table::new(format!("{OTHERWISE}, load {MIDDLE}, one seed"), &[&["what is other"][..], &HEAD].concat());
    for ((name, _), row) in variants.iter().zip(met.chunks(PLACES.len())) {
        let [host, card, adapter] = row else { unreachable!("a row has the three places") };
        table.row(std::iter::once((*name).into()).chain(cells(host, card, adapter)));
    }
    Ok((table, met[0].need.cores))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a run shows is what the sums say: whoever needs more than all of the bus or the one core falls behind.
    #[test]
    fn those_fall_behind_who_need_more_than_there_is() {
        for (load, byte_ns) in [(0.35, 0.095), (0.6, 0.095), (0.35, 8.0), (0.1, 8.0)] {
            let mut sealed = Experiment { security: SecurityConfig::skc_paper(), ..preset() };
            sealed.traffic[0].load = load;
            sealed.security.host.byte_ns = byte_ns;
            (sealed.measure.warmup_us, sealed.measure.for_us) = (500.0, 2000.0);
            for (place, experiment) in PLACES.into_iter().zip(placed(sealed)) {
                let met = Met::of(&[experiment.run().unwrap()]);
                let enough = if place == Placement::Host { met.need.cores } else { met.need.bus } < 1.0;
                assert_eq!(met.keeps_up(), enough, "{place:?} at {load}, {byte_ns} ns a byte: {}", met.accepted);
            }
        }
    }
}
