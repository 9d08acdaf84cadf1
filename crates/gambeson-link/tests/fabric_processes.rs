//! libfabric between real processes, one of which is killed; and links over it. `make unit` runs these where there is a
//! libfabric.

use std::io::{BufRead, BufReader, ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gambeson_link::carrier::{Carrier, ofi};
use gambeson_link::{
    Attributes, Capability, Config, Domain, Error, Handlers, Identity, Progress, Startpoint, Transport, Trust,
};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::event::epoll::{self, EventData};

const PATIENCE: Duration = Duration::from_secs(20);
const PROVIDER: &str = "GAMBESON_TEST_PROVIDER";
/// One that can wait for a descriptor, and one that cannot.
const PROVIDERS: [&str; 2] = ["tcp;ofi_rxm", "shm"];

fn node(provider: &str) -> Option<&'static str> {
    (provider != "shm").then_some("127.0.0.1")
}

fn seed() -> u64 {
    std::env::var("GAMBESON_SEED").map_or(1, |seed| seed.parse().expect("a number"))
}

/// Another process that runs one of the tests below, and the first line that it says.
struct Other {
    process: Child,
    said: String,
}

impl Other {
    fn start(role: &str, provider: &str) -> Other {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", role, "--nocapture"])
            .env(PROVIDER, provider)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let said = lines.find_map(|line| line.ok()?.split_once("here: ").map(|(_, said)| said.to_owned()));
        Other { process, said: said.expect("it says where it is") }
    }

