//! What a daemon did, a line for each, chained: who alters a line or takes one out breaks the chain from there on.
//!
//! ```text
//! {"number":7,"time":"2026-11-23T01:02:03Z","event":"start",...,"before":"<hash of line 6>","hash":"<of this line>"}
//! ```
//! A line's hash is SHA-256 of all of the line in front of `,"hash"`. Taking lines off the end shows only to who has kept
//! the last hash elsewhere: the daemon says it to the system's log each time it starts, and `gambeson audit-log verify` can be
//! given it.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A log that lines are added to.
#[derive(Debug)]
pub struct AuditLog {
    file: File,
    path: PathBuf,
    tail: Tail,
    /// Where the last whole line ends.
    length: u64,
}

/// What a log ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// How many lines there are.
    pub lines: u64,
    /// The hash of the last one; zeros in an empty log.
    pub hash: String,
}

impl AuditLog {
    /// Opens a log, or begins one, and looks that it holds together: nobody adds to a broken chain.
    ///
    /// # Errors
    /// A sentence.
    pub fn open(path: &Path) -> Result<Self, String> {
        let cannot = |cause: io::Error| {
            format!("the audit log {} cannot be written ({cause}), and nothing is started without it", path.display())
        };
        let file = OpenOptions::new().append(true).read(true).create(true).mode(0o600).open(path).map_err(cannot)?;
        file.try_lock().map_err(|_| format!("the audit log {} is written by another daemon", path.display()))?;
        let tail = verify(path, None)?;
        let length = file.metadata().map_err(cannot)?.len();
        Ok(AuditLog { file, path: path.to_owned(), tail, length })
    }

    /// What it ends with now.
    #[must_use]
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Adds a line, before what it tells of is done.
    ///
    /// # Errors
    /// A sentence: it could not be written, as when the disk is full. The log is then as it was before.
    pub fn add(&mut self, event: &str, about: &[(&str, Value)]) -> Result<(), String> {
        let mut line = Map::new();
        line.insert("number".into(), self.tail.lines.into());
        let now =
            OffsetDateTime::from(SystemTime::now()).replace_nanosecond(0).expect("no nanoseconds are a number of them");
        line.insert("time".into(), now.format(&Rfc3339).expect("a date of our era").into());
        line.insert("event".into(), event.into());
        line.extend(about.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        line.insert("before".into(), self.tail.hash.as_str().into());
        let mut text = Value::Object(line).to_string();
        text.pop();
        let hash = hash_of(&text);
        let text = format!("{text}{HASH}{hash}\"}}\n");
        if let Err(cause) = self.file.write_all(text.as_bytes()) {
            // Half a line would break the chain.
            let _ = self.file.set_len(self.length);
            return Err(format!(
                "the audit log {} cannot be written ({cause}), and nothing is started without it; make room there",
                self.path.display()
            ));
        }
        self.length += text.len() as u64;
        self.tail = Tail { lines: self.tail.lines + 1, hash };
        Ok(())
    }
}

impl fmt::Display for Tail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.lines, self.hash)
    }
}

/// Reads a log from its beginning; what it ends with, if it holds together and, where such a tail is given, as it was when
/// it ended with that.
///
/// # Errors
/// A sentence that names the first line that is not as it was written.
pub fn verify(path: &Path, since: Option<&str>) -> Result<Tail, String> {
    let mut passed = since.is_none();
    let file =
        File::open(path).map_err(|cause| format!("the audit log {} cannot be read ({cause})", path.display()))?;
    let mut tail = Tail { lines: 0, hash: "0".repeat(64) };
    passed |= since == Some(&tail.to_string());
    for line in BufReader::new(file).split(b'\n') {
        let line = line.map_err(|cause| format!("the audit log {} cannot be read ({cause})", path.display()))?;
        tail = follow(&line, &tail).ok_or_else(|| {
            format!(
                "the audit log {} is broken at line {}: that line, or one in front of it, is not as it was written",
                path.display(),
                tail.lines + 1
            )
        })?;
        passed |= since == Some(&tail.to_string());
    }
    if !passed {
        return Err(format!(
            "the audit log {} never ended with {}: lines were taken off it, or all of it was written anew",
            path.display(),
            since.unwrap_or_default()
        ));
    }
    Ok(tail)
}

/// The tail with one more line, if that goes on from it.
fn follow(line: &[u8], tail: &Tail) -> Option<Tail> {
    let line = std::str::from_utf8(line).ok()?;
    let (said, hash) = line.strip_suffix("\"}")?.rsplit_once(HASH)?;
    let read: Value = serde_json::from_str(line).ok()?;
    let goes_on = read.get("number")?.as_u64()? == tail.lines && read.get("before")?.as_str()? == tail.hash;
    (goes_on && hash_of(said) == hash).then(|| Tail { lines: tail.lines + 1, hash: hash.to_owned() })
}

fn hash_of(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

const HASH: &str = ",\"hash\":\"";

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("gambeson-audit-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_chain_goes_on_where_it_ended_and_shows_what_was_altered() {
        let path = log("chain");
        for round in 0..3 {
            let mut log = AuditLog::open(&path).expect("a log");
            assert_eq!(log.tail().lines, round * 2);
            log.add("start", &[("who", "user:a\",\"hash\":\"".into())]).expect("a line");
            log.add("end", &[("status", round.into())]).expect("a line");
        }
        let whole = std::fs::read_to_string(&path).expect("text");
        let tail = verify(&path, None).expect("it holds");
        assert_eq!(tail.lines, 6);
        let lines: Vec<_> = whole.lines().collect();
        let without: String = lines[..2].iter().chain(&lines[3..]).map(|line| format!("{line}\n")).collect();
        let turned: String = [1, 0, 2, 3, 4, 5].iter().map(|&at| format!("{}\n", lines[at])).collect();
        for (spoiled, at) in [
            (whole.replacen("user:a", "user:b", 1), 1),
            (without, 3),
            (turned, 1),
            (whole[..whole.len() - 9].to_owned(), 6),
        ] {
            std::fs::write(&path, spoiled).expect("text");
            let why = verify(&path, None).expect_err("it is broken");
            assert!(why.contains(&format!("broken at line {at}:")), "{why}");
            assert!(AuditLog::open(&path).is_err());
        }
        // What was taken off the end shows by the tail alone.
        std::fs::write(&path, lines[..4].iter().map(|line| format!("{line}\n")).collect::<String>()).expect("text");
        assert!(verify(&path, None).is_ok() && verify(&path, Some(&tail.to_string())).is_err());
        std::fs::remove_file(&path).expect("it is ours");
    }
}
