//! What was measured of one quantity of one pattern, on all sides.

use serde::Serialize;

use crate::bench::statistics::{Ratios, median};
use crate::probe::files::work::{Map, Quantity};

use super::patterns::{Group, Pattern};
use super::place::Place;
use super::sides::Side;

#[derive(Debug, Serialize)]
pub(super) struct Series {
    pub(super) file_system: String,
    /// Whether that has no disk.
    pub(super) is_memory: bool,
    pub(super) ranks: usize,
    pub(super) group: Group,
    pub(super) pattern: String,
    pub(super) map: Map,
    pub(super) quantity: Quantity,
    /// Moved in that time; 0 where the time itself is the value.
    pub(super) bytes: u64,
    /// Plain is the first.
    pub(super) sides: Vec<Times>,
}

/// Of one side.
#[derive(Debug, Serialize)]
pub(super) struct Times {
    #[serde(flatten)]
    pub(super) side: Side,
    /// One for each round.
    pub(super) seconds: Vec<f64>,
    /// By those of the plain side; none of that itself.
    pub(super) ratio: Option<Ratios>,
}

impl Times {
    pub(super) fn least(&self) -> f64 {
        self.seconds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(super) fn median(&self) -> f64 {
        median(&self.seconds)
    }
}

impl Series {
    /// What a side did, beside plain.
    pub(super) fn ratio(&self, side: Side) -> Option<Ratios> {
        self.sides.iter().find(|times| times.side == side)?.ratio
    }
}

/// Puts a value where it belongs.
pub(super) fn add(
    all: &mut Vec<Series>,
    pattern: &Pattern,
    (quantity, bytes): (Quantity, u64),
    place: &Place,
    ranks: usize,
    (side, seconds): (Side, f64),
) {
    let same = |one: &Series| {
        (&one.file_system, one.ranks, &one.pattern) == (&place.name, ranks, &pattern.name)
            && (one.group, one.map, one.quantity) == (pattern.group, pattern.map, quantity)
    };
    let at = all.iter().position(same).unwrap_or_else(|| {
        all.push(Series {
            file_system: place.name.clone(),
            is_memory: place.is_memory(),
            ranks,
            group: pattern.group,
            pattern: pattern.name.clone(),
            map: pattern.map,
            quantity,
            bytes,
            sides: Vec::new(),
        });
        all.len() - 1
    });
    let sides = &mut all[at].sides;
    match sides.iter_mut().find(|times| times.side == side) {
        Some(times) => times.seconds.push(seconds),
        None => sides.push(Times { side, seconds: vec![seconds], ratio: None }),
    }
}

/// When all rounds are over: every side by plain.
pub(super) fn compare(all: &mut [Series]) {
    for series in all {
        let plain = series.sides.iter().find(|times| times.side == Side::Plain);
        let plain = plain.map_or(Vec::new(), |times| times.seconds.clone());
        series.sides.sort_by_key(|times| times.side != Side::Plain);
        for times in series.sides.iter_mut().skip(1) {
            times.ratio = Some(Ratios::of_times(&plain, &times.seconds));
        }
    }
}
