//! What the fuzz targets in fuzz/ drive: decoders, handshakes and sessions, in memory. Each panics when a promise is
//! broken.
#![allow(missing_docs)]

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, OnceLock};

use gambeson_proto::key_cache::KeyCache;
use gambeson_proto::key_schedule::{JobKeys, Resumption, Side};
use gambeson_proto::record::{Envelope, Kind, request};
use gambeson_proto::secret::Secret32;
use gambeson_proto::startpoint::AddressKind as Transport;
use gambeson_proto::suite::{Protection, Suite};

use crate::carrier::ofi::message;
use crate::domain::{Config, Domain, Progress};
use crate::handshake::{Agreed, Handshake, Party, is_greeting};
use crate::identity::{Expected, Identity, Trust};
use crate::link::Role;
use crate::request::Answer;
use crate::resumption::{self, ANSWER, CONSENT, OFFER};
use crate::session::Session;
use crate::session::pair::{self, Endpoint, Pace, Wire, agreed};
use crate::stranger::{Met, Stranger};

/// A greeting is read or is none; what was read can be shown to people.
pub fn greeting(bytes: &[u8]) {
    if let Some((host, address)) = is_greeting(bytes) {
        let address = address.map_or(0, |address| if address.is_ipv4() { 4 } else { 16 });
        assert!(!host.chars().any(char::is_control));
        assert_eq!(bytes.len(), 2 + host.len() + 1 + address + 4 + 16 + 8 + 32);
    }
}

/// No bytes prove that their sender is in a session but those that it makes itself.
pub fn resumption(bytes: &[u8]) {
    let here = Resumption::new(&Secret32::from_bytes([7; 32]));
    let mut padded = bytes.to_vec();
    padded.resize(OFFER + ANSWER + CONSENT, 0);
    let (offer, rest) = padded.split_first_chunk().expect("it is long enough");
    let (answer, rest) = rest.split_first_chunk().expect("it is long enough");
    let consent = rest.first_chunk().expect("it is long enough");
    let (_, client) = resumption::read_offer(offer);
    let server = match resumption::read_answer(&here, &client, answer) {
        Some((server, received)) => {
            assert_eq!(resumption::answer(&here, &client, &server, received), *answer);
            server
        }
        None => [9; 16],
    };
    if let Some(received) = resumption::read_consent(&here, &client, &server, consent) {
        assert_eq!(resumption::consent(&here, &client, &server, received), *consent);
    }
}

/// An offer, an answer and a consent that fit each other: a seed.
#[must_use]
pub fn resumption_seed() -> Vec<u8> {
    let here = Resumption::new(&Secret32::from_bytes([7; 32]));
    let mut seed = resumption::offer(&here, &[1; 16]).to_vec();
    seed.extend(resumption::answer(&here, &[1; 16], &[2; 16], 3));
    seed.extend(resumption::consent(&here, &[1; 16], &[2; 16], 4));
    seed
}

/// What comes over libfabric, from anybody.
pub fn fabric(bytes: &[u8]) {
    message::check(bytes);
}

/// Messages of every kind: seeds.
#[must_use]
pub fn fabric_seeds() -> Vec<(&'static str, Vec<u8>)> {
    message::seeds().into()
}

fn job(secret: u8) -> Trust {
    let job_secret = Secret32::from_bytes([secret; 32]);
    Trust::default().job(JobKeys { job_id: [1; 16], job_secret, policy_hash: [1; 32], suite: Suite::Aes256Gcm })
}

fn identity() -> Identity {
    Identity::generate().expect("a key")
}

/// A domain, one of the same job, and one that names the job and does not have its secret: made once, for they are slow.
fn parties() -> &'static [Arc<Party>; 3] {
    static PARTIES: OnceLock<[Arc<Party>; 3]> = OnceLock::new();
    PARTIES.get_or_init(|| {
        [1, 1, 2].map(|secret| {
            Arc::new(
                Party::new(identity(), job(secret), Arc::default(), "host".into(), None, Some(3)).expect("a party"),
            )
        })
    })
}

/// Two handshakes with somebody between them.
pub struct Handshakes {
    client: Option<Box<Handshake>>,
    server: Option<Box<Handshake>>,
    /// What is under way to the server, and to the client.
    pub wires: [Vec<u8>; 2],
    agreed: [Option<Box<Agreed>>; 2],
    known: bool,
    sent: usize,
}

impl Handshakes {
    /// `known`: whether the client is one that the server accepts.
    #[must_use]
    pub fn new(known: bool) -> Self {
        let [server, friend, stranger] = parties();
        let client = if known { friend } else { stranger };
        let client = Handshake::connect(client, Transport::Tcp, Expected::Key(server.key_hash()));
        Handshakes {
            client: Some(Box::new(client.expect("TLS begins"))),
            server: Some(Box::new(Handshake::accept(server, Transport::Tcp).expect("TLS begins"))),
            wires: Default::default(),
            agreed: [None, None],
            known,
            sent: 0,
        }
    }