    fn bytes(&self) -> Vec<u8> {
        let byte = |at: usize| u8::from_str_radix(&self.said[at..at + 2], 16).expect("digits");
        (0..self.said.len()).step_by(2).map(byte).collect()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn provider() -> String {
    std::env::var(PROVIDER).unwrap_or_else(|_| panic!("{PROVIDER} is set by the tests that start this process"))
}

struct End {
    carrier: ofi::Ofi,
    watch: OwnedFd,
}

impl End {
    fn new(carrier: ofi::Ofi) -> End {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
        epoll::add(&watch, carrier.descriptor(), EventData::new_u64(0), carrier.interest()).expect("a descriptor");
        End { carrier, watch }
    }

    fn idle(&mut self, want_write: bool) {
        if !self.carrier.arm(want_write).expect("arm") {
            let mut events = Vec::with_capacity(1);
            let limit = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
            epoll::wait(&self.watch, rustix::buffer::spare_capacity(&mut events), Some(&limit)).expect("epoll");
            assert!(!events.is_empty(), "nothing was reported");
        }
    }
}

#[test]
#[ignore = "what another process of the tests below runs"]
fn an_echo() {
    let provider = provider();
    let mut listener = ofi::Listener::bind(&provider, node(&provider)).unwrap_or_else(|why| panic!("{why}"));
    println!("here: {}", digits(listener.address()));
    let carrier = loop {
        match listener.accept().expect("accept") {
            Some(carrier) => break carrier,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let mut end = End::new(carrier);
    let (mut held, mut into) = (Vec::new(), vec![0; 1 << 20]);
    loop {
        let read = match end.carrier.read(&mut into) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return,
            Err(error) => panic!("{error}"),
        };
        held.extend_from_slice(&into[..read]);
        let written = match end.carrier.write(&[IoSlice::new(&held)]) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return,
            Err(error) => panic!("{error}"),
        };
        held.drain(..written);
        if read == 0 && written == 0 {
            end.idle(!held.is_empty());
        }
    }
}

fn connect(provider: &str) -> (Other, End) {
    let other = Other::start("an_echo", provider);
    let carrier = ofi::Ofi::connect(provider, &other.bytes(), PATIENCE).unwrap_or_else(|why| panic!("{why}"));
    (other, End::new(carrier))
}

#[test]
#[ignore = "needs libfabric"]
fn over_libfabric_bytes_of_any_lengths_come_back_from_another_process() {
    let seed = seed();
    for provider in PROVIDERS {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (_other, mut end) = connect(provider);
        let mut into = vec![0; 1 << 20];
        let (mut sent, mut came) = (0_u64, 0_u64);
        let byte = |at: u64| (at ^ (at >> 8) ^ (at >> 16)) as u8;
        while came < 30_000_000 {
            let longest = if random.random_bool(0.1) { 500_000 } else { 200 };
            let bytes: Vec<u8> = (sent..sent + random.random_range(1..longest)).map(byte).collect();
            let (first, second) = bytes.split_at(bytes.len() / 3);
            let written = end.carrier.write(&[IoSlice::new(first), IoSlice::new(second)]).expect("it goes");
            sent += written as u64;
            let room = random.random_range(1..into.len());
            let read = end.carrier.read(&mut into[..room]).expect("it comes");
            assert!(
                into[..read].iter().zip(came..).all(|(is, at)| *is == byte(at)),
                "seed {seed} {provider} at {came}"
            );
            came += read as u64;
            if written == 0 && read == 0 {
                end.idle(true);
            }
        }
    }
}

#[test]
#[ignore = "needs libfabric"]
fn over_libfabric_a_peer_that_is_killed_is_noticed_where_the_provider_tells() {
    let (mut other, mut end) = connect("tcp;ofi_rxm");
    let mut into = [0; 64];
    assert_eq!(end.carrier.write(&[IoSlice::new(b"there?")]).expect("it goes"), 6);
    while end.carrier.read(&mut into).expect("it comes") == 0 {
        end.idle(false);
    }
    other.process.kill().expect("it is there");
    other.process.wait().expect("it ends");
    let began = Instant::now();
    let lost = std::iter::repeat_with(|| {
        assert!(began.elapsed() < PATIENCE, "nobody noticed");
        std::thread::sleep(Duration::from_millis(1));
        end.carrier.write(&[IoSlice::new(b"still there?")]).and_then(|_| end.carrier.read(&mut into))
    });
    let lost = lost.filter_map(Result::err).next().expect("it goes on asking");
    assert!(lost.to_string().contains("libfabric's tcp;ofi_rxm"), "{lost}");
}

fn config() -> Config {
    let job_secret = Secret32::from_bytes([1; 32]);
    let job = JobKeys { job_id: [1; 16], job_secret, policy_hash: [1; 32], suite: Suite::Aes256Gcm };
    Config::new(Identity::generate().expect("a key"), Trust::default().job(job))
}

#[test]
#[ignore = "what another process of the tests below runs"]
fn a_domain() {
    let provider = provider();
    let config = config().listen("127.0.0.1:0".parse().expect("an address"));
    let domain = Domain::open(config.listen_fabric(&provider, node(&provider))).expect("a domain");
    let handlers = Handlers::new().inline(0, |call| call.answer(call.payload));
    let endpoint = domain.endpoint(Attributes::default(), handlers).expect("an endpoint");
    println!("here: {}", digits(&endpoint.startpoint([]).expect("a startpoint").encode()));
    std::thread::sleep(Duration::from_secs(120));
}

fn linked(other: &Other, progress: Progress) -> (Domain, Startpoint) {
    let mut config = config();
    config.progress = progress;
    config.silence = Duration::from_secs(2);
    let domain = Domain::open(config).expect("a domain");
    let capability = Capability::decode(&other.bytes()).expect("a startpoint");
    let startpoint = domain.startpoint_over(Transport::Fabric, &capability, PATIENCE);
    let startpoint = startpoint.unwrap_or_else(|why| panic!("{why}"));
    (domain, startpoint)
}

fn transport(startpoint: &Startpoint) -> Option<Transport> {
    startpoint.carrier().expect("the link is there").map(|carrier| carrier.transport())
}

#[test]
#[ignore = "needs libfabric"]
fn over_libfabric_links_work_and_change_their_transport_until_the_peer_is_killed() {
    for provider in PROVIDERS {
        let mut other = Other::start("a_domain", provider);
        let (_domain, startpoint) = linked(&other, Progress::Auto);
        assert_eq!(transport(&startpoint), Some(Transport::Fabric));
        for len in [0, 1, 8, 100, 4096, 65_537, 1 << 20, 5 << 20] {
            let sent: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
            let answer = startpoint.call(0, &sent, PATIENCE);
            assert!(answer.as_ref().is_ok_and(|answer| *answer == sent), "{provider}, {len}: {:?}", answer.err());
        }
        let ways = [Transport::Tcp, Transport::Fabric, Transport::Shm, Transport::Fabric];
        for (round, wish) in ways.into_iter().cycle().take(12).enumerate() {
            let block = vec![round as u8; 200_000];
            let pending: Vec<_> = (0..4).map(|_| startpoint.start(0, &block).expect("it goes")).collect();
            startpoint.prefer(Some(wish), PATIENCE).unwrap_or_else(|why| panic!("{provider} to {wish}: {why}"));
            assert_eq!(transport(&startpoint), Some(wish), "{provider}, round {round}");
            for pending in pending {
                assert_eq!(pending.wait(PATIENCE).expect("an answer"), block, "{provider}, round {round}");
            }
        }
        other.process.kill().expect("it is there");
        other.process.wait().expect("it ends");
        let lost = startpoint.call(0, b"still there?", PATIENCE).expect_err("nobody answers");
        assert!(matches!(&lost, Error::Lost(why) if why.contains("a process of the job")), "{provider}: {lost:?}");
    }
}
