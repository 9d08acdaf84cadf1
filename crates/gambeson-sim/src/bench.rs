//! How fast the simulator is: the same traffic on small and large networks, with and without what slows it down.

use std::time::Instant;

use serde::Serialize;

use crate::error::Error;
use crate::experiment::Experiment;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    /// What was simulated.
    pub name: &'static str,
    /// End nodes.
    pub nodes: u32,
    /// Events and packets of the best round.
    pub events: u64,
    /// Packets of the best round.
    pub packets: u64,
    /// Seconds of the best round.
    pub seconds: f64,
}

/// What can be measured: name, switches along each side of a square mesh, simulated time, whether with security, filters
/// and statistics over time.
const CASES: [(&str, u32, f64, bool); 4] = [
    ("mesh of 16", 4, 20_000.0, false),
    ("mesh of 16, keys, filters", 4, 20_000.0, true),
    ("mesh of 1,024", 32, 2_000.0, false),
    ("mesh of 65,536", 256, 200.0, false),
];

/// Measures each case, best of so many rounds: Poisson arrivals, uniform destinations, packets of 256 bytes at 40 % of
/// what the network's bisection carries.
///
/// # Errors
/// None but those of a broken simulator.
pub fn measure(rounds: u32, mut each: impl FnMut(&Speed)) -> Result<(), Error> {
    for (name, side, for_us, all) in CASES {
        // Half of uniform traffic crosses the middle: 4 / side of the links' rate is all that fits.
        let load = 0.4 * f64::from(side.min(4)) / f64::from(side);
        let mut text = format!(
            "topology = {{ kind = 'mesh', dims = [{side}, {side}] }}\nfabric = {{ rate = 8.0 }}\n\
             measure = {{ warmup_us = 20, for_us = {for_us}, {} }}\n[[traffic]]\nload = {load}\n",
            if all { "interval_us = 10" } else { "" }
        );
        if all {
            text += "[security]\nlevel = 'queue-pair'\ncache = { entries = 64 }\n[filter]\nscheme = 'ingress'\n";
        }
        let experiment = Experiment::parse(&text, None)?;
        let mut best: Option<Speed> = None;
        for _ in 0..rounds {
            let began = Instant::now();
            let outcome = experiment.run()?;
            let seconds = outcome.seconds.min(began.elapsed().as_secs_f64());
            if best.as_ref().is_none_or(|best| seconds < best.seconds) {
                let (events, packets) = (outcome.events, outcome.sent);
                best = Some(Speed { name, nodes: outcome.nodes, events, packets, seconds });
            }
        }
        each(&best.expect("there is at least one round"));
    }
    Ok(())
}
