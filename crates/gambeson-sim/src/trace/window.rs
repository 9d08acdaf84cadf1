//! A window of iterations: a piece of a trace that stands for the whole, the same for every trace.
//!
//! Iterations are found, not recorded: the operations of each rank repeat with some period, gaps aside, for as long as the
//! iterations go on. A window takes the same iterations of
//! each rank. A message is kept if both its send and its receive are in the window; of the others, which cross its
//! edges, only the computation before remains, so that nobody waits for what is not there.

use std::collections::HashMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{ANY_SOURCE, ANY_TAG, Call, Context, Job, Op};
use crate::Error;

/// How many places of a rank are tried for what repeats, and how many operations tell that it does.
const PROBES: usize = 16;
const PROBE: usize = 32;

/// Which iterations to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// The first, from 0.
    pub from: u32,
    /// How many.
    pub iterations: u32,
}

/// What a window made of a job.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The iterations that are in it.
    pub job: Job,
    /// How many iterations the whole job has.
    pub iterations: u32,
    /// Messages with an end in the window that were left out since the other end is not.
    pub crossing: u64,
}

/// Cuts a window out of an expanded job.
///
/// # Errors
/// A job without iterations, with fewer than the window asks for, or with receives from any source or of any tag.
pub fn cut(job: &Job, window: Window) -> Result<Cut, Error> {
    let wrong = |what: String| Error::trace(&job.file, None, None, what);
    let periods: Vec<Option<Period>> = job.ranks.iter().map(|ops| Period::find(ops)).collect();
    let mut iterations = None;
    for (rank, (ops, period)) in job.ranks.iter().zip(&periods).enumerate() {
        match period {
            Some(period) => iterations = Some(period.repeats().min(iterations.unwrap_or(usize::MAX))),
            None if ops.is_empty() => {}
            None => {
                let what =
                    "its operations do not repeat, so that no window of iterations can be cut; use the whole trace";
                return Err(Error::trace(&job.file, Some(rank as u32), None, what));
            }
        }
    }
    let iterations =
        iterations.ok_or_else(|| wrong("it has no operations; give a trace that holds some".to_owned()))?;
    let (from, count) = (window.from as usize, window.iterations as usize);
    if count == 0 || from + count > iterations {
        return Err(wrong(format!(
            "it has {iterations} iterations; a window of {count} from iteration {from} on is not in it"
        )));
    }
    let range = |period: &Option<Period>| match period {
        // A rank may do the same several times in what others need a whole iteration for.
        Some(period) => {
            let length = period.length * (period.repeats() as f64 / iterations as f64).round() as usize;
            let begin = period.region.start + from * length;
            begin.min(period.region.end)..(begin + count * length).min(period.region.end)
        }
        None => 0..0,
    };
    let ranges: Vec<Range<usize>> = periods.iter().map(range).collect();
    let mut messages = Messages::default();
    for (rank, (ops, range)) in job.ranks.iter().zip(&ranges).enumerate() {
        messages.count(rank as u32, ops, range).map_err(|index| {
            let what = "a window cannot tell which message a receive of any source or tag gets; use the whole trace";
            Error::trace(&job.file, Some(rank as u32), Some(job.place(ops[index].record)), what)
        })?;
    }
    let mut crossing = 0;
    let mut ranks = Vec::with_capacity(job.ranks.len());
    for (rank, (ops, range)) in job.ranks.iter().zip(&ranges).enumerate() {
        ranks.push(messages.keep(rank as u32, ops, range, &mut crossing));
    }
    Ok(Cut { job: Job { ranks, recorded: None, ..job.clone() }, iterations: iterations as u32, crossing })
}

/// Operations that repeat.
struct Period {
    /// Where.
    region: Range<usize>,
    /// With how many in each iteration.
    length: usize,
}

impl Period {
    fn repeats(&self) -> usize {
        self.region.len() / self.length
    }

    /// The iterations around the middle half; or, where they are fewer operations than that, the longest stretch of
    /// them that a half or a probe leads to.
    fn find(ops: &[Op]) -> Option<Self> {
        let halves = [2, 3, 4, 1, 0].map(|from| (ops.len() * from / 8, ops.len() * (from + 4) / 8));
        let halves = halves.into_iter().filter_map(|(begin, end)| Self::around(ops, begin, end));
        let probes = (0..PROBES).filter_map(|probe| Self::from(ops, ops.len() * probe / PROBES));
        let mut longest: Option<Self> = None;
        for period in halves.chain(probes) {
            if longest.as_ref().is_none_or(|longest| longest.region.len() < period.region.len()) {
                longest = Some(period);
            }
            if longest.as_ref().is_some_and(|longest| 2 * longest.region.len() >= ops.len()) {
                break;
            }
        }
        longest
    }

