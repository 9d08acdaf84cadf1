//! The figures of the two papers that `gambeson sim reproduce` computes, as pictures.

use std::path::Path;

use gambeson_sim::reproduce::{Figure, Panel, Scale, Series, Shape};

use crate::Error;
use crate::chart::{self, Axis, Chart, Dot, Picture};

/// Draws figures into a folder, each as SVG and as PNG under its name.
///
/// # Errors
/// A folder that cannot be written.
pub fn draw<'f>(figures: impl IntoIterator<Item = &'f Figure>, dir: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(dir).map_err(|error| Error::unwritable(dir, &error))?;
    figures.into_iter().try_for_each(|figure| picture(figure).write(dir))
}

fn picture(figure: &Figure) -> Picture {
    // In the order of those that have most of them.
    let mut panels: Vec<&Panel> = figure.panels.iter().collect();
    panels.sort_by_key(|panel| std::cmp::Reverse(panel.series.len()));
    let mut labels: Vec<&str> = Vec::new();
    for series in panels.iter().flat_map(|panel| &panel.series) {
        if !labels.contains(&series.name.as_str()) {
            labels.push(&series.name);
        }
    }
    let whole = figure.panels.iter().any(|panel| !panel.whole.is_empty());
    let row = |panel: &Panel| {
        let both = [&panel.series, &panel.whole].map(|series| (extremes(series), series));
        // One axis for both, unless one would be squeezed on it.
        let [window, whole] = [both[0].0, both[1].0];
        let together = (window.0.min(whole.0), window.1.max(whole.1));
        let shared = window.1.max(whole.1) < 2.0 * window.1.min(whole.1);
        let shown = both.into_iter().filter(|(_, series)| !series.is_empty());
        shown.map(|(own, series)| chart(figure, panel, if shared { together } else { own }, series, &labels)).collect()
    };
    Picture {
        name: figure.name.into(),
        title: figure.title.into(),
        columns: if whole { vec!["window of iterations", "whole traces"] } else { Vec::new() },
        rows: figure.panels.iter().map(row).collect(),
        said: figure.paper.into(),
    }
}

/// The least value above 0 and the most, of what came out and of what the paper says.
fn extremes(series: &[Series]) -> (f64, f64) {
    let values = series.iter().flat_map(|series| series.values.iter().chain(&series.paper).flatten());
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &value| {
        (if value > 0.0 { least.min(value) } else { least }, most.max(value))
    })
}

fn chart(figure: &Figure, panel: &Panel, (least, most): (f64, f64), series: &[Series], labels: &[&str]) -> Chart {
    let (x, places) = match figure.shape {
        Shape::Bars => Axis::side_by_side(&figure.x),
        Shape::Lines => Axis::of_values(&figure.x),
        Shape::Dots => {
            let places: Vec<f64> = figure.x.iter().filter_map(|place| crate::number(place)).collect();
            let ends = [f64::min, f64::max].map(|end| places.iter().copied().reduce(end).unwrap_or(0.0));
            (Axis::linear(ends[0], ends[1], None), places)
        }
    };
    let lowest = series.iter().flat_map(|series| series.values.iter().flatten()).fold(0.0, |a: f64, &b| a.min(b));
    let y = match panel.scale {
        // So that no bar has the height of nothing.
        Scale::Logarithmic if least < most => Axis::logarithmic(least * 0.8, most),
        Scale::Percent => Axis::linear(0.0, most.max(1.0), Some(100.0)),
        Scale::Linear | Scale::Logarithmic => Axis::linear(lowest, most.max(0.001), None),
    };
    let at = |values: &[Option<f64>]| -> Vec<(f64, f64)> {
        places.iter().zip(values).filter_map(|(&x, value)| Some((x, (*value)?))).collect()
    };
    let series = series.iter().map(|series| chart::Series {
        label: series.name.clone(),
        number: labels.iter().position(|label| *label == series.name).unwrap_or(0),
        dots: at(&series.values).into_iter().map(|(x, y)| Dot { x, mean: y, least: y, most: y }).collect(),
        said: at(&series.paper),
    });
    Chart {
        x_title: figure.x_title.into(),
        x,
        y_title: panel.y_title.into(),
        y,
        shape: match figure.shape {
            Shape::Bars => chart::Shape::Bars,
            Shape::Lines => chart::Shape::Lines,
            Shape::Dots => chart::Shape::Dots,
        },
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(whole: [f64; 2]) -> Figure {
        let series = |values: [f64; 2], said: Option<f64>| Series {
            name: "SKC-6".into(),
            values: values.map(Some).into(),
            paper: said.map_or(Vec::new(), |said| vec![None, Some(said)]),
        };
        let panel = Panel {
            y_title: "mean latency, µs",
            scale: Scale::Linear,
            series: vec![series([3.0, 4.0], Some(5.0))],
            whole: vec![series(whole, None)],
        };
        Figure {
            name: "skc-fig-5a",
            title: "Fig. 5a",
            shape: Shape::Bars,
            x_title: "benchmark",
            x: vec!["CG".into(), "MG".into()],
            paper: "paper",
            panels: vec![panel],
        }
    }

    #[test]
    fn whole_traces_stand_beside_the_window_on_the_same_axis_if_they_fit_it() {
        let axes = |whole| {
            let Picture { rows, columns, .. } = picture(&figure(whole));
            let [window, whole] = &rows[0][..] else { panic!("two columns") };
            assert_eq!((rows.len(), columns.len()), (1, 2));
            (window.y.clone(), whole.y.clone())
        };
        let (window, whole) = axes([4.5, 7.0]);
        assert_eq!(window, whole);
        let (window, whole) = axes([30.0, 40.0]);
        assert_ne!(window, whole);
    }

    #[test]
    fn what_the_paper_says_is_a_mark_of_its_own_at_its_place() {
        let chart = &picture(&figure([3.0, 4.0])).rows[0][0];
        assert_eq!(chart.series[0].said, [(1.0, 5.0)]);
        let svg = picture(&figure([3.0, 4.0])).svg();
        assert_eq!(svg.matches("<polygon").count(), 2, "one in the legend, one at its place");
        assert!(["SKC-6", "paper", "whole traces", "window of iterations"].iter().all(|text| svg.contains(text)));
    }
}
