//! The pictures of `gambeson bench link`.

use gambeson_sim::reproduce::{Figure, Panel, Scale, Series as Line, Shape};

use super::side::Kind;
use super::{Report, Series};

/// Times by length, and what they are of those of bare carriers.
pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let carriers = [("shared memory", "links-shm", SHM), ("TCP", "links-tcp", TCP)];
    let own = carriers.into_iter().filter_map(|(carrier, name, title)| figure(report, carrier, name, title));
    own.chain((!report.peers.is_empty()).then(|| peers(report))).collect()
}

/// Sealed links beside others' libraries, over TCP and inside the host.
fn peers(report: &Report) -> Figure {
    let first: Vec<&Series> = report.peers.iter().filter(|one| one.kind == Kind::Trips).collect();
    let mut names: Vec<String> = Vec::new();
    for one in &first {
        if !names.contains(&one.side) {
            names.push(one.side.clone());
        }
    }
    let panel = |y_title, scale, kind: Kind, value: &dyn Fn(&Series) -> f64| {
        let line = |carrier: &str| {
            let at = |name: &String| {
                let wanted = |one: &&Series| one.side == *name && one.carrier == carrier && one.kind == kind;
                report.peers.iter().find(wanted).map(value)
            };
            Line { name: carrier.to_owned(), values: names.iter().map(at).collect(), paper: Vec::new() }
        };
        Panel { y_title, scale, series: vec![line("TCP"), line("shared memory")], whole: Vec::new() }
    };
    let panels = vec![
        panel("8 B there and back, µs", Scale::Logarithmic, Kind::Trips, &|one| one.median() * 1e6),
        panel("64 outstanding, 1000/s", Scale::Logarithmic, Kind::Outstanding, &|one| 1e-3 / one.median()),
        panel("1 MiB one way, MB/s", Scale::Linear, Kind::Stream, &|one| one.length as f64 / one.median() / 1e6),
        panel("processor time, ns/B", Scale::Linear, Kind::Stream, &|one| one.cpu_ns_per_byte()),
    ];
    Figure {
        name: "links-peers",
        title: "Sealed links beside others' libraries (medians; inside the host ZeroMQ uses a unix socket)",
        shape: Shape::Bars,
        x_title: "",
        x: names,
        paper: "",
        panels,
    }
}

const SHM: &str = "Request and answer over shared memory: links beside the bare carrier";
const TCP: &str = "Request and answer over TCP: links beside the bare carrier";

fn figure(report: &Report, carrier: &str, name: &'static str, title: &'static str) -> Option<Figure> {
    let of = |side: &str| -> Vec<&Series> {
        let wanted = |one: &&Series| one.carrier == carrier && one.kind == Kind::Trips && one.side == side;
        report.series.iter().filter(wanted).collect()
    };
    let bare = of("bare");
    let lengths: Vec<String> = bare.iter().map(|series| series.length.to_string()).collect();
    let line = |side: &str, value: &dyn Fn(&Series, &Series) -> f64| {
        let values = of(side).iter().zip(&bare).map(|(one, bare)| Some(value(one, bare))).collect();
        Line { name: side.to_owned(), values, paper: Vec::new() }
    };
    let panel = |y_title, scale, sides: &[&str], value: &dyn Fn(&Series, &Series) -> f64| {
        let series = sides.iter().map(|side| line(side, value)).collect();
        Panel { y_title, scale, series, whole: Vec::new() }
    };
    let sides = ["bare", "in clear", "integrity", "sealed"];
    let least = |one: &Series, _: &Series| one.least() * 1e6;
    let ratio = |one: &Series, bare: &Series| one.by(bare).median;
    let panels = vec![
        panel("there and back, least, µs", Scale::Logarithmic, &sides, &least),
        panel("times bare, median", Scale::Linear, &sides[1..], &ratio),
    ];
    let x_title = "bytes of a message";
    (!bare.is_empty()).then_some(Figure { name, title, shape: Shape::Lines, x_title, x: lengths, paper: "", panels })
}
