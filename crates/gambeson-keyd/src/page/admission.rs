//! Who is let in, and what those are told who are not.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gambeson_link::{Peer, Trust};
use pki_types::CertificateDer;

use crate::Who;
use crate::rules::covers;

/// Who may see what.
pub(super) struct Admission {
    trust: Trust,
    host: String,
    officers: Vec<String>,
    metrics: Vec<String>,
}

/// What somebody comes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The metrics, which name no label.
    Metrics,
    /// Anything else.
    Page,
}

/// Why somebody is not let in.
#[derive(Debug)]
pub(super) struct Unwanted {
    /// Who he is, if the site knows him.
    pub(super) who: Option<Box<Who>>,
    /// What he is told.
    pub(super) sentence: String,
    /// What the log says of it.
    pub(super) reason: &'static str,
}

impl Admission {
    pub(super) fn new(trust: Trust, host: String, officers: Vec<String>, metrics: Vec<String>) -> Self {
        Admission { trust, host, officers, metrics }
    }

    /// Whether somebody is let in, by the certificates that he has shown, and whose key he has proved to own.
    pub(super) fn admit(
        &self,
        chain: Option<&[CertificateDer<'_>]>,
        from: IpAddr,
        wanted: Wanted,
    ) -> Result<Who, Unwanted> {
        let chain = chain.filter(|chain| !chain.is_empty()).ok_or_else(|| Unwanted {
            who: None,
            reason: "no certificate was shown",
            sentence: "your browser has shown no certificate of this site. Officers have one made by `gambeson enroll \
                       --browser FILE`, and import it; a browser that was open before may have to be started again"
                .into(),
        })?;
        let peer = self.trust.whose(chain).map_err(|cause| Unwanted {
            who: None,
            reason: "the certificate is not one of this site's, or not good now",
            sentence: format!("the certificate that you have shown is not accepted here: {cause}"),
        })?;
        let who = who(peer, from);
        let (officer, scraper) = (covers(&self.officers, &who.roles), covers(&self.metrics, &who.roles));
        if officer || (scraper && wanted == Wanted::Metrics) {
            return Ok(who);
        }
        let (reason, sentence) = if scraper {
            let reason = "keyd.toml names him for the metrics alone";
            (
                reason,
                format!(
                    "you are known here as {}, who may fetch /metrics of this key service and nothing else",
                    who.name
                ),
            )
        } else {
            let sentence = format!(
                "you are known here as {}, who is no officer of this key service: keyd.toml on {} names those who are, and its \
                 administrator can name you there",
                who.name, self.host
            );
            ("keyd.toml names none of his roles under officers", sentence)
        };
        Err(Unwanted { who: Some(Box::new(who)), sentence, reason })
    }
}

fn who(peer: Peer, from: IpAddr) -> Who {
    Who { name: peer.name, roles: peer.roles, key: peer.key.to_string(), from: from.to_string() }
}

/// Lets each thing be said once in a while, so that who knocks all day fills no log.
#[derive(Default)]
pub(super) struct Seldom(Mutex<HashMap<String, Instant>>);

impl Seldom {
    /// Whether this is to be said now.
    pub(super) fn now(&self, what: &str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, when| when.elapsed() < APART);
        if said.len() >= SAID_MAX || said.contains_key(what) {
            return false;
        }
        said.insert(what.to_owned(), Instant::now());
        true
    }
}

const APART: Duration = Duration::from_secs(60);
/// So many different things in that time at most.
const SAID_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_in_a_while() {
        let seldom = Seldom::default();
        assert!(seldom.now("a") && !seldom.now("a") && seldom.now("b"));
        assert!((0..SAID_MAX - 2).all(|number| seldom.now(&number.to_string())));
        assert!(!seldom.now("one more"));
    }
}
