//! Whether the database can be written. While it cannot, as on a full disk, nobody is given or changes anything, and all
//! that clients are told is that it is so: its administrator is to hear of it where he looks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gambeson_site::directory::now;
use serde::{Deserialize, Serialize};

use crate::Error;

/// That changes could not be written, and were not since then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// When that was for the first time, in seconds since 1970.
    pub since: u64,
    /// And for the last time.
    pub last: u64,
    /// Why.
    pub why: String,
}

/// How writing goes.
#[derive(Default)]
pub struct Health {
    failures: AtomicU64,
    state: Mutex<State>,
    say: OnceLock<Box<Say>>,
}

/// Says a sentence to who looks after the service.
type Say = dyn Fn(&str) + Send + Sync;

#[derive(Default)]
struct State {
    trouble: Option<Trouble>,
    /// When it was said last.
    said: Option<Instant>,
    /// Whether this trouble was.
    is_known: bool,
}

impl Health {
    /// How often something could not be written.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Why the last of what was to be written was not.
    pub fn trouble(&self) -> Option<Trouble> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).trouble.clone()
    }

    /// Has somebody told of trouble from here on: once a minute, and when it is over.
    pub fn tell(&self, say: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.say.set(Box::new(say));
    }

    pub(super) fn failed(&self, why: &Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let since = state.trouble.as_ref().map_or_else(now, |trouble| trouble.since);
        state.trouble = Some(Trouble { since, last: now(), why: why.to_string() });
        if state.said.is_none_or(|said| said.elapsed() >= SELDOM) {
            (state.said, state.is_known) = (Some(Instant::now()), true);
            self.say(&format!("{why}; nothing is given or changed until it can be written"));
        }
    }

    pub(super) fn worked(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.trouble.take().is_some() && std::mem::take(&mut state.is_known) {
            self.say("the key database can be written again");
        }
    }

    fn say(&self, sentence: &str) {
        if let Some(say) = self.say.get() {
            say(sentence);
        }
    }
}

/// Between sentences of the same trouble.
const SELDOM: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn trouble_is_said_seldom_and_its_end_once() {
        let (health, said) = (Health::default(), Arc::new(Mutex::new(Vec::new())));
        let heard = Arc::clone(&said);
        health.tell(move |sentence| heard.lock().unwrap().push(sentence.to_owned()));
        let full = Error::system("keys.db", "writing it", &"disk full");
        health.worked();
        for _ in 0..3 {
            health.failed(&full);
        }
        assert!(health.trouble().unwrap().why.contains("disk full") && health.failures() == 3);
        health.worked();
        health.worked();
        // So soon it is not said again, nor that it is over.
        health.failed(&full);
        health.worked();
        assert_eq!((health.trouble(), health.failures()), (None, 4));
        let said = said.lock().unwrap();
        assert!(said.len() == 2 && said[0].contains("disk full") && said[1].contains("written again"), "{said:?}");
    }
}
