//! Figures 6 and 7 of the secure-nexus paper again: the time of a message against its length, over two carriers, secure and
//! unsecure.

use std::fmt::Write;

use gambeson_sim::reproduce::{Figure, Panel, Scale, Series as Line, Shape};
use indicatif::ProgressBar;
use serde::Serialize;

use super::side::{self, Kind};
use super::{Ratio, Series, alternate, put, trips};
use crate::failure::Failure;

/// Both figures.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: &'static str,
    runs: usize,
    load: [f64; 3],
    curves: Vec<Curve>,
    /// Requests of several pieces over shared memory, copied together and sealed as they are put.
    put: Vec<Series>,
}

/// Lengths of messages that are put in pieces.
const PUT: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];

/// One of their four curves: seconds of a message one way, which is half of there and back.
#[derive(Debug, Serialize)]
struct Curve {
    name: &'static str,
    /// Bytes of a message, and the least time.
    points: Vec<(usize, f64)>,
    /// What the paper's text says of 10 bytes.
    paper: f64,
}

/// The curves as the paper orders them. MPL was the IBM SP2's own way between processors; shared memory is this host's. The
/// text gives TCP's two values in the order that cannot be meant ("secure and unsecure TCP, which take 394 and 472"), so they
/// stand here the other way round, as the figure has them.
const CURVES: [(&str, &str, &str, f64); 4] = [
    ("TCP secure", "TCP", "sealed", 472e-6),
    ("shared memory secure", "shared memory", "sealed", 128e-6),
    ("TCP unsecure", "TCP", "in clear", 394e-6),
    ("shared memory unsecure", "shared memory", "in clear", 78e-6),
];

/// What both figures span.
const LENGTHS: [usize; 21] =
    [0, 1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 2000, 3000, 5000, 10_000];
/// Figure 6 has every hundredth of these, figure 7 all but the first.
const LINEAR_MAX: usize = 1000;
/// Of which the text gives values.
const SMALL: usize = 10;

/// Measures them.
///
/// # Errors
/// When the other processes do not come up, or a link fails.
pub(crate) fn bench(runs: usize, load: [f64; 3], progress: &ProgressBar) -> Result<Report, Failure> {
    let mut sides = side::links(true)?;
    sides.extend(side::links(false)?);
    sides.retain(|side| CURVES.iter().any(|&(_, carrier, name, _)| (carrier, name) == (side.carrier(), side.name())));
    progress.set_length(2 * runs as u64);
    let series = alternate(&mut sides, &LENGTHS.map(trips), runs, progress)?;
    let curve = |&(name, carrier, side, paper): &(&'static str, &str, &str, f64)| {
        let own = |one: &&Series| (&*one.carrier, &*one.side, one.kind) == (carrier, side, Kind::Trips);
        let points = series.iter().filter(own).map(|one| (one.length, one.least() / 2.0)).collect();
        Curve { name, points, paper }
    };
    let curves = CURVES.iter().map(curve).collect();
    drop(sides);
    let put = alternate(&mut put::sides(true)?, &PUT.map(trips), runs, progress)?;
    Ok(Report { version: env!("CARGO_PKG_VERSION"), runs, load, curves, put })
}

/// What the paper's text says of a curve, in s: its value of 10 bytes, and from there for each byte a second by 55 MB/s over
/// MPL, 1 MB/s for sealing and opening, and over TCP what it takes for secure MPL to be slower beyond 300 bytes.
fn paper(curve: &str, length: usize) -> f64 {
    let small = CURVES.iter().find(|(name, ..)| *name == curve).map_or(f64::NAN, |&(.., paper)| paper);
    let (mpl, sealing) = (1.0 / 55e6, 1.0 / 1e6);
    let tcp = (128e-6 + 290.0 * (mpl + sealing) - 394e-6) / 290.0;
    let each = match curve {
        "TCP secure" => tcp + sealing,
        "shared memory secure" => mpl + sealing,
        "TCP unsecure" => tcp,
        _ => mpl,
    };
    small + (length as f64 - SMALL as f64) * each
}

/// Values and the paper's own of a curve at all lengths, in µs.
fn line(
    curve: &Curve,
    lengths: &[usize],
    value: impl Fn(usize) -> Option<f64>,
    said: impl Fn(usize) -> Option<f64>,
) -> Line {
    let all = |of: &dyn Fn(usize) -> Option<f64>| lengths.iter().map(|&length| Some(of(length)? * 1e6)).collect();
    Line { name: curve.name.to_owned(), values: all(&value), paper: all(&said) }
}

fn figure(name: &'static str, title: &'static str, lengths: &[usize], panels: Vec<Panel>) -> Figure {
    let x = lengths.iter().map(ToString::to_string).collect();
    let (x_title, paper) = ("message length (bytes)", "the paper's text, in the same order");
    Figure { name, title, shape: Shape::Lines, x_title, x, paper, panels }
}

impl Curve {
    fn at(&self, length: usize) -> f64 {
        self.points.iter().find(|point| point.0 == length).map_or(f64::NAN, |point| point.1)
    }
}

