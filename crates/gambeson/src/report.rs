//! What the job did, for people (`--stats`) and for machines (`--json`).

use gambeson_proto::ledger::{Counter, Report};
use serde_json::{Value, json};

/// The table of `--stats`.
pub(crate) fn table(ranks: &[Report]) -> String {
    let mut rows = vec![COLUMNS.map(|(title, _)| title.to_owned()).to_vec()];
    rows.extend(ranks.iter().map(|report| COLUMNS.map(|(_, cell)| cell(report)).to_vec()));
    let widths: Vec<usize> =
        (0..COLUMNS.len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        cells.join("  ") + "\n"
    };
    rows.iter().map(line).collect()
}

/// One rank for machines.
pub(crate) fn rank(report: &Report) -> Value {
    let mut value = json!({
        "rank": report.rank,
        "pid": report.pid,
        "host": report.host,
        "state": format!("{:?}", report.state).to_lowercase(),
        "message": report.message,
    });
    for counter in Counter::ALL {
        value[counter.name()] = report.counter(counter).into();
    }
    value
}

type Cell = fn(&Report) -> String;

const COLUMNS: [(&str, Cell); 12] = [
    ("rank", |report| report.rank.map_or_else(|| format!("pid {}", report.pid), |rank| rank.to_string())),
    ("host", |report| report.host.clone()),
    ("messages", |report| both(report, Counter::MessagesSent, Counter::MessagesReceived)),
    ("bytes", |report| {
        let cell = |counter| size(report.counter(counter));
        format!("{}/{}", cell(Counter::BytesSent), cell(Counter::BytesReceived))
    }),
    ("sealed", |report| report.counter(Counter::RecordsSealed).to_string()),
    ("integrity", |report| report.counter(Counter::RecordsIntegrity).to_string()),
    ("plain", |report| report.counter(Counter::RecordsPlain).to_string()),
    ("refused", |report| REFUSED.map(|counter| report.counter(counter)).iter().sum::<u64>().to_string()),
    ("cache hits", |report| {
        let (hits, misses) = (report.counter(Counter::CacheHits), report.counter(Counter::CacheMisses));
        // Tenths of a per cent, rounded down so that only perfection shows as 100.
        (hits * 1000)
            .checked_div(hits + misses)
            .map_or_else(|| "-".to_owned(), |share| format!("{}.{}%", share / 10, share % 10))
    }),
    ("crypto", |report| time(report.counter(Counter::CryptoNs))),
    ("rekeys", |report| report.counter(Counter::Rekeys).to_string()),
    ("peers", |report| report.counter(Counter::Peers).to_string()),
];

const REFUSED: [Counter; 4] =
    [Counter::RefusedUnknownPeer, Counter::RefusedBadTag, Counter::RefusedReplay, Counter::RefusedMalformed];

fn both(report: &Report, sent: Counter, received: Counter) -> String {
    format!("{}/{}", report.counter(sent), report.counter(received))
}

fn size(bytes: u64) -> String {
    let mut value = bytes;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 10_000 {
            return format!("{value}{unit}");
        }
        value /= 1024;
    }
    format!("{value}TiB")
}

fn time(nanoseconds: u64) -> String {
    match nanoseconds {
        0..10_000_000 => format!("{} us", nanoseconds / 1000),
        10_000_000..10_000_000_000 => format!("{} ms", nanoseconds / 1_000_000),
        _ => format!("{} s", nanoseconds / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_stay_short() {
        assert_eq!(
            ["0B", "9999B", "9KiB", "1024MiB"],
            [0, 9999, 10_000, 1 << 30].map(size).each_ref().map(String::as_str)
        );
        assert_eq!(
            ["12 us", "10 ms", "60 s"],
            [12_345, 10_000_000, 60_000_000_000].map(time).each_ref().map(String::as_str)
        );
    }
}
