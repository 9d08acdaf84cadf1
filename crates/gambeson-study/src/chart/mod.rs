//! Pictures of results as SVG and PNG: charts in rows and columns below one title and one legend.
//!
//! What is told apart by colour is told apart without it too: lines by their dashes and marks, bars by how dark they are.

mod axis;
mod style;

use std::path::Path;

use epaint_default_fonts::UBUNTU_LIGHT;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

pub(crate) use axis::Axis;
use style::Style;

use crate::Error;

/// Charts that are read together.
pub(crate) struct Picture {
    /// Its file, without the ending.
    pub(crate) name: String,
    pub(crate) title: String,
    /// What the columns are, where there are several.
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<Chart>>,
    /// What values are that somebody else gives.
    pub(crate) said: String,
}

/// One pair of axes.
pub(crate) struct Chart {
    pub(crate) x_title: String,
    pub(crate) x: Axis,
    /// Empty where the picture's title says it.
    pub(crate) y_title: String,
    pub(crate) y: Axis,
    pub(crate) shape: Shape,
    pub(crate) series: Vec<Series>,
}

/// How values are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Lines,
    Dots,
    Bars,
}

pub(crate) struct Series {
    pub(crate) label: String,
    /// The same for all of this label in all pictures that belong together, so that it looks the same.
    pub(crate) number: usize,
    pub(crate) dots: Vec<Dot>,
    /// What somebody else says in place of it.
    pub(crate) said: Vec<(f64, f64)>,
}

/// Values of several runs in one.
#[derive(Clone, Copy)]
pub(crate) struct Dot {
    pub(crate) x: f64,
    pub(crate) mean: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

const FONT: &str = "sans-serif";
const WIDTH: u32 = 860;
const TITLE: u32 = 44;
const CAPTION: u32 = 24;
const LEGEND_ROW: u32 = 21;
const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
/// Of a group of bars, the rest of its place stays empty.
const GROUP_WIDTH: f64 = 0.84;

/// A part of the legend: its place in pixels, what is there, and how that is drawn; none is what somebody else says.
struct Entry<'p> {
    at: (i32, i32),
    label: &'p str,
    key: Option<(Shape, usize)>,
}

impl Picture {
    /// The picture as SVG.
    pub(crate) fn svg(&self) -> String {
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, self.size(1)).into_drawing_area();
        self.draw(&area, 1).expect("a picture can be drawn into memory");
        drop(area);
        text
    }

    /// Writes it into a folder, both ways.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), Error> {
        crate::replace(&dir.join(format!("{}.svg", self.name)), self.svg().as_bytes())?;
        self.png(&dir.join(format!("{}.png", self.name)))
    }

    /// The picture as PNG, at twice the size.
    fn png(&self, path: &Path) -> Result<(), Error> {
        let area = BitMapBackend::new(path, self.size(2)).into_drawing_area();
        self.draw(&area, 2).map_err(|error| Error::Folder {
            kind: std::io::ErrorKind::Other,
            what: format!("{} cannot be drawn: {error}", path.display()),
        })
    }

    fn charts(&self) -> impl Iterator<Item = &Chart> {
        self.rows.iter().flatten()
    }

    /// Each label once, from left to right and then below; letters of the font are about half as wide as high.
    fn legend(&self) -> Vec<Entry<'_>> {
        let mut entries: Vec<Entry<'_>> = Vec::new();
        for chart in self.charts() {
            for series in &chart.series {
                if !entries.iter().any(|entry| entry.label == series.label) {
                    let key = Some((chart.shape, series.number));
                    entries.push(Entry { at: (0, 0), label: &series.label, key });
                }
            }
        }
        if self.charts().flat_map(|chart| &chart.series).any(|series| !series.said.is_empty()) {
            entries.push(Entry { at: (0, 0), label: &self.said, key: None });
        } else if entries.len() < 2 {
            return Vec::new();
        }
        let (mut x, mut y) = (16, 10);
        for entry in &mut entries {
            let width = 50 + 8 * entry.label.chars().count() as i32;
            if x + width > WIDTH as i32 && x > 16 {
                (x, y) = (16, y + LEGEND_ROW as i32);
            }
            entry.at = (x, y);
            x += width;
        }
        entries
    }

    fn legend_height(&self) -> u32 {
        self.legend().last().map_or(0, |entry| entry.at.1 as u32 + LEGEND_ROW)
    }

    fn caption(&self) -> u32 {
        if self.columns.len() > 1 { CAPTION } else { 0 }
    }

    /// Of a row of charts.
    fn row_height(&self) -> u32 {
        match self.rows.len() {
            1 => 370,
            2 => 280,
            _ => 240,
        }
    }

    fn size(&self, scale: u32) -> (u32, u32) {
        let rows = self.row_height() * self.rows.len() as u32;
        (WIDTH * scale, (TITLE + self.legend_height() + self.caption() + rows) * scale)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, scale: u32) -> Drawn<B> {
        // A second registration is refused and does no harm.
        let _ = register_font(FONT, FontStyle::Normal, UBUNTU_LIGHT);
        let pen = Pen {
            scale,
            series: self.charts().flat_map(|chart| &chart.series).map(|s| s.number + 1).max().unwrap_or(1),
        };
        area.fill(&WHITE)?;
        let (head, body) = area.split_vertically(pen.at(TITLE));
        head.draw(&Text::new(
            self.title.clone(),
            (pen.px(16), pen.px(14)),
            (FONT, pen.at(18)).into_font().color(&BLACK),
        ))?;
        let (legend, body) = body.split_vertically(pen.at(self.legend_height()));
        for entry in self.legend() {
            pen.entry(&legend, &entry)?;
        }
        let (captions, body) = body.split_vertically(pen.at(self.caption()));
        let columns = self.columns.len().max(1);
        for (column, caption) in
            captions.split_evenly((1, columns)).iter().zip(&self.columns).take(self.caption() as usize)
        {
            let style = pen.text(15).pos(Pos::new(HPos::Left, VPos::Center));
            column.draw(&Text::new(*caption, (pen.px(16), pen.px(CAPTION as i32 / 2)), style))?;
        }
        for (place, chart) in body.split_evenly((self.rows.len(), columns)).iter().zip(self.charts()) {
            pen.chart(area, place, chart)?;
        }
        area.present()
    }
}

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// Draws at a scale; knows how many series there are, that they may share what tells them apart.
struct Pen {
    scale: u32,
    series: usize,
}

