//! An experiment's file: TOML, with other values for some of its keys.

use std::path::Path;

use super::Experiment;
use crate::error::Error;
use crate::source::Source;

impl Experiment {
    /// Reads an experiment. Files that it names are looked for beside it.
    ///
    /// # Errors
    /// A sentence with the file and the line.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::read_with(path, &[])
    }

    /// Reads an experiment and gives some of its keys other values: `traffic.0.load=0.5`. A value is TOML, or else a
    /// string. Files that the changes name are looked for in the current directory.
    ///
    /// # Errors
    /// A sentence with the file, and the line where nothing was changed.
    pub fn read_with(path: &Path, changes: &[String]) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|cause| Error::File { file: path.into(), cause })?;
        Self::parse_with(&text, Some(path), changes)
    }

    /// As [`Experiment::read_with`], of a text that was read before from the path, if it came from one.
    ///
    /// # Errors
    /// As [`Experiment::read_with`].
    pub fn parse_with(text: &str, path: Option<&Path>, changes: &[String]) -> Result<Self, Error> {
        let whole = Self::parse(text, path);
        if changes.is_empty() && whole.is_err() {
            return whole;
        }
        // What the file says must make a table, complete or not.
        let mut table: toml::Value = toml::from_str(text).or_else(|_| whole.map(|_| toml::Value::Boolean(false)))?;
        if let Some(path) = path {
            beside(&mut table, path);
        }
        for change in changes {
            let Some((key, value)) = change.split_once('=') else {
                return Err(Error::config(format!("{change} is no change; write KEY=VALUE, as in fabric.rate=4x-ndr")));
            };
            let value = value.trim();
            let parsed = toml::from_str::<toml::Table>(&format!("v = {value}")).ok();
            let value = parsed.and_then(|mut table| table.remove("v")).unwrap_or_else(|| value.into());
            set(&mut table, key.trim(), value)?;
        }
        let changed = toml::to_string(&table).map_err(|error| Error::config(error.to_string()))?;
        let experiment = Self::parse(&changed, None).map_err(|error| {
            let what = format!("with {}: {error}", changes.join(", "));
            Error::Config { file: path.map(Into::into), line: None, key: None, what }
        })?;
        let Some(path) = path else { return Ok(experiment) };
        let keys = changes.iter().filter_map(|change| Some(change.split_once('=')?.0.trim().to_owned()));
        Ok(Self { source: Source::new(path, text.to_owned(), keys.collect()), ..experiment })
    }

    /// Reads an experiment's text; the path is for messages.
    ///
    /// # Errors
    /// A sentence with the file and the line.
    pub fn parse(text: &str, path: Option<&Path>) -> Result<Self, Error> {
        let parsed: Self = toml::from_str(text).map_err(|error| Error::Config {
            file: path.map(Into::into),
            line: error.span().map(|span| text[..span.start].matches('\n').count() + 1),
            key: None,
            what: in_words(error.message()),
        })?;
        let source = path.map(|path| Source::new(path, text.to_owned(), Vec::new())).unwrap_or_default();
        Ok(Self { source, ..parsed })
    }
}

/// What the reader of TOML says, with what the names of types mean.
fn in_words(message: &str) -> String {
    let message = message.trim_end().replace('\n', "; ");
    let most =
        [("u8", u64::from(u8::MAX)), ("u16", u16::MAX.into()), ("u32", u32::MAX.into()), ("u64", i64::MAX as u64)];
    most.iter().fold(message, |message, (name, most)| {
        message.replace(&format!("expected {name}"), &format!("expected a whole number from 0 to {most}"))
    })
}

/// The files that an experiment names are beside its own.
fn beside(table: &mut toml::Value, path: &Path) {
    let Some(folder) = path.parent() else { return };
    let resolve = |file: &mut toml::Value| {
        if let toml::Value::String(file) = file {
            *file = folder.join(&*file).display().to_string();
        }
    };
    if let Some(toml::Value::Array(traces)) = table.get_mut("replay").and_then(|replay| replay.get_mut("traces")) {
        traces.iter_mut().for_each(resolve);
    }
    table.get_mut("topology").and_then(|topology| topology.get_mut("path")).map(resolve);
}

/// Gives a key another value; numbers in it count the entries of a list.
fn set(table: &mut toml::Value, key: &str, value: toml::Value) -> Result<(), Error> {
    let mut place = table;
    for part in key.split('.') {
        let next = match place {
            toml::Value::Array(list) => part.parse::<usize>().ok().and_then(|index| list.get_mut(index)),
            toml::Value::Table(table) => Some(table.entry(part).or_insert(toml::Value::Table(toml::Table::new()))),
            _ => None,
        };
        place = next.ok_or_else(|| Error::config(format!("{key}: there is no {part} in the experiment to change")))?;
    }
    *place = value;
    Ok(())
}
