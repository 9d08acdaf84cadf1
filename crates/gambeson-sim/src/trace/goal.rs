//! GOAL schedules, the text that LogGOPSim and its generators use: operations with labels, and what requires what.
//!
//! ```text
//!   num_ranks 2
//!   rank 0 {
//!   l1: calc 100            // nanoseconds
//!   l2: send 10b to 1 tag 5
//!   l2 requires l1
//!   }
//! ```
//! GOAL has no calls: an operation begins when those it requires are complete (`irequires`: have begun). Here a rank is
//! one process, so that its operations become one sequence: in the order of the text wherever the requirements allow
//! it, sends and receives begin as isend and irecv, and a wait stands before the first operation that requires one. What
//! a schedule says about several processors of a rank (`cpu`, `nic`) is read and not followed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::Path;

use super::program::{Program, Rank};
use super::{ANY_SOURCE, ANY_TAG, Call, Context, Job};
use crate::Error;
use crate::error::Place;
use crate::time::{NS, Time};

const RANKS_MAX: u32 = 1 << 20;

/// Reads a schedule.
///
/// # Errors
/// What cannot be read or breaks the format, with the line.
pub fn read(path: &Path) -> Result<Job, Error> {
    let bytes = std::fs::read(path).map_err(|cause| Error::File { file: path.to_owned(), cause })?;
    parse(&String::from_utf8_lossy(&bytes), &path.display().to_string())
}

/// Decodes a schedule; `file` is what errors call it.
///
/// # Errors
/// What breaks the format, with rank and line.
pub fn parse(text: &str, file: &str) -> Result<Job, Error> {
    let name = Path::new(file).file_stem().map_or(file.to_owned(), |stem| stem.to_string_lossy().into_owned());
    let mut parser = Parser { file, program: None, ranks: 0, rank: None, seen: Vec::new(), commented: false };
    for (index, line) in text.lines().enumerate() {
        let words = parser.words(line);
        parser.line(&words, index as u32 + 1, &name)?;
    }
    if let Some((rank, _)) = &parser.rank {
        return Err(Error::trace(
            file,
            Some(*rank),
            None,
            "its operations lack the closing brace; the file is cut off",
        ));
    }
    let program = parser.program.ok_or_else(|| Error::trace(file, None, None, "it has no num_ranks; it is no GOAL"))?;
    Ok(program.finish())
}

struct Parser<'t> {
    file: &'t str,
    program: Option<Program>,
    ranks: u32,
    rank: Option<(u32, Schedule)>,
    seen: Vec<bool>,
    /// Within a comment of several lines.
    commented: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Calc { ns: u64 },
    Send { bytes: u32, to: u32, tag: i32 },
    Recv { from: u32, tag: i32 },
}

struct Operation {
    kind: Kind,
    line: u32,
    /// Operations that must be complete before.
    requires: Vec<usize>,
    /// Operations that must have begun before.
    follows: Vec<usize>,
}

#[derive(Default)]
struct Schedule {
    operations: Vec<Operation>,
    labels: HashMap<String, usize>,
}

impl Parser<'_> {
    /// The words of a line, its comments taken out; `:` and braces are words of their own.
    fn words(&mut self, line: &str) -> Vec<String> {
        let mut code = String::new();
        let mut rest = line;
        while !rest.is_empty() {
            if self.commented {
                let Some((_, after)) = rest.split_once("*/") else { break };
                self.commented = false;
                rest = after;
                continue;
            }
            let end = ["//", "/*"].iter().filter_map(|mark| rest.find(mark)).min().unwrap_or(rest.len());
            code.push_str(&rest[..end]);
            code.push(' ');
            self.commented = rest[end..].starts_with("/*");
            rest = if self.commented { &rest[end + 2..] } else { "" };
        }
        for mark in [":", "{", "}"] {
            code = code.replace(mark, &format!(" {mark} "));
        }
        code.split_whitespace().map(str::to_owned).collect()
    }

    fn line(&mut self, words: &[String], line: u32, name: &str) -> Result<(), Error> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let rank = self.rank.as_ref().map(|(rank, _)| *rank);
        let wrong = |what: String| Error::trace(self.file, rank, Some(Place::Line(line)), what);
        match (words.as_slice(), &mut self.rank) {
            ([], _) => {}
            (["num_ranks", count], None) if self.program.is_none() => {
                let ranks = count.parse().ok().filter(|ranks| (1..=RANKS_MAX).contains(ranks));
                self.ranks = ranks.ok_or_else(|| wrong(format!("num_ranks is {count}; give 1 to {RANKS_MAX}")))?;
                self.program = Some(Program::new(name, self.file, self.ranks).of_lines());
                self.seen = vec![false; self.ranks as usize];
            }
            (["rank", number, "{"], None) => {
                let rank = number.parse().ok().filter(|rank: &u32| *rank < self.ranks);
                let rank = rank.ok_or_else(|| {
                    wrong(format!("rank {number} is not below num_ranks, which is {} and comes first", self.ranks))
                })?;
                if std::mem::replace(&mut self.seen[rank as usize], true) {
                    return Err(wrong(format!("rank {rank} is here a second time; put its operations together")));
                }
                self.rank = Some((rank, Schedule::default()));
            }
            (["}"], Some(_)) => {
                let (rank, schedule) = self.rank.take().expect("it is in a rank");
                let program = self.program.as_mut().expect("a rank comes after num_ranks");
                schedule.sequence(&mut program.rank(rank))?;
            }
            (words, Some((_, schedule))) => schedule.line(words, line, self.ranks).map_err(wrong)?,
            (words, None) => return Err(wrong(format!("{:?} belongs into a rank", words.join(" ")))),
        }
        Ok(())
    }
}

