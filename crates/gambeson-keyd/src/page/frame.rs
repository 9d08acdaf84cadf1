//! What all pages have around them: head, navigation, style; and how times are written.

use std::sync::LazyLock;

use gambeson_proto::directory::date;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::inventory::DAY;

/// Whose page, which one, and for whom.
pub(super) struct Frame<'f> {
    pub(super) host: &'f str,
    pub(super) title: &'f str,
    /// None: a stranger's.
    pub(super) visitor: Option<&'f str>,
    pub(super) now: u64,
    pub(super) partitions: bool,
}

impl Frame<'_> {
    pub(super) fn around(&self, content: &Markup) -> String {
        let link = |to: &str, called: &str| {
            let here = self.title == called;
            html! { a href=(to) aria-current=[here.then_some("page")] { (called) } }
        };
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · " (self.host) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header {
                        strong { "Key service on " (self.host) }
                        @if let Some(visitor) = self.visitor {
                            nav {
                                (link("/", OVERVIEW)) (link("/log", LOG))
                                @if self.partitions { (link("/partitions", PARTITIONS)) }
                                (link("/metrics", "Metrics"))
                            }
                            span.aside { (visitor) " · " time { (date(self.now)) } }
                        }
                    }
                    main { h1 { (self.title) } (content) }
                }
            }
        };
        page.into_string()
    }
}

pub(super) const OVERVIEW: &str = "Overview";
pub(super) const LOG: &str = "Log";
pub(super) const PARTITIONS: &str = "Partitions";

/// A moment, and how far it is.
pub(super) fn moment(when: u64, now: u64) -> Markup {
    let said = if when >= now { format!("in {}", span(when - now)) } else { format!("{} ago", span(now - when)) };
    let date = date(when);
    html! { time datetime=(date) { (date) } " " span.aside { "(" (said) ")" } }
}

/// How long it is: `40 s`, `12 min`, `5 h`, `40 days`.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / DAY),
    }
}

/// The address of a label's page, or of a search of the log.
pub(super) fn address(path: &str, query: &[(&str, &str)]) -> String {
    let mut words = form_urlencoded::Serializer::new(String::new());
    words.extend_pairs(query.iter().filter(|(_, value)| !value.is_empty()));
    match words.finish() {
        words if words.is_empty() => path.to_owned(),
        words => format!("{path}?{words}"),
    }
}

/// Nothing is loaded, from here or elsewhere, and no style holds but this one.
pub(super) fn content_policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, STYLE.as_bytes());
        let hash = data_encoding::BASE64.encode(hash.as_ref());
        format!(
            "default-src 'none'; style-src 'sha256-{hash}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        )
    });
    &POLICY
}

const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_escaped() {
        assert_eq!(address("/log", &[("label", "a b&c"), ("who", "")]), "/log?label=a+b%26c");
        assert_eq!(address("/log", &[("who", "")]), "/log");
    }

    #[test]
    fn nothing_ends_the_style_early() {
        assert!(!STYLE.contains("</") && !STYLE.contains("url(") && !STYLE.contains("@import"));
    }
}
