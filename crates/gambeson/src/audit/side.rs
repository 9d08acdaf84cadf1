//! One side of the audit: the whole plan under one mpiexec, plain or sealed.
//!
//! An operation that hangs or crashes ends its job; another job goes on behind it.

use std::time::Duration;

use indicatif::ProgressBar;
use serde::Serialize;

use crate::failure::Status;
use crate::probe::job::{End, Job, Side, Starter};
use crate::probe::marker::Seed;
use crate::probe::plan::Operation;
use crate::probe::report::{Cause, Event};

/// How an operation went, on all ranks together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "text", rename_all = "snake_case")]
pub(crate) enum Outcome {
    Done,
    /// The library does not have it.
    Missing(String),
    /// Gambeson ended the job rather than let it go on unsealed.
    Refused(String),
    /// The library refused it, or the job hung or broke down in it.
    Failed(String),
    /// What arrived was not what was sent.
    WrongData(String),
}

/// What the jobs of one side reported.
pub(crate) struct Played {
    pub(crate) library: String,
    pub(crate) processes: usize,
    pub(crate) outcomes: Vec<Outcome>,
}

/// A side that did not come up.
pub(crate) struct Abandoned {
    pub(crate) sentence: String,
    /// Exit status of the launcher, if that is how it ended.
    pub(crate) status: Option<i32>,
}

/// A side being played.
pub(crate) struct Play<'p> {
    pub(crate) starter: &'p Starter,
    pub(crate) side: Side,
    pub(crate) seed: Seed,
    pub(crate) plan: &'p [Operation],
    /// Seconds for one operation.
    pub(crate) limit: u64,
    pub(crate) progress: &'p ProgressBar,
}

/// What is known so far.
struct Known {
    library: String,
    processes: usize,
    outcomes: Vec<Option<Outcome>>,
    one_sided: bool,
}

/// How a job ended before the end of the plan.
struct Broken {
    end: End,
    /// What its ranks had said of the operation under way.
    said: Option<Outcome>,
}

/// Jobs that may break down one after the other before the rest of the plan is given up.
const ATTEMPTS: usize = 20;

