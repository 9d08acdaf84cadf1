//! Which files are sealed, and under which label: the rules of a policy about files.
//!
//! The first rule of a layer that matches a file's name is that layer's answer. A label is stronger than none, and of two
//! labels the lower layer's holds, so that a file found beside a job can have sealed what would be plain and nothing else.

use super::Policy;
use crate::file::FileSuite;
use crate::file::geometry::{BLOCK_LEN_MAX, BLOCK_LEN_MIN};

/// A rule about files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRule {
    /// What it matches: `*` and `?` within a name, `**` across folders. Without a slash, names in any folder.
    pub pattern: String,
    /// The label that such files are sealed under; none: they are plain by decision.
    pub label: Option<String>,
    /// How they are sealed.
    pub suite: FileSuite,
    /// Bytes of their blocks.
    pub block_len: u32,
    /// Whether each block has two slots, so that a killed writer costs nothing of what was closed before.
    pub two_slots: bool,
    /// Whether the data keeps its offsets in a file of its own, beside which is all else.
    pub detached: bool,
}

impl Policy {
    /// What the rules say of a file, by its absolute path; nothing if none matches.
    pub fn decide_file(&self, path: &str) -> Option<&FileRule> {
        let answers = self.files.iter().filter_map(|layer| layer.iter().find(|rule| rule.matches(path)));
        answers.reduce(|lower, higher| if lower.label.is_none() && higher.label.is_some() { higher } else { lower })
    }

    /// All rules about files, lowest layer first.
    pub fn file_rules(&self) -> impl Iterator<Item = &FileRule> {
        self.files.iter().flatten()
    }
}

impl FileRule {
    /// Whether it speaks of a file, by its absolute path.
    pub fn matches(&self, path: &str) -> bool {
        let name = if self.pattern.contains('/') { path } else { path.rsplit('/').next().unwrap_or(path) };
        matches(self.pattern.as_bytes(), name.as_bytes())
    }

    /// Whether it is one that a policy can have.
    pub(super) fn is_legal(&self) -> bool {
        is_pattern(&self.pattern)
            && self.label.as_deref().is_none_or(super::is_label)
            && self.suite.has_integrity()
            && is_block_len(self.block_len)
            && !(self.two_slots && self.detached)
    }
}

/// Whether files can be matched by this.
pub(super) fn is_pattern(pattern: &str) -> bool {
    (1..=255).contains(&pattern.len()) && !pattern.contains(char::is_control)
}

/// Whether blocks can have this length.
pub(super) fn is_block_len(len: u32) -> bool {
    len.is_power_of_two() && (BLOCK_LEN_MIN..=BLOCK_LEN_MAX).contains(&len)
}

