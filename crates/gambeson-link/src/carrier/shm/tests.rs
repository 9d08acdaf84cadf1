//! Peers that die or misbehave.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::mapping::CAPACITIES;
use super::ring::{Memory, Word};
use super::*;

fn pair() -> (Shm, Shm) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("unit-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let folder = Folder::of_user().expect("a folder");
    let listener = folder.listen(&name).expect("a name of our own");
    let near = folder.connect(&name, Duration::from_secs(10)).expect("it listens");
    (near, listener.accept().expect("accept").expect("somebody connected"))
}

fn write(carrier: &mut Shm, bytes: &[u8]) -> io::Result<usize> {
    carrier.write(&[IoSlice::new(bytes)])
}

fn read(carrier: &mut Shm) -> io::Result<Vec<u8>> {
    let mut into = [0; 64];
    carrier.read(&mut into).map(|count| into[..count].to_vec())
}

/// Writes where only the other side may.
fn spoil(carrier: &Shm, of: impl Fn(Side) -> Side, word: Word, value: u64) {
    let pair = carrier.pair.as_ref().expect("connected");
    pair.mapping.ring(of(pair.side)).store(word, value, Ordering::Relaxed);
}

#[test]
fn nonsense_in_the_memory_is_an_error() {
    let (mut near, mut far) = pair();
    write(&mut near, b"sound").expect("room");
    assert_eq!(read(&mut far).expect("it came"), b"sound");

    spoil(&near, |side| side, Word::Tail, 1 << 40);
    let error = read(&mut far).expect_err("nonsense").to_string();
    let expected = "an index of 1099511627776 stands in the shared memory, where it can lie between 5 and 1048581";
    assert!(error.starts_with("shm unit-") && error.ends_with(expected), "{error}");
    assert_eq!(far.arm(false).expect_err("nonsense").to_string(), error);
    spoil(&near, |side| side, Word::Tail, 4);
    assert_eq!(read(&mut far).expect_err("it went back").kind(), ErrorKind::InvalidData);

    let full = vec![7; 2 << 20];
    assert_eq!(write(&mut far, &full).expect("room"), 1 << 20);
    spoil(&near, Side::other, Word::Head, u64::MAX);
    assert_eq!(write(&mut far, &full).expect_err("nonsense").kind(), ErrorKind::InvalidData);
    assert_eq!(far.arm(true).expect_err("nonsense").kind(), ErrorKind::InvalidData);
}

#[test]
fn what_was_written_before_death_is_read_first() {
    let (mut near, mut far) = pair();
    write(&mut near, b"last words").expect("room");
    // A wake-up that nobody takes any more makes the kernel report a reset instead of an end.
    assert!(!near.arm(false).expect("arm"), "nothing has come");
    assert_eq!(read(&mut far).expect("it came"), b"last words");
    write(&mut far, b"too late").expect("room");
    write(&mut near, b"really").expect("room");
    drop(near);
    assert!(far.arm(false).expect("arm"), "the end keeps awake");
    assert_eq!(read(&mut far).expect("it came"), b"really");
    assert_eq!(read(&mut far).expect_err("the end").kind(), ErrorKind::UnexpectedEof);
    assert_eq!(write(&mut far, b"hello?").expect_err("the end").kind(), ErrorKind::BrokenPipe);
}

#[test]
fn useless_wake_ups_neither_hide_the_end_nor_grow() {
    let (mut near, mut far) = pair();
    assert_eq!(read(&mut far).expect("nothing yet"), b"");
    let mut sent = 0;
    while rustix::net::send(&near.socket, b"wake up", SendFlags::DONTWAIT).is_ok() {
        sent += 1;
    }
    assert!(sent > 16, "only {sent} fitted");
    // The kernel holds no more, and writing does not wait for it.
    assert!(far.arm(false).expect("arm"), "there is more to take");
    spoil(&far, Side::other, Word::ReaderSleeps, 1);
    write(&mut near, b"x").expect("room");
    assert_eq!(read(&mut far).expect("it came"), b"x");
    drop(near);
    while !far.ended {
        assert!(far.arm(false).expect("arm"), "not before the end is seen");
    }
    assert_eq!(read(&mut far).expect_err("the end").kind(), ErrorKind::UnexpectedEof);
}

/// Two ends of a socket, of which one has accepted.
fn half() -> (OwnedFd, Shm) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (stranger, socket) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair");
    let kind = Kind::Shm { name: "half".to_owned(), process: 1 };
    (stranger, Shm { socket, kind, pair: None, ended: false })
}