impl Play<'_> {
    /// Carries out the plan.
    ///
    /// # Errors
    /// When the probe does not come up at all.
    pub(crate) fn play(&self) -> Result<Played, Abandoned> {
        let outcomes = vec![None; self.plan.len()];
        let mut known = Known { library: String::new(), processes: 0, outcomes, one_sided: true };
        for _ in 0..ATTEMPTS {
            let Some(from) = known.outcomes.iter().position(Option::is_none) else { break };
            let mut job = self.start(from, known.one_sided)?;
            let Some(broken) = self.follow(&mut job, &mut known) else { break };
            if known.processes == 0 {
                return Err(self.abandoned(&job, &broken.end));
            }
            self.note_breakdown(&job, broken, &mut known);
        }
        let given_up = || Outcome::Failed("not tried: too many operations before it brought the job down".into());
        let outcomes = known.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(given_up)).collect();
        Ok(Played { library: known.library, processes: known.processes, outcomes })
    }

    fn start(&self, from: usize, one_sided: bool) -> Result<Job, Abandoned> {
        let (seed, limit, from) = (self.seed.to_string(), self.limit.to_string(), from.to_string());
        let mut arguments = ["--seed", &seed, "--limit", &limit, "--from", &from].map(String::from).to_vec();
        if !one_sided {
            arguments.push("--without-one-sided".into());
        }
        let job = self.starter.start(self.side, "audit", &arguments);
        job.map_err(|sentence| Abandoned { sentence, status: None })
    }

    /// Follows one job; `None` when it came to the end of the plan.
    fn follow(&self, job: &mut Job, known: &mut Known) -> Option<Broken> {
        // The ranks end themselves after the limit; this is for launchers that do not notice.
        let patience = Duration::from_secs(self.limit + 15);
        // Lines of different ranks may overtake one another, so each is booked by its operation.
        let mut said: Vec<Option<Outcome>> = vec![None; self.plan.len()];
        loop {
            match job.next(patience) {
                Ok(Event::Started { library, processes }) => (known.library, known.processes) = (library, processes),
                Ok(Event::Begun { operation }) => {
                    if let Some(operation) = self.plan.get(operation) {
                        self.progress.set_message(operation.name.clone());
                    }
                }
                Ok(Event::Failed { operation, cause, text, .. }) if operation < said.len() => {
                    let outcome = worse(said[operation].take(), cause, text);
                    if known.outcomes[operation].is_some() {
                        known.outcomes[operation] = Some(outcome.clone());
                    }
                    said[operation] = Some(outcome);
                }
                Ok(Event::Ended { operation }) if operation < said.len() => {
                    known.outcomes[operation] = Some(said[operation].clone().unwrap_or(Outcome::Done));
                    self.progress.inc(1);
                }
                Ok(Event::Finished) => {
                    job.finish();
                    return None;
                }
                Ok(_) => {}
                Err(end) => {
                    let under_way = known.outcomes.iter().position(Option::is_none);
                    return Some(Broken { end, said: under_way.and_then(|operation| said[operation].take()) });
                }
            }
        }
    }

    /// Books a breakdown on the operation that was under way.
    fn note_breakdown(&self, job: &Job, broken: Broken, known: &mut Known) {
        let Some(under_way) = known.outcomes.iter().position(Option::is_none) else { return };
        let ended = refusal(&broken.end, job);
        // Gambeson says beforehand which MPI's windows it refuses; to end anything else is a failure.
        let announced = self.plan[under_way].is_one_sided() && self.starter.refuses_windows(&job.said());
        known.outcomes[under_way] = Some(match (&ended, broken.said) {
            (Some(sentence), _) if announced => Outcome::Refused(sentence.clone()),
            (Some(sentence), _) => Outcome::Failed(sentence.clone()),
            (None, Some(said)) => said,
            (None, None) => Outcome::Failed(breakdown(&broken.end, self.limit)),
        });
        self.progress.inc(1);
        if let Some(sentence) = ended.filter(|_| announced) {
            // Windows are refused, not this way of using one: no need to ask again each time.
            known.one_sided = false;
            for (operation, outcome) in self.plan.iter().zip(&mut known.outcomes) {
                if operation.is_one_sided() && outcome.is_none() {
                    *outcome = Some(Outcome::Refused(sentence.clone()));
                    self.progress.inc(1);
                }
            }
        }
    }

    fn abandoned(&self, job: &Job, end: &End) -> Abandoned {
        let (status, how) = match end {
            End::Silence => (None, "reported nothing".to_string()),
            End::Exit(status) => (status.code(), format!("ended before it began ({status})")),
        };
        Abandoned { sentence: format!("the {} job {how}. It said:\n{}", self.side.name(), job.said()), status }
    }
}

fn worse(outcome: Option<Outcome>, cause: Cause, text: String) -> Outcome {
    match (outcome, cause) {
        (Some(wrong @ Outcome::WrongData(_)), _) => wrong,
        (_, Cause::WrongData) => Outcome::WrongData(text),
        (Some(failed @ Outcome::Failed(_)), _) => failed,
        (_, Cause::Refused) => Outcome::Failed(text),
        (_, Cause::Missing) => Outcome::Missing(text),
    }
}

/// Gambeson's sentence, when it was Gambeson that ended the job.
fn refusal(end: &End, job: &Job) -> Option<String> {
    let End::Exit(status) = end else { return None };
    if status.code() != Some(Status::Refused as i32) {
        return None;
    }
    let said = job.said();
    let sentence =
        said.lines().filter_map(|line| line.strip_prefix("gambeson: ")).find(|line| !line.starts_with("note:"));
    Some(sentence.unwrap_or("the job ended with status 70").to_string())
}

fn breakdown(end: &End, limit: u64) -> String {
    match end {
        End::Silence => format!("nothing happened for {limit} s"),
        End::Exit(status) => format!("the job ended in it ({status})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_the_ranks_counts() {
        let missing = worse(None, Cause::Missing, "m".into());
        assert_eq!(missing, Outcome::Missing("m".into()));
        let failed = worse(Some(missing), Cause::Refused, "f".into());
        assert_eq!(failed, Outcome::Failed("f".into()));
        let wrong = worse(Some(failed), Cause::WrongData, "w".into());
        assert_eq!(wrong, Outcome::WrongData("w".into()));
        assert_eq!(worse(Some(wrong), Cause::Missing, "m".into()), Outcome::WrongData("w".into()));
    }
}
