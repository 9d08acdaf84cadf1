//! A sweep's pictures: each measured quantity over the first swept key, with a line for each combination of the others.

use std::path::Path;

use epaint_default_fonts::UBUNTU_LIGHT;
use gambeson_sim::experiment::{FlowOutcome, Outcome};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

use super::Sweep;
use super::axis::Axis;
use super::table::{hit_rate, jobs_ended_us};
use crate::Error;

/// What is drawn.
pub(super) struct Chart {
    /// The picture's file, without its ending.
    pub(super) name: &'static str,
    pub(super) title: String,
    x_title: String,
    x: Axis,
    y: Axis,
    lines: Vec<Line>,
    repeated: bool,
}

struct Line {
    label: String,
    /// Its number among all combinations, so that each has the same colour in every picture.
    number: usize,
    dots: Vec<Dot>,
}

/// Runs of several seeds in one.
#[derive(Clone, Copy)]
struct Dot {
    x: f64,
    mean: f64,
    least: f64,
    most: f64,
}

/// Something that every run measured.
struct Quantity {
    name: &'static str,
    title: &'static str,
    unit: Unit,
    /// Whether each flow has its own.
    each_flow: bool,
    of: fn(&Outcome, &FlowOutcome) -> Option<f64>,
}

#[derive(Clone, Copy)]
enum Unit {
    Nanoseconds,
    Share,
    Percent,
    Packets,
}

const QUANTITIES: [Quantity; 7] = [
    Quantity {
        name: "mean-latency",
        title: "Mean latency of packets",
        unit: Unit::Nanoseconds,
        each_flow: true,
        of: |_, flow| (flow.latency.count > 0).then_some(flow.latency.mean_ns),
    },
    Quantity {
        name: "p99-latency",
        title: "Latency that 99 of 100 packets stay below",
        unit: Unit::Nanoseconds,
        each_flow: true,
        of: |_, flow| (flow.latency.count > 0).then_some(flow.latency.p99_ns),
    },
    Quantity {
        name: "accepted",
        title: "Accepted traffic, share of a link's rate at each node",
        unit: Unit::Share,
        each_flow: true,
        of: |outcome, flow| outcome.jobs.is_empty().then_some(flow.accepted),
    },
    Quantity {
        name: "completion",
        title: "Time until the last job ended",
        unit: Unit::Nanoseconds,
        each_flow: false,
        of: |outcome, _| jobs_ended_us(outcome).map(|us| us * 1e3),
    },
    Quantity {
        name: "hit-rate",
        title: "Keys found in cache or buffer",
        unit: Unit::Percent,
        each_flow: false,
        of: |outcome, _| hit_rate(outcome).map(|rate| rate * 100.0),
    },
    Quantity {
        name: "leaked",
        title: "Packets under forged keys that came through",
        unit: Unit::Packets,
        each_flow: false,
        of: |outcome, _| {
            let forged = outcome.experiment.traffic.iter().any(|source| source.forged_keys > 0);
            forged.then_some(outcome.leaked as f64)
        },
    },
    Quantity {
        name: "busiest-link",
        title: "Time that the busiest link was sending",
        unit: Unit::Percent,
        each_flow: false,
        of: |outcome, _| Some(outcome.busiest_link * 100.0),
    },
];

/// The charts of what was measured in at least one run.
pub(super) fn charts(sweep: &Sweep, outcomes: &[Outcome]) -> Vec<Chart> {
    QUANTITIES.iter().filter_map(|quantity| chart(quantity, sweep, outcomes)).collect()
}

