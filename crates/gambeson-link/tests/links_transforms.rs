//! Links with transform modules between two domains: what crosses the wire, in which order modules come, and what happens
//! when one is missing, fails, panics or is lied to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gambeson_link::transform::End;
use gambeson_link::{
    Attributes, Capability, Config, Domain, Endpoint, Error, Handlers, Identity, Mapping, Startpoint, Transform, Trust,
};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const PATIENCE: Duration = Duration::from_secs(10);
const ECHO: u32 = 0;
const STREAM: u32 = 1;
const REFUSE: u32 = 2;
const STREAM_UNSENT: u32 = 3;
const STREAM_UNTAKEN: u32 = 4;

fn config() -> Config {
    let job = JobKeys {
        job_id: [1; 16],
        job_secret: Secret32::from_bytes([1; 32]),
        policy_hash: [1; 32],
        suite: Suite::Aes256Gcm,
    };
    Config::new(Identity::generate().expect("a key"), Trust::default().job(job))
}

/// Writes its name and a count of messages behind each message, and takes them off again; fails when it is told to.
struct Marks {
    name: &'static str,
    seen: Arc<Mutex<Vec<String>>>,
}

struct Marked {
    name: &'static str,
    seen: Arc<Mutex<Vec<String>>>,
    counts: [u8; 2],
}

impl Transform for Marks {
    fn name(&self) -> &str {
        self.name
    }

    fn open(&self, end: End) -> Result<Box<dyn Mapping>, String> {
        self.seen.lock().expect("no panic").push(format!("{} opens at {end:?}", self.name));
        Ok(Box::new(Marked { name: self.name, seen: self.seen.clone(), counts: [0; 2] }))
    }
}

impl Mapping for Marked {
    fn apply(&mut self, message: &mut Vec<u8>) -> Result<(), String> {
        self.counts[0] = self.counts[0].wrapping_add(1);
        message.extend(self.name.bytes());
        message.push(self.counts[0]);
        match &message[..] {
            [b'#', b'!', ..] => Err("it does not send that".into()),
            [b'#', b'?', ..] => panic!("a bug in a module"),
            _ => Ok(()),
        }
    }

    fn restore(&mut self, message: &mut Vec<u8>, _most: usize) -> Result<(), String> {
        self.counts[1] = self.counts[1].wrapping_add(1);
        self.seen.lock().expect("no panic").push(String::from_utf8_lossy(message).into_owned());
        let mark = [self.name.as_bytes(), &[self.counts[1]]].concat();
        let rest = message.strip_suffix(&mark[..]).ok_or("a message is missing, or came twice")?.len();
        message.truncate(rest);
        match &message[..] {
            [b'#', b'*', ..] => Err("it does not take that".into()),
            [b'#', b'+', ..] => panic!("a bug in a module"),
            _ => Ok(()),
        }
    }
}

fn marks(config: Config, seen: &Arc<Mutex<Vec<String>>>) -> Config {
    let of = |name| Marks { name, seen: seen.clone() };
    config.transform(of("one")).transform(of("two"))
}

fn handlers() -> Handlers {
    Handlers::new()
        .inline(ECHO, |call| call.answer(call.payload))
        .threaded(STREAM, |mut request| {
            for at in 0..request.payload[0] {
                request.item(&[at; 500]).expect("somebody reads");
            }
        })
        .inline(STREAM_UNSENT, |call| [&b"first"[..], b"#!", b"third"].iter().for_each(|item| call.item(item)))
        .inline(STREAM_UNTAKEN, |call| [&b"first"[..], b"#*", b"third"].iter().for_each(|item| call.item(item)))
        .inline(REFUSE, |call| call.refuse("as ever"))
}

struct Pair {
    startpoint: Startpoint,
    client: Domain,
    endpoint: Endpoint,
    _server: Domain,
    relay: Relay,
}

