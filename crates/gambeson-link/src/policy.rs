//! What the policy says of this domain's links (secure-nexus paper, section 6.1: where, what, when).
//!
//! Each end decides for itself, from its own place, the peer's as its greeting states it, and the link's class. A link
//! that is weaker than one of them allows does not come about.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use gambeson_proto::directory::Network;
use gambeson_proto::key_schedule::PartitionKey;
use gambeson_proto::policy::{Decision, Place, Policy};
use gambeson_proto::startpoint::Session as Keys;
use gambeson_proto::suite::Protection;
use gambeson_site::policy;

use crate::error::Error;
use crate::identity::Peer;
use crate::site::Site;

/// Reads a policy from a `gambeson.toml` that nobody but its owner and root can write.
///
/// # Errors
/// When it cannot be read, somebody else could have written it, or it makes no sense.
pub fn read_policy(path: &Path) -> Result<Policy, Error> {
    policy::read(path).map_err(|cause| Error::Policy(cause.to_string()))
}

/// What holds for a link, and why.
pub(crate) struct Verdict {
    pub(crate) protection: Protection,
    decision: Decision,
    /// The site's network that asks for more than the policy.
    network: Option<Network>,
}

/// The policy and the site's directory, and where this domain is.
pub(crate) struct Judge {
    policy: Policy,
    site: Arc<Site>,
    host: String,
    address: Option<IpAddr>,
    /// The job's partitions and their keys; the policy that the job began with says who is in which.
    job: Option<(Policy, Vec<PartitionKey>)>,
}

impl Judge {
    pub(crate) fn new(
        policy: Policy,
        site: Arc<Site>,
        host: String,
        address: Option<IpAddr>,
        job: Option<(Policy, Vec<PartitionKey>)>,
    ) -> Self {
        Judge { policy, site, host, address, job }
    }

    pub(crate) fn set(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// What holds for a link of a class with a peer: the stronger of what the policy and the site say.
    pub(crate) fn decide(&self, class: &str, peer: &Peer) -> Verdict {
        let [here, there] = self.places(&self.policy, peer);
        let decision = self.policy.decide_link(class, here, there);
        let network = self.site.floor(peer).filter(|network| network.protection < decision.protection);
        let protection = network.map_or(decision.protection, |network| network.protection);
        Verdict { protection, decision, network }
    }

    /// The key of the partition that both ends are in, in a session of the job.
    pub(crate) fn partition(&self, session: &Keys, peer: &Peer) -> Option<&PartitionKey> {
        let (policy, keys) = self.job.as_ref().filter(|_| session.keys.job_id != [0; 16])?;
        let [here, there] = self.places(policy, peer);
        keys.get(policy.decide(here, there).partition?)
    }

    /// Why a link as weak as that is none.
    pub(crate) fn refusal(&self, class: &str, peer: &Peer, protection: Protection, verdict: &Verdict) -> String {
        let Verdict { protection: least, decision, network } = verdict;
        let (by, remedy) = match network {
            Some(network) => (
                format!("the site directory's network {}", network.subnet()),
                "let both ends go by the same site directory",
            ),
            None => (self.policy.why(decision), "open it under a policy that says the same"),
        };
        format!(
            "links of class {class} between {} and {} have \"{least}\" here, by {by}, and this one has \"{protection}\"; {remedy}",
            self.host, peer.host,
        )
    }

    fn places(&self, policy: &Policy, peer: &Peer) -> [Place; 2] {
        [
            Place { host: policy.host_index(&self.host), address: self.address },
            Place { host: policy.host_index(&peer.host), address: peer.address },
        ]
    }
}
