//! The benchmark's picture: what both sides reach, and their ratio, by message size.
//!
//! The font is built in, so that the picture is the same on a machine without fonts.

use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::Report;
use super::statistics::{Quantity, Series};
use crate::probe::plan::bytes;

/// A file to draw into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Picture {
    Svg(PathBuf),
    Png(PathBuf),
}

impl std::str::FromStr for Picture {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Self::Svg(path)),
            Some("png") => Ok(Self::Png(path)),
            _ => Err(format!("{text} ends neither in .svg nor in .png")),
        }
    }
}

const SIZE: (u32, u32) = (1240, 900);
const PLAIN: RGBColor = RGBColor(0x5a, 0x5a, 0x5a);
const SEALED: RGBColor = RGBColor(0x0b, 0x6e, 0x8f);
const FAINT: RGBColor = RGBColor(0xd8, 0xd8, 0xd8);
const FONT: &str = "sans-serif";

/// Draws a report.
///
/// # Errors
/// A sentence, when the file cannot be written.
pub(crate) fn draw(report: &Report, picture: &Picture) -> Result<(), String> {
    // A second registration is refused and does no harm.
    let _ = register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
    match picture {
        Picture::Svg(path) => {
            let area = SVGBackend::new(path, SIZE).into_drawing_area();
            draw_on(&area, report).map_err(|error| refused(path, &error))
        }
        Picture::Png(path) => {
            let area = BitMapBackend::new(path, SIZE).into_drawing_area();
            draw_on(&area, report).map_err(|error| refused(path, &error))
        }
    }
}

fn refused(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{} cannot be drawn: {error}", path.display())
}

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn draw_on<B: DrawingBackend>(area: &DrawingArea<B, Shift>, report: &Report) -> Drawn<B> {
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(74);
    let title = format!("{}: messages plain and sealed, two processes, provider {}", report.mpi, report.core);
    head.draw(&Text::new(title, (24, 16), (FONT, 24).into_font().color(&BLACK)))?;
    head.draw(&Text::new(subtitle(report), (24, 46), (FONT, 17).into_font().color(&PLAIN)))?;
    let panels = body.split_evenly((2, 2));
    let latency: Vec<&Series> = report.of(Quantity::Latency).collect();
    let bandwidth: Vec<&Series> = report.of(Quantity::Bandwidth).collect();
    values(&panels[0], "Latency, µs", &latency, 1e6, SeriesLabelPosition::UpperLeft)?;
    values(&panels[1], "Bandwidth, MB/s", &bandwidth, 1e-6, SeriesLabelPosition::LowerRight)?;
    ratios(&panels[2], "Latency, sealed / plain", &latency)?;
    ratios(&panels[3], "Bandwidth, sealed / plain", &bandwidth)?;
    area.present()
}

fn subtitle(report: &Report) -> String {
    let rate = report.of(Quantity::Rate).next().map_or(String::new(), |series| {
        let (plain, sealed) = series.values();
        format!(
            "; {} message rate {:.0} and {:.0} thousand per second ({:.2})",
            bytes(series.size),
            plain.best / 1e3,
            sealed.best / 1e3,
            series.ratios().of_best
        )
    });
    format!("best of {} rounds in alternation{rate}", report.rounds)
}