fn chart(quantity: &Quantity, sweep: &Sweep, outcomes: &[Outcome]) -> Option<Chart> {
    let (x_title, values) = match sweep.over.first() {
        Some(over) => (over.key.clone(), over.values.clone()),
        None => ("seed".into(), vec![sweep.points[0].experiment.seed.to_string()]),
    };
    let (x, places) = Axis::of_values(&values);
    // Every measured value: its line, its place and itself.
    let mut measured: Vec<(String, usize, f64)> = Vec::new();
    let mut labels: Vec<String> = Vec::new();
    let several_flows = outcomes.iter().any(|outcome| outcome.flows.len() > 1);
    for (point, outcome) in sweep.points.iter().zip(outcomes) {
        let place = point.values.first().and_then(|value| values.iter().position(|other| other == value)).unwrap_or(0);
        let others = sweep.over.iter().zip(&point.values).skip(1);
        let others: Vec<String> = others.map(|(over, value)| format!("{} {value}", last_word(&over.key))).collect();
        for flow in outcome.flows.iter().take(if quantity.each_flow { usize::MAX } else { 1 }) {
            let mut parts = others.clone();
            if quantity.each_flow && several_flows {
                parts.insert(0, flow.name.clone());
            }
            let label = parts.join(", ");
            if !labels.contains(&label) {
                labels.push(label.clone());
            }
            if let Some(value) = (quantity.of)(outcome, flow) {
                measured.push((label, place, value));
            }
        }
    }
    let largest = measured.iter().map(|(.., value)| *value).reduce(f64::max)?;
    let (factor, unit) = quantity.unit.shown(largest);
    let line = |(number, label): (usize, &String)| {
        let dot = |(place, &x): (usize, &f64)| {
            let here = measured.iter().filter(|(other, at, _)| other == label && *at == place);
            let here: Vec<f64> = here.map(|(.., value)| value * factor).collect();
            let mean = here.iter().sum::<f64>() / here.len() as f64;
            let least = here.iter().copied().reduce(f64::min)?;
            Some(Dot { x, mean, least, most: here.iter().copied().fold(least, f64::max) })
        };
        let mut dots: Vec<Dot> = places.iter().enumerate().filter_map(dot).collect();
        dots.sort_by(|one, other| one.x.total_cmp(&other.x));
        Line { label: label.clone(), number, dots }
    };
    let lines: Vec<Line> = labels.iter().enumerate().map(line).filter(|line| !line.dots.is_empty()).collect();
    let all: Vec<f64> = lines.iter().flat_map(|line| &line.dots).flat_map(|dot| [dot.least, dot.most]).collect();
    let title = if unit.is_empty() { quantity.title.into() } else { format!("{}, {unit}", quantity.title) };
    Some(Chart {
        name: quantity.name,
        title,
        x_title,
        x,
        y: Axis::of_measures(&all, quantity.unit.most()),
        lines,
        repeated: sweep.repeat > 1,
    })
}

/// `traffic.0.load` is well known as `load`.
fn last_word(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

impl Unit {
    /// The most that there can be.
    fn most(self) -> Option<f64> {
        matches!(self, Self::Percent).then_some(100.0)
    }

    /// What values are multiplied by, and what they are called then.
    fn shown(self, largest: f64) -> (f64, &'static str) {
        match self {
            Self::Nanoseconds if largest < 1e4 => (1.0, "ns"),
            Self::Nanoseconds if largest < 1e7 => (1e-3, "µs"),
            Self::Nanoseconds if largest < 1e10 => (1e-6, "ms"),
            Self::Nanoseconds => (1e-9, "s"),
            Self::Percent => (1.0, "%"),
            Self::Share | Self::Packets => (1.0, ""),
        }
    }
}

/// A chart as SVG.
pub(super) fn svg(chart: &Chart) -> String {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, chart.size(1)).into_drawing_area();
    draw(&area, chart, 1).expect("a chart can be drawn into memory");
    drop(area);
    text
}

/// A chart as PNG, at twice the size.
///
/// # Errors
/// A sentence, when the file cannot be written.
pub(super) fn png(chart: &Chart, path: &Path) -> Result<(), Error> {
    let area = BitMapBackend::new(path, chart.size(2)).into_drawing_area();
    draw(&area, chart, 2).map_err(|error| Error::Folder {
        kind: std::io::ErrorKind::Other,
        what: format!("{} cannot be drawn: {error}", path.display()),
    })
}

const FONT: &str = "sans-serif";
const WIDTH: u32 = 860;
const HEIGHT: u32 = 420;
const LEGEND_ROW: u32 = 20;
const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
/// Told apart by people who do not see all colours, too; what comes after them has other marks.
const COLORS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x44, 0x44, 0x44),
];

