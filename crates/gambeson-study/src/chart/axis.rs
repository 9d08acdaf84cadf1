//! An axis of a picture: what it spans, how it is scaled, and where its ticks are.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::number;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    logarithmic: bool,
    span: Range<f64>,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis for swept values, which are its ticks, and the place of each on it. Values that are no numbers stand side
    /// by side.
    pub(crate) fn of_values(values: &[String]) -> (Self, Vec<f64>) {
        let numbers: Option<Vec<f64>> = values.iter().map(|value| number(value)).collect();
        let Some(numbers) = numbers.filter(|numbers| numbers.len() > 1) else {
            return Self::side_by_side(values);
        };
        let (least, most) = extremes(&numbers);
        let logarithmic = least > 0.0 && most / least >= 16.0;
        let mut axis = Self { logarithmic, span: least..most, ticks: Vec::new() };
        let margin = (axis.scaled(most) - axis.scaled(least)) * 0.04;
        axis.span = axis.unscaled(axis.scaled(least) - margin)..axis.unscaled(axis.scaled(most) + margin);
        // The values themselves, as long as their texts have room.
        let mut in_order: Vec<(f64, String)> = numbers.iter().copied().zip(values.iter().cloned()).collect();
        in_order.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (value, text) in in_order {
            let room = axis.ticks.last().is_none_or(|(before, _)| axis.place(value) - axis.place(*before) >= 0.045);
            if room {
                axis.ticks.push((value, text));
            }
        }
        (axis, numbers)
    }

    /// An axis for values that stand side by side, and the place of each on it.
    pub(crate) fn side_by_side(values: &[String]) -> (Self, Vec<f64>) {
        let places: Vec<f64> = (0..values.len()).map(|place| place as f64).collect();
        let ticks = places.iter().copied().zip(values.iter().map(|value| shortened(value))).collect();
        (Self { logarithmic: false, span: -0.5..values.len() as f64 - 0.5, ticks }, places)
    }

    /// An axis for measured values, of which `limit` is the most: from 0 where that shows them well, logarithmic where
    /// they differ by more than 30.
    pub(crate) fn of_measures(measures: &[f64], limit: Option<f64>) -> Self {
        let (least, most) = extremes(measures);
        if least > 0.0 && most / least > 30.0 {
            return Self::logarithmic(least, most);
        }
        let from_zero = least >= 0.0 && least < most * 0.7 || most <= 0.0;
        match (least, most) {
            (0.0, 0.0) => Self::linear(0.0, 1.0, limit),
            (least, most) if from_zero => Self::linear(least.min(0.0), most, limit),
            (least, most) => {
                let margin = ((most - least) * 0.3).max(most.abs() * 0.01);
                Self::linear(least - margin, most + margin, limit)
            }
        }
    }

    /// From one value above 0 to another.
    pub(crate) fn logarithmic(least: f64, most: f64) -> Self {
        let decades = least.log10().floor() as i32..=most.log10().ceil() as i32;
        let steps = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(decade)));
        let ticks: Vec<f64> = steps.collect();
        let from = ticks.iter().copied().rfind(|tick| *tick <= least).unwrap_or(least);
        let until = ticks.iter().copied().find(|tick| *tick >= most).unwrap_or(most);
        // The decades alone, where they are many.
        let shown = |(number, tick): &(usize, f64)| {
            (from..=until).contains(tick) && (until / from < 1e3 || number.is_multiple_of(3))
        };
        let ticks = ticks.into_iter().enumerate().filter(shown).map(|(_, tick)| (tick, told(tick, tick)));
        Self { logarithmic: true, span: from..until, ticks: ticks.collect() }
    }

    /// From round value to round value.
    pub(crate) fn linear(least: f64, most: f64, limit: Option<f64>) -> Self {
        let step = nice((most - least) / 5.0);
        let until = limit.map_or(f64::INFINITY, |limit| limit / step);
        let (first, last) = ((least / step).floor() as i64, (most / step).ceil().min(until.floor()) as i64);
        let ticks = (first..=last).map(|number| (number as f64 * step, told(number as f64 * step, step))).collect();
        Self { logarithmic: false, span: first as f64 * step..last as f64 * step, ticks }
    }

    /// Where bars begin.
    pub(crate) fn base(&self) -> f64 {
        if self.logarithmic { self.span.start } else { self.span.start.max(0.0) }
    }

    fn scaled(&self, value: f64) -> f64 {
        if self.logarithmic { value.ln() } else { value }
    }

    fn unscaled(&self, value: f64) -> f64 {
        if self.logarithmic { value.exp() } else { value }
    }

    /// From 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let [from, until, value] = [self.span.start, self.span.end, value].map(|value| self.scaled(value));
        (value - from) / (until - from)
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (self.place(*value) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        self.ticks.iter().map(|(tick, _)| *tick).collect()
    }

    fn range(&self) -> Range<f64> {
        self.span.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(tick, _)| tick == value);
        tick.map_or(String::new(), |(_, text)| text.clone())
    }
}

fn extremes(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &value| (least.min(value), most.max(value)))
}

/// The next of 1, 2, 5, 10, ... that is no less.
fn nice(step: f64) -> f64 {
    let decade = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * decade)
        .find(|nice| *nice >= step * 0.999)
        .unwrap_or(10.0 * decade)
}

/// A tick with as many places as the step between ticks needs.
fn told(tick: f64, step: f64) -> String {
    let places = (-step.log10().floor()).max(0.0) as usize;
    format!("{:.places$}", tick + 0.0)
}

fn shortened(value: &str) -> String {
    const LETTERS: usize = 24;
    let value = value.trim_matches(['"', '\'']);
    if value.chars().count() <= LETTERS {
        value.into()
    } else {
        value.chars().take(LETTERS - 1).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn swept_values_are_the_ticks() {
        let axis = |values: &[&str]| Axis::of_values(&values.iter().map(ToString::to_string).collect::<Vec<_>>());
        let (linear, places) = axis(&["0.4", "0.2", "0.6"]);
        assert_eq!((texts(&linear), places), (vec!["0.2", "0.4", "0.6"], vec![0.4, 0.2, 0.6]));
        let (powers, _) = axis(&["1", "2", "4", "64"]);
        assert!(powers.logarithmic && powers.map(&8.0, (0, 1000)).abs_diff(500) < 2, "{powers:?}");
        let (words, places) = axis(&["none", "'ingress'"]);
        assert_eq!((texts(&words), places), (vec!["none", "ingress"], vec![0.0, 1.0]));
        let crowd: Vec<String> = (0..200).map(|value| value.to_string()).collect();
        assert!((10..=25).contains(&Axis::of_values(&crowd).0.ticks.len()));
    }

    #[test]
    fn measured_values_have_round_ticks() {
        assert_eq!(texts(&Axis::of_measures(&[0.2, 0.9], None)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        let close = Axis::of_measures(&[100.0, 104.0], None);
        assert!(close.span.start > 90.0 && close.span.end < 115.0 && texts(&close).len() < 9, "{close:?}");
        assert_eq!(texts(&Axis::of_measures(&[3.0, 140.0], None)), ["2", "5", "10", "20", "50", "100", "200"]);
        assert_eq!(texts(&Axis::of_measures(&[3.0, 40_000.0], None)), ["10", "100", "1000", "10000"]);
        assert_eq!(texts(&Axis::of_measures(&[0.0, 0.0], None)).len(), 6);
        assert_eq!(texts(&Axis::of_measures(&[98.0, 99.9], Some(100.0))).last(), Some(&"100"));
        assert!(Axis::of_measures(&[7.0], None).span.contains(&7.0));
    }
}
