//! A domain flooded with connections from strangers: what that costs its process, and what its own peers notice.
//!
//! `cargo test --release -p gambeson-link --test links_flood -- --ignored --nocapture flood` prints the figures of ten
//! seconds of each kind.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gambeson_link::{Attributes, Capability, Config, Domain, Handlers, Identity, Startpoint, Trust};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const PATIENCE: Duration = Duration::from_secs(30);
const ECHO: u32 = 0;

fn config(secret: u8) -> Config {
    let job_secret = Secret32::from_bytes([secret; 32]);
    let job = JobKeys { job_id: [1; 16], job_secret, policy_hash: [1; 32], suite: Suite::Aes256Gcm };
    let mut config = Config::new(Identity::generate().expect("a key"), Trust::default().job(job));
    config.shm = false;
    config
}

#[test]
#[ignore = "what the other process of the tests below runs"]
fn the_flooded_process() {
    if std::env::var_os("GAMBESON_TEST_FLOODED").is_none() {
        return;
    }
    let domain = Domain::open(config(1).listen("127.0.0.1:0".parse().expect("an address"))).expect("a domain");
    let handlers = Handlers::new().inline(ECHO, |call| call.answer(call.payload));
    let endpoint = domain.endpoint(Attributes::default(), handlers).expect("an endpoint");
    let bytes = endpoint.startpoint([]).expect("a startpoint").encode();
    println!("says {}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

struct Flooded {
    process: Child,
    capability: Capability,
    address: SocketAddr,
}

impl Flooded {
    fn start() -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "the_flooded_process", "--nocapture"])
            .env("GAMBESON_TEST_FLOODED", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let digits = lines.find_map(|line| line.ok()?.split_once("says ").map(|(_, digits)| digits.to_owned()));
        let digits = digits.expect("it says so");
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        let capability = Capability::decode(&bytes).expect("a startpoint");
        let address = capability.addresses()[0].text.parse().expect("an address");
        Flooded { process, capability, address }
    }

    /// Processor time that it has used.
    fn used(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).expect("it is there");
        let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
        let ticks: u64 = [11, 12].iter().map(|&at| fields[at].parse::<u64>().expect("ticks")).sum();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    /// Resident memory in KiB.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it is there");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel says");
        line.split_whitespace().next().expect("a number").parse().expect("a number")
    }
}

impl Drop for Flooded {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a stranger does.
#[derive(Clone, Copy, Debug)]
enum Flood {
    /// Connects and says nothing.
    Silent,
    /// Connects and says something that nobody understands.
    Nonsense,
    /// Sends the first flight of a handshake, and no other.
    Half,
    /// Goes through the handshake with a key that nobody knows.
    Whole,
}

/// The first flight of a genuine handshake, taken from a domain that connects to us.
fn first_flight() -> Vec<u8> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let text = listener.local_addr().expect("an address").to_string();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let other = Domain::open(config(1).listen("127.0.0.1:0".parse().expect("an address"))).expect("a domain");
            let endpoint = other.endpoint(Attributes::default(), Handlers::new()).expect("an endpoint");
            let mut bytes = endpoint.startpoint([]).expect("a startpoint").encode().to_vec();
            let first = other.listening()[0].to_string();
            let old = 2 + first.len();
            // Their number, and of the first its kind and its length, stand before it.
            let at = bytes.windows(first.len()).position(|window| window == first.as_bytes());
            let start = at.expect("it is in there") - 3;
            bytes.splice(start..start + 1 + old, [&[1, 1, text.len() as u8], text.as_bytes()].concat());
            let capability = Capability::decode(&bytes).expect("addresses are hints");
            let client = Domain::open(config(1)).expect("a domain");
            let _ = client.startpoint(&capability, Duration::from_millis(300));
        });
        let (mut came, _) = listener.accept().expect("it connects");
        let mut flight = vec![0; 1 << 14];
        let count = came.read(&mut flight).expect("it says something");
        flight.truncate(count);
        flight
    })
}

