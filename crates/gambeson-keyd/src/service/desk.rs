//! Takes questions in, and hands answers out.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use gambeson_keys::{KeyError, rank, recipient};
use gambeson_link::{Domain, Peer, Request, Signed};
use gambeson_site::directory::now;
use zeroize::Zeroizing;

use super::{bounds, changes, looks, partitions, uses};
use crate::database::Transaction;
use crate::rules::Rules;
use crate::standby::Duty;
use crate::wire::{self, Answer, Kind, Question, Refused};
use crate::{Database, Error, Event, Who};

/// What all questions share.
pub(super) struct Desk {
    pub(super) database: Database,
    pub(super) rules: Rules,
    pub(super) duty: Arc<Duty>,
    domain: Weak<Domain>,
    /// What this host is called.
    pub(super) host: String,
    /// The hash of its key.
    pub(super) key: String,
    since: u64,
    /// Answers on their way out: the database's thread does not seal them.
    out: Sender<(Request, Result<Answer, Error>)>,
    /// Answers to changes that standbys are to have first, each with the number of the row.
    unconfirmed: Sender<(u64, Request, Answer)>,
}

impl Desk {
    pub(super) fn open(
        database: Database,
        rules: Rules,
        duty: Arc<Duty>,
        called: (String, String),
        domain: &Arc<Domain>,
    ) -> Result<Self, Error> {
        let (out, answers) = channel::<(Request, _)>();
        start("gambeson-answers", move || {
            for (request, outcome) in answers {
                answer(request, outcome);
            }
        })?;
        let (unconfirmed, changes) = channel();
        let (confirmed, confirming) = (out.clone(), duty.clone());
        start("gambeson-confirm", move || {
            // In the order of their rows, so one that is confirmed waits for none that is not.
            for (number, request, answer) in changes {
                let outcome = confirming.confirm(number).map(|()| answer);
                drop(confirmed.send((request, outcome)));
            }
        })?;
        let ((host, key), domain) = (called, Arc::downgrade(domain));
        Ok(Desk { database, rules, duty, domain, host, key, since: now(), out, unconfirmed })
    }

    pub(super) fn since(&self) -> u64 {
        self.since
    }

    /// What uses keys or changes something. It returns at once.
    pub(super) fn ask(&self, mut request: Request) {
        let who = who(&request.peer);
        let question = asked(&mut request);
        let question = question.and_then(|question| {
            match question {
                Question::Keys { .. } | Question::KeysByName { .. } => self.duty.gives()?,
                _ => self.duty.changes()?,
            }
            Ok(question)
        });
        match question {
            Err(error) => self.hand_out(request, Err(error)),
            Ok(Question::Keys { labels, want, purpose }) => {
                let duty = self.duty.clone();
                self.submit(request, move |change| {
                    // Again: it may have been replaced while this waited for its turn.
                    duty.gives()?;
                    uses::keys(change, &who, labels, want, &purpose)
                });
            }
            Ok(Question::KeysByName { wanted, purpose }) => {
                let duty = self.duty.clone();
                self.submit(request, move |change| {
                    duty.gives()?;
                    uses::keys_by_name(change, &who, wanted, &purpose)
                });
            }
            Ok(Question::SetAnchor { file, labels, generation, root, back }) => {
                let anchor = gambeson_keys::Anchor { generation, root };
                self.change(request, move |change| uses::set_anchor(change, &who, &file, &labels, &anchor, back));
            }
            Ok(Question::Create { label, expires }) => {
                let may = crate::rules::covers(&self.rules.create, &who.roles);
                self.change(request, move |change| changes::create(change, &who, may, &label, expires));
            }
            Ok(Question::Rotate { label, expires }) => {
                self.change(request, move |change| changes::rotate(change, &who, &label, expires));
            }
            Ok(Question::Expire { label, version, expires }) => {
                let officer = crate::rules::covers(&self.rules.officers, &who.roles);
                let end = (version, expires);
                self.change(request, move |change| changes::expire(change, &who, officer, &label, end));
            }
            Ok(Question::Delete { label }) => {
                self.change(request, move |change| changes::delete(change, &who, &label));
            }
            Ok(Question::Grant { label, grant }) => {
                self.change(request, move |change| changes::grant(change, &who, &label, grant));
            }
            Ok(Question::Revoke { label, who: whose }) => {
                let officer = crate::rules::covers(&self.rules.officers, &who.roles);
                self.change(request, move |change| changes::revoke(change, &who, officer, &label, &whose));
            }
            Ok(Question::Import { ring, agreed }) => {
                let may = crate::rules::covers(&self.rules.create, &who.roles);
                self.change(request, move |change| changes::import(change, &who, may, ring.as_bytes(), &agreed));
            }
            Ok(Question::Partition { name, change: what }) => {
                let may = crate::rules::covers(&self.rules.partitions, &who.roles);
                self.change(request, move |change| partitions::change(change, &who, may, &name, &what));
            }
            Ok(Question::TakePartitions { records }) => {
                let may = crate::rules::covers(&self.rules.partitions, &who.roles);
                self.change(request, move |change| partitions::take(change, &who, may, &records));
            }
            Ok(_) => self.hand_out(request, Err(misdirected())),
        }
    }

