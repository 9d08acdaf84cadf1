//! What the rounds of a measurement say together.

use serde::Serialize;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Quantity {
    /// Half a round trip, in seconds.
    Latency,
    /// Bytes per second, one way.
    Bandwidth,
    /// Messages per second, one way.
    Rate,
}

impl Quantity {
    /// By the name the probe reports.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "latency" => Some(Self::Latency),
            "bandwidth" => Some(Self::Bandwidth),
            "rate" => Some(Self::Rate),
            _ => None,
        }
    }

    /// The better of two values or ratios: less time, more of the others.
    fn better(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Latency => a.min(b),
            Self::Bandwidth | Self::Rate => a.max(b),
        }
    }
}

/// One quantity at one size, a value for each round and side; round i of both sides belongs together.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Series {
    pub(crate) quantity: Quantity,
    pub(crate) size: usize,
    pub(crate) plain: Vec<f64>,
    pub(crate) sealed: Vec<f64>,
}

/// Best and median of a side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Values {
    pub(crate) best: f64,
    pub(crate) median: f64,
}

/// Sealed divided by plain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Ratios {
    /// The best sealed value by the best plain one.
    pub(crate) of_best: f64,
    /// Median of the rounds' own ratios.
    pub(crate) median: f64,
    /// The best of the rounds' own ratios.
    pub(crate) best: f64,
}

impl Ratios {
    /// Of times or other values of which less is better, round by round.
    pub(crate) fn of_times(plain: &[f64], sealed: &[f64]) -> Self {
        let series = Series { quantity: Quantity::Latency, size: 0, plain: plain.to_vec(), sealed: sealed.to_vec() };
        series.ratios()
    }
}

impl Series {
    /// Both sides' values.
    pub(crate) fn values(&self) -> (Values, Values) {
        let values = |side: &[f64]| Values { best: self.best(side), median: median(side) };
        (values(&self.plain), values(&self.sealed))
    }

    /// The ratios.
    pub(crate) fn ratios(&self) -> Ratios {
        let rounds: Vec<f64> = self.plain.iter().zip(&self.sealed).map(|(plain, sealed)| sealed / plain).collect();
        let of_best = self.best(&self.sealed) / self.best(&self.plain);
        Ratios { of_best, median: median(&rounds), best: self.best(&rounds) }
    }

    fn best(&self, values: &[f64]) -> f64 {
        values.iter().copied().reduce(|a, b| self.quantity.better(a, b)).unwrap_or(f64::NAN)
    }
}

/// The middle value; of an even number the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Of several ratios; none of none.
pub(crate) fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum) = (0_u32, 0.0);
    for value in values {
        (count, sum) = (count + 1, sum + value.ln());
    }
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_geometric_mean_has_halves_and_doubles_cancel() {
        assert!((geometric_mean([0.5, 2.0, 8.0]).expect("of three") - 2.0).abs() < 1e-12);
        assert_eq!(geometric_mean([]), None);
    }

    #[test]
    fn the_middle_is_found_in_any_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn less_is_better_for_latency_and_more_for_the_others() {
        let series = |quantity| Series { quantity, size: 8, plain: vec![1.0, 2.0, 4.0], sealed: vec![2.0, 2.0, 6.0] };
        let latency = series(Quantity::Latency);
        assert_eq!(latency.ratios(), Ratios { of_best: 2.0, median: 1.5, best: 1.0 });
        assert_eq!(latency.values(), (Values { best: 1.0, median: 2.0 }, Values { best: 2.0, median: 2.0 }));
        assert_eq!(series(Quantity::Bandwidth).ratios(), Ratios { of_best: 1.5, median: 1.5, best: 2.0 });
    }
}