impl Pen {
    fn at(&self, length: u32) -> u32 {
        length * self.scale
    }

    fn px(&self, length: i32) -> i32 {
        length * self.scale as i32
    }

    fn text(&self, size: u32) -> TextStyle<'static> {
        (FONT, self.at(size)).into_font().color(&INK)
    }

    fn style(&self, shape: Shape, number: usize) -> Style {
        Style::of(shape, number, self.series)
    }

    fn entry<B: DrawingBackend>(&self, legend: &DrawingArea<B, Shift>, entry: &Entry<'_>) -> Drawn<B> {
        let (x, y) = (self.px(entry.at.0), self.px(entry.at.1));
        match entry.key {
            None => style::said(legend, (x + self.px(14), y), self.px(6))?,
            Some((Shape::Bars, number)) => {
                let corners = [(x + self.px(5), y - self.px(6)), (x + self.px(24), y + self.px(6))];
                self.style(Shape::Bars, number).bar(legend, corners)?;
            }
            Some((shape, number)) => {
                let style = self.style(shape, number);
                if shape == Shape::Lines {
                    style.line(legend, [(x, y), (x + self.px(29), y)], self.scale)?;
                }
                style.mark(legend, (x + self.px(14), y), self.px(4))?;
            }
        }
        let style = self.text(14).pos(Pos::new(HPos::Left, VPos::Center));
        legend.draw(&Text::new(entry.label, (x + self.px(36), y), style))
    }

    fn chart<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        place: &DrawingArea<B, Shift>,
        chart: &Chart,
    ) -> Drawn<B> {
        let mut context = ChartBuilder::on(place)
            .margin_top(self.at(if chart.y_title.is_empty() { 8 } else { 32 }))
            .margin_right(self.at(18))
            .margin_bottom(self.at(8))
            .x_label_area_size(self.at(48))
            .y_label_area_size(self.at(64))
            .build_cartesian_2d(chart.x.clone(), chart.y.clone())?;
        context
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.stroke_width(self.scale))
            .axis_style(INK.stroke_width(self.scale))
            .set_all_tick_mark_size(self.at(4))
            .label_style(self.text(14))
            .x_desc(&chart.x_title)
            .axis_desc_style(self.text(15))
            .draw()?;
        // Above its axis, where it is read without turning the head.
        place.draw(&Text::new(chart.y_title.clone(), (self.px(16), self.px(6)), self.text(15)))?;
        let slots = chart.series.len();
        let group = (GROUP_WIDTH / 2.0 * slots as f64).min(GROUP_WIDTH);
        for (slot, series) in chart.series.iter().enumerate() {
            let style = self.style(chart.shape, series.number);
            let points = || series.dots.iter().map(|dot| context.backend_coord(&(dot.x, dot.mean)));
            match chart.shape {
                Shape::Bars => {
                    for dot in &series.dots {
                        let from = dot.x + group * (slot as f64 / slots as f64 - 0.5);
                        let corners = [(from, chart.y.base()), (from + group / slots as f64, dot.mean)];
                        style.bar(area, corners.map(|corner| context.backend_coord(&corner)))?;
                    }
                }
                Shape::Lines => {
                    for dot in series.dots.iter().filter(|dot| dot.most > dot.least) {
                        let ends = [(dot.x, dot.least), (dot.x, dot.most)].map(|end| context.backend_coord(&end));
                        area.draw(&PathElement::new(ends, style.faint(3 * self.scale)))?;
                    }
                    style.line(area, points(), self.scale)?;
                }
                Shape::Dots => {}
            }
            if chart.shape != Shape::Bars {
                // Of lines that coincide the first ones look out below the last.
                let radius = if chart.shape == Shape::Dots { 3 } else { 4 + (slots - 1 - slot).min(3) as i32 };
                for point in points() {
                    style.mark(area, point, self.px(radius))?;
                }
            }
        }
        // Above all that is drawn.
        for (slot, series) in chart.series.iter().enumerate() {
            let within = |slot: f64| if chart.shape == Shape::Bars { group * (slot / slots as f64 - 0.5) } else { 0.0 };
            for &(x, y) in &series.said {
                let [left, middle, right] =
                    [0.0, 0.5, 1.0].map(|part| context.backend_coord(&(x + within(slot as f64 + part), y)));
                // No wider than its bar.
                let most = if right.0 > left.0 { (right.0 - left.0) / 2 } else { self.px(6) };
                style::said(area, middle, most.min(self.px(6)))?;
            }
        }
        // What lies on the axes has covered them.
        let (across, down) = context.plotting_area().get_pixel_range();
        let corners = [(across.start, down.start), (across.start, down.end), (across.end, down.end)];
        area.draw(&PathElement::new(corners, INK.stroke_width(self.scale)))
    }
}