    /// What repeats from an operation on, taking the next place where as many as [`PROBE`] follow each other alike.
    fn from(ops: &[Op], begin: usize) -> Option<Self> {
        let same = |a: usize, b: usize| shape(&ops[a].call) == shape(&ops[b].call);
        let length = (1..ops.len().saturating_sub(begin + PROBE))
            .find(|length| (begin..begin + PROBE).all(|at| same(at, at + length)))?;
        let before = (0..begin).rev().take_while(|&at| same(at, at + length)).count();
        let after = (begin..ops.len() - length).take_while(|&at| same(at, at + length)).count();
        let region = begin - before..begin + after + length;
        (region.len() >= 2 * length).then_some(Self { region, length })
    }

    fn around(ops: &[Op], begin: usize, end: usize) -> Option<Self> {
        let same = |a: usize, b: usize| shape(&ops[a].call) == shape(&ops[b].call);
        // The longest beginning of the part that is also its end, as Knuth, Morris and Pratt find it.
        let mut borders = vec![0; end - begin];
        for at in 1..end - begin {
            let mut border: usize = borders[at - 1];
            while border > 0 && !same(begin + at, begin + border) {
                border = borders[border - 1];
            }
            borders[at] = border + usize::from(same(begin + at, begin + border));
        }
        let length = (end - begin) - borders.last()?;
        if 2 * length > end - begin {
            return None;
        }
        let before = (0..begin).rev().take_while(|&at| same(at, at + length)).count();
        let after = (end..ops.len()).take_while(|&at| same(at, at - length)).count();
        Some(Self { region: begin - before..end + after, length })
    }
}

/// What of a call must repeat: not slots, which are given out as they come free, and not the lengths within
/// collectives, which sort by the data.
fn shape(call: &Call) -> (u8, u32, i32, u32, Option<Context>) {
    let length = |bytes, context: Context| if context.is_collective() { 0 } else { bytes };
    match *call {
        Call::Compute => (0, 0, 0, 0, None),
        Call::Send { to, tag, context, bytes } => (1, to, tag, length(bytes, context), Some(context)),
        Call::Isend { to, tag, context, bytes, .. } => (2, to, tag, length(bytes, context), Some(context)),
        Call::Recv { from, tag, context } => (3, from, tag, 0, Some(context)),
        Call::Irecv { from, tag, context, .. } => (4, from, tag, 0, Some(context)),
        Call::Wait { .. } => (5, 0, 0, 0, None),
        Call::Collective { kind, communicator, root, .. } => (6 + kind as u8, root, i32::from(communicator), 0, None),
    }
}

/// The messages of one rank to another with one tag and communicator.
type Envelope = (u32, u32, i32, Context);

/// Which of the messages of each envelope, in order, have their send and their receive in the window.
#[derive(Default)]
struct Messages(HashMap<(bool, Envelope), Ends>);

#[derive(Default)]
struct Ends {
    seen: u64,
    within: Range<u64>,
}

/// Whether a call is a send, and its message.
fn envelope(rank: u32, call: &Call) -> Option<(bool, Envelope)> {
    match *call {
        Call::Send { to, tag, context, .. } | Call::Isend { to, tag, context, .. } => {
            Some((true, (rank, to, tag, context)))
        }
        Call::Recv { from, tag, context } | Call::Irecv { from, tag, context, .. } => {
            Some((false, (from, rank, tag, context)))
        }
        _ => None,
    }
}

impl Messages {
    fn count(&mut self, rank: u32, ops: &[Op], range: &Range<usize>) -> Result<(), usize> {
        for (index, op) in ops.iter().enumerate() {
            let Some(key) = envelope(rank, &op.call) else { continue };
            if key.1.0 == ANY_SOURCE || key.1.2 == ANY_TAG {
                return Err(index);
            }
            let ends = self.0.entry(key).or_default();
            if range.contains(&index) {
                let start = if ends.within.is_empty() { ends.seen } else { ends.within.start };
                ends.within = start..ends.seen + 1;
            }
            ends.seen += 1;
        }
        Ok(())
    }

