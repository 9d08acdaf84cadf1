//! The audit's result: a row for each operation, the table, the summary, JSON.

use std::fmt::Write;

use serde::Serialize;

use crate::probe::plan::{Operation, Visible};

use super::listen::Heard;
use super::side::{Outcome, Played};

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Seen in plain, not seen sealed.
    Sealed,
    /// Seen although sealed.
    Readable,
    /// Something else arrived than was sent.
    WrongData,
    /// Works in plain and not under sealing.
    Broken,
    /// Gambeson ends the job rather than let it through unsealed.
    Refused,
    /// Not seen in plain either: a zero under sealing proves nothing.
    NotObserved,
    /// Carries less than could be told from chance.
    TooShort,
    /// This MPI does not have it.
    Unsupported,
    /// Does not work in plain, so there is nothing to compare.
    FailsInPlain,
}

/// One operation on one side.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Seen {
    pub(crate) hits: u64,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

/// One operation.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) plain: Seen,
    pub(crate) sealed: Seen,
    pub(crate) verdict: Verdict,
}

/// What was listened to on one side.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Listened {
    pub(crate) bytes: u64,
    pub(crate) frames_lost: u64,
}

/// The audit as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Conclusion {
    Passed,
    Failed,
    /// Nothing was found, and not everything was heard.
    Incomplete,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) mpi: String,
    pub(crate) processes: usize,
    pub(crate) plain: Listened,
    pub(crate) sealed: Listened,
    pub(crate) operations: Vec<Row>,
    pub(crate) result: Conclusion,
}

impl Report {
    /// Puts both sides together.
    pub(crate) fn new(plan: &[Operation], plain: (Played, Heard), sealed: (Played, Heard)) -> Self {
        let rows = plan.iter().enumerate().map(|(index, operation)| {
            let seen = |(played, heard): &(Played, Heard)| Seen {
                hits: heard.hits[index],
                outcome: played.outcomes[index].clone(),
            };
            let (plain, sealed) = (seen(&plain), seen(&sealed));
            let verdict = verdict(operation.visible(), &plain, &sealed);
            Row { name: operation.name.clone(), plain, sealed, verdict }
        });
        let operations: Vec<_> = rows.collect();
        let result = match operations.iter().any(|row| row.verdict.condemns()) {
            true => Conclusion::Failed,
            false if sealed.1.lost > 0 => Conclusion::Incomplete,
            false => Conclusion::Passed,
        };
        let listened = |heard: &Heard| Listened { bytes: heard.bytes, frames_lost: heard.lost };
        Self {
            mpi: plain.0.library,
            processes: plain.0.processes,
            plain: listened(&plain.1),
            sealed: listened(&sealed.1),
            operations,
            result,
        }
    }

    /// The table and the summary, for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}, {} processes\n\n", self.mpi, self.processes);
        let width = self.operations.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let _ = writeln!(text, "{:width$}  {:>12}  {:>12}", "operation", "plain hits", "sealed hits");
        for row in &self.operations {
            let hits = |seen: &Seen| match seen.outcome {
                Outcome::Missing(_) => "-".to_string(),
                _ => seen.hits.to_string(),
            };
            let line =
                format!("{:width$}  {:>12}  {:>12}  {}", row.name, hits(&row.plain), hits(&row.sealed), row.remark());
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text + "\n" + &self.summary()
    }

    /// The last lines.
    pub(crate) fn summary(&self) -> String {
        let number = |verdict: Verdict| self.operations.iter().filter(|row| row.verdict == verdict).count();
        let mut text = format!(
            "{} of {} operations: seen in plain, not seen sealed.\n",
            number(Verdict::Sealed),
            self.operations.len()
        );
        let others = [
            (Verdict::Readable, "READABLE although sealed"),
            (Verdict::WrongData, "delivered something else than was sent"),
            (Verdict::Broken, "work in plain and not under sealing"),
            (Verdict::Refused, "refused by Gambeson, which ends a job that uses them with status 70"),
            (Verdict::NotObserved, "not observed in plain, so the zero beside them proves nothing"),
            (Verdict::TooShort, "too short to be told from chance"),
            (Verdict::FailsInPlain, "fail in plain"),
            (Verdict::Unsupported, "not in this MPI"),
        ];
        for (verdict, words) in others {
            if number(verdict) > 0 {
                let _ = writeln!(text, "{:>3} {words}.", number(verdict));
            }
        }
        if self.sealed.frames_lost > 0 {
            let _ = writeln!(
                text,
                "The listener lost {} frames of the sealed run, and what was in them is not known: this is no proof. Run the audit again on a quieter machine.",
                self.sealed.frames_lost
            );
        }
        let refusal = self.operations.iter().find_map(|row| match &row.sealed.outcome {
            Outcome::Refused(sentence) => Some(sentence),
            _ => None,
        });
        if let Some(sentence) = refusal {
            let _ = writeln!(text, "Refused: {sentence}");
        }
        text + match self.result {
            Conclusion::Passed => "PASSED\n",
            Conclusion::Failed => "FAILED\n",
            Conclusion::Incomplete => "INCOMPLETE\n",
        }
    }
}

