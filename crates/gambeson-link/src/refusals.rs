//! What a domain refused: counted by reason for its program, and said in a log that nobody can fill.

use gambeson_proto::startpoint::Refusal;

/// How often a domain refused something since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusals {
    /// Connections of those who did not prove that they may talk to it, spoke something else or nothing.
    pub connections: u64,
    /// Connections given up, or sessions ended, because of what came over them: somebody on the way altered it.
    pub tampered: u64,
    /// Names that somebody asked for and may not have, or under which nothing is published.
    pub names: u64,
    /// Startpoints and requests, with the reasons that ever applied.
    pub startpoints: Vec<(Refusal, u64)>,
}

impl Refusals {
    /// How often startpoints or requests were refused for this reason.
    #[must_use]
    pub fn of(&self, reason: Refusal) -> u64 {
        self.startpoints.iter().find(|(there, _)| *there == reason).map_or(0, |(_, count)| *count)
    }
}

/// Says what happened, ever more seldom: whoever can make it happen could fill a disk otherwise. `count` is how often it
/// has now.
pub(crate) fn say(count: u64, what: impl FnOnce() -> String) {
    if count.is_power_of_two() {
        let so_far = if count == 1 { String::new() } else { format!(" ({count} times so far)") };
        eprintln!("gambeson: {}{so_far}", what());
    }
}