    /// What only looks, on a thread of its own.
    pub(super) fn look(&self, mut request: Request) {
        let who = who(&request.peer);
        let outcome = match asked(&mut request) {
            Err(error) => Err(error),
            Ok(Question::KeysOf { request: of }) => self.keys_of(&who, &of),
            Ok(question) => looks::answer(self, &who, question),
        };
        answer(request, outcome);
    }

    /// A change, which is acknowledged when the standbys that are in step have it, too.
    fn change(
        &self,
        request: Request,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<Answer, Error> + Send + 'static,
    ) {
        if !self.duty.has_standbys() {
            return self.submit(request, change);
        }
        let (out, unconfirmed, database) = (self.out.clone(), self.unconfirmed.clone(), self.database.clone());
        self.database.submit(change, move |outcome| match outcome {
            // Its commit is over, so its row is not beyond the end of the log.
            Ok(answer) => drop(unconfirmed.send((database.tail().number, request, answer))),
            Err(error) => drop(out.send((request, Err(error)))),
        });
    }

    /// Keys of who has signed the request, whoever passes it on.
    fn keys_of(&self, passes: &Who, request: &[u8]) -> Result<Answer, Error> {
        self.duty.gives()?;
        let senseless = |why: &str| Error::Senseless { why: format!("a rank's request for keys is refused: {why}") };
        let request = rank::Request::decode(request).ok_or_else(|| senseless("it is none"))?;
        if request.time.abs_diff(now()) > FRESH_MAX {
            return Err(senseless("it was not signed just now by this service's clock; compare the clocks"));
        }
        let domain = self.domain.upgrade().ok_or_else(|| senseless("the service is ending"))?;
        let signed =
            Signed { chain: request.chain.clone(), scheme: rank::ED25519, signature: request.signature.to_vec() };
        let signer = domain.signer_of(rank::PURPOSE, &request.signed(), &signed)?;
        let who = Who { from: format!("{} by {}", passes.from, passes.principal()), ..who(&signer) };
        let purpose = wire::Purpose::Job(request.job);
        let duty = self.duty.clone();
        let given = self.database.change(move |change| {
            duty.gives()?;
            uses::keys(change, &who, None, wire::Want::Most, &purpose)
        })?;
        let Answer::Keys(ring) = given else { return Err(misdirected()) };
        let sealed = recipient::seal_bytes(&request.public, &request.info(), ring.as_bytes());
        sealed.map(Answer::Sealed).map_err(|why| senseless(&why))
    }

    fn submit(
        &self,
        request: Request,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<Answer, Error> + Send + 'static,
    ) {
        let out = self.out.clone();
        self.database.submit(change, move |outcome| drop(out.send((request, outcome))));
    }

    fn hand_out(&self, request: Request, outcome: Result<Answer, Error>) {
        // Without the thread that answers the request goes, which tells its sender.
        drop(self.out.send((request, outcome)));
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let thread = thread::Builder::new().name(name.into()).spawn(work);
    thread.map(drop).map_err(|cause| Error::Site { why: format!("no thread can be started ({cause})") })
}

/// So far the clocks of a rank's host and the service's may differ, in seconds.
const FRESH_MAX: u64 = 600;

/// What is asked by the other handler.
pub(super) fn misdirected() -> Error {
    Error::Senseless { why: "the question is not for this handler; install the same Gambeson on all hosts".to_owned() }
}

/// Who asks, as his certificate and his connection say.
pub(crate) fn who(peer: &Peer) -> Who {
    let from = match peer.address {
        Some(address) if !peer.host.is_empty() => format!("{} ({address})", peer.host),
        Some(address) => address.to_string(),
        None => peer.host.clone(),
    };
    Who { name: peer.name.clone(), roles: peer.roles.clone(), key: peer.key.to_string(), from }
}

/// What is asked. It may bring keys, so its bytes do not stay.
fn asked(request: &mut Request) -> Result<Question, Error> {
    let payload = Zeroizing::new(std::mem::take(&mut request.payload));
    bounds::question(&payload).map_err(|why| Error::Senseless { why })
}

fn answer(request: Request, outcome: Result<Answer, Error>) {
    let outcome = outcome.map_err(|error| refused(&error));
    request.answer(&wire::encode(&outcome));
}

/// What is told of an error.
fn refused(error: &Error) -> Refused {
    let kind = match error {
        Error::Refused { .. } => Kind::NotGranted,
        Error::Declined { .. } => Kind::Declined,
        Error::OlderAnchor { held, .. } => Kind::OlderAnchor { held: *held },
        Error::Standby { .. } => Kind::Standby { primary: None },
        Error::Follows { primary, .. } => Kind::Standby { primary: Some(primary.clone()) },
        Error::RolledBack { .. } | Error::Altered { .. } => Kind::Distrusted,
        Error::Senseless { .. } | Error::NoRecord { .. } => Kind::Senseless,
        Error::Keys(KeyError::System { .. } | KeyError::Altered { .. }) => Kind::Unavailable,
        Error::Keys(_) => Kind::Senseless,
        _ => Kind::Unavailable,
    };
    Refused { kind, sentence: error.to_string() }
}

/// Says no to who asks, and leaves the true reason in the log.
pub(super) fn refuse(
    change: &mut Transaction<'_>,
    who: &Who,
    wanted: &str,
    label: Option<&str>,
    reason: &str,
    answer: String,
) -> Error {
    let event = Event::refusal(who, wanted, reason);
    change.refuse(match label {
        Some(label) => event.label(label),
        None => event,
    });
    Error::Refused { answer }
}
