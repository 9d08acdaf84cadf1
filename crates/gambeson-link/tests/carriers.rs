//! What every carrier promises.

use std::io::{ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gambeson_link::carrier::{Carrier, shm, tcp};
use rustix::event::epoll::{self, EventData};

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

type Pair = (Box<dyn Carrier>, Box<dyn Carrier>);

/// Every kind of carrier, connected to itself.
fn pairs() -> Vec<Pair> {
    vec![tcp_pair(), shm_pair()]
}

fn tcp_pair() -> Pair {
    let listener = tcp::Listener::bind(LOCALHOST).expect("loopback");
    let near = tcp::Tcp::connect(listener.address(), Duration::from_secs(10)).expect("it listens");
    wait_for(&listener);
    let far = listener.accept().expect("accept").expect("somebody connected");
    (Box::new(near), Box::new(far))
}

fn shm_pair() -> Pair {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("pair-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let folder = shm::Folder::of_user().expect("a folder");
    let listener = folder.listen(&name).expect("a name of our own");
    let near = folder.connect(&name, Duration::from_secs(10)).expect("it listens");
    wait_for(&listener);
    let far = listener.accept().expect("accept").expect("somebody connected");
    (Box::new(near), Box::new(far))
}

fn wait_for(listener: impl AsFd) {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    epoll::add(&watch, listener, EventData::new_u64(0), epoll::EventFlags::IN).expect("a listener");
    wait(&watch);
}

/// Sleeps until something that is watched reports.
fn wait(watch: &OwnedFd) {
    let mut events = Vec::with_capacity(4);
    let limit = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
    epoll::wait(watch, rustix::buffer::spare_capacity(&mut events), Some(&limit)).expect("epoll");
    assert!(!events.is_empty(), "nothing was reported");
}

/// One end together with the epoll in which it sleeps.
struct Sleeper {
    carrier: Box<dyn Carrier>,
    watch: OwnedFd,
}

impl Sleeper {
    fn new(carrier: Box<dyn Carrier>) -> Sleeper {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
        epoll::add(&watch, carrier.descriptor(), EventData::new_u64(0), carrier.interest()).expect("a descriptor");
        Sleeper { carrier, watch }
    }

    fn sleep(&mut self, want_write: bool) {
        if !self.carrier.arm(want_write).expect("arm") {
            wait(&self.watch);
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (first, second) = bytes.split_at(bytes.len() / 3);
            match self.carrier.write(&[IoSlice::new(first), IoSlice::new(second)]).expect("write") {
                0 => self.sleep(true),
                count => bytes = &bytes[count..],
            }
        }
    }

    /// What comes, until the peer closes.
    fn read_to_end(&mut self) -> Vec<u8> {
        let (mut all, mut part) = (Vec::new(), vec![0; 100_000]);
        loop {
            match self.carrier.read(&mut part) {
                Ok(0) => self.sleep(false),
                Ok(count) => all.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return all,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn read_exactly(&mut self, count: usize) -> Vec<u8> {
        let mut all = vec![0; count];
        let mut at = 0;
        while at < count {
            match self.carrier.read(&mut all[at..]).expect("read") {
                0 => self.sleep(false),
                more => at += more,
            }
        }
        all
    }
}

#[test]
fn everything_arrives_in_order_and_then_the_end() {
    for (near, far) in pairs() {
        // More than any buffer between the two holds, so that both sides sleep.
        let bytes: Vec<u8> = (0..20_000_000u32).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect();
        let expected = bytes.clone();
        let writer = std::thread::spawn(move || Sleeper::new(near).write_all(&bytes));
        assert!(Sleeper::new(far).read_to_end() == expected, "the bytes differ");
        writer.join().expect("the writer");
    }
}

#[test]
fn requests_and_replies_wake_whoever_sleeps() {
    for (near, far) in pairs() {
        let answering = std::thread::spawn(move || {
            let mut far = Sleeper::new(far);
            for i in 0..2000u64 {
                let request = far.read_exactly(8);
                assert_eq!(request, i.to_le_bytes());
                far.write_all(&request);
            }
        });
        let mut near = Sleeper::new(near);
        for i in 0..2000u64 {
            near.write_all(&i.to_le_bytes());
            assert_eq!(near.read_exactly(8), i.to_le_bytes());
        }
        answering.join().expect("the other end");
    }
}

#[test]
fn nothing_there_is_not_the_end() {
    for (mut near, mut far) in pairs() {
        let mut into = [0; 16];
        assert_eq!(near.read(&mut into).expect("nothing yet"), 0);
        assert!(!near.arm(false).expect("arm"), "there is nothing to stay awake for");
        assert!(near.arm(true).expect("arm"), "there is room");
        assert_eq!(far.write(&[IoSlice::new(b"some"), IoSlice::new(b"thing")]).expect("write"), 9);
        let mut near = Sleeper::new(near);
        assert_eq!(near.read_exactly(9), b"something");
        assert_eq!(near.carrier.read(&mut []).expect("no place to read to"), 0);
        drop(far);
        assert_eq!(near.read_to_end(), b"");
    }
}

#[test]
fn nobody_listening_is_said() {
    let listener = tcp::Listener::bind(LOCALHOST).expect("loopback");
    let address = listener.address();
    drop(listener);
    let error = tcp::Tcp::connect(address, Duration::from_secs(10)).expect_err("nobody listens");
    assert_eq!(error.to_string(), format!("cannot connect to {address} over TCP: nobody listens there"));
}
