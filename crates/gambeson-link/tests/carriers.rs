//! What every carrier promises. Those over libfabric need it: `make unit` runs them where there is one.

use std::io::{ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gambeson_link::carrier::{Carrier, ofi, shm, tcp};
use rustix::event::epoll::{self, EventData};

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

type Pair = (Box<dyn Carrier>, Box<dyn Carrier>);

/// Every kind of carrier that there always is, connected to itself.
fn pairs() -> Vec<Pair> {
    vec![tcp_pair(), shm_pair()]
}

/// Over libfabric. Its shared memory is for two processes (fabric_processes.rs): within one, it takes the memory of an
/// endpoint that is closed away from those that send to it.
fn fabric_pairs() -> Vec<Pair> {
    vec![fabric_pair("tcp;ofi_rxm", Some("127.0.0.1"))]
}

fn fabric_pair(provider: &str, node: Option<&str>) -> Pair {
    let mut listener = ofi::Listener::bind(provider, node).unwrap_or_else(|why| panic!("{why}"));
    let address = listener.address().to_vec();
    let connecting = std::thread::spawn({
        let provider = provider.to_owned();
        move || ofi::Ofi::connect(&provider, &address, Duration::from_secs(10)).unwrap_or_else(|why| panic!("{why}"))
    });
    let mut far = None;
    while far.is_none() {
        far = listener.accept().expect("accept");
        if far.is_none() && !listener.arm().expect("arm") {
            wait_for(&listener);
        }
    }
    // Its answer goes out when somebody has it move on.
    let mut far = far.expect("somebody connected");
    while !connecting.is_finished() {
        far.read(&mut []).expect("nothing to read to");
        far.arm(false).expect("arm");
    }
    (Box::new(connecting.join().expect("it connects")), Box::new(far))
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
    check_everything_arrives_in_order_and_then_the_end(pairs());
}

#[test]
#[ignore = "needs libfabric"]
fn over_libfabric_everything_arrives_in_order_and_then_the_end() {
    check_everything_arrives_in_order_and_then_the_end(fabric_pairs());
}

fn check_everything_arrives_in_order_and_then_the_end(pairs: Vec<Pair>) {
    for (near, far) in pairs {
        // More than any buffer between the two holds, so that both sides sleep.
        let bytes: Vec<u8> = (0..20_000_000u32).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect();
        let expected = bytes.clone();
        let writer = std::thread::spawn(move || {
            let mut near = Sleeper::new(near);
            near.write_all(&bytes);
            // Who drops a carrier that the other end still reads from may take back what is on its way: see `Carrier`.
            near.read_exactly(1);
        });
        let mut far = Sleeper::new(far);
        assert!(far.read_exactly(expected.len()) == expected, "the bytes differ");
        far.write_all(b".");
        assert_eq!(far.read_to_end(), b"");
        writer.join().expect("the writer");
    }
}

#[test]
fn requests_and_replies_wake_whoever_sleeps() {
    check_requests_and_replies_wake_whoever_sleeps(pairs());
}

#[test]
#[ignore = "needs libfabric"]
fn over_libfabric_requests_and_replies_wake_whoever_sleeps() {
    check_requests_and_replies_wake_whoever_sleeps(fabric_pairs());
}

fn check_requests_and_replies_wake_whoever_sleeps(pairs: Vec<Pair>) {
    for (near, far) in pairs {
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
    check_nothing_there_is_not_the_end(pairs());
}

#[test]
#[ignore = "needs libfabric"]
fn over_libfabric_nothing_there_is_not_the_end() {
    check_nothing_there_is_not_the_end(fabric_pairs());
}

fn check_nothing_there_is_not_the_end(pairs: Vec<Pair>) {
    for (mut near, mut far) in pairs {
        let mut into = [0; 16];
        assert_eq!(near.read(&mut into).expect("nothing yet"), 0);
        // A provider of libfabric may have doings of its own for a while.
        let began = std::time::Instant::now();
        while near.arm(false).expect("arm") {
            assert!(began.elapsed() < Duration::from_secs(10), "there is nothing to stay awake for");
            assert_eq!(far.read(&mut into).expect("nothing yet"), 0);
        }
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

#[test]
#[ignore = "needs libfabric"]
fn over_libfabric_nobody_listening_is_said() {
    let listener = ofi::Listener::bind("tcp;ofi_rxm", Some("127.0.0.1")).unwrap_or_else(|why| panic!("{why}"));
    let address = listener.address().to_vec();
    drop(listener);
    let said = |provider: &str| {
        let error = ofi::Ofi::connect(provider, &address, Duration::from_secs(2)).err().expect("nobody listens");
        error.to_string()
    };
    let nobody = said("tcp;ofi_rxm");
    assert!(
        nobody.starts_with("cannot connect to 0200") && nobody.contains("over libfabric's tcp;ofi_rxm"),
        "{nobody}"
    );
    assert!(said("no-such").contains("has no provider no-such"));
    assert!(said("gambeson").contains("links seal what they send"));
    let error = ofi::Listener::bind("tcp;ofi_rxm", Some("203.0.113.7")).err().expect("no interface of this host");
    assert!(error.to_string().starts_with("cannot listen over libfabric's tcp;ofi_rxm"), "{error}");
}

#[test]
fn tcp_within_the_host_is_not_paced() {
    let (near, far) = tcp_pair();
    for end in [near, far] {
        let rule = rustix::net::sockopt::tcp_congestion(end.descriptor());
        assert_eq!(rule.expect("every TCP connection has one"), "reno");
    }
}
