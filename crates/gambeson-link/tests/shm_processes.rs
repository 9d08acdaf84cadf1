//! Shared memory between two real processes: under load, and when one of them is killed.
//!
//! The other process is this test program once more, started for the ignored test at the end.

use std::io::{ErrorKind, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gambeson_link::carrier::Carrier;
use gambeson_link::carrier::shm::{Folder, Listener, Shm};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256StarStar;
use rustix::event::epoll::{self, EventData, EventFlags};

const NAME: &str = "GAMBESON_TEST_CONNECT_TO";
const SEED: &str = "GAMBESON_SEED";

fn seed() -> u64 {
    std::env::var(SEED).map_or(7, |seed| seed.parse().expect("GAMBESON_SEED is a number"))
}

/// An end that sleeps when there is nothing to do, but not every time at once.
struct End {
    carrier: Shm,
    watch: OwnedFd,
    random: Xoshiro256StarStar,
}

impl End {
    fn new(carrier: Shm, seed: u64) -> End {
        let watch = watch(carrier.descriptor(), carrier.interest());
        End { carrier, watch, random: Xoshiro256StarStar::seed_from_u64(seed) }
    }

    fn below(&mut self, limit: u64) -> usize {
        (self.random.next_u64() % limit) as usize
    }

    /// Mostly short, now and then longer than a ring.
    fn length(&mut self) -> usize {
        match self.below(64) {
            0 => self.below(3 << 20),
            1..16 => self.below(10_000),
            _ => self.below(100),
        }
    }

    fn idle(&mut self, want_write: bool) {
        if self.below(4) == 0 {
            std::hint::spin_loop();
        } else if !self.carrier.arm(want_write).expect("arm") {
            wait(&self.watch);
        }
    }
}

fn watch(descriptor: impl AsFd, events: EventFlags) -> OwnedFd {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    epoll::add(&watch, descriptor, EventData::new_u64(0), events).expect("a descriptor");
    watch
}

fn wait(watch: &OwnedFd) {
    let mut events = Vec::with_capacity(1);
    let limit = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
    epoll::wait(watch, rustix::buffer::spare_capacity(&mut events), Some(&limit)).expect("epoll");
    assert!(!events.is_empty(), "nobody woke this process in 30 s");
}

fn start(seed: u64) -> (Child, End) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("stress-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let listener: Listener = Folder::of_user().expect("a folder").listen(&name).expect("a name of our own");
    let child = Command::new(std::env::current_exe().expect("it runs"))
        .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
        .envs([(NAME, &name), (SEED, &seed.to_string())])
        .stdout(Stdio::null())
        .spawn()
        .expect("this program once more");
    wait(&watch(&listener, EventFlags::IN));
    (child, End::new(listener.accept().expect("accept").expect("somebody connected"), seed))
}

#[test]
fn two_processes_lose_and_mix_up_nothing() {
    let seed = seed();
    println!("{SEED}={seed}");
    let (mut child, mut end) = start(seed);
    let mut pattern = vec![0; 3 << 20];
    end.random.fill_bytes(&mut pattern);
    let whole = 64 << 20;
    let (mut sent, mut came) = (0usize, 0usize);
    let mut into = vec![0; 3 << 20];
    // Position p of the stream holds the pattern's byte p mod its length.
    while came < whole {
        let from = sent % pattern.len();
        let length = end.length().min(pattern.len() - from).min(whole - sent);
        let (first, second) = pattern[from..from + length].split_at(length / 2);
        let written = end.carrier.write(&[IoSlice::new(first), IoSlice::new(second)]).expect("write");
        sent += written;
        let room = end.length().max(1);
        let read = end.carrier.read(&mut into[..room]).expect("read");
        for byte in &into[..read] {
            assert_eq!(*byte, pattern[came % pattern.len()], "at byte {came} with {SEED}={seed}");
            came += 1;
        }
        if read == 0 && written == 0 {
            end.idle(sent < whole);
        }
    }
    drop(end);
    assert!(child.wait().expect("the other process").success());
}

#[test]
fn a_killed_peer_is_noticed_after_its_last_bytes() {
    let (mut child, mut end) = start(seed());
    // There is no room until its memory has come.
    while end.carrier.write(&[IoSlice::new(b"echo")]).expect("write") == 0 {
        end.idle(true);
    }
    let mut heard = Vec::new();
    let mut into = [0; 16];
    while heard.len() < 4 {
        match end.carrier.read(&mut into).expect("read") {
            0 => end.idle(false),
            count => heard.extend_from_slice(&into[..count]),
        }
    }
    assert_eq!(heard, b"echo");
    // It sleeps or will sleep; so does this process, until the kernel tells it.
    child.kill().expect("it runs");
    let error = loop {
        match end.carrier.read(&mut into) {
            Ok(count) => {
                assert_eq!(count, 0, "it had nothing more to say");
                if !end.carrier.arm(false).expect("arm") {
                    wait(&end.watch);
                }
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert!(error.to_string().ends_with(&format!("(process {}) has closed the connection or has died", child.id())));
    let error = end.carrier.write(&[IoSlice::new(b"hello?")]).expect_err("it is dead");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    child.wait().expect("the other process");
}

#[test]
#[ignore = "what the other process of the tests above runs"]
fn the_other_process() {
    let name = std::env::var(NAME).unwrap_or_else(|_| panic!("{NAME} is set by the tests that start this process"));
    let folder = Folder::of_user().expect("a folder");
    let carrier = folder.connect(&name, Duration::from_secs(10)).expect("the other end listens");
    let mut end = End::new(carrier, seed() + 1);
    let mut held = Vec::new();
    let mut into = vec![0; 3 << 20];
    loop {
        let room = end.length().max(1);
        let read = match end.carrier.read(&mut into[..room]) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return,
            Err(error) => panic!("{error}"),
        };
        held.extend_from_slice(&into[..read]);
        let length = held.len().min(end.length());
        let written = match end.carrier.write(&[IoSlice::new(&held[..length])]) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return,
            Err(error) => panic!("{error}"),
        };
        held.drain(..written);
        if read == 0 && written == 0 {
            let want_write = !held.is_empty();
            end.idle(want_write);
        }
    }
}