    fn keep(&self, rank: u32, ops: &[Op], range: &Range<usize>, crossing: &mut u64) -> Vec<Op> {
        let mut seen: HashMap<(bool, Envelope), u64> = HashMap::new();
        let mut begun = HashMap::new();
        let mut kept = ops[range.clone()].to_vec();
        for op in &mut kept {
            if let Some(key) = envelope(rank, &op.call) {
                let number = seen.entry(key).or_insert_with(|| self.0[&key].within.start);
                let other = self.0.get(&(!key.0, key.1)).is_some_and(|ends| ends.within.contains(number));
                *number += 1;
                if let Call::Isend { slot, .. } | Call::Irecv { slot, .. } = op.call {
                    begun.insert(slot, other);
                }
                if !other {
                    *crossing += 1;
                    op.call = Call::Compute;
                }
            } else if let Call::Wait { slot } = op.call
                && !begun.remove(&slot).unwrap_or(false)
            {
                op.call = Call::Compute;
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ANY_SOURCE;

    const WORLD: Context = Context::program(0);

    /// Two ranks that exchange after something else, `iterations` times, the second one message behind.
    fn job(iterations: usize, from: u32) -> Job {
        let op = |gap, call| Op { gap, call, record: 0 };
        let iteration = |other: u32, from: u32| {
            [
                op(1, Call::Irecv { from, tag: 1, context: WORLD, slot: 1 }),
                op(2, Call::Send { to: other, bytes: 5, tag: 1, context: WORLD }),
                op(3, Call::Wait { slot: 1 }),
                op(4, Call::Compute),
            ]
        };
        let begin = |count| vec![op(100, Call::Send { to: 0, bytes: 1, tag: 9, context: WORLD }); count];
        let mut ranks = vec![Vec::new(), begin(1)];
        ranks[0].push(op(100, Call::Recv { from: 1, tag: 9, context: WORLD }));
        ranks[0].extend((0..iterations).flat_map(|_| iteration(1, from)));
        ranks[1].extend((0..iterations).flat_map(|_| iteration(0, 0)));
        Job { ranks, communicators: vec![[0, 1].into()], file: "w".to_owned(), ..Job::default() }
    }

    #[test]
    fn keeps_the_iterations_asked_for_and_messages_with_both_ends() {
        let window = cut(&job(20, 1), Window { from: 3, iterations: 5 }).unwrap();
        assert_eq!(window.iterations, 20);
        assert_eq!(window.crossing, 0);
        for ops in &window.job.ranks {
            assert_eq!(ops.len(), 20);
            assert_eq!(ops.iter().map(|op| op.gap).sum::<u64>(), 50);
        }
        assert_eq!(window.job.totals().sends, 10);
    }

    #[test]
    fn turns_what_crosses_the_edges_into_computation() {
        // The second rank begins with one more exchange that the first leaves out, so that they are one apart.
        let mut shifted = job(20, 1);
        let extra: Vec<Op> = shifted.ranks[1][1..5].to_vec();
        shifted.ranks[1].splice(1..1, extra);
        shifted.ranks[0].splice(
            1..1,
            [
                Op { gap: 0, call: Call::Send { to: 1, bytes: 5, tag: 1, context: WORLD }, record: 0 },
                Op { gap: 0, call: Call::Recv { from: 1, tag: 1, context: WORLD }, record: 0 },
            ],
        );
        let window = cut(&shifted, Window { from: 0, iterations: 4 }).unwrap();
        assert_eq!(window.crossing, 4, "one message each way at each edge");
        let totals = window.job.totals();
        assert_eq!((totals.sends, totals.receives), (6, 6));
        let waits = window.job.ranks.iter().flatten().filter(|op| matches!(op.call, Call::Wait { .. })).count();
        assert_eq!(waits, 6);
    }

    #[test]
    fn refuses_what_is_not_there() {
        let said = |job: &Job, from, iterations| cut(job, Window { from, iterations }).unwrap_err().to_string();
        assert!(said(&job(20, 1), 18, 3).contains("it has 20 iterations; a window of 3 from iteration 18"));
        assert!(said(&job(20, 1), 1, 0).contains("a window of 0"));
        assert!(said(&job(20, ANY_SOURCE), 1, 1).contains("rank 0, record 0: a window cannot tell"));
        assert!(said(&job(1, 1), 0, 1).contains("do not repeat"));
        assert!(said(&Job::default(), 0, 1).contains("no operations"));
    }
}
