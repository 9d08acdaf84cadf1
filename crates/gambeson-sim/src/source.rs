//! Where in its file an experiment says what turned out wrong when it was carried out.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::error::Error;

/// The file of an experiment, for messages: any two are equal.
#[derive(Clone, Debug, Default)]
pub struct Source {
    file: Option<PathBuf>,
    text: String,
    /// Keys that got other values than the file has.
    changed: Vec<String>,
}

impl PartialEq for Source {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Source {
    pub(crate) fn new(file: &Path, text: String, changed: Vec<String>) -> Self {
        Self { file: Some(file.into()), text, changed }
    }

    /// Adds file and line to an error of the configuration that does not have them yet.
    pub(crate) fn locate(&self, error: Error) -> Error {
        match error {
            Error::Config { file: None, line: None, key, what } if self.file.is_some() => {
                let line = key.as_deref().and_then(|key| self.line(key, &what));
                Error::Config { file: self.file.clone(), line, key, what }
            }
            other => other,
        }
    }

    /// The line of a key; below it, of the deepest key that the sentence names.
    fn line(&self, key: &str, sentence: &str) -> Option<usize> {
        let table = DeTable::parse(&self.text).ok()?;
        let mut keys = Vec::new();
        list(table.get_ref(), "", &mut keys);
        let within = |path: &str, above: &str| {
            path == above || path.strip_prefix(above).is_some_and(|rest| rest.starts_with('.'))
        };
        let named = |path: &str| {
            let name = path.rsplit('.').next().unwrap_or(path);
            sentence.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|word| word == name)
        };
        let best = keys
            .iter()
            .filter(|(path, _)| path == key || within(path, key) && named(path))
            .max_by_key(|(path, _)| path.split('.').count())?;
        // What was changed on the command line does not stand in the file.
        let changed = |change: &String| within(&best.0, change) || within(change, &best.0);
        (!self.changed.iter().any(changed)).then(|| self.text[..best.1].matches('\n').count() + 1)
    }
}

/// All keys with their places in the text; entries of a list by their numbers.
fn list(table: &DeTable<'_>, above: &str, keys: &mut Vec<(String, usize)>) {
    for (key, value) in table {
        add(value.get_ref(), format!("{above}{}", key.get_ref()), key.span().start, keys);
    }
}

fn add(value: &DeValue<'_>, path: String, at: usize, keys: &mut Vec<(String, usize)>) {
    match value {
        DeValue::Table(table) => list(table, &format!("{path}."), keys),
        DeValue::Array(entries) => {
            for (number, entry) in entries.iter().enumerate() {
                add(entry.get_ref(), format!("{path}.{number}"), entry.span().start, keys);
            }
        }
        _ => {}
    }
    keys.push((path, at));
}
