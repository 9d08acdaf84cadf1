//! The paper's table beside this one.

use std::fmt::Write;

use super::{MODES, Report, Secure};
use crate::bench::statistics::median;

/// Table 1 of the secure-nexus paper: seconds for each simulated day over TCP and over MPL, in the order of [`MODES`].
const PAPER: [[f64; 2]; 3] = [[854.0, 574.0], [897.0, 590.0], [1459.0, 1187.0]];

impl Secure {
    fn title(self) -> &'static str {
        match self {
            Secure::None => "No secure",
            Secure::Coupler => "Coupler secure",
            Secure::All => "All secure",
        }
    }
}

/// All of it.
pub(super) fn text(report: &Report) -> String {
    let Report { days, processes, cells, rounds, processors, load, heat, state, .. } = report;
    let mut text = format!(
        "Ocean ({cells} x {cells} cells) and atmosphere ({0} x {0}), {processes} processes each, {days} days, {rounds} rounds in \
         alternation, load average before: {1:.2} on {processors} processors\n\n",
        cells / super::FINER,
        load[0]
    );
    let _ = writeln!(text, "{:16}{:^46}{:^26}", "", "here", "paper (1998)");
    let _ = writeln!(text, "{:16}{:^23}{:^23}{:^13}{:^13}", "ms per day", "TCP", "shared memory", "TCP", "MPL");
    for (row, mode) in MODES.into_iter().enumerate() {
        let _ = write!(text, "{:16}", mode.title());
        for within in ["TCP", "shared memory"] {
            let run = report.run(mode, within);
            let (typical, least) = run.by(report.run(Secure::None, within));
            let milliseconds = 1e3 * median(&run.seconds_per_day);
            let _ = write!(text, "{milliseconds:>8.2} {typical:>5.2} ({least:>5.2}) ");
        }
        for (seconds, unsecured) in PAPER[row].iter().zip(PAPER[0]) {
            let _ = write!(text, "{seconds:>6.0} s {:>4.2}", seconds / unsecured);
        }
        text.push('\n');
    }
    text += "Medians, then what they are of No secure: median of the rounds' own ratios, and the least by the least.\n";
    let _ = writeln!(
        text,
        "\nHeat, W/m2: the atmosphere gave {:.6}, the ocean got {:.6} and gained {:.6} (difference {:.0e}); by radiation {:.6}, \
         both gained {:.6} (difference {:.0e})",
        heat.given,
        heat.received,
        heat.ocean_gained,
        (heat.given - heat.ocean_gained).abs(),
        heat.radiated,
        heat.ocean_gained + heat.atmosphere_gained,
        (heat.radiated - heat.ocean_gained - heat.atmosphere_gained).abs(),
    );
    let _ = writeln!(text, "State after each of the {} runs: {state}", report.runs.len() * rounds);
    text
}
