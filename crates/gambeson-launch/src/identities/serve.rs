//! The authority's side: hears who guests are, and certifies them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use data_encoding::BASE64;
use gambeson_link::{Attributes, Domain, Endpoint, GUEST, Handlers, Protection, Request};
use nix::unistd::{Uid, User};

use super::{IDENTIFY, Identification, Identified, Mechanism, NAME, kerberos, munge, payload};
use crate::Error;
use crate::audit_log::AuditLog;
use crate::authority::{Authority, LENGTH_MAX};

/// So many are heard at once: who asks often keeps the domain's threads from nobody.
const HEARD_MAX: usize = 16;

/// Certifies guests of a domain that lets them in, by the mechanisms of its authority, as long as the endpoint is held.
/// `host` is what its certificate calls it.
///
/// # Errors
/// When the domain is closed, or publishes that already.
pub fn serve(
    domain: &Domain,
    authority: Arc<Authority>,
    host: &str,
    log: Arc<Mutex<AuditLog>>,
) -> Result<Endpoint, Error> {
    let office =
        Office { authority, host: host.to_owned(), log, heard: AtomicUsize::new(0), refused: AtomicU64::new(0) };
    let handlers = Handlers::new().threaded(IDENTIFY, move |asked| office.answer(asked));
    let attributes = Attributes::default().protection(Protection::Privacy).message_max(LENGTH_MAX);
    let endpoint = domain.endpoint(attributes, handlers)?;
    endpoint.publish(NAME, &[GUEST], [])?;
    Ok(endpoint)
}

struct Office {
    authority: Arc<Authority>,
    host: String,
    log: Arc<Mutex<AuditLog>>,
    heard: AtomicUsize,
    refused: AtomicU64,
}

/// Whom a credential is of.
struct Known {
    /// His account on this host.
    account: User,
    /// What the mechanism calls him.
    origin: String,
    /// For how long he is known at most.
    left: Duration,
    reply: Vec<u8>,
}

impl Office {
    fn answer(&self, asked: Request) {
        if self.heard.fetch_add(1, Ordering::Relaxed) >= HEARD_MAX {
            self.heard.fetch_sub(1, Ordering::Relaxed);
            return asked.refuse("too many ask who they are at once; try again");
        }
        let outcome = self.identify(&asked);
        self.heard.fetch_sub(1, Ordering::Relaxed);
        match outcome {
            Ok(identified) => asked.answer(&serde_json::to_vec(&identified).expect("words are JSON")),
            Err(cause) => {
                // Guests are nobody yet: what they are refused fills neither the audit log nor this one.
                let count = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
                if count.is_power_of_two() {
                    eprintln!("gambesond: a guest was not certified, the {count}. so far: {cause}");
                }
                asked.refuse(&cause.to_string());
            }
        }
    }

    fn identify(&self, asked: &Request) -> Result<Identified, Error> {
        let said = Identification::decode(&asked.payload)?;
        let identities = &self.authority.settings().identities;
        if !identities.mechanisms.contains(&said.mechanism) {
            let known: Vec<_> = identities.mechanisms.iter().map(|one| one.name()).collect();
            return Err(Error::Refused(format!(
                "this site takes no identities by {}, but by {}; its administrator can add it to authority.toml",
                said.mechanism,
                known.join(", ")
            )));
        }
        if said.request.public_key().hash() != asked.peer.key {
            return Err(Error::Refused("the request is for another key than the session's; ask with your own".into()));
        }
        let binding = asked.binding().ok_or_else(|| Error::Unavailable("the session is over".into()))?;
        let payload = payload(&binding, &self.host, &said.request);
        let known = match said.mechanism {
            Mechanism::Munge => by_munge(&said.credential, &payload)?,
            Mechanism::Kerberos => by_kerberos(&said.credential, &payload)?,
        };
        identities.admit(&known.account)?;
        let name = &known.account.name;
        let about = [
            ("identity", format!("user:{name}").into()),
            ("by", said.mechanism.name().into()),
            ("origin", known.origin.into()),
            ("host", said.request.host.as_str().into()),
            ("key", asked.peer.key.to_string().into()),
        ];
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.add("identify", &about).map_err(Error::Unavailable)?;
        drop(log);
        let certified = self.authority.identify(&said.request, name, said.mechanism, known.left)?;
        Ok(Identified { certified, reply: BASE64.encode(&known.reply) })
    }
}

fn by_munge(credential: &str, payload: &[u8; 32]) -> Result<Known, Error> {
    let decoded = munge::decode(credential).map_err(Error::Refused)?;
    verify_slices_are_equal(&decoded.payload, payload).map_err(|_| {
        let what = "the MUNGE credential is for another session, host or key: somebody may have caught it";
        Error::Refused(what.into())
    })?;
    let account = User::from_uid(Uid::from_raw(decoded.uid));
    let account = found(account, &format!("of uid {}", decoded.uid))?;
    Ok(Known { account, origin: format!("uid {}", decoded.uid), left: Duration::MAX, reply: Vec::new() })
}

fn by_kerberos(credential: &str, payload: &[u8; 32]) -> Result<Known, Error> {
    let none = |_| Error::Refused("the credential is no token of GSS-API in base 64".into());
    let token = BASE64.decode(credential.as_bytes()).map_err(none)?;
    let accepted = kerberos::accept(&token, payload).map_err(Error::Refused)?;
    let (name, principal) = (&accepted.account, accepted.principal);
    let account = found(User::from_name(name), &format!("{name}, which is that of {principal}"))?;
    Ok(Known { account, origin: principal, left: accepted.left, reply: accepted.reply })
}

fn found(account: nix::Result<Option<User>>, whose: &str) -> Result<User, Error> {
    let account = account
        .map_err(|cause| Error::Unavailable(format!("the account {whose} cannot be looked up here ({cause})")))?;
    account.ok_or_else(|| Error::Refused(format!("the authority's host has no account {whose}")))
}