/// A link with these modules, over TCP through a relay that counts, or over shared memory.
fn pair(modules: &[&str], shm: bool, seen: &Arc<Mutex<Vec<String>>>) -> Pair {
    let mut listening = marks(config(), seen).listen("127.0.0.1:0".parse().expect("an address"));
    listening.shm = shm;
    let server = Domain::open(listening).expect("a domain");
    let relay = Relay::before(server.listening()[0]);
    let attributes = modules.iter().fold(Attributes::default().message_max(1 << 20), |all, name| all.transform(name));
    let endpoint = server.endpoint(attributes, handlers()).expect("an endpoint");
    let client = Domain::open(marks(config(), seen)).expect("a domain");
    let capability = endpoint.startpoint([]).expect("a startpoint");
    let capability = if shm { capability } else { relay.redirect(&capability) };
    let startpoint = client.startpoint(&capability, PATIENCE).expect("a link");
    Pair { startpoint, client, endpoint, _server: server, relay }
}

/// Counts what goes through, and cuts when it is told to.
struct Relay {
    address: SocketAddr,
    bytes: Arc<AtomicU64>,
    cut: Arc<AtomicU64>,
}

impl Relay {
    fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let [bytes, cut] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let (counting, cutting) = (bytes.clone(), cut.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { return };
                let number = cutting.load(Ordering::Relaxed);
                let copy = |stream: &TcpStream| stream.try_clone().expect("a copy");
                for (mut from, mut to) in [(copy(&client), copy(&server)), (server, client)] {
                    let (bytes, cut) = (counting.clone(), cutting.clone());
                    from.set_read_timeout(Some(Duration::from_millis(5))).expect("a time-out");
                    std::thread::spawn(move || {
                        let mut buffer = [0; 10_000];
                        while cut.load(Ordering::Relaxed) == number {
                            match from.read(&mut buffer) {
                                Ok(0) => break,
                                Ok(count) => {
                                    bytes.fetch_add(count as u64, Ordering::Relaxed);
                                    if to.write_all(&buffer[..count]).is_err() {
                                        break;
                                    }
                                }
                                Err(cause) if cause.kind() == std::io::ErrorKind::WouldBlock => {}
                                Err(_) => break,
                            }
                        }
                        let _ = from.shutdown(std::net::Shutdown::Both);
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Relay { address, bytes, cut }
    }

    /// The same startpoint at the relay's address alone. Addresses are hints, and no part of what is authenticated.
    fn redirect(&self, capability: &Capability) -> Capability {
        let bytes = capability.encode().to_vec();
        let at = 1 + 32 + 8 + 16 + 1 + capability.class().len() + 1 + capability.transforms().as_str().len();
        let old: usize = capability.addresses().iter().map(|address| 2 + address.text.len()).sum();
        let text = self.address.to_string();
        let new = [&[1, 1, text.len() as u8], text.as_bytes()].concat();
        Capability::decode(&[&bytes[..at], &new, &bytes[at + 1 + old..]].concat()).expect("a startpoint")
    }
}

#[test]
fn zstd_shrinks_what_crosses_the_wire_and_nothing_else_changes() {
    let seen = Arc::default();
    let crossed = |modules: &[&str]| {
        let pair = pair(modules, false, &seen);
        let before = pair.relay.bytes.load(Ordering::Relaxed);
        for len in [0, 1, 100, 70_000, 1 << 20] {
            let sent: Vec<u8> = (0..len).map(|at| (at / 100) as u8).collect();
            assert_eq!(pair.startpoint.call(ECHO, &sent, PATIENCE).expect("an answer"), sent);
        }
        pair.relay.bytes.load(Ordering::Relaxed) - before
    };
    let (plain, packed) = (crossed(&[]), crossed(&["zstd"]));
    assert!(plain > 2 * (1 << 20) && packed * 10 < plain, "{packed} of {plain} bytes");
}

#[test]
fn modules_come_in_the_order_that_the_endpoint_states_and_each_link_has_its_own_state() {
    for shm in [true, false] {
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let Pair { startpoint, client, endpoint, .. } = &pair(&["one", "two"], shm, &seen);
        let heard = || std::mem::take(&mut *seen.lock().expect("no panic"));
        assert_eq!(startpoint.call(ECHO, b"a", PATIENCE).expect("an answer"), b"a");
        let mut opened = heard();
        let messages = opened.split_off(4);
        let (ours, theirs) = (
            ["one opens at Startpoint", "two opens at Startpoint"],
            ["one opens at Endpoint", "two opens at Endpoint"],
        );
        assert_eq!(opened, [ours, theirs].concat());
        // At the endpoint, then the answer here: the last module is the first to be undone.
        assert_eq!(messages, ["aone\u{1}two\u{1}", "aone\u{1}", "aone\u{1}two\u{1}", "aone\u{1}"]);
        for _ in 0..200 {
            startpoint.send(ECHO, b"one way").expect("it goes");
        }
        assert_eq!(startpoint.call(ECHO, b"b", PATIENCE).expect("an answer"), b"b");
        heard();
        let mut answers = startpoint.stream(STREAM, &[50]).expect("it goes");
        for at in 0..50 {
            assert_eq!(answers.next(PATIENCE).expect("an answer"), Some(vec![at; 500]));
        }
        assert_eq!(answers.next(PATIENCE).expect("the end"), None);
        assert_eq!(heard().len(), 102, "the end of a stream is no message");
        assert_eq!(startpoint.call(REFUSE, b"c", PATIENCE).expect_err("no").to_string(), "as ever");
        // A second startpoint begins anew.
        heard();
        let second = client.startpoint(&endpoint.startpoint([]).expect("a startpoint"), PATIENCE).expect("a link");
        assert_eq!(second.call(ECHO, b"a", PATIENCE).expect("an answer"), b"a");
        assert!(heard().contains(&"aone\u{1}two\u{1}".to_owned()));
        assert_eq!(startpoint.call(ECHO, b"d", PATIENCE).expect("an answer"), b"d");
    }
}

#[test]
fn what_a_module_remembers_outlives_connections() {
    let seen = Arc::default();
    let pair = pair(&["one", "zstd", "two"], false, &seen);
    for round in 0..40_u8 {
        if round % 10 == 5 {
            pair.relay.cut.fetch_add(1, Ordering::Relaxed);
        }
        pair.startpoint.send(ECHO, &vec![round; 50_000]).expect("it goes");
        let block: Vec<u8> = (0..30_000_u32).map(|at| (at * u32::from(round) % 251) as u8).collect();
        assert_eq!(pair.startpoint.call(ECHO, &block, PATIENCE).expect("an answer"), block, "round {round}");
    }
}

#[test]
fn a_module_that_is_missing_at_either_end_is_named() {
    let seen = Arc::default();
    let pair = pair(&["zstd", "one"], true, &seen);
    let stranger = Domain::open(config()).expect("a domain");
    let capability = pair.endpoint.startpoint([]).expect("a startpoint");
    let missing = stranger.startpoint(&capability, PATIENCE).err().expect("it lacks a module");
    assert!(matches!(&missing, Error::Transform(why) if why.contains("\"one\"") && why.contains("Config::transform")));
    let missing = stranger.endpoint(Attributes::default().transform("two"), Handlers::new()).err().expect("missing");
    assert!(matches!(&missing, Error::Transform(why) if why.contains("\"two\"")), "{missing}");
    let unnamed = stranger.endpoint(Attributes::default().transform("t w"), Handlers::new()).err().expect("no name");
    assert!(matches!(unnamed, Error::Startpoint(_)), "{unnamed}");
    let twice = Domain::open(marks(marks(config(), &seen), &seen)).err().expect("two of a name").to_string();
    assert!(twice.contains("two transform modules called \"one\""), "{twice}");
}

#[test]
fn a_module_that_fails_or_panics_ends_its_link_at_most() {
    let cases = [
        ("#!", "\"one\" failed: it does not send that"),
        ("#?", "\"one\" failed: it panicked"),
        ("#*", "\"one\" failed: it does not take that"),
        ("#+", "\"one\" failed: it panicked"),
    ];
    for shm in [true, false] {
        let seen = Arc::default();
        let Pair { startpoint: other, client, endpoint, .. } = &pair(&["one"], shm, &seen);
        for (message, why) in cases {
            let startpoint = client.startpoint(&endpoint.startpoint([]).expect("a startpoint"), PATIENCE);
            let startpoint = startpoint.expect("a link");
            let failed = startpoint.call(ECHO, message.as_bytes(), PATIENCE).expect_err("it fails").to_string();
            assert!(failed.contains(why), "{failed}");
            let after = startpoint.call(ECHO, b"a", PATIENCE).expect_err("it remembers").to_string();
            assert!(after.contains(why) && after.contains("bind the startpoint again"), "{after}");
            assert_eq!(other.call(ECHO, b"a", PATIENCE).expect("another link goes on"), b"a");
        }
    }
}

#[test]
fn a_stream_ends_with_the_answer_that_a_module_does_not_take() {
    let cases = [
        (STREAM_UNSENT, "\"one\" failed: it does not send that"),
        (STREAM_UNTAKEN, "\"one\" failed: it does not take that"),
    ];
    for (handler, why) in cases {
        let seen = Arc::default();
        let Pair { client, endpoint, .. } = &pair(&["one"], true, &seen);
        let startpoint = client.startpoint(&endpoint.startpoint([]).expect("a startpoint"), PATIENCE).expect("a link");
        let mut answers = startpoint.stream(handler, b"a").expect("it goes");
        assert_eq!(answers.next(PATIENCE).expect("the first"), Some(b"first".to_vec()));
        let failed = answers.next(PATIENCE).expect_err("the second").to_string();
        assert!(failed.contains(why), "{failed}");
        assert_eq!(answers.next(PATIENCE).expect("the end"), None);
    }
}

#[test]
fn no_holder_strips_or_changes_the_stack() {
    let seen = Arc::default();
    let pair = pair(&["one", "two"], true, &seen);
    let genuine = pair.endpoint.startpoint([]).expect("a startpoint");
    let bytes = genuine.encode().to_vec();
    let at = bytes.windows(7).position(|part| part == b"one,two").expect("the stack") - 1;
    for forged in [&b"\0"[..], b"\x03one", b"\x07two,one", b"\x0bone,two,two"] {
        let told = [&bytes[..at], forged, &bytes[at + 8..]].concat();
        let told = Capability::decode(&told).expect("a startpoint");
        let startpoint = pair.client.startpoint(&told, PATIENCE).expect("a link, as far as can be known here");
        let refused = startpoint.call(ECHO, b"a", PATIENCE).expect_err("another stack");
        assert!(matches!(&refused, Error::Startpoint(why) if why.contains("forged or altered")), "{refused}");
    }
    let startpoint = pair.client.startpoint(&genuine, PATIENCE).expect("a link");
    assert_eq!(startpoint.call(ECHO, b"a", PATIENCE).expect("an answer"), b"a");
}

#[test]
fn what_unpacks_to_more_than_the_endpoint_takes_is_refused_and_the_link_goes_on() {
    let seen = Arc::default();
    let pair = pair(&["zstd"], true, &seen);
    for _ in 0..20 {
        let bomb = pair.startpoint.call(ECHO, &vec![0; 8 << 20], PATIENCE).expect_err("a megabyte is the most");
        assert!(bomb.to_string().contains("takes 1048576 at most"), "{bomb}");
        assert_eq!(pair.startpoint.call(ECHO, &vec![0; 1 << 20], PATIENCE).expect("an answer").len(), 1 << 20);
    }
}