impl Chart {
    fn has_legend(&self) -> bool {
        self.lines.len() > 1
    }

    fn size(&self, scale: u32) -> (u32, u32) {
        let legend = if self.has_legend() { 70 + LEGEND_ROW * self.lines.len() as u32 } else { 0 };
        (WIDTH * scale, HEIGHT.max(legend) * scale)
    }

    /// How wide the legend is; letters of the font are about half as wide as high.
    fn legend_width(&self) -> u32 {
        let longest = self.lines.iter().map(|line| line.label.chars().count()).max().unwrap_or(0) as u32;
        if self.has_legend() { (44 + 8 * longest).min(WIDTH / 2) } else { 0 }
    }
}

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn draw<B: DrawingBackend>(area: &DrawingArea<B, Shift>, chart: &Chart, scale: u32) -> Drawn<B> {
    // A second registration is refused and does no harm.
    let _ = register_font(FONT, FontStyle::Normal, UBUNTU_LIGHT);
    let at = |length: u32| length * scale;
    let px = |length: i32| length * scale as i32;
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(at(44));
    let title = if chart.repeated { format!("{} (mean, least, most)", chart.title) } else { chart.title.clone() };
    head.draw(&Text::new(title, (px(16), px(14)), (FONT, at(18)).into_font().color(&BLACK)))?;
    let (plot, legend) = body.split_horizontally(at(WIDTH - chart.legend_width()));
    let right = (FONT, at(14)).into_font().color(&INK);
    let mut context = ChartBuilder::on(&plot)
        .margin_right(at(18))
        .margin_bottom(at(8))
        .x_label_area_size(at(48))
        .y_label_area_size(at(64))
        .build_cartesian_2d(chart.x.clone(), chart.y.clone())?;
    context
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(scale))
        .axis_style(INK.stroke_width(scale))
        .set_all_tick_mark_size(at(4))
        .label_style(right)
        .x_desc(&chart.x_title)
        .axis_desc_style((FONT, at(15)).into_font().color(&INK))
        .draw()?;
    for (at_place, line) in chart.lines.iter().enumerate() {
        let color = COLORS[line.number % COLORS.len()];
        // Of lines that coincide the first ones look out below the last.
        let radius = 4 + (chart.lines.len() - 1 - at_place).min(3) as i32;
        for dot in line.dots.iter().filter(|dot| dot.most > dot.least) {
            let bar = [(dot.x, dot.least), (dot.x, dot.most)];
            context.draw_series(LineSeries::new(bar, color.mix(0.5).stroke_width(at(3))))?;
        }
        let points = || line.dots.iter().map(|dot| (dot.x, dot.mean));
        context.draw_series(LineSeries::new(points(), color.stroke_width(at(2))))?;
        for point in points() {
            mark(area, context.backend_coord(&point), line.number, px(radius))?;
        }
    }
    if chart.has_legend() {
        for (row, line) in chart.lines.iter().enumerate() {
            let color = COLORS[line.number % COLORS.len()];
            let y = px(10 + (LEGEND_ROW as i32) * row as i32);
            legend.draw(&PathElement::new([(px(2), y), (px(26), y)], color.stroke_width(at(2))))?;
            mark(&legend, (px(14), y), line.number, px(4))?;
            let style = (FONT, at(14)).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
            legend.draw(&Text::new(line.label.clone(), (px(34), y), style))?;
        }
    }
    area.present()
}

/// The mark of a line: a circle, and other shapes once the colours begin anew.
fn mark<B: DrawingBackend>(area: &DrawingArea<B, Shift>, at: (i32, i32), line: usize, size: i32) -> Drawn<B> {
    let color = COLORS[line % COLORS.len()];
    match line / COLORS.len() % 3 {
        0 => area.draw(&Circle::new(at, size, color.filled())),
        1 => area.draw(&TriangleMarker::new(at, size + size / 2, color.filled())),
        _ => area.draw(&Cross::new(at, size, color.stroke_width(size as u32 / 2))),
    }
}
