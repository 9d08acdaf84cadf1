//! Reads what a launcher's command line says about the environment of the ranks and about hosts.
//!
//! Sentences come early this way; what a launcher hides (files of options, wrappers) the guard
//! finds in each rank.

use std::ffi::{OsStr, OsString};
use std::ops::Range;

use super::Dialect;

/// What one option says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The ranks will find this variable with this value.
    Sets { variable: String, value: String },
    /// The ranks will not find what `gambeson run` set.
    Strips,
    /// Processes run on these hosts.
    Hosts(Vec<String>),
    /// A file names the hosts, one a line.
    HostFile(String),
    /// So many hosts take part.
    HostCount(String),
    /// Processes run on hosts of which nothing is known here.
    Elsewhere,
    /// A file says which rank runs which program.
    ProgramsByFile,
    /// It chooses how processes reach other hosts.
    Carrier(Carrier),
}

/// How processes reach other hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// By ssh, or what is called like it.
    Ssh,
    /// By this program, called like ssh.
    Program(String),
    /// By something else.
    Foreign,
}

/// What one option says, and how it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) meaning: Meaning,
    pub(crate) written: String,
    /// Which of the arguments these are.
    pub(crate) place: Range<usize>,
}

/// Reads the arguments after the launcher's name.
pub(crate) fn read(dialect: &Dialect, arguments: &[OsString]) -> Vec<Said> {
    let mut said = Vec::new();
    // With several programs, each part after a colon has options of its own.
    let mut start = 0;
    for part in arguments.split(|argument| argument == ":") {
        read_part(dialect, part, start, &mut said);
        start += part.len() + 1;
    }
    said
}

/// Where the program of each part stands.
pub(crate) fn programs(dialect: &Dialect, arguments: &[OsString]) -> Vec<usize> {
    let mut start = 0;
    let mut places = Vec::new();
    for part in arguments.split(|argument| argument == ":") {
        let mut rest = part;
        while let Some((_, after)) = option(dialect, rest) {
            rest = after;
        }
        if !rest.is_empty() {
            places.push(start + part.len() - rest.len());
        }
        start += part.len() + 1;
    }
    places
}

fn read_part(dialect: &Dialect, part: &[OsString], start: usize, said: &mut Vec<Said>) {
    let mut rest = part;
    while let Some((written, after)) = option(dialect, rest) {
        let place = start + part.len() - rest.len()..start + part.len() - after.len();
        rest = after;
        let (name, values) = written.split_first().expect("an option has a name");
        let name = name.trim_start_matches('-');
        // `--name=value` is one word.
        let (name, values) = match name.split_once('=') {
            Some((name, value)) => (name, vec![value.to_owned()]),
            None => (name, values.to_vec()),
        };
        let written = written.join(" ");
        for meaning in (dialect.meaning)(name, &values) {
            said.push(Said { meaning, written: written.clone(), place: place.clone() });
        }
    }
}

/// The first option and its values, and what follows; none where the program begins.
fn option<'a>(dialect: &Dialect, arguments: &'a [OsString]) -> Option<(Vec<String>, &'a [OsString])> {
    let (first, rest) = arguments.split_first()?;
    let name = text(first);
    let bare = name.trim_start_matches('-');
    if bare.len() == name.len() || bare.is_empty() {
        return None;
    }
    let wanted = dialect.options.iter().find(|(option, _)| *option == bare).map_or(0, |(_, count)| *count);
    // Hydra's `-genv NAME=VALUE` is one value where `-genv NAME VALUE` is two.
    let joined = matches!(bare, "genv" | "env") && rest.first().is_some_and(|value| text(value).contains('='));
    let count = if joined { 1 } else { wanted }.min(rest.len());
    let (values, rest) = rest.split_at(count);
    let mut written = vec![name];
    written.extend(values.iter().map(|value| text(value)));
    Some((written, rest))
}

fn text(argument: &OsStr) -> String {
    argument.to_string_lossy().into_owned()
}

/// `NAME=VALUE`, or a name and a value, as a setting; a name alone passes on what is there.
pub(crate) fn setting(values: &[String]) -> Vec<Meaning> {
    let pair = match values {
        [joined] => joined.split_once('='),
        [name, value] => Some((name.as_str(), value.as_str())),
        _ => None,
    };
    pair.map(|(variable, value)| Meaning::Sets { variable: variable.to_owned(), value: value.to_owned() })
        .into_iter()
        .collect()
}

/// `h1:2,h2,...` as hosts.
pub(crate) fn host_list(values: &[String]) -> Vec<Meaning> {
    let hosts = values.iter().flat_map(|value| value.split([',', ';'])).map(host_of).filter(|host| !host.is_empty());
    vec![Meaning::Hosts(hosts.collect())]
}

/// A host file's lines, or a list's items, begin with the host: `h1:2`, `h1 slots=2`, `user@h1`.
pub(crate) fn host_of(item: &str) -> String {
    let item = item.split('#').next().unwrap_or_default().trim();
    let item = item.split_whitespace().next().unwrap_or_default();
    let item = item.rsplit_once('@').map_or(item, |(_, host)| host);
    // An IPv6 address has several colons, a count of slots one.
    match item.split_once(':') {
        Some((host, count)) if !count.contains(':') => host.to_owned(),
        _ => item.to_owned(),
    }
}