    /// Both ends take what has come; an end that finds something wrong is through.
    pub fn advance(&mut self) {
        for (at, end) in [&mut self.server, &mut self.client].into_iter().enumerate() {
            let Some(handshake) = end else { continue };
            let came = std::mem::take(&mut self.wires[at]);
            let mut rest = &came[..];
            let outcome = handshake.advance(&mut rest, &mut self.wires[1 - at]);
            match outcome {
                Ok(None) => {
                    assert!(rest.is_empty(), "what has come is taken");
                    continue;
                }
                Ok(Some(agreed)) => self.agreed[at] = Some(Box::new(agreed)),
                Err(why) => assert!(!why.to_string().is_empty()),
            }
            if at == 0 {
                self.sent = self.wires[1].len();
            }
            *end = None;
        }
        assert!(self.sent < 1 << 16, "a stranger is told little");
        self.check();
    }

    /// Whether both have agreed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.agreed.iter().all(Option::is_some)
    }

    fn check(&self) {
        let [server, client] = &self.agreed;
        assert!(server.is_none() || self.known, "somebody without the job's secret is let in");
        if let (Some(server), Some(client)) = (server, client) {
            assert_eq!(server.keys.exporter, client.keys.exporter, "they agree on different keys");
            assert_eq!((server.keys.own, server.keys.peer), (client.keys.peer, client.keys.own));
        }
    }
}

/// Brings a domain the pieces of what somebody sends who is not in the session that it has, and does not know the job's
/// secret. Their name is known: it stands on the wire.
pub fn stranger<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) {
    static DOMAIN: OnceLock<Domain> = OnceLock::new();
    let domain = DOMAIN.get_or_init(|| {
        let mut config = Config::new(identity(), job(1));
        config.progress = Progress::Manual;
        let domain = Domain::open(config).expect("a domain");
        let ([_, carrier], _) = pair::connect(all());
        let session = Session::new(agreed(Side::Server), carrier, (&[], None), &[]);
        domain.shared().lock().expect("no handler").insert(session, domain.shared()).expect("it is watched");
        domain
    });
    let shared = domain.shared();
    let ([_, carrier], [to_server, to_client]) = pair::connect(all());
    let mut stranger = Stranger::new(carrier);
    let mut state = shared.lock().expect("no handler");
    for piece in pieces {
        to_server.lock().expect("no panic").extend(piece);
        match stranger.proceed(shared, &mut state) {
            Met::Waits => {}
            Met::Done => panic!("a stranger is let in"),
            Met::Refused(_) => break,
        }
    }
    assert!(to_client.lock().expect("no panic").len() < 1 << 16, "a stranger is told little");
    assert_eq!(state.sessions.len(), 1);
    assert!(state.sessions.values().all(|session| session.lost().is_none() && session.over().is_none()));
}

/// The name of the session that [`stranger`]'s domain has.
#[must_use]
pub fn session_name() -> [u8; 16] {
    Resumption::new(&agreed(Side::Server).keys.exporter).name
}

/// Two sessions of genuine peers with two links, and somebody between them.
pub struct Pair {
    ends: [Session; 2],
    caches: [KeyCache; 2],
    endpoint: Endpoint,
    nobody: Endpoint,
    links: [u64; 2],
    wires: [Wire; 2],
    protection: Protection,
    asked: Vec<(u64, Vec<u8>)>,
    waiting: Vec<(u64, u64, Vec<u8>)>,
    /// Names that the client asked for.
    names: Vec<(u64, String)>,
    /// Whether one of the two has lied: then neither's deliveries are a promise.
    lied: bool,
    /// Bytes that anybody put in.
    fed: usize,
}

fn all() -> [Pace; 2] {
    [Box::new(|most| most), Box::new(|most| most)]
}

impl Pair {
    #[must_use]
    pub fn new(protection: Protection) -> Self {
        let ([one, other], wires) = pair::connect(all());
        let mut client = Session::new(agreed(Side::Client), one, (&[], None), &[]);
        let server = Session::new(agreed(Side::Server), other, (&[], None), &[]);
        let mut caches = [KeyCache::new(2), KeyCache::new(2)];
        let (mut endpoint, first) = Endpoint::opened(&mut client, &mut caches[0], protection);
        let links = [first, endpoint.link(5, &mut client, &mut caches[0], protection)];
        endpoint.came = Some(Vec::new());
        let (ends, nobody) = ([client, server], Endpoint::new());
        let (asked, waiting, names) = (Vec::new(), Vec::new(), Vec::new());
        Pair { ends, caches, endpoint, nobody, links, wires, protection, asked, waiting, names, lied: false, fed: 0 }
    }

