//! The papers' figures as data: what is on which axis, the values here, and the paper's own wherever its text gives any.

use serde::Serialize;

use super::Table;

/// A figure of a paper, anew.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its own among all of them, as `skc-fig-5a`: the name of its picture's file.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// How its values are drawn.
    pub shape: Shape,
    /// What the values are over.
    pub x_title: &'static str,
    /// Where they stand: numbers, or names side by side.
    pub x: Vec<String>,
    /// What the paper's values are, where it gives some.
    pub paper: &'static str,
    /// Its quantities, one below the other.
    pub panels: Vec<Panel>,
}

/// As the paper draws them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// A bar for each value, in a group for each place.
    Bars,
    /// A line through the values of each series.
    Lines,
    /// Nothing between them.
    Dots,
}

/// A quantity over the places of a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Panel {
    /// What it is, with its unit.
    pub y_title: &'static str,
    /// Of its axis.
    pub scale: Scale,
    /// Values from a window of the traces, or of what needs no traces.
    pub series: Vec<Series>,
    /// The same from whole traces, where it was asked for.
    pub whole: Vec<Series>,
}

/// Of an axis, which begins at 0 if it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// In proportion.
    Linear,
    /// In proportion, and 100 is the most that there can be.
    Percent,
    /// By the number of digits.
    Logarithmic,
}

/// Values that belong together: one for each place, or none.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// What they are of.
    pub name: String,
    /// What came out here.
    pub values: Vec<Option<f64>>,
    /// What the paper says, at the same places; empty where it says nothing.
    pub paper: Vec<Option<f64>>,
}

impl Panel {
    pub(super) fn new(y_title: &'static str, scale: Scale, series: Vec<Series>) -> Self {
        Self { y_title, scale, series, whole: Vec::new() }
    }
}

impl Series {
    pub(super) fn new<V: Into<Option<f64>>>(name: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        let finite = |value: V| value.into().filter(|value| value.is_finite());
        Self { name: name.into(), values: values.into_iter().map(finite).collect(), paper: Vec::new() }
    }

    /// With the paper's value at some of the places.
    pub(super) fn said(mut self, values: impl IntoIterator<Item = (usize, f64)>) -> Self {
        self.paper.resize(self.values.len(), None);
        values.into_iter().for_each(|(place, value)| self.paper[place] = Some(value));
        self
    }
}

impl Figure {
    /// A figure whose values hold for themselves.
    pub(super) fn new<X: ToString>(
        name: &'static str,
        title: &'static str,
        shape: Shape,
        (x_title, x): (&'static str, impl IntoIterator<Item = X>),
        panels: Vec<Panel>,
    ) -> Self {
        let x: Vec<String> = x.into_iter().map(|place| place.to_string()).collect();
        let complete = |series: &Series| series.values.len() == x.len();
        assert!(
            panels.iter().flat_map(|panel| &panel.series).all(complete),
            "{name} has a value or none for each place"
        );
        Self { name, title, shape, x_title, x, paper: "", panels }
    }

    /// Says what the paper's values are.
    pub(super) fn beside(self, paper: &'static str) -> Self {
        Self { paper, ..self }
    }

    /// Its values to be read: a table for each quantity, with what is of whole traces, and what the paper says, below what
    /// it belongs to. Points that are many are for a picture alone.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        if self.shape == Shape::Dots {
            return Vec::new();
        }
        let table = |panel: &Panel| {
            let head: Vec<&str> = std::iter::once(self.x_title).chain(self.x.iter().map(String::as_str)).collect();
            let mut table = Table::new(panel.y_title, &head);
            let mut row = |name: String, values: &[Option<f64>]| {
                let cells = values.iter().map(|value| value.map_or("-".into(), told));
                table.row(std::iter::once(name).chain(cells));
            };
            for (place, series) in panel.series.iter().enumerate() {
                row(series.name.clone(), &series.values);
                if let Some(whole) = panel.whole.get(place) {
                    row(format!("{}, whole traces", whole.name), &whole.values);
                }
                if !series.paper.is_empty() {
                    row(format!("{}, {}", series.name, self.paper), &series.paper);
                }
            }
            table
        };
        self.panels.iter().map(table).collect()
    }
}

/// A value with the places that people read.
fn told(value: f64) -> String {
    match value.abs() {
        size if size >= 1e3 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_whole_traces_and_the_paper_below_what_they_belong_to() {
        let plain = Series::new("NoSKC", [8.571, f64::NAN, 160_871.8]);
        let six = Series::new("SKC-6", [Some(0.1234), None, Some(0.0)]).said([(2, 12.34)]);
        let mut panel = Panel::new("latency, µs", Scale::Linear, vec![plain, six]);
        panel.whole = vec![Series::new("NoSKC", [1.0, 2.0, 3.0]), Series::new("SKC-6", [1.0, 2.0, 3.0])];
        let places = ("benchmark", ["CG", "MG", "LU"]);
        let figure = Figure::new("skc-fig-5a", "Fig. 5a", Shape::Bars, places, vec![panel]).beside("paper");
        let [table] = &figure.tables()[..] else { panic!("one quantity") };
        assert_eq!((&*table.title, table.head.join(" ")), ("latency, µs", "benchmark CG MG LU".into()));
        let rows: Vec<String> = table.rows.iter().map(|row| row.join("; ")).collect();
        assert_eq!(
            rows,
            [
                "NoSKC; 8.57; -; 160872",
                "NoSKC, whole traces; 1.00; 2.00; 3.00",
                "SKC-6; 0.123; -; 0.00",
                "SKC-6, whole traces; 1.00; 2.00; 3.00",
                "SKC-6, paper; -; -; 12.3",
            ]
        );
        assert!(Figure { shape: Shape::Dots, ..figure }.tables().is_empty());
    }
}
