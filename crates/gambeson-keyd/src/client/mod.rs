//! Who asks a key service: a person's commands, and jobs for their ranks.
//!
//! Services are tried in the order of their names, from the one on that answered last. Who does not answer in a moment, or
//! has only part of it, is passed over for as long as another does: keys come from any of them, and changes are the primary's.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use gambeson_keys::{Anchor, Anchorage, Direction, Effect, Given, Giver, KeyError, KeyRing, Ring, Wanted};
use gambeson_launch::Error as Told;
use gambeson_launch::partitions::{Change, Listed, Record};
use gambeson_launch::requester;
use gambeson_link::{Domain, Expected, Startpoint};

pub use gambeson_launch::services::Place;
use gambeson_launch::services::SCHEME;

use crate::service::effect_of;
use crate::wire::{
    self, ASK, Answer, ENDPOINT, Kind, LENGTH_MAX, LOOK, LabelState, Purpose, Question, Refused, Secret, Status,
    Verification, Want,
};
use crate::{Grant, Row};

/// Connections to a site's key services, as somebody of the site. Clones share them.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

struct Shared {
    place: Place,
    domain: Arc<Domain>,
    /// For each host, if it is connected.
    there: Vec<Mutex<Option<Arc<Startpoint>>>>,
    /// Which of them answered last.
    answered: AtomicUsize,
}

/// The partitions of a site, and how other sites know who distributes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partitions {
    /// All.
    pub partitions: Vec<Listed>,
    /// Where the service is that answered, as `HOST:PORT`.
    pub address: String,
    /// The hash of its key.
    pub key: String,
}

/// Asks a site's key services for labels by their names.
#[derive(Debug)]
pub struct ByName {
    client: Client,
    purpose: Purpose,
}

/// Why one of several services did not serve.
enum Missed {
    /// It does not answer. Whether the question was on its way.
    Away(String, bool),
    /// It makes no changes; who does, if it knows that.
    Standby(String, Option<String>),
    /// Who answers there is another, or does not take this one.
    Stranger(String),
}

impl Missed {
    fn sentence(self) -> String {
        match self {
            Missed::Away(why, _) | Missed::Standby(why, _) | Missed::Stranger(why) => why,
        }
    }
}

impl Client {
    /// As who this is by the identity in a folder, who gets one first if his site takes what he has anyway. Nobody is asked
    /// yet.
    ///
    /// # Errors
    /// When there is no identity, or it has expired.
    pub fn open(place: &Place, folder: &Path) -> Result<Self, KeyError> {
        let domain = requester::domain(folder);
        let domain = domain.map_err(|cause| unreachable(place, format!("you are not known here: {cause}")))?;
        Ok(Self::over(place, domain))
    }

    /// Over a domain that is there.
    #[must_use]
    pub fn over(place: &Place, domain: Arc<Domain>) -> Self {
        let there = place.hosts().iter().map(|_| Mutex::default()).collect();
        Client(Arc::new(Shared { place: place.clone(), domain, there, answered: AtomicUsize::new(0) }))
    }

    /// What sentences call the service.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Keys of these labels, or of all that the asker may use.
    ///
    /// # Errors
    /// When one is not granted, or no service answers.
    pub fn ring(&self, labels: Option<Vec<String>>, want: Want, purpose: Purpose) -> Result<Ring, KeyError> {
        match self.ask(&Question::Keys { labels, want, purpose })? {
            Answer::Keys(ring) => Ring::carried(&self.place().to_string(), ring.as_bytes()),
            _ => Err(self.foreign()),
        }
    }

    /// Passes on a rank's request for keys of its own identity; what it is answered is for that rank alone.
    ///
    /// # Errors
    /// When the identity may not, or no service answers.
    pub fn ring_of(&self, request: &[u8]) -> Result<Vec<u8>, KeyError> {
        match self.ask(&Question::KeysOf { request: request.to_vec() })? {
            Answer::Sealed(ring) => Ok(ring),
            _ => Err(self.foreign()),
        }
    }

    /// What serves keys from here on: the service is asked for each label by its name, when it is used, and keeps the
    /// anchors.
    #[must_use]
    pub fn keys(&self) -> KeyRing {
        let ring = Ring::new(self.place().to_string(), []);
        KeyRing::new(ring, Ok(Box::new(self.clone()))).asking(Box::new(self.by_name(Purpose::Use)))
    }