#[test]
fn who_connects_and_says_nothing_costs_nothing() {
    let (stranger, mut far) = half();
    assert_eq!(write(&mut far, b"early").expect("no memory yet"), 0);
    assert_eq!(read(&mut far).expect("no memory yet"), b"");
    assert!(!far.arm(true).expect("arm"), "there is nothing to do");
    drop(stranger);
    assert!(far.arm(true).expect("arm"), "the end keeps awake");
    assert_eq!(read(&mut far).expect_err("the end").kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn only_memory_of_the_right_kind_is_mapped() {
    let capacity = *CAPACITIES.start();
    let sealed = |length: u64, seals: SealFlags| {
        let memory = rustix::fs::memfd_create("wrong", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC);
        let memory = File::from(memory.expect("memfd"));
        memory.set_len(length).expect("a length");
        rustix::fs::fcntl_add_seals(&memory, seals).expect("seals");
        OwnedFd::from(memory)
    };
    let right = |length| sealed(length, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
    let length = 4096 + 2 * capacity;
    let socket = || half().0;

    let cases: [(u64, Vec<OwnedFd>, &str); 9] = [
        (capacity, vec![], "it has sent no shared memory"),
        (capacity, vec![right(length), right(length)], "it has sent no shared memory"),
        (capacity, vec![socket()], "the descriptor that it sent is no shared memory"),
        (
            capacity,
            vec![File::open("/dev/null").expect("it is there").into()],
            "the descriptor that it sent is no shared memory",
        ),
        (
            capacity,
            vec![sealed(length, SealFlags::GROW | SealFlags::SEAL)],
            "its memory is not sealed, so that it could shrink while it is read",
        ),
        (capacity, vec![right(length - 1)], "its memory has 12287 bytes instead of 12288"),
        (
            capacity + 4096 + 1,
            vec![right(length)],
            "its rings are said to hold 8193 bytes, which is no size that is used",
        ),
        (0, vec![right(4096)], "its rings are said to hold 0 bytes, which is no size that is used"),
        (
            1 << 63,
            vec![right(4096)],
            "its rings are said to hold 9223372036854775808 bytes, which is no size that is used",
        ),
    ];
    for (capacity, memory, why) in cases {
        let (stranger, mut far) = half();
        let memory: Vec<BorrowedFd<'_>> = memory.iter().map(AsFd::as_fd).collect();
        socket::send_memory(&stranger, capacity, &memory).expect("sent");
        let error = read(&mut far).expect_err(why).to_string();
        assert_eq!(error, format!("refused shm half (process 1): {why}"));
    }

    for (first, why) in [
        (&b"GET / HTTP/1.1"[..], "its first message is not that of a Gambeson of this version"),
        (b"gambeson memory1", "its first message has a wrong length"),
        (b"gambeson memory1 and then far too much", "its first message has a wrong length"),
    ] {
        let (stranger, mut far) = half();
        rustix::net::send(&stranger, first, SendFlags::empty()).expect("sent");
        let error = read(&mut far).expect_err(why).to_string();
        assert_eq!(error, format!("refused shm half (process 1): {why}"));
    }

    let (stranger, mut far) = half();
    let memory = right(length);
    socket::send_memory(&stranger, capacity, &[memory.as_fd()]).expect("sent");
    assert_eq!(read(&mut far).expect("the right kind"), b"");
    assert_eq!(write(&mut far, b"welcome").expect("it is mapped"), 7);
}

/// Does `what` as another user. Only root can, so others leave this out.
fn as_stranger<T: Send>(what: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let stranger = rustix::process::Uid::from_raw(65_533);
            // Of this thread alone, which ends with it.
            if rustix::thread::set_thread_res_uid(stranger, stranger, stranger).is_err() {
                eprintln!("left out: only root can act as another user");
                return None;
            }
            Some(what())
        });
        thread.join().expect("the stranger")
    })
}

#[test]
fn another_user_is_turned_away_at_both_ends() {
    let place = std::env::temp_dir().join(format!("gambeson-strangers-{}", std::process::id()));
    let folder = Folder::at(&place).expect("a folder");
    let open = |path: &std::path::Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("ours");
    };

    // As if somebody had opened the folder to all after it was found to be private.
    let listener = folder.listen("ours").expect("a name");
    open(&place);
    open(&place.join("ours"));
    let connected =
        as_stranger(|| folder.connect("ours", Duration::from_secs(10)).expect_err("another user").to_string());
    if let Some(error) = connected {
        assert!(error.ends_with("belongs to user 0 and not to user 65533"), "{error}");
        let error = listener.accept().expect_err("another user").to_string();
        assert_eq!(error, "the process at the other end belongs to user 65533 and not to user 0");
        assert!(listener.accept().expect("the next one").is_none());
        assert!(as_stranger(|| Folder::at(&place).expect_err("not its own").to_string()).is_some_and(|error| {
            error.ends_with(
                "cannot hold the sockets of shared memory: it belongs to user 0 and not to user 65533; choose another",
            )
        }));
    }
    drop(listener);
    std::fs::remove_dir_all(&place).expect("ours");
}
