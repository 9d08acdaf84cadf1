//! What the policy says of this domain's links (secure-nexus paper, section 6.1: where, what, when).
//!
//! Each end decides for itself, from its own place, the peer's as its greeting states it, and the link's class. A link
//! that is weaker than one of them allows does not come about.

use std::net::IpAddr;

use gambeson_proto::key_schedule::PartitionKey;
use gambeson_proto::policy::{Decision, Place, Policy};
use gambeson_proto::startpoint::Session as Keys;
use gambeson_proto::suite::Protection;

use crate::identity::Peer;

/// The policy, and where this domain is.
pub(crate) struct Judge {
    policy: Policy,
    host: String,
    address: Option<IpAddr>,
    /// The job's partitions and their keys; the policy that the job began with says who is in which.
    job: Option<(Policy, Vec<PartitionKey>)>,
}

impl Judge {
    pub(crate) fn new(
        policy: Policy,
        host: String,
        address: Option<IpAddr>,
        job: Option<(Policy, Vec<PartitionKey>)>,
    ) -> Self {
        Judge { policy, host, address, job }
    }

    pub(crate) fn set(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// What holds for a link of a class with a peer.
    pub(crate) fn decide(&self, class: &str, peer: &Peer) -> Decision {
        let [here, there] = self.places(&self.policy, peer);
        self.policy.decide_link(class, here, there)
    }

    /// The key of the partition that both ends are in, in a session of the job.
    pub(crate) fn partition(&self, session: &Keys, peer: &Peer) -> Option<&PartitionKey> {
        let (policy, keys) = self.job.as_ref().filter(|_| session.keys.job_id != [0; 16])?;
        let [here, there] = self.places(policy, peer);
        keys.get(policy.decide(here, there).partition?)
    }

    /// Why a link as weak as that is none.
    pub(crate) fn refusal(&self, class: &str, peer: &Peer, protection: Protection, decision: &Decision) -> String {
        format!(
            "links of class {class} between {} and {} have \"{}\" here, by {}, and this one has \"{protection}\"; open it \
             under a policy that says the same",
            self.host,
            peer.host,
            decision.protection,
            self.policy.why(decision),
        )
    }

    fn places(&self, policy: &Policy, peer: &Peer) -> [Place; 2] {
        [
            Place { host: policy.host_index(&self.host), address: self.address },
            Place { host: policy.host_index(&peer.host), address: peer.address },
        ]
    }
}