    /// Who asks for labels by their names, for one purpose.
    #[must_use]
    pub fn by_name(&self, purpose: Purpose) -> ByName {
        ByName { client: self.clone(), purpose }
    }

    /// Makes a label.
    ///
    /// # Errors
    /// When the asker may not, or the name is taken.
    pub fn create(&self, label: &str, expires: Option<u64>) -> Result<(), KeyError> {
        self.done(&Question::Create { label: label.to_owned(), expires })
    }

    /// Makes a new version of a label, and says which.
    ///
    /// # Errors
    /// When the asker does not administer it.
    pub fn rotate(&self, label: &str, expires: Option<u64>) -> Result<u32, KeyError> {
        match self.ask(&Question::Rotate { label: label.to_owned(), expires })? {
            Answer::Version(version) => Ok(version),
            _ => Err(self.foreign()),
        }
    }

    /// Sets until when a version is given, or all of them.
    ///
    /// # Errors
    /// As [`Client::rotate`].
    pub fn expire(&self, label: &str, version: Option<u32>, expires: Option<u64>) -> Result<(), KeyError> {
        self.done(&Question::Expire { label: label.to_owned(), version, expires })
    }

    /// Removes a label.
    ///
    /// # Errors
    /// As [`Client::rotate`].
    pub fn delete(&self, label: &str) -> Result<(), KeyError> {
        self.done(&Question::Delete { label: label.to_owned() })
    }

    /// Grants rights to a role, in the place of those that it has.
    ///
    /// # Errors
    /// As [`Client::rotate`].
    pub fn grant(&self, label: &str, grant: Grant) -> Result<(), KeyError> {
        self.done(&Question::Grant { label: label.to_owned(), grant })
    }

    /// Takes rights away from all of these roles, or from none; for each of them the grants that remain: those by which they
    /// still have something, and those of some of them.
    ///
    /// # Errors
    /// As [`Client::rotate`].
    pub fn revoke(&self, label: &str, who: &[String]) -> Result<Vec<(String, Vec<Grant>)>, KeyError> {
        match self.ask(&Question::Revoke { label: label.to_owned(), who: who.to_vec() })? {
            Answer::Remaining(remaining) => Ok(remaining),
            _ => Err(self.foreign()),
        }
    }

    /// What taking in another ring's labels would do.
    ///
    /// # Errors
    /// When no service answers.
    pub fn compare(&self, ring: &Ring) -> Result<Vec<(String, Effect)>, KeyError> {
        let ring = Secret::from(ring.carry().as_slice());
        let Answer::Effects(effects) = self.ask(&Question::Compare { ring })? else { return Err(self.foreign()) };
        let known = |(label, effect)| Some((label, effect_of(effect)?));
        effects.into_iter().map(|effect| known(effect).ok_or_else(|| self.foreign())).collect()
    }

    /// Takes labels of another ring in, each with the effect that was found for it.
    ///
    /// # Errors
    /// When the asker may not.
    pub fn import(&self, ring: &Ring, agreed: &[(String, Effect)]) -> Result<(), KeyError> {
        let ring = Secret::from(ring.carry().as_slice());
        let agreed = agreed.iter().map(|(label, effect)| (label.clone(), crate::service::number_of(*effect))).collect();
        self.done(&Question::Import { ring, agreed })
    }

    /// Labels without their keys: these, or all that the asker may see.
    ///
    /// # Errors
    /// When one is not known to him, or no service answers.
    pub fn labels(&self, labels: Option<Vec<String>>) -> Result<Vec<LabelState>, KeyError> {
        match self.ask(&Question::Labels { labels })? {
            Answer::Labels(labels) => Ok(labels),
            _ => Err(self.foreign()),
        }
    }

    /// Rows of the log, and what it ends with: from a number on, or, of a label, backwards from before one.
    ///
    /// # Errors
    /// When the asker may not see them.
    pub fn log(&self, label: Option<&str>, from: u64, limit: u32) -> Result<(Vec<Row>, String), KeyError> {
        match self.ask(&Question::Log { label: label.map(str::to_owned), from, limit })? {
            Answer::Log(rows, tail) => Ok((rows, tail)),
            _ => Err(self.foreign()),
        }
    }