impl Flood {
    /// Knocks once.
    fn knock(self, flooded: &Flooded, flight: &[u8], stranger: &Domain, kept: &mut Vec<TcpStream>) {
        let say = |bytes: &[u8]| {
            let mut stream = TcpStream::connect(flooded.address).ok()?;
            stream.write_all(bytes).ok()?;
            Some(stream)
        };
        let stream = match self {
            Flood::Silent => say(&[]),
            Flood::Nonsense => say(&[0x47; 300]),
            Flood::Half => say(flight),
            Flood::Whole => {
                let _ = stranger.startpoint(&flooded.capability, Duration::from_secs(2));
                None
            }
        };
        kept.extend(stream);
        if kept.len() > 200 {
            kept.drain(..100);
        }
    }
}

/// Round trips until told to stop, in order of their length.
fn ask(startpoint: &Startpoint, stop: &AtomicBool) -> Vec<Duration> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let answer = startpoint.call(ECHO, &[5; 100], PATIENCE).expect("a link that was there before goes on");
        assert_eq!(answer, [5; 100]);
        times.push(began.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    times.sort();
    times
}

fn percentiles(times: &[Duration]) -> String {
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    format!("p50 {:.0} us, p99 {:.0} us, worst {:.0} us of {}", at(0.5), at(0.99), at(1.0), times.len())
}

/// One kind of flood for so long. Nobody but strangers uses the domain first, so that what they cost is known; then its
/// own peers do, while the flood goes on.
fn flood(kind: Flood, time: Duration) {
    let flooded = Flooded::start();
    let client = Domain::open(config(1)).expect("a domain");
    let startpoint = client.startpoint(&flooded.capability, PATIENCE).expect("a link");
    startpoint.call(ECHO, &[], PATIENCE).expect("an answer");
    let [stop, never, asked] = [(); 3].map(|()| AtomicBool::new(false));
    let knocks = AtomicU64::new(0);
    let flight = first_flight();
    let quiet = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&startpoint, &never));
        std::thread::sleep(time / 4);
        never.store(true, Ordering::Relaxed);
        asking.join().expect("all is answered")
    });
    let before = flooded.memory();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stranger = Domain::open(config(2)).expect("a domain");
                let mut kept = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    kind.knock(&flooded, &flight, &stranger, &mut kept);
                    knocks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(time / 10);
        let (began, used, first) = (Instant::now(), flooded.used(), knocks.load(Ordering::Relaxed));
        std::thread::sleep(time);
        let share = (flooded.used() - used).as_secs_f64() / began.elapsed().as_secs_f64();
        let rate = (knocks.load(Ordering::Relaxed) - first) as f64 / began.elapsed().as_secs_f64();
        let asking = scope.spawn(|| ask(&startpoint, &asked));
        let came_in = Instant::now();
        let newcomer = Domain::open(config(1)).expect("a domain");
        // Among many at their handshakes one of ours can lose its place, and has to try again.
        let enter =
            || newcomer.startpoint(&flooded.capability, PATIENCE).and_then(|link| link.call(ECHO, &[], PATIENCE));
        let mut tries = 1;
        let mut entered = enter();
        while entered.is_err() && tries < 10 {
            (tries, entered) = (tries + 1, enter());
        }
        let came_in = came_in.elapsed();
        std::thread::sleep(time / 2);
        asked.store(true, Ordering::Relaxed);
        let during = asking.join();
        let after = flooded.memory();
        stop.store(true, Ordering::Relaxed);
        let during = during.expect("all is answered");
        println!(
            "{kind:?}: {rate:.0} strangers a second cost {share:.3} of a processor; memory {before} -> {after} KiB; a \
             newcomer of ours was in after {:.0} ms, {tries} tries; requests before: {}; during: {}",
            came_in.as_secs_f64() * 1e3,
            percentiles(&quiet),
            percentiles(&during)
        );
        entered.expect("a newcomer of ours gets in");
        assert!(share < 0.35, "{kind:?}: strangers take {share:.3} of a processor");
        assert!(after < before + (16 << 10), "{kind:?}: memory grows from {before} to {after} KiB");
    });
}

#[test]
fn strangers_take_neither_memory_nor_processor_nor_place() {
    flood(Flood::Half, Duration::from_secs(2));
}

#[test]
#[ignore = "takes a minute and a half"]
fn floods_of_every_kind() {
    for kind in [Flood::Silent, Flood::Nonsense, Flood::Half, Flood::Whole] {
        flood(kind, Duration::from_secs(10));
    }
}
