//! A sweep's page: one HTML file with its pictures in it, without script and without a link to anywhere.

use std::fmt::Write;

use super::Sweep;
use super::table::{EXPERIMENT, Table, Values};
use crate::VERSION;
use crate::chart::Picture;

/// The page's text.
pub(super) fn page(sweep: &Sweep, table: &Table, pictures: &[Picture]) -> String {
    let first = &sweep.points[0].experiment;
    let name = escaped(&first.name);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{name}: sweep</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n<p>{} runs of a simulated fabric, Gambeson {VERSION}.</p>\n",
        sweep.runs()
    );
    parameters(&mut page, sweep);
    page.push_str("<h2>Measured</h2>\n");
    for picture in pictures {
        let _ = writeln!(page, "<figure>\n{}</figure>", picture.svg());
    }
    rows(&mut page, table);
    let toml = toml::to_string(first).expect("an experiment came from TOML and can go there");
    let _ = write!(
        page,
        "<h2>Experiment</h2>\n<p>The first run, complete with its defaults, as <code>gambeson sim run</code> takes it. The \
         others differ in the parameters above; results.csv and results.parquet have each whole.</p>\n<pre>{}</pre>\n\
         </body>\n</html>\n",
        escaped(&toml)
    );
    page
}

fn parameters(page: &mut String, sweep: &Sweep) {
    page.push_str("<h2>Parameters</h2>\n<table>\n<tr><th>key</th><th>values</th></tr>\n");
    for over in &sweep.over {
        let _ = writeln!(page, "<tr><td>{}</td><td>{}</td></tr>", escaped(&over.key), escaped(&over.values.join(", ")));
    }
    if sweep.over.iter().all(|over| over.key != "seed") {
        let seeds: Vec<String> =
            sweep.points[..sweep.repeat as usize].iter().map(|point| point.experiment.seed.to_string()).collect();
        let _ = writeln!(page, "<tr><td>seed</td><td>{}</td></tr>", seeds.join(", "));
    }
    page.push_str("</table>\n");
}

/// The table, without the columns that are empty and those that say the same in every row.
fn rows(page: &mut String, table: &Table) {
    let shown: Vec<_> = table
        .columns
        .iter()
        .take_while(|column| column.name != "version" && column.name != EXPERIMENT)
        .filter(|column| (0..table.rows).any(|row| !matches!(column.values.cell(row).as_str(), "" | "0")))
        .collect();
    page.push_str("<h2>Results</h2>\n<div class=\"wide\"><table>\n<tr>");
    for column in &shown {
        let _ = write!(page, "<th>{}</th>", escaped(&column.name));
    }
    page.push_str("</tr>\n");
    for row in 0..table.rows {
        page.push_str("<tr>");
        for column in &shown {
            let (class, cell) = match &column.values {
                Values::Text(values) => ("", escaped(&values[row])),
                Values::Count(values) => (" class=\"n\"", values[row].to_string()),
                Values::Number(values) => (" class=\"n\"", values[row].map_or(String::new(), told)),
            };
            let _ = write!(page, "<td{class}>{cell}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

/// A number with the places that people read; the files have all of them.
fn told(number: f64) -> String {
    match number.abs() {
        size if size >= 1e4 || number.fract() == 0.0 => format!("{number:.0}"),
        size if size >= 100.0 => format!("{number:.1}"),
        _ => format!("{number:.4}").trim_end_matches('0').to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:960px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:1px solid #ddd}\
figure{margin:1rem 0}svg{max-width:100%;height:auto}\
table{border-collapse:collapse;font-size:.85rem}th,td{padding:.2rem .6rem;text-align:left;border-bottom:1px solid #e4e4e4;\
white-space:nowrap}th{border-bottom-color:#999}td.n{text-align:right;font-variant-numeric:tabular-nums}\
.wide{overflow-x:auto}pre{background:#f6f6f6;padding:.8rem;overflow-x:auto;font-size:.85rem}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup_and_numbers_are_short() {
        assert_eq!(escaped("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
        assert_eq!(
            [told(12_345.6), told(123.45), told(0.123_456), told(0.1), told(4.0)],
            ["12346", "123.5", "0.1235", "0.1", "4"]
        );
    }
}