    /// Rows that a standby which is asked has written aside, and its primary has not got yet; of a label, or all.
    ///
    /// # Errors
    /// As [`Client::log`].
    pub fn aside(&self, label: Option<&str>) -> Result<Vec<Row>, KeyError> {
        match self.ask(&Question::Aside { label: label.map(str::to_owned) })? {
            Answer::Log(rows, _) => Ok(rows),
            _ => Err(self.foreign()),
        }
    }

    /// Has the service verify its log and all else.
    ///
    /// # Errors
    /// What is not as it was written.
    pub fn verify(&self, since: Option<String>) -> Result<Verification, KeyError> {
        match self.ask(&Question::Verify { since })? {
            Answer::Verified(found) => Ok(found),
            _ => Err(self.foreign()),
        }
    }

    /// How each of the services is, by the names of their hosts.
    #[must_use]
    pub fn status(&self) -> Vec<(String, Result<Status, KeyError>)> {
        let of = |at: usize| match self.ask_at(at, &Question::Status) {
            Ok(Answer::Status(status)) => Ok(status),
            Ok(_) => Err(self.foreign()),
            Err(Ok(refused)) => Err(refused),
            Err(Err(missed)) => Err(unreachable(self.place(), missed.sentence())),
        };
        self.place().hosts().iter().enumerate().map(|(at, host)| (host.name.clone(), of(at))).collect()
    }

    /// Changes a partition; the number of the epoch that began.
    ///
    /// # Errors
    /// As without a service, and when the asker may not or no service answers.
    pub fn change_partition(&self, name: &str, change: Change) -> Result<Option<u32>, Told> {
        match self.ask(&Question::Partition { name: name.to_owned(), change }).map_err(told)? {
            Answer::Epoch(epoch) => Ok(epoch),
            _ => Err(told(self.foreign())),
        }
    }

    /// Has partitions taken in, with their epochs and secrets.
    ///
    /// # Errors
    /// As [`Client::change_partition`]; then none was taken in.
    pub fn take_partitions(&self, records: &[(String, Record)]) -> Result<(), Told> {
        let carried = |(name, record): &(String, Record)| (name.clone(), Secret::from(record.encode().as_slice()));
        self.done(&Question::TakePartitions { records: records.iter().map(carried).collect() }).map_err(told)
    }

    /// All partitions of the site.
    ///
    /// # Errors
    /// As [`Client::change_partition`].
    pub fn partitions(&self) -> Result<Partitions, Told> {
        let Answer::Partitions { partitions, host, key } = self.ask(&Question::Partitions).map_err(told)? else {
            return Err(told(self.foreign()));
        };
        let here = self.place().hosts().iter().find(|one| one.name.eq_ignore_ascii_case(&host));
        let here = here.or(self.place().hosts().first()).expect("a place has a host");
        Ok(Partitions { partitions, address: here.address.clone(), key })
    }

    fn done(&self, question: &Question) -> Result<(), KeyError> {
        match self.ask(question)? {
            Answer::Done => Ok(()),
            _ => Err(self.foreign()),
        }
    }

