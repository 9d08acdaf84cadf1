//! The benchmark's tables.

use std::fmt::Write;

use super::Report;
use super::statistics::{Quantity, Series};
use crate::probe::plan::bytes;

/// All of them.
pub(crate) fn text(report: &Report) -> String {
    let mut text = format!(
        "{}, libfabric provider {}, {} rounds, load average before: {:.2} on {} processors\n",
        report.mpi, report.core, report.rounds, report.load[0], report.processors
    );
    for (quantity, title) in [
        (Quantity::Latency, "Latency (half a round trip), µs"),
        (Quantity::Bandwidth, "Bandwidth (64 messages under way), MB/s"),
        (Quantity::Rate, "Message rate (64 messages under way), 1000/s"),
    ] {
        table(&mut text, title, report.of(quantity));
    }
    text
}

fn table<'s>(text: &mut String, title: &str, series: impl Iterator<Item = &'s Series>) {
    let mut series = series.peekable();
    let Some(first) = series.peek() else { return };
    let better = if first.quantity == Quantity::Latency { "least" } else { "most" };
    let _ = writeln!(text, "\n{title}");
    let _ = writeln!(text, "{:>9}  {:^21}  {:^21}  {:^26}", "", "plain", "sealed", "sealed / plain");
    let heads = [better, "median", better, "median", "of these", "median", better];
    let _ = writeln!(
        text,
        "{:>9}  {:>10} {:>10}  {:>10} {:>10}  {:>8} {:>8} {:>8}",
        "size", heads[0], heads[1], heads[2], heads[3], heads[4], heads[5], heads[6]
    );
    for series in series {
        let ((plain, sealed), ratios) = (series.values(), series.ratios());
        let scaled = |value: f64| scaled(series.quantity, value);
        let _ = writeln!(
            text,
            "{:>9}  {:>10} {:>10}  {:>10} {:>10}  {:>8.3} {:>8.3} {:>8.3}",
            bytes(series.size),
            scaled(plain.best),
            scaled(plain.median),
            scaled(sealed.best),
            scaled(sealed.median),
            ratios.of_best,
            ratios.median,
            ratios.best
        );
    }
}

/// A value in the table's unit, with four significant digits or so.
fn scaled(quantity: Quantity, value: f64) -> String {
    let value = match quantity {
        Quantity::Latency | Quantity::Bandwidth => value * if quantity == Quantity::Latency { 1e6 } else { 1e-6 },
        Quantity::Rate => value * 1e-3,
    };
    match value {
        0.0..10.0 => format!("{value:.3}"),
        10.0..100.0 => format!("{value:.2}"),
        100.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_significant_digits() {
        assert_eq!(scaled(Quantity::Latency, 9.876e-6), "9.876");
        assert_eq!(scaled(Quantity::Latency, 1.2345e-2), "12345");
        assert_eq!(scaled(Quantity::Bandwidth, 2.5e9), "2500");
        assert_eq!(scaled(Quantity::Rate, 123_456.0), "123.5");
    }
}
