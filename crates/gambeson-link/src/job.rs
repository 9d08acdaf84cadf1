//! A program that `gambeson run` started: who it is, whom it talks to and under what policy, it has from its job.

use std::fs;

use gambeson_proto::credential::Credential;
use gambeson_site::job;

use crate::domain::Config;
use crate::error::Error;
use crate::identity::{Identity, Trust};
use crate::site::Source;

impl Config {
    /// A domain of the job that this process belongs to: a fresh key, the job's secret to prove, its rank and host, and
    /// the policy of the job, and the directory of the site that the job was started at. It listens nowhere yet.
    ///
    /// # Errors
    /// When the process belongs to no job, others could have got at the job's secret, or the site's directory does not
    /// hold.
    pub fn from_job() -> Result<Self, Error> {
        let job::Job { directory, mut credential } = job::find("this program").map_err(Error::identity)?;
        // Where rules were written is for sentences alone, so a file that is not there costs no more than that.
        let rules = fs::read_to_string(directory.join("rules")).unwrap_or_default();
        credential.policy = credential.policy.with_origins(rules.lines().map(str::to_owned).collect());
        let mut config = Config::of_job(credential)?;
        config.rank = job::rank();
        config.site = Source::of_folder(&directory)?;
        config.job = Some(directory);
        Ok(config)
    }

    /// A domain of the job whose credential this is: a fresh key, the job's secret to prove, this host, and the policy of
    /// the job. It listens nowhere yet.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn of_job(credential: Credential) -> Result<Self, Error> {
        let trust = Trust::default().job(credential.job_keys());
        let mut config = Config::new(Identity::generate()?, trust);
        config.host = job::host_name();
        config.partitions = Some((credential.policy.clone(), credential.partitions));
        config.policy = credential.policy;
        Ok(config)
    }
}