    /// The client asks over one of its links.
    pub fn request(&mut self, link: usize, bytes: &[u8], answered: bool) {
        self.fed += 2 * bytes.len() + 200;
        let link = self.links[link % 2];
        if self.ends[0].over().is_some() {
            return;
        }
        let Some((opened, out)) = self.ends[0].link(link) else { return };
        let Role::Start(answers) = &mut opened.role else { panic!("a startpoint's link") };
        let number = if answered { answers.begin() } else { 0 };
        let flags = if answered { request::ANSWER } else { 0 };
        let envelope = Envelope { flags, size: bytes.len() as u64, data: number, ..Envelope::new(Kind::Request) };
        opened.send(out, &mut self.caches[0], envelope, bytes);
        self.asked.push((link, bytes.to_vec()));
        if answered {
            self.waiting.push((link, number, bytes.to_vec()));
        }
    }

    /// A startpoint is gone.
    pub fn release(&mut self, link: usize) {
        let link = self.links[link % 2];
        if self.ends[0].link(link).is_some() {
            self.ends[0].release(&mut self.caches[0], link);
            self.waiting.retain(|(of, ..)| *of != link);
        }
    }

    /// The client asks for a name.
    pub fn name(&mut self, len: usize) {
        self.fed += len + 200;
        if self.ends[0].over().is_none() {
            let name = "n".repeat(len);
            self.names.push((self.ends[0].ask(&mut self.caches[0], &name), name));
        }
    }

    /// One of the two has the keys and no manners: it seals whatever it likes, on a link or on the session's own.
    pub fn lie(&mut self, client: bool, link: usize, envelope: Envelope, bytes: &[u8]) {
        self.lied = true;
        self.fed += bytes.len() + 200;
        let end = usize::from(!client);
        if link.is_multiple_of(3) {
            self.ends[end].lie(&mut self.caches[end], envelope, bytes);
        } else if let Some((link, out)) = self.ends[end].link(self.links[link % 2]) {
            link.seal(out, &mut self.caches[end], envelope, bytes);
        }
    }

    /// Both take what has come and send what they have.
    pub fn progress(&mut self) {
        let [client, server] = &mut self.ends;
        client.progress(&mut self.caches[0], &mut self.nobody);
        server.progress(&mut self.caches[1], &mut self.endpoint);
        self.check();
    }

    /// The bytes under way to the server, or to the client.
    pub fn wire(&mut self, to_server: bool) -> MutexGuard<'_, VecDeque<u8>> {
        self.fed += 4096;
        self.wires[usize::from(!to_server)].lock().expect("no panic")
    }

    /// The connection is lost, or given up, and there is another one.
    pub fn reconnect(&mut self) {
        let [client, server] = &mut self.ends;
        client.lose("there is another one");
        server.lose("there is another one");
        if client.lost().is_some() && server.lost().is_some() {
            let ([one, other], wires) = pair::connect(all());
            self.wires = wires;
            let (here, there) = (client.received(), server.received());
            let resumed = client.resume(&mut self.caches[0], one, (here, there), &[])
                & server.resume(&mut self.caches[1], other, (there, here), &[]);
            assert!(resumed || self.is_open(), "nobody lied, and it cannot go on");
        }
    }

    /// Whether somebody could make the two disagree: a liar, or anybody where nothing is protected.
    fn is_open(&self) -> bool {
        self.lied || self.protection == Protection::None
    }

    fn check(&mut self) {
        for session in &self.ends {
            assert!(
                session.burden() <= 4 * self.fed + (1 << 20),
                "memory grows with what has come, not with what is said"
            );
        }
        // What somebody asked for in clear is none of this: names go over the control link, which is always sealed.
        let client = &mut self.ends[0];
        self.names.retain(|(question, name)| {
            let answer = client.answer(*question);
            assert!(self.lied || answer.as_ref().is_none_or(|answer| answer[..] == *name.as_bytes()));
            answer.is_none()
        });
        if self.is_open() {
            return;
        }
        let came = self.endpoint.came.as_ref().expect("it is wanted");
        for link in self.links {
            let of = |all: &[(u64, Vec<u8>)]| all.iter().filter(|one| one.0 == link).map(|one| one.1.clone()).collect();
            let (came, asked): (Vec<_>, Vec<_>) = (of(came), of(&self.asked));
            assert!(asked.starts_with(&came), "something else came than was sent");
        }
        let client = &mut self.ends[0];
        self.waiting.retain(|(link, number, bytes)| {
            let Some((opened, _)) = client.link(*link) else { return false };
            let Role::Start(answers) = &mut opened.role else { panic!("a startpoint's link") };
            match answers.poll(*number, None) {
                Answer::None => return true,
                Answer::Some(came) => {
                    assert!(
                        came.len() == bytes.len() && came.iter().zip(bytes).all(|(one, other)| one ^ 0x55 == *other)
                    );
                    answers.end(*number);
                }
                // The session is over: somebody did not let it go on.
                Answer::Refused(_) => {}
                Answer::End => panic!("an answer is missing"),
            }
            false
        });
    }

    /// What was asked is all answered, if somebody lets the two be.
    pub fn finish(&mut self) {
        self.reconnect();
        for _ in 0..64 {
            self.progress();
        }
        if !self.is_open() && self.ends.iter().all(|session| session.over().is_none()) {
            assert!(self.waiting.is_empty() && self.names.is_empty(), "an answer never came");
        }
    }
}