impl Verdict {
    /// Whether it makes the audit fail.
    fn condemns(self) -> bool {
        matches!(self, Self::Readable | Self::WrongData | Self::Broken)
    }
}

impl Row {
    fn remark(&self) -> String {
        let text = |seen: &Seen| match &seen.outcome {
            Outcome::Done => String::new(),
            Outcome::Missing(text) | Outcome::Refused(text) | Outcome::Failed(text) | Outcome::WrongData(text) => {
                text.clone()
            }
        };
        match self.verdict {
            Verdict::Sealed => String::new(),
            Verdict::Readable => "READABLE".into(),
            Verdict::WrongData => {
                let (side, seen) = match self.sealed.outcome {
                    Outcome::WrongData(_) => ("sealed", &self.sealed),
                    _ => ("plain", &self.plain),
                };
                format!("WRONG DATA, {side}: {}", text(seen))
            }
            Verdict::Broken => format!("FAILS SEALED: {}", text(&self.sealed)),
            Verdict::Refused => "refused".into(),
            Verdict::NotObserved => "not observed".into(),
            Verdict::TooShort => "too short to see".into(),
            Verdict::Unsupported => "not in this MPI".into(),
            Verdict::FailsInPlain => match self.sealed.outcome {
                Outcome::Done => format!("fails in plain, works sealed: {}", text(&self.plain)),
                _ => format!("fails in plain: {}", text(&self.plain)),
            },
        }
    }
}

fn verdict(visible: Visible, plain: &Seen, sealed: &Seen) -> Verdict {
    use Outcome::{Done, Failed, Missing, Refused, WrongData};
    if sealed.hits > 0 {
        return Verdict::Readable;
    }
    match (&plain.outcome, &sealed.outcome) {
        (WrongData(_), _) | (_, WrongData(_)) => Verdict::WrongData,
        (Missing(_), _) => Verdict::Unsupported,
        (Done, Refused(_)) => Verdict::Refused,
        (Failed(_) | Refused(_), _) => Verdict::FailsInPlain,
        (Done, Failed(_) | Missing(_)) => Verdict::Broken,
        (Done, Done) if visible == Visible::Nothing => Verdict::TooShort,
        (Done, Done) if plain.hits == 0 => Verdict::NotObserved,
        (Done, Done) => Verdict::Sealed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(plain: (u64, Outcome), sealed: (u64, Outcome), expected: Verdict, condemns: bool) {
        let seen = |(hits, outcome)| Seen { hits, outcome };
        let found = verdict(Visible::Marker, &seen(plain), &seen(sealed));
        assert_eq!(found, expected);
        assert_eq!(found.condemns(), condemns);
    }

    #[test]
    fn verdicts() {
        let failed = || Outcome::Failed("why".into());
        check((9, Outcome::Done), (0, Outcome::Done), Verdict::Sealed, false);
        check((9, Outcome::Done), (1, Outcome::Done), Verdict::Readable, true);
        check((0, Outcome::Missing("m".into())), (1, failed()), Verdict::Readable, true);
        check((0, Outcome::Done), (0, Outcome::Done), Verdict::NotObserved, false);
        check((9, Outcome::Done), (0, failed()), Verdict::Broken, true);
        check((9, Outcome::Done), (0, Outcome::Refused("r".into())), Verdict::Refused, false);
        check((9, failed()), (0, failed()), Verdict::FailsInPlain, false);
        check((9, Outcome::Done), (0, Outcome::WrongData("w".into())), Verdict::WrongData, true);
        check((9, Outcome::WrongData("w".into())), (0, Outcome::Done), Verdict::WrongData, true);
        check((0, Outcome::Missing("m".into())), (0, Outcome::Missing("m".into())), Verdict::Unsupported, false);
    }

    #[test]
    fn a_message_too_short_to_see_is_not_called_unobserved() {
        let seen = Seen { hits: 0, outcome: Outcome::Done };
        assert_eq!(verdict(Visible::Nothing, &seen, &seen), Verdict::TooShort);
    }
}