/// What both sides reach, on a logarithmic scale.
fn values<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    series: &[&Series],
    scale: f64,
    legend: SeriesLabelPosition,
) -> Drawn<B> {
    if series.is_empty() {
        return Ok(());
    }
    let sides = [("plain", PLAIN, 0), ("sealed", SEALED, 1)];
    let best = |series: &Series, side: usize| [series.values().0.best, series.values().1.best][side] * scale;
    let all = || series.iter().flat_map(|series| [best(series, 0), best(series, 1)]);
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 20))
        .margin(14)
        .x_label_area_size(34)
        .y_label_area_size(70)
        .build_cartesian_2d(places(series), (least * 0.8..most * 1.25).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(PLAIN)
        .x_labels(series.len())
        .x_label_formatter(&|place| label(series, *place))
        .y_label_formatter(&|value| if *value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") })
        .label_style((FONT, 15))
        .draw()?;
    for (name, color, side) in sides {
        let points = || series.iter().enumerate().map(|(place, series)| (place as f64, best(series, side)));
        chart
            .draw_series(LineSeries::new(points(), color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], color.stroke_width(2)));
        chart.draw_series(points().map(|point| Circle::new(point, 4, color.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(legend)
        .label_font((FONT, 16))
        .background_style(WHITE)
        .border_style(FAINT)
        .draw()?;
    Ok(())
}

/// The ratio of the best values, with the rounds' own ratios as small dots.
fn ratios<B: DrawingBackend>(area: &DrawingArea<B, Shift>, title: &str, series: &[&Series]) -> Drawn<B> {
    if series.is_empty() {
        return Ok(());
    }
    let rounds = |series: &Series| -> Vec<f64> {
        series.plain.iter().zip(&series.sealed).map(|(plain, sealed)| sealed / plain).collect()
    };
    // A round that something disturbed must not press all others together: the scale leaves it out.
    let shown = |series: &&Series| [series.ratios().of_best, series.ratios().median, 1.0];
    let all = || series.iter().flat_map(shown);
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let margin = (most - least).max(0.1) * 0.2;
    let scale = (least - margin).max(0.0)..most + margin;
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 20))
        .margin(14)
        .x_label_area_size(34)
        .y_label_area_size(70)
        .build_cartesian_2d(places(series), scale.clone())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(PLAIN)
        .x_labels(series.len())
        .x_label_formatter(&|place| label(series, *place))
        .y_label_formatter(&|value| format!("{value:.2}"))
        .label_style((FONT, 15))
        .draw()?;
    let ends = places(series);
    chart.draw_series(LineSeries::new([(ends.start, 1.0), (ends.end, 1.0)], PLAIN.stroke_width(1)))?;
    for (place, series) in series.iter().enumerate() {
        let dots = rounds(series)
            .into_iter()
            .filter(|ratio| scale.contains(ratio))
            .map(|ratio| Circle::new((place as f64, ratio), 2, SEALED.mix(0.4).filled()));
        chart.draw_series(dots)?;
    }
    let points = || series.iter().enumerate().map(|(place, series)| (place as f64, series.ratios().of_best));
    chart.draw_series(LineSeries::new(points(), SEALED.stroke_width(2)))?;
    chart.draw_series(points().map(|point| {
        EmptyElement::at(point)
            + Circle::new((0, 0), 4, SEALED.filled())
            + Text::new(format!("{:.2}", point.1), (-12, -20), (FONT, 14).into_font().color(&BLACK))
    }))?;
    Ok(())
}

/// Sizes stand side by side whatever their value, so that 0 B has a place too.
fn places(series: &[&Series]) -> std::ops::Range<f64> {
    -0.5..series.len() as f64 - 0.5
}

fn label(series: &[&Series], place: f64) -> String {
    let near = place.round();
    let index = ((place - near).abs() < 0.01 && near >= 0.0).then_some(near as usize);
    index.and_then(|index| series.get(index)).map_or(String::new(), |series| bytes(series.size).replace("iB", ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tests::report;

    /// Draws into a file of this name and returns what is in it.
    fn drawn(name: &str) -> Vec<u8> {
        let path = std::env::temp_dir().join(format!("gambeson-plot-{}-{name}", std::process::id()));
        let picture = path.to_string_lossy().parse().expect("the name ends as a picture's");
        draw(&report(), &picture).expect("a report can be drawn");
        let bytes = std::fs::read(&path).expect("the picture is there");
        std::fs::remove_file(path).expect("the picture can be removed");
        bytes
    }

    #[test]
    fn both_kinds_of_picture_are_drawn() {
        let svg = String::from_utf8(drawn("a.svg")).expect("SVG is text");
        for text in ["Some MPI", "Latency, sealed / plain", "64 K", "1.25"] {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert!(drawn("a.png").starts_with(b"\x89PNG"));
    }

    #[test]
    fn other_names_are_refused() {
        assert!("a.pdf".parse::<Picture>().is_err());
        assert!("svg".parse::<Picture>().is_err());
    }
}
