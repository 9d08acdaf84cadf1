//! Two real processes: one is killed, stopped, and let go on.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gambeson_link::{
    Attributes, Capability, Config, Domain, Error, Expected, Handlers, Identity, Startpoint, Transport, Trust,
};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(20);
const SHM: &str = "GAMBESON_TEST_SHM";
const AT: &str = "GAMBESON_TEST_AT";

fn config() -> Config {
    let job_secret = Secret32::from_bytes([1; 32]);
    let job = JobKeys { job_id: [1; 16], job_secret, policy_hash: [1; 32], suite: Suite::Aes256Gcm };
    Config::new(Identity::generate().expect("a key"), Trust::default().job(job))
}

#[test]
#[ignore = "what the other process of the tests below runs"]
fn the_other_process() {
    let at = std::env::var(AT).unwrap_or("127.0.0.1:0".into());
    let mut config = config().listen(at.parse().expect("an address"));
    config.shm = std::env::var(SHM).is_ok_and(|word| word == "1");
    let domain = Domain::open(config).expect("a domain");
    let handlers = Handlers::new().inline(0, |call| call.answer(call.payload));
    let endpoint = domain.endpoint(Attributes::default(), handlers).expect("an endpoint");
    let bytes = endpoint.startpoint([]).expect("a startpoint").encode();
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    endpoint.publish("echo", &["rank"], []).expect("a name");
    println!("startpoint {digits} {}", domain.listening()[0]);
    std::thread::sleep(Duration::from_secs(120));
}

/// The other process, and a startpoint of its.
struct Other {
    process: Child,
    startpoint: Startpoint,
    domain: Domain,
    at: String,
}

impl Other {
    fn start(shm: bool) -> Self {
        let (process, digits, at) = Self::run("127.0.0.1:0", shm);
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        let domain = Domain::open(config()).expect("a domain");
        let capability = Capability::decode(&bytes).expect("a startpoint");
        let startpoint = domain.startpoint(&capability, PATIENCE).expect("a link");
        Other { process, startpoint, domain, at }
    }

    /// The process, a startpoint's digits, and where it listens.
    fn run(at: &str, shm: bool) -> (Child, String, String) {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "the_other_process", "--nocapture"])
            .env(SHM, if shm { "1" } else { "0" })
            .env(AT, at)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let said = lines.find_map(|line| line.ok()?.split_once("startpoint ").map(|(_, digits)| digits.to_owned()));
        let said = said.expect("it says so");
        let (digits, at) = said.split_once(' ').expect("both");
        (process, digits.to_owned(), at.to_owned())
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.process.id() as i32).expect("a process");
        kill_process(process, signal).expect("it is there");
    }

    /// Stops all its threads, and waits until they have.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.process.id());
        let stopped = || {
            let threads = std::fs::read_dir(&tasks).expect("it is there");
            threads.flatten().all(|thread| {
                let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
                stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
            })
        };
        while !stopped() {
            std::thread::yield_now();
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_process_that_is_killed_is_named_soon() {
    for shm in [true, false] {
        let mut other = Other::start(shm);
        other.startpoint.call(0, b"there", PATIENCE).expect("an answer");
        other.signal(Signal::KILL);
        other.process.wait().expect("it ends");
        let began = Instant::now();
        let lost = other.startpoint.call(0, b"still there?", PATIENCE).expect_err("nobody answers");
        assert!(matches!(&lost, Error::Lost(why) if why.contains("a process of the job")), "shm {shm}: {lost:?}");
        assert!(began.elapsed() < PATIENCE / 2, "shm {shm}: {:?}", began.elapsed());
    }
}

#[test]
fn a_process_that_is_stopped_answers_when_it_goes_on() {
    for shm in [true, false] {
        let other = Other::start(shm);
        other.startpoint.call(0, b"there", PATIENCE).expect("an answer");
        other.stop();
        let late = other.startpoint.call(0, b"hello?", Duration::from_millis(300)).expect_err("it is stopped");
        assert!(matches!(late, Error::TimedOut(_)), "shm {shm}: {late:?}");
        let pending = other.startpoint.start(0, b"patience").expect("it goes");
        other.signal(Signal::CONT);
        assert_eq!(pending.wait(PATIENCE).expect("an answer"), b"patience", "shm {shm}");
    }
}

#[test]
fn a_link_between_processes_changes_its_transport_until_one_of_them_is_killed() {
    for dies_over in [Transport::Tcp, Transport::Shm] {
        let mut other = Other::start(true);
        for round in 0..20_u32 {
            let wish = if round % 2 == 0 { Transport::Tcp } else { Transport::Shm };
            let block = vec![round as u8; 200_000];
            let pending: Vec<_> = (0..4).map(|_| other.startpoint.start(0, &block).expect("it goes")).collect();
            other.startpoint.prefer(Some(wish), PATIENCE).expect("both are there");
            let over = other.startpoint.carrier().expect("the link is there").map(|carrier| carrier.transport());
            assert_eq!(over, Some(wish), "round {round}");
            for pending in pending {
                assert_eq!(pending.wait(PATIENCE).expect("an answer"), block, "round {round}");
            }
        }
        other.startpoint.prefer(Some(dies_over), PATIENCE).expect("both are there");
        other.signal(Signal::KILL);
        other.process.wait().expect("it ends");
        let lost = other.startpoint.call(0, b"still there?", PATIENCE).expect_err("nobody answers");
        assert!(matches!(&lost, Error::Lost(why) if why.contains("a process of the job")), "{dies_over}: {lost:?}");
    }
}

#[test]
fn a_program_that_is_killed_and_started_again_is_attached_to_again() {
    for shm in [true, false] {
        let mut other = Other::start(shm);
        let rank = Expected::Role("rank".into());
        let attached = other.domain.attach(&other.at, &rank, "echo", PATIENCE).expect("attached");
        attached.call(0, b"there", PATIENCE).expect("an answer");
        other.signal(Signal::KILL);
        other.process.wait().expect("it ends");
        other.process = Other::run(&other.at, shm).0;
        // A try that comes before this end has heard of the other's death asks the dead.
        let mut attached = (0..4).map(|_| other.domain.attach(&other.at, &rank, "echo", PATIENCE / 4));
        let attached = attached.find_map(Result::ok).expect("attached");
        attached.call(0, b"there again", PATIENCE).expect("an answer");
    }
}
