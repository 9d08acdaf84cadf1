//! A host's daemon asks for the secrets of the partitions that it is a member of.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use gambeson_link::{Domain, Expected};

use super::distribution::{alive, ask, from_services, from_source};
use super::folder::Folder;
use super::message::{Fetch, Grant};
use super::registry::{self, Wanting};
use crate::Error;
use crate::authority::{AUTHORITY, Authority, Site};

/// What a host's daemon has of partitions: the secrets of those that it is a member of, in memory alone.
pub(crate) struct Holder {
    domain: Weak<Domain>,
    folder: PathBuf,
    host: String,
    /// Of the authority, on its own host.
    partitions: Option<Folder>,
    held: Mutex<BTreeMap<String, Held>>,
}

/// What is known of one partition.
struct Held {
    grant: Grant,
    /// When who hands out last said so.
    confirmed: Instant,
}

impl Holder {
    pub(crate) fn new(domain: &Arc<Domain>, folder: PathBuf, host: &str) -> Self {
        let partitions = Authority::is_in(&folder).then(|| Folder::of(&folder));
        let host = host.to_ascii_lowercase();
        Holder { domain: Arc::downgrade(domain), folder, host, partitions, held: Mutex::default() }
    }

    /// The secret for a job that began in some epoch, or begins now (0). Who hands out is asked each time, so that who
    /// was removed is refused at once; while nobody answers, what was said within [`LEASE`] holds.
    pub(super) fn secret(&self, partition: &str, epoch: u32) -> Result<Grant, Error> {
        let outcome = self.fetch(partition);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let grant = match outcome {
            Ok(grant) => {
                held.insert(partition.to_owned(), Held { grant: grant.clone(), confirmed: Instant::now() });
                grant
            }
            Err(cause @ Error::Unavailable(_)) => {
                held.retain(|_, known| known.confirmed.elapsed() < LEASE);
                held.get(partition).map(|known| known.grant.clone()).ok_or(cause)?
            }
            Err(cause) => {
                // It is a member no longer.
                held.remove(partition);
                return Err(cause);
            }
        };
        if epoch != 0 && epoch != grant.epoch {
            return Err(Error::Refused(format!(
                "the job began in epoch {epoch}, and the partition is in epoch {} here; start the job again",
                grant.epoch
            )));
        }
        Ok(grant)
    }

    fn fetch(&self, partition: &str) -> Result<Grant, Error> {
        let own = std::slice::from_ref(&self.host);
        let site = Site::read(&self.folder)?;
        let services = site.key_services()?;
        if let Some(partitions) = &self.partitions
            && (services.is_none() || registry::has(partitions, partition)?)
        {
            return match registry::source(partitions, partition)? {
                None => registry::grant(partitions, partition, &Wanting::Host(own.to_vec())),
                Some(source) => from_source(&*alive(&self.domain)?, &source, partition, own),
            };
        }
        if let Some(place) = services {
            return from_services(&*alive(&self.domain)?, &place, partition, None);
        }
        let fetch = Fetch { partition: partition.to_owned(), host: None };
        ask(&*alive(&self.domain)?, &site.authority, &Expected::Role(AUTHORITY.into()), &fetch)
    }
}

/// So long a member goes on with what it knows while nobody answers who hands out.
const LEASE: Duration = Duration::from_secs(24 * 3600);