/// Wildcards from left to right; on a mismatch the last star takes a byte more. A `**` crosses slashes, so that its place is
/// kept apart from that of a `*`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // For the last `*`, and the last `**`.
    let (mut star, mut stars): (Star, Star) = (None, None);
    while place < name.len() {
        if pattern[at..].starts_with(b"**") {
            at += 2;
            (star, stars) = (None, Some((at, place)));
            continue;
        }
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                star = Some((at, place));
                continue;
            }
            Some(b'?') if name[place] != b'/' => (at, place) = (at + 1, place + 1),
            Some(byte) if *byte == name[place] && *byte != b'?' => (at, place) = (at + 1, place + 1),
            _ => match (star, stars) {
                (Some((after, taken)), _) if name[taken] != b'/' => {
                    star = Some((after, taken + 1));
                    (at, place) = (after, taken + 1);
                }
                (_, Some((after, taken))) => {
                    (star, stars) = (None, Some((after, taken + 1)));
                    (at, place) = (after, taken + 1);
                }
                _ => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Where to go on after a star, and the first byte that it has not taken.
type Star = Option<(usize, usize)>;

/// A length of blocks as people write it: `64 KiB`, `1 MiB`, with or without the space.
pub(super) fn block_len(text: &str) -> Option<u32> {
    let (count, unit) = text.trim().split_at(text.trim().find(|character: char| !character.is_ascii_digit())?);
    let unit = match unit.trim() {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    count.parse::<u32>().ok()?.checked_mul(unit).filter(|len| is_block_len(*len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Chosen, Document, resolve};

    #[test]
    fn patterns_match_as_shells_do() {
        for (pattern, path, expected) in [
            ("*.h5", "/data/run/a.h5", true),
            ("*.h5", "/data/run/a.h5.bak", false),
            ("*", "/data/a", true),
            ("a?c", "/x/abc", true),
            ("a?c", "/x/ac", false),
            ("/data/*/a", "/data/run/a", true),
            ("/data/*/a", "/data/run/two/a", false),
            ("/data/**/a", "/data/run/two/a", true),
            ("/data/**", "/data/run/two/b", true),
            ("/data/**/x*y", "/data/q/x/xzy", true),
            ("/data/**/x*y", "/data/q/x/z", false),
            ("*a*b*", "/x/aab", true),
            ("*ab", "/x/aab", true),
            ("*.nc", "/x/a.nc/b", false),
        ] {
            let rule = FileRule {
                pattern: pattern.into(),
                label: None,
                suite: FileSuite::default(),
                block_len: 4096,
                two_slots: false,
                detached: false,
            };
            assert_eq!(rule.matches(path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_label_is_stronger_than_none_and_the_floor_names_it() {
        let floor = Document::parse("[[file]]\npattern = \"*.h5\"\nlabel = \"clinical\"\n", "floor").unwrap();
        let found = "[[file]]\npattern = \"*\"\nlabel = \"none\"\n";
        let found = Document::parse(found, "found").unwrap();
        let policy = resolve(Some(&floor), Some(Chosen::Found(&found))).unwrap().policy;
        assert_eq!(policy.decide_file("/x/a.h5").unwrap().label.as_deref(), Some("clinical"));
        assert_eq!(policy.decide_file("/x/a.nc").unwrap().label, None);
        let other =
            Document::parse("[[file]]\npattern = \"*\"\nlabel = \"other\"\nblock = \"1 MiB\"\ndetached = true\n", "o")
                .unwrap();
        let policy = resolve(Some(&floor), Some(Chosen::Named(&other))).unwrap().policy;
        assert_eq!(policy.decide_file("/x/a.h5").unwrap().label.as_deref(), Some("clinical"));
        let rule = policy.decide_file("/x/a.nc").unwrap();
        assert_eq!((rule.label.as_deref(), rule.block_len, rule.detached), (Some("other"), 1 << 20, true));
        assert_eq!(Policy::from_canonical(&policy.canonical()).unwrap(), policy);
        assert_ne!(Policy::default().hash(), policy.hash());
    }

    #[test]
    fn what_a_rule_cannot_say_is_refused_with_its_line() {
        for (text, expected) in [
            ("[[file]]\npattern = \"\"\nlabel = \"a\"\n", "a.toml:2"),
            ("[[file]]\npattern = \"*\"\nlabel = \"a b\"\n", "label \"a b\" is none"),
            ("[[file]]\npattern = \"*\"\nlabel = \"a\"\nsuite = \"rot13\"\n", "suite \"rot13\" is unknown"),
            ("[[file]]\npattern = \"*\"\nlabel = \"a\"\nsuite = \"aes-256-xts\"\n", "without integrity"),
            ("[[file]]\npattern = \"*\"\nlabel = \"a\"\nblock = \"3 KiB\"\n", "block \"3 KiB\""),
            ("[[file]]\npattern = \"*\"\nlabel = \"a\"\ndetached = true\nslots = 2\n", "a detached file has one slot"),
            ("[[file]]\npattern = \"*\"\nlabel = \"a\"\ndetached = 1\n", "a boolean"),
            ("[[file]]\npattern = \"*\"\n", "label"),
        ] {
            let error = Document::parse(text, "a.toml").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
