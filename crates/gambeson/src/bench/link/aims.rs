//! What links are meant to reach, and whether they do.

use serde::Serialize;

use super::side::Kind;
use super::{OURS, Report, SMALL, STREAMED, Series};
use crate::bench::statistics::median;

/// An aim beside what was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Aim {
    pub(super) what: String,
    /// The bound, with its unit.
    pub(super) aim: String,
    /// What came out: from the medians of the runs, and from the best runs.
    pub(super) median: f64,
    pub(super) best: f64,
    /// Whether the median is within the bound.
    pub(crate) met: bool,
}

/// All that a report has the values for.
pub(super) fn of(report: &Report) -> Vec<Aim> {
    let mut aims = Vec::new();
    for carrier in ["shared memory", "TCP"] {
        let find = |side, kind, length| report.find(carrier, side, kind, length);
        let small = |side| find(side, Kind::Trips, SMALL);
        if let (Some(bare), Some(clear), Some(sealed)) = (small("bare"), small("in clear"), small("sealed")) {
            let ratio = clear.by(bare);
            let what = format!("8 B there and back over {carrier}, in clear, by a bare ping-pong");
            aims.push(at_most(what, "1.3", 1.3, ratio.median, ratio.of_least));
            let what = format!("8 B there and back over {carrier}, what sealing adds, µs");
            let (typical, least) = (1e6 * added(sealed, clear), 1e6 * (sealed.least() - clear.least()));
            aims.push(at_most(what, "0.3", 0.3, typical, least));
        }
        if let Some(sealed) = find("sealed", Kind::Outstanding, SMALL) {
            let (bound, aim) = if carrier == "TCP" { (300.0, "300") } else { (1000.0, "1000") };
            let what = format!("64 outstanding over {carrier}, 8 B, sealed, 1000/s");
            aims.push(at_least(what, aim, bound, 1e-3 / sealed.median(), 1e-3 / sealed.least()));
        }
        let words = [(Kind::Trips, "there and back"), (Kind::Stream, "one way")];
        for (kind, word) in words.into_iter().filter(|_| carrier == "TCP") {
            if let (Some(clear), Some(sealed)) = (find("in clear", kind, STREAMED), find("sealed", kind, STREAMED)) {
                let ratio = clear.by(sealed);
                let what = format!("1 MiB {word} over TCP, bandwidth sealed by that in clear");
                aims.push(at_least(what, "0.7", 0.7, ratio.median, ratio.of_least));
            }
        }
    }
    aims.extend(ahead(report));
    aims
}

/// Whether sealed links are ahead of others' libraries: how many times as much time and processor time those take, in that
/// in which they are nearest.
fn ahead(report: &Report) -> Vec<Aim> {
    let find = |carrier: &str, side: &str, kind| {
        let wanted = |one: &&Series| (&*one.carrier, &*one.side, one.kind) == (carrier, side, kind);
        report.peers.iter().find(wanted)
    };
    let mut aims = Vec::new();
    for first in report.peers.iter().filter(|one| one.kind == Kind::Trips && !OURS.contains(&&*one.side)) {
        for own in OURS {
            let (mut typical, mut best) = (f64::INFINITY, f64::INFINITY);
            for kind in [Kind::Trips, Kind::Outstanding, Kind::Stream] {
                let Some((other, own)) = find(&first.carrier, &first.side, kind).zip(find(&first.carrier, own, kind))
                else {
                    continue;
                };
                let ratio = other.by(own);
                (typical, best) = (typical.min(ratio.median), best.min(ratio.of_least));
                if kind == Kind::Stream {
                    typical = typical.min(median(&other.cpu) / median(&own.cpu));
                }
            }
            let what = format!("{own} by {} over {}, where nearest", first.side, first.carrier);
            aims.push(at_least(what, "1", 1.0, typical, best));
        }
    }
    aims
}

/// Median of what one side takes more than another in the same run.
fn added(one: &Series, other: &Series) -> f64 {
    median(&Vec::from_iter(one.seconds.iter().zip(&other.seconds).map(|(one, other)| one - other)))
}

fn at_most(what: String, aim: &str, bound: f64, median: f64, best: f64) -> Aim {
    Aim { what, aim: format!("at most {aim}"), median, best, met: median <= bound }
}

fn at_least(what: String, aim: &str, bound: f64, median: f64, best: f64) -> Aim {
    Aim { what, aim: format!("at least {aim}"), median, best, met: median >= bound }
}