impl Report {
    /// Draws both figures into a folder.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub(crate) fn draw(&self, dir: &std::path::Path) -> Result<(), Failure> {
        let drawn = gambeson_study::figures::draw(&[self.six(), self.seven()], dir);
        drawn.map_err(|error| Failure::system(error.to_string()))
    }

    /// In proportion. The paper's values are a hundred times ours, so they have a panel of their own.
    fn six(&self) -> Figure {
        let lengths = LENGTHS.into_iter().filter(|length| length.is_multiple_of(100) && *length <= LINEAR_MAX);
        let lengths: Vec<usize> = lengths.collect();
        let panel = |y_title, value: &dyn Fn(&Curve, usize) -> f64| {
            let line = |curve: &Curve| line(curve, &lengths, |length| Some(value(curve, length)), |_| None);
            let series = self.curves.iter().map(line).collect();
            Panel { y_title, scale: Scale::Linear, series, whole: Vec::new() }
        };
        let panels = vec![
            panel("time (µs)", &|curve, length| curve.at(length)),
            panel("time in 1998 (µs)", &|curve, length| paper(curve.name, length)),
        ];
        let title =
            "Figure 6 again: time of a message by its length; below as the paper's text has it (MPL for shared memory)";
        figure("links-figure-6", title, &lengths, panels)
    }

    /// By logarithms.
    fn seven(&self) -> Figure {
        let lengths: Vec<usize> = LENGTHS.into_iter().filter(|&length| length > 0).collect();
        let said = |curve: &Curve, length| (length == SMALL).then_some(curve.paper);
        let line = |curve| line(curve, &lengths, |length| Some(curve.at(length)), |length| said(curve, length));
        let series = self.curves.iter().map(line).collect();
        let panel = Panel { y_title: "time (µs)", scale: Scale::Logarithmic, series, whole: Vec::new() };
        let title = "Figure 7 again: the same by logarithms, and the paper's values of 10 bytes";
        figure("links-figure-7", title, &lengths, vec![panel])
    }

    /// The table, and what becomes of the paper's observations.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "Figures 6 and 7 of the secure-nexus paper again: µs of a message one way, the least of {} runs; in brackets the paper's\n\n",
            self.runs
        );
        let _ = write!(text, "{:>7}", "bytes");
        for curve in &self.curves {
            let _ = write!(text, "{:>25}", curve.name);
        }
        text.push('\n');
        for length in LENGTHS {
            let _ = write!(text, "{length:>7}");
            for curve in &self.curves {
                let paper = if length == SMALL { format!(" ({:.0})", curve.paper * 1e6) } else { String::new() };
                let _ = write!(text, "{:>25}", format!("{:.2}{paper}", curve.at(length) * 1e6));
            }
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "\nA sealed request of {} pieces over shared memory and its answer: us at least, what that is of {},\n\
             and the median of the runs' own ratios",
            put::PIECES,
            put::TOGETHER
        );
        let _ = writeln!(text, "{:>7}{:>25}{:>25}{:>25}", "bytes", put::TOGETHER, put::GATHERED, put::INSIDE);
        for length in PUT {
            let _ = write!(text, "{length:>7}");
            for (one, ratio) in [put::TOGETHER, put::GATHERED, put::INSIDE].map(|way| self.put(way, length)) {
                let values = format!("{:.2}  {:.2} ({:.2})", one.least() * 1e6, ratio.of_least, ratio.median);
                let _ = write!(text, "{values:>25}");
            }
            text.push('\n');
        }
        text.push('\n');
        for (claim, here, holds) in self.observations() {
            let _ =
                writeln!(text, "{} {claim}\n    here: {here}", if holds { "holds:        " } else { "holds no more:" });
        }
        text
    }

    /// What a way of making a request of pieces takes, and what that is of copying them together.
    fn put(&self, way: &str, length: usize) -> (&Series, Ratio) {
        let find = |way: &str| self.put.iter().find(|one| one.side == way && one.length == length);
        let [way, base] = [way, put::TOGETHER].map(|way| find(way).expect("all ways were measured at all lengths"));
        (way, way.by(base))
    }

    /// What the paper says of its figures, what is so here, and whether it holds.
    fn observations(&self) -> Vec<(&'static str, String, bool)> {
        let [tcp_secure, shm_secure, tcp, shm] = &self.curves[..] else { return Vec::new() };
        let sealing = |secure: &Curve, clear: &Curve, length| secure.at(length) / clear.at(length);
        let (by_carrier, by_sealing) = (tcp.at(SMALL) / shm.at(SMALL), sealing(shm_secure, shm, SMALL));
        let crossed = LENGTHS.iter().find(|&&length| shm_secure.at(length) > tcp.at(length));
        let longest = LENGTHS[LENGTHS.len() - 1];
        let apart = tcp_secure.at(longest) / shm_secure.at(longest);
        let rate = (longest - 1000) as f64 / (shm_secure.at(longest) - shm_secure.at(1000)) / 1e6;
        let inside = PUT.map(|length| self.put(put::INSIDE, length).1.median);
        let share = 1.0 - shm.at(longest) / shm_secure.at(longest);
        vec![
            (
                "for small messages the carrier makes more of a difference than security (10 B: 5.1 and 1.6 times)",
                format!("{by_carrier:.1} and {by_sealing:.1} times"),
                by_carrier > by_sealing,
            ),
            (
                "beyond 300 B the secure fast carrier is slower than unsecure TCP",
                crossed.map_or(format!("up to {longest} B it is not"), |length| format!("from {length} B on")),
                crossed.is_some(),
            ),
            (
                "for messages above some 1000 B both secure carriers take the same time: sealing is all of it",
                format!(
                    "at {longest} B TCP takes {apart:.1} times as long, and sealing is {:.0} % of shared memory's",
                    share * 100.0
                ),
                (0.8..1.25).contains(&apart),
            ),
            (
                "a byte sealed and opened goes at 1 MB/s",
                format!("at {rate:.0} MB/s, the carrier's own work included"),
                (0.0..2.0).contains(&rate),
            ),
            (
                "sealing pieces as they are put is 5 to 7 % faster than sealing a contiguous buffer, or more",
                format!(
                    "{} of the time at {} B",
                    inside.map(|ratio| format!("{ratio:.2}")).join(", "),
                    PUT.map(|length| length.to_string()).join(", ")
                ),
                inside.iter().all(|&ratio| ratio <= 0.95),
            ),
        ]
    }
}