    /// Asks the services in turn.
    fn ask(&self, question: &Question) -> Result<Answer, KeyError> {
        let mut missed = Vec::new();
        let (count, first) = (self.place().hosts().len(), self.0.answered.load(Ordering::Relaxed));
        for at in (first..first + count).map(|at| at % count) {
            match self.ask_at(at, question) {
                Ok(answer) => {
                    self.0.answered.store(at, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(Ok(refused)) => return Err(refused),
                // It may have been carried out there: who asks has to look.
                Err(Err(Missed::Away(why, true))) if question.changes() => {
                    return Err(unreachable(
                        self.place(),
                        format!("{why}; look whether it was done before you try again"),
                    ));
                }
                Err(Err(other)) => missed.push(other),
            }
        }
        // That a file's anchor is not recorded is noted, whoever answered.
        let anchors = matches!(question, Question::SetAnchor { .. });
        if !anchors && missed.iter().any(|one| matches!(one, Missed::Stranger(_))) {
            let why: Vec<_> = missed.into_iter().map(Missed::sentence).collect();
            return Err(KeyError::Exposed { store: self.place().to_string(), why: why.join("; ") });
        }
        let followed = missed.iter().find_map(|one| match one {
            Missed::Standby(_, primary) => Some(primary.as_deref()),
            Missed::Away(..) | Missed::Stranger(_) => None,
        });
        let before = followed.map_or_else(String::new, |primary| self.without(primary));
        let why: Vec<_> = missed.into_iter().map(Missed::sentence).collect();
        Err(unreachable(self.place(), format!("{before}{}", why.join("; "))))
    }

    /// Why a primary made no change, though a standby answered.
    fn without(&self, primary: Option<&str>) -> String {
        let is_named = |primary: &&str| self.place().hosts().iter().any(|host| host.name == **primary);
        match primary.filter(|primary| !is_named(primary)) {
            Some(primary) => {
                let all = self.place().to_string();
                let others = all.trim_start_matches(SCHEME);
                format!(
                    "{primary}, which alone makes changes, is not named; name it, too, as {SCHEME}{primary},{others}: "
                )
            }
            None => "the primary, which alone makes changes, is away: ".to_owned(),
        }
    }

    /// Asks one of them; a connection that was lost meanwhile is made once more.
    fn ask_at(&self, at: usize, question: &Question) -> Result<Answer, Result<KeyError, Missed>> {
        let host = &self.place().hosts()[at];
        let bytes = wire::encode(question);
        let away = |cause: &gambeson_link::Error, begun| Missed::Away(format!("{}: {cause}", host.name), begun);
        let unmet = |cause: gambeson_link::Error| match cause {
            cause @ gambeson_link::Error::Refused(_) if !is_cut(&cause) => {
                Missed::Stranger(format!("{}: {cause}", host.name))
            }
            gambeson_link::Error::Lost(why) => {
                let why = why.split("; start what is to be attached to").next().unwrap_or_default();
                let remedy = match why.contains("nobody listens") {
                    true => "no key service runs there; its administrator starts it: gambeson keyd serve",
                    false => "ask its administrator where it is",
                };
                Missed::Away(format!("{}: {why}; {remedy}", host.name), false)
            }
            cause => away(&cause, false),
        };
        let mut again = true;
        let answer = loop {
            let (there, was_there) = self.there(at).map_err(|cause| Err(unmet(cause)))?;
            match there.call(question.handler(), &bytes, ANSWER) {
                Ok(answer) => break zeroize::Zeroizing::new(answer),
                Err(cause) => {
                    self.leave(at, &there);
                    let lost = matches!(cause, gambeson_link::Error::Lost(_));
                    if was_there && lost && again && !question.changes() {
                        again = false;
                        continue;
                    }
                    return Err(Err(away(&cause, true)));
                }
            }
        };
        match wire::decode::<Result<Answer, Refused>>(&answer) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(refused)) => Err(self.told(host.name.as_str(), question, refused)),
            Err(why) => Err(Ok(unreachable(self.place(), why))),
        }
    }

    /// The connection to one of them, and whether it was there before.
    fn there(&self, at: usize) -> Result<(Arc<Startpoint>, bool), gambeson_link::Error> {
        // Held meanwhile: of many threads one connects.
        let mut there = self.0.there[at].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = &*there {
            return Ok((there.clone(), true));
        }
        let hosts = self.place().hosts();
        let host = &hosts[at];
        let patience = if hosts.len() > 1 { CONNECT_FIRST } else { CONNECT };
        let expected = Expected::Role(format!("dns:{}", host.name));
        let mut pauses = PAUSES.iter();
        let made = loop {
            match self.0.domain.attach(&*host.address, &expected, ENDPOINT, patience) {
                Ok(made) => break Arc::new(made),
                // A service whose places are all taken closes connections; who comes again in a moment finds one.
                Err(cause @ (gambeson_link::Error::Refused(_) | gambeson_link::Error::Lost(_))) if is_cut(&cause) => {
                    thread::sleep(*pauses.next().ok_or(cause)?);
                }
                Err(cause) => return Err(cause),
            }
        };
        *there = Some(made.clone());
        Ok((made, false))
    }

    fn leave(&self, at: usize, left: &Arc<Startpoint>) {
        let mut there = self.0.there[at].lock().unwrap_or_else(PoisonError::into_inner);
        if there.as_ref().is_some_and(|there| Arc::ptr_eq(there, left)) {
            *there = None;
        }
    }

    fn told(&self, host: &str, question: &Question, refused: Refused) -> Result<KeyError, Missed> {
        let store = self.place().to_string();
        let Refused { kind, sentence } = refused;
        match (kind, question) {
            (Kind::Standby { primary }, _) => Err(Missed::Standby(sentence, primary)),
            (Kind::Unavailable, _) => Err(Missed::Away(format!("{host}: {sentence}"), false)),
            (Kind::OlderAnchor { held }, Question::SetAnchor { file, generation, .. }) => {
                Ok(KeyError::OlderAnchor { store, file: *file, held, given: *generation })
            }
            (Kind::Senseless, _) => Ok(KeyError::Unfit { store, why: sentence }),
            (Kind::Distrusted | Kind::Declined, _) => Ok(KeyError::Exposed { store, why: sentence }),
            _ => Ok(KeyError::NotGranted { store, why: sentence }),
        }
    }