impl Schedule {
    fn line(&mut self, words: &[&str], line: u32, ranks: u32) -> Result<(), String> {
        if let [later, relation @ ("requires" | "irequires"), earlier] = words {
            let find = |label: &str| {
                self.labels.get(label).copied().ok_or_else(|| format!("label {label} names no operation above it"))
            };
            let (later, earlier) = (find(later)?, find(earlier)?);
            let operation = &mut self.operations[later];
            let list = if *relation == "requires" { &mut operation.requires } else { &mut operation.follows };
            list.push(earlier);
            return Ok(());
        }
        let words = match words {
            [label, ":", rest @ ..] => {
                if self.labels.insert((*label).to_owned(), self.operations.len()).is_some() {
                    return Err(format!("label {label} names two operations; give each its own"));
                }
                rest
            }
            words => words,
        };
        let kind = Kind::parse(words, ranks)?;
        self.operations.push(Operation { kind, line, requires: Vec::new(), follows: Vec::new() });
        Ok(())
    }

    /// The operations one after the other.
    fn sequence(self, rank: &mut Rank<'_>) -> Result<(), Error> {
        let mut open = vec![0_usize; self.operations.len()];
        let mut later: Vec<Vec<usize>> = vec![Vec::new(); self.operations.len()];
        for (index, operation) in self.operations.iter().enumerate() {
            for &earlier in operation.requires.iter().chain(&operation.follows) {
                later[earlier].push(index);
                open[index] += 1;
            }
        }
        let mut ready: BinaryHeap<Reverse<usize>> =
            (0..open.len()).filter(|&index| open[index] == 0).map(Reverse).collect();
        let mut done = 0;
        let (mut gap, mut last): (Time, u32) = (0, 0);
        while let Some(Reverse(index)) = ready.pop() {
            done += 1;
            let operation = &self.operations[index];
            last = operation.line;
            for &earlier in &operation.requires {
                if let Some(slot) = rank.close(earlier as u64) {
                    rank.push(std::mem::take(&mut gap), Call::Wait { slot }, operation.line);
                }
            }
            let context = Context::program(0);
            match operation.kind {
                Kind::Calc { ns } => gap = gap.saturating_add(ns * NS),
                Kind::Send { bytes, to, tag } => {
                    let slot = rank.open(index as u64, operation.line)?;
                    rank.push(std::mem::take(&mut gap), Call::Isend { to, bytes, tag, context, slot }, operation.line);
                }
                Kind::Recv { from, tag } => {
                    let slot = rank.open(index as u64, operation.line)?;
                    rank.push(std::mem::take(&mut gap), Call::Irecv { from, tag, context, slot }, operation.line);
                }
            }
            for &next in &later[index] {
                open[next] -= 1;
                if open[next] == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
        if let Some(circle) = open.iter().position(|&open| open > 0).filter(|_| done < open.len()) {
            let line = self.operations[circle].line;
            return Err(rank.wrong(line, "this operation requires itself, by way of others; break the circle"));
        }
        // A rank ends when all it began is complete.
        for index in 0..self.operations.len() {
            if let Some(slot) = rank.close(index as u64) {
                rank.push(std::mem::take(&mut gap), Call::Wait { slot }, self.operations[index].line);
            }
        }
        if gap > 0 {
            rank.push(gap, Call::Compute, last);
        }
        Ok(())
    }
}

impl Kind {
    fn parse(words: &[&str], ranks: u32) -> Result<Self, String> {
        let number = |word: &str| word.parse::<u64>().map_err(|_| format!("{word} is no number"));
        let bytes = |word: &str| {
            let bytes = word.strip_suffix('b').unwrap_or(word);
            bytes.parse::<u32>().map_err(|_| format!("{word} is no length; give bytes up to 4 GiB as 10b"))
        };
        let peer = |word: &str| match word.parse() {
            Ok(peer) if peer < ranks => Ok(peer),
            _ => Err(format!("rank {word} is not below num_ranks, which is {ranks}")),
        };
        let (kind, options) = match words {
            ["calc", ns, options @ ..] => {
                let ns = number(ns)?;
                if ns > u64::from(u32::MAX) << 16 {
                    return Err(format!("it computes for {ns} ns; give at most three days"));
                }
                (Self::Calc { ns }, options)
            }
            ["send", length, "to", to, options @ ..] => {
                (Self::Send { bytes: bytes(length)?, to: peer(to)?, tag: tag(options)?.unwrap_or(0) }, options)
            }
            ["recv", length, "from", from, options @ ..] => {
                bytes(length)?;
                let from = if *from == "-1" { ANY_SOURCE } else { peer(from)? };
                (Self::Recv { from, tag: tag(options)?.map_or(0, |tag| if tag < 0 { ANY_TAG } else { tag }) }, options)
            }
            words => {
                return Err(format!(
                    "{:?} is neither calc NS, send BYTESb to RANK, recv BYTESb from RANK nor A requires B",
                    words.join(" ")
                ));
            }
        };
        let known = |pair: &[&str]| matches!(pair, ["tag" | "cpu" | "nic", value] if value.parse::<i64>().is_ok());
        match options.chunks(2).find(|pair| !known(pair)) {
            None => Ok(kind),
            Some(pair) => Err(format!("{:?} is none of tag, cpu and nic with a number", pair.join(" "))),
        }
    }
}

fn tag(options: &[&str]) -> Result<Option<i32>, String> {
    let value = options.chunks(2).find_map(|pair| if let ["tag", value] = pair { Some(*value) } else { None });
    value.map(|value| value.parse().map_err(|_| format!("tag {value} is no 32-bit number"))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: Context = Context::program(0);

    #[test]
    fn puts_operations_in_a_sequence_that_keeps_the_requirements() {
        let text = "num_ranks 2\n\nrank 0 { // the first\nl1: calc 100 cpu 0\nl2: send 10b to 1 tag 5 cpu 1 nic 0\n\
                    l2 requires l1\nl3: recv 8b from -1 tag -1\n/* a comment\n of two lines */ l4: calc 7\n\
                    l4 requires l3\nl4 irequires l2\n}\nrank 1 {\nsend 8b to 0\nl9: recv 10b from 0 tag 5\n}\n";
        let job = parse(text, "dir/two.goal").unwrap();
        assert_eq!(job.name, "two");
        let calls = |rank: usize| job.ranks[rank].iter().map(|op| (op.gap, op.call, op.record)).collect::<Vec<_>>();
        assert_eq!(
            calls(0),
            [
                (100 * NS, Call::Isend { to: 1, bytes: 10, tag: 5, context: WORLD, slot: 1 }, 5),
                (0, Call::Irecv { from: ANY_SOURCE, tag: ANY_TAG, context: WORLD, slot: 2 }, 7),
                (0, Call::Wait { slot: 2 }, 9),
                (7 * NS, Call::Wait { slot: 1 }, 5),
            ]
        );
        assert_eq!(calls(1)[0].1, Call::Isend { to: 0, bytes: 8, tag: 0, context: WORLD, slot: 1 });
        assert_eq!(calls(1).len(), 4);
    }

    #[test]
    fn requirements_may_go_against_the_order_of_the_text() {
        let text = "num_ranks 1\nrank 0 {\nl1: calc 1\nl2: send 1b to 0\nl3: recv 1b from 0\nl1 requires l3\n\
                    l3 requires l2\n}";
        let job = parse(text, "x").unwrap();
        let lines: Vec<u32> = job.ranks[0].iter().map(|op| op.record).collect();
        assert_eq!(lines, [4, 5, 5, 3, 3], "send, wait for it, receive, wait for it, compute");
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        let cases = [
            ("rank 0 {", "line 1", "rank 0 is not below num_ranks"),
            ("num_ranks 0", "", "num_ranks is 0"),
            ("num_ranks 1\nrank 0 {\nl1: dance", "line 3", "\"dance\" is neither calc"),
            ("num_ranks 1\nrank 0 {\nl1: send 1b to 1", "rank 0, line 3", "rank 1 is not below num_ranks, which is 1"),
            ("num_ranks 1\nrank 0 {\nl1: calc 1 cpu", "line 3", "\"cpu\" is none of tag, cpu and nic"),
            ("num_ranks 1\nrank 0 {\nl1 requires l2", "line 3", "label l1 names no operation"),
            ("num_ranks 1\nrank 0 {\nl1: calc 1\nl1: calc 1", "line 4", "names two operations"),
            ("num_ranks 1\nrank 0 {\nl1: calc 1", "rank 0", "lack the closing brace"),
            ("num_ranks 1\nrank 0 {\n}\nrank 0 {\n}", "line 4", "a second time"),
            (
                "num_ranks 1\nrank 0 {\nl1: calc 1\nl2: calc 1\nl1 requires l2\nl2 requires l1\n}",
                "line 3",
                "break the circle",
            ),
            ("num_ranks 1\ncalc 1", "line 2", "belongs into a rank"),
            ("", "", "no num_ranks"),
        ];
        for (text, place, what) in cases {
            let error = parse(text, "x.goal").unwrap_err().to_string();
            assert!(error.starts_with("x.goal") && error.contains(place) && error.contains(what), "{text:?}: {error}");
        }
    }
}
