//! What tells series apart: colours that people tell apart who do not see all of them, and marks, dashes and darkness for
//! print without colour.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::{Drawn, INK, Shape};

/// How a series looks.
pub(super) struct Style {
    color: RGBColor,
    number: usize,
}

const COLORS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x44, 0x44, 0x44),
];

/// Of bars, from the first to the last: ever darker.
const SHADES: [RGBColor; 5] = [
    RGBColor(0xf0, 0xe4, 0x42),
    RGBColor(0x6c, 0xcb, 0x5f),
    RGBColor(0x22, 0x90, 0x8c),
    RGBColor(0x3a, 0x52, 0x8b),
    RGBColor(0x3a, 0x00, 0x50),
];

/// Pixels of a line that are drawn, and those that are left out.
const DASHES: [Option<(i32, i32)>; 4] = [None, Some((14, 7)), Some((6, 6)), Some((28, 7))];
/// Different ones.
const MARKS: usize = 8;

type Area<B> = DrawingArea<B, Shift>;

impl Style {
    /// That of the series of a number, of so many.
    pub(super) fn of(shape: Shape, number: usize, of: usize) -> Self {
        let color = match shape {
            Shape::Lines | Shape::Dots => COLORS[number % COLORS.len()],
            Shape::Bars if of < 2 => SHADES[SHADES.len() / 2],
            Shape::Bars => shade(number as f64 / (of - 1) as f64),
        };
        Self { color, number }
    }

    pub(super) fn faint(&self, width: u32) -> ShapeStyle {
        self.color.mix(0.5).stroke_width(width)
    }

    pub(super) fn line<B: DrawingBackend>(
        &self,
        area: &Area<B>,
        points: impl IntoIterator<Item = (i32, i32)>,
        scale: u32,
    ) -> Drawn<B> {
        let (points, stroke) = (points.into_iter().collect::<Vec<_>>(), self.color.stroke_width(2 * scale));
        // Who shares a mark with another has other dashes.
        match DASHES[(self.number + self.number / MARKS) % DASHES.len()] {
            None => area.draw(&PathElement::new(points, stroke)),
            Some((drawn, left_out)) => {
                let [drawn, left_out] = [drawn, left_out].map(|length| length * scale as i32);
                area.draw(&DashedPathElement::new(points, drawn, left_out, stroke))
            }
        }
    }

    /// A bar between two corners, with a rim where it is too light for a white ground.
    pub(super) fn bar<B: DrawingBackend>(&self, area: &Area<B>, corners: [(i32, i32); 2]) -> Drawn<B> {
        area.draw(&Rectangle::new(corners, self.color.filled()))?;
        let RGBColor(red, green, blue) = self.color;
        if u32::from(red) * 2 + u32::from(green) * 5 + u32::from(blue) > 8 * 150 {
            area.draw(&Rectangle::new(corners, INK.mix(0.6).stroke_width(1)))?;
        }
        Ok(())
    }

    /// Its mark.
    pub(super) fn mark<B: DrawingBackend>(&self, area: &Area<B>, (x, y): (i32, i32), size: i32) -> Drawn<B> {
        let (filled, stroke) = (self.color.filled(), self.color.stroke_width(size as u32 / 2));
        let polygon = |corners: &[(i32, i32)]| {
            Polygon::new(corners.iter().map(|&(dx, dy)| (x + dx, y + dy)).collect::<Vec<_>>(), filled)
        };
        let (long, low) = (size + size / 3, size * 2 / 3);
        match self.number % MARKS {
            0 => area.draw(&Circle::new((x, y), size, filled)),
            1 => area.draw(&Rectangle::new([(x - size, y - size), (x + size, y + size)], filled)),
            2 => area.draw(&polygon(&[(0, -long), (long, low), (-long, low)])),
            3 => area.draw(&polygon(&[(0, long), (long, -low), (-long, -low)])),
            4 => area.draw(&Cross::new((x, y), size, stroke)),
            5 => {
                area.draw(&Circle::new((x, y), size, WHITE.filled()))?;
                area.draw(&Circle::new((x, y), size, stroke))
            }
            6 => {
                let corners = [(x - size, y - size), (x + size, y + size)];
                area.draw(&Rectangle::new(corners, WHITE.filled()))?;
                area.draw(&Rectangle::new(corners, stroke))
            }
            _ => {
                area.draw(&PathElement::new([(x - long, y), (x + long, y)], stroke))?;
                area.draw(&PathElement::new([(x, y - long), (x, y + long)], stroke))
            }
        }
    }
}

/// The mark of a value that somebody else gives: no series has it.
pub(super) fn said<B: DrawingBackend>(area: &Area<B>, (x, y): (i32, i32), size: i32) -> Drawn<B> {
    let corners = [(x, y - size), (x + size, y), (x, y + size), (x - size, y), (x, y - size)];
    area.draw(&Polygon::new(corners, WHITE.filled()))?;
    area.draw(&PathElement::new(corners, BLACK.stroke_width((size as u32 / 3).max(1))))
}

/// Between the shades.
fn shade(place: f64) -> RGBColor {
    let at = place * (SHADES.len() - 1) as f64;
    let below = (at as usize).min(SHADES.len() - 2);
    let (RGBColor(r0, g0, b0), RGBColor(r1, g1, b1)) = (SHADES[below], SHADES[below + 1]);
    let between = |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * (at - below as f64)) as u8;
    RGBColor(between(r0, r1), between(g0, g1), between(b0, b1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_told_apart_without_colour() {
        for count in 2..=8 {
            let light = |number| {
                let RGBColor(red, green, blue) = Style::of(Shape::Bars, number, count).color;
                0.2126 * f64::from(red) + 0.7152 * f64::from(green) + 0.0722 * f64::from(blue)
            };
            let lights: Vec<f64> = (0..count).map(light).collect();
            assert!(lights.windows(2).all(|two| two[0] > two[1] + 15.0), "{lights:?}");
        }
    }
}