    fn foreign(&self) -> KeyError {
        unreachable(
            self.place(),
            "it answers something else than was asked; install the same Gambeson on all hosts".into(),
        )
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Client").field("place", self.place()).finish_non_exhaustive()
    }
}

impl Giver for ByName {
    fn give(&self, wanted: &[Wanted]) -> Result<Option<Given>, KeyError> {
        let want = |writing| if writing { Want::Write } else { Want::Most };
        let wanted = wanted.iter().cloned();
        let wanted =
            wanted.map(|Wanted { label, version, writing }| wire::Wanted { label, version, want: want(writing) });
        let question = Question::KeysByName { wanted: wanted.collect(), purpose: self.purpose.clone() };
        match self.client.ask(&question)? {
            Answer::KeysByName { ring, refused } => {
                let ring = Ring::carried(&self.client.place().to_string(), ring.as_bytes())?;
                Ok(Some(Given { ring, refused }))
            }
            _ => Err(self.client.foreign()),
        }
    }
}

impl Anchorage for Client {
    fn anchor(&self, file: &[u8; 16]) -> Result<Option<Anchor>, KeyError> {
        match self.ask(&Question::Anchor { file: *file })? {
            Answer::Anchor(found) => Ok(found.map(|(generation, root)| Anchor { generation, root })),
            _ => Err(self.foreign()),
        }
    }

    fn set_anchor(
        &self,
        file: &[u8; 16],
        labels: &[&str],
        anchor: &Anchor,
        direction: Direction,
    ) -> Result<(), KeyError> {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let Anchor { generation, root } = *anchor;
        let back = direction == Direction::Any;
        let done = self.done(&Question::SetAnchor { file: *file, labels, generation, root, back });
        done.map_err(|error| match error {
            // The file is as good as it was; nobody took note of it.
            KeyError::NotGranted { store, why } if !back => KeyError::NotAnchored { store, file: *file, why },
            KeyError::Unreachable { store, why } => KeyError::NotAnchored { store, file: *file, why },
            other => other,
        })
    }
}

impl Question {
    fn handler(&self) -> u32 {
        match self {
            Question::KeysOf { .. }
            | Question::Anchor { .. }
            | Question::Labels { .. }
            | Question::Log { .. }
            | Question::Aside { .. }
            | Question::Verify { .. }
            | Question::Compare { .. }
            | Question::Partitions
            | Question::Status => LOOK,
            _ => ASK,
        }
    }

    /// Whether asking twice could do something twice. An anchor that is recorded again is the same one.
    fn changes(&self) -> bool {
        self.handler() == ASK
            && !matches!(self, Question::Keys { .. } | Question::KeysByName { .. } | Question::SetAnchor { .. })
    }
}

/// As it is told of partitions in a folder.
fn told(error: KeyError) -> Told {
    match error {
        KeyError::Unfit { why, .. } => Told::Senseless(why),
        KeyError::NotGranted { why, .. } => Told::NotPermitted(why),
        KeyError::Exposed { why, .. } => Told::Refused(why),
        KeyError::Unreachable { .. } => Told::Unavailable(error.to_string()),
        error => Told::Refused(error.to_string()),
    }
}

/// Whether a connection was cut in its handshake.
fn is_cut(cause: &gambeson_link::Error) -> bool {
    cause.to_string().contains("closed")
}

/// Between attempts at a service that closes connections.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(800), Duration::from_millis(1600)];

fn unreachable(place: &Place, why: String) -> KeyError {
    KeyError::Unreachable { store: place.to_string(), why }
}

/// So long a service may take to answer when there are others.
const CONNECT_FIRST: Duration = Duration::from_secs(2);
/// And so long the only one, which may be greeting a thousand others.
const CONNECT: Duration = Duration::from_secs(20);
/// So long it may take to have an answer.
const ANSWER: Duration = Duration::from_secs(30);
const _: () = assert!(LENGTH_MAX < 1 << 30, "an answer fits into a message of a link");
