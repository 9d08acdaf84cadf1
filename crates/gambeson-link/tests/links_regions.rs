//! Remote memory access between two domains: what lands where and in which order, who is refused, and what waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gambeson_link::{
    Attributes, Capability, Caveat, Config, Domain, Endpoint, Error, Handlers, Identity, Refusal, Region, Startpoint,
    Trust, Window,
};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const PATIENCE: Duration = Duration::from_secs(10);
const BOTH: u8 = Window::READ | Window::WRITE;
/// Answers with the first bytes of the region, as many as the request says.
const PEEK: u32 = 0;
/// The same, without a thread.
const PEEK_INLINE: u32 = 1;

fn config() -> Config {
    let job_secret = Secret32::from_bytes([1; 32]);
    let job = JobKeys { job_id: [1; 16], job_secret, policy_hash: [1; 32], suite: Suite::Aes256Gcm };
    Config::new(Identity::generate().expect("a key"), Trust::default().job(job))
}

fn open(shm: bool) -> Domain {
    let mut config = config().listen("127.0.0.1:0".parse().expect("an address"));
    config.shm = shm;
    Domain::open(config).expect("a domain")
}

struct Owner {
    domain: Domain,
    endpoint: Endpoint,
    region: Region,
}

impl Owner {
    fn new(shm: bool, memory: Vec<u8>) -> Self {
        let domain = open(shm);
        let place: Arc<Mutex<Option<Region>>> = Arc::default();
        let (here, there) = (place.clone(), place.clone());
        let first = |place: &Mutex<Option<Region>>, payload: &[u8]| {
            let region = place.lock().expect("no panic").clone().expect("it was set");
            let mut bytes = vec![0; usize::from(payload[0])];
            region.read(0, &mut bytes).map(|()| bytes)
        };
        let handlers = Handlers::new()
            .threaded(PEEK, move |request| match first(&here, &request.payload) {
                Ok(bytes) => request.answer(&bytes),
                Err(why) => request.refuse(&why.to_string()),
            })
            .inline(PEEK_INLINE, move |call| match first(&there, call.payload) {
                Ok(bytes) => call.answer(&bytes),
                Err(why) => call.refuse(&why.to_string()),
            });
        let endpoint = domain.endpoint(Attributes::default(), handlers).expect("an endpoint");
        let region = endpoint.region(memory);
        *place.lock().expect("no panic") = Some(region.clone());
        Owner { domain, endpoint, region }
    }

    fn capability(&self, windows: impl IntoIterator<Item = Window>) -> Capability {
        self.endpoint.startpoint([Caveat::Memory(windows.into_iter().collect())]).expect("a startpoint")
    }

    /// A link that reaches all of the region, and its domain.
    fn link(&self) -> (Domain, Startpoint) {
        self.link_with(&self.capability([self.region.whole(BOTH)]))
    }

    fn link_with(&self, capability: &Capability) -> (Domain, Startpoint) {
        let domain = Domain::open(config()).expect("a domain");
        let startpoint = domain.startpoint(capability, PATIENCE).expect("a link");
        (domain, startpoint)
    }

    fn bytes(&self) -> Vec<u8> {
        self.region.with(|bytes| bytes.to_vec()).expect("no handler")
    }

    fn refused(&self, reason: Refusal) -> u64 {
        self.domain.refusals().expect("no handler").of(reason)
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| ((at + seed) * 31 % 251) as u8).collect()
}

#[test]
fn bytes_are_put_and_got_where_they_belong() {
    const LEN: usize = 6 << 20;
    for shm in [true, false] {
        let owner = Owner::new(shm, vec![0; LEN]);
        let (_client, startpoint) = owner.link();
        let number = owner.region.number();
        let mut model = vec![0; LEN];
        for (turn, len) in [1, 8, 4096, 4097, 65_536, 65_537, 1 << 20, 5 << 20].into_iter().enumerate() {
            for offset in [0, turn * 1000, LEN - len] {
                let bytes = pattern(len, offset);
                startpoint.put(number, offset as u64, &bytes, PATIENCE).expect("it lands");
                model[offset..offset + len].copy_from_slice(&bytes);
                let mut got = vec![0; len];
                startpoint.get_into(number, offset as u64, &mut got, PATIENCE).expect("it comes");
                assert_eq!(got, bytes, "{len} bytes at {offset}");
            }
        }
        assert!(owner.bytes() == model);
        // What the owner writes is what others get, and many may be under way.
        owner.region.write(100, b"from the owner").expect("inside");
        let owned = Arc::new(startpoint);
        let pending: Vec<_> =
            (0..50_u64).map(|at| owned.start_put_owned(number, at, &[at as u8]).expect("it goes")).collect();
        let got: Vec<_> = (0..50_u64).map(|at| owned.start_get_owned(number, at, 1).expect("it goes")).collect();
        pending.into_iter().for_each(|put| assert!(put.wait(PATIENCE).expect("it lands").is_empty()));
        let got = got.into_iter().map(|get| get.wait(PATIENCE).expect("it comes")[0]);
        assert!(got.eq(0..50), "gets see the puts before them");
        let mut said = [0; 14];
        owned.get_into(number, 100, &mut said, PATIENCE).expect("it comes");
        assert_eq!(&said, b"from the owner");
    }
}

#[test]
fn puts_come_in_turn_with_requests() {
    for shm in [true, false] {
        let owner = Owner::new(shm, vec![0; 1 << 20]);
        let (_client, startpoint) = owner.link();
        for turn in 0..200_u8 {
            let len = if turn % 50 == 0 { 1 << 20 } else { 3 };
            startpoint.put_one_way(owner.region.number(), 0, &vec![turn; len]).expect("it goes");
            let handler = if turn % 2 == 0 { PEEK } else { PEEK_INLINE };
            assert_eq!(startpoint.call(handler, &[3], PATIENCE).expect("an answer"), [turn; 3]);
        }
    }
}

#[test]
fn no_put_is_seen_in_part() {
    const LEN: usize = 1 << 20;
    let owner = Owner::new(true, vec![0; LEN]);
    let (_client, startpoint) = owner.link();
    let done = Arc::new(AtomicBool::new(false));
    let (region, over) = (owner.region.clone(), done.clone());
    let reader = std::thread::spawn(move || {
        let mut looked = 0;
        while !over.load(Ordering::Relaxed) {
            let same = region.with(|bytes| bytes.iter().all(|byte| *byte == bytes[0])).expect("no handler");
            assert!(same, "part of a put was seen");
            looked += 1;
        }
        looked
    });
    let (_other_client, other) = owner.link();
    let mut got = vec![0; LEN];
    for turn in 0..60 {
        startpoint.put_one_way(owner.region.number(), 0, &vec![turn; LEN]).expect("it goes");
        other.get_into(owner.region.number(), 0, &mut got, PATIENCE).expect("it comes");
        assert!(got.iter().all(|byte| *byte == got[0]), "part of a put was got");
    }
    startpoint.put(owner.region.number(), 0, &[], PATIENCE).expect("all has landed");
    done.store(true, Ordering::Relaxed);
    assert!(reader.join().expect("nothing was seen in part") > 0);
    assert_eq!(owner.bytes()[0], 59);
}

#[test]
fn accesses_outside_the_windows_change_nothing_and_are_counted() {
    let owner = Owner::new(false, pattern(1000, 0));
    let number = owner.region.number();
    let windows = [owner.region.window(100, 50, Window::READ), owner.region.window(200, 50, Window::WRITE)];
    let (_client, startpoint) = owner.link_with(&owner.capability(windows));
    let mut few = [0; 10];
    startpoint.get_into(number, 140, &mut few, PATIENCE).expect("inside");
    startpoint.put(number, 200, &[7; 50], PATIENCE).expect("inside");
    let after = owner.bytes();
    let mut refusals = 0;
    let mut refused = |outcome: Result<(), Error>| {
        let why = outcome.expect_err("outside").to_string();
        assert!(why.contains("does not allow this access to memory"), "{why}");
        refusals += 1;
        assert_eq!(owner.refused(Refusal::Memory), refusals);
    };
    for offset in [0, 99, 141, 200, 1000, u64::MAX, u64::MAX - 4, 1 << 63] {
        refused(startpoint.get_into(number, offset, &mut [0; 10], PATIENCE));
    }
    for offset in [100, 199, 241, 995, 1000, u64::MAX, u64::MAX - 9] {
        refused(startpoint.put(number, offset, &[1; 10], PATIENCE));
    }
    refused(startpoint.start_get(number, 1, u64::MAX).expect("it goes").wait(PATIENCE).map(drop));
    refused(startpoint.start_get(number, u64::MAX, u64::MAX).expect("it goes").wait(PATIENCE).map(drop));
    // One that nobody answers is counted, too.
    startpoint.put_one_way(number, 0, &[1; 10]).expect("it goes");
    startpoint.put(number, 0, &[], PATIENCE).expect("all before has landed or was refused");
    assert_eq!(owner.refused(Refusal::Memory), refusals + 1);
    assert_eq!(owner.bytes(), after);
    // Without a window there is no memory at all, nor with one of another region.
    for windows in [vec![], vec![Window { region: number + 1, offset: 0, length: u64::MAX, rights: BOTH }]] {
        let (_client, startpoint) = owner.link_with(&owner.capability(windows));
        let why = startpoint.put(number, 200, &[1], PATIENCE).expect_err("no window").to_string();
        assert!(why.contains("does not allow this access to memory"), "{why}");
    }
    assert_eq!(owner.bytes(), after);
}

#[test]
fn a_window_that_its_holder_narrowed_cannot_be_widened() {
    let owner = Owner::new(false, vec![0; 1000]);
    let number = owner.region.number();
    let given = owner.capability([owner.region.whole(BOTH)]);
    let mut narrow = given.clone();
    narrow.narrow(Caveat::Memory(vec![owner.region.window(10, 10, Window::READ)])).expect("there is room");
    // Asking for more again gives no more.
    let mut wider = narrow.clone();
    wider.narrow(Caveat::Memory(vec![owner.region.whole(BOTH)])).expect("there is room");
    for capability in [&narrow, &wider] {
        let (_client, startpoint) = owner.link_with(capability);
        startpoint.get_into(number, 10, &mut [0; 10], PATIENCE).expect("inside");
        startpoint.get_into(number, 9, &mut [0; 10], PATIENCE).expect_err("outside");
        startpoint.put(number, 10, &[1], PATIENCE).expect_err("only to read");
    }
    // Its bytes with another window in them open no link.
    let mut bytes = narrow.encode().to_vec();
    let window = [10_u64.to_be_bytes(), 10_u64.to_be_bytes()].concat();
    let at = bytes.windows(16).rposition(|part| part == window).expect("it is in there");
    bytes[at..at + 16].copy_from_slice(&[0_u64.to_be_bytes(), 1000_u64.to_be_bytes()].concat());
    bytes[at + 16] = BOTH;
    let (_client, forged) = owner.link_with(&Capability::decode(&bytes).expect("bytes alone prove nothing"));
    let why = forged.put(number, 10, &[1], PATIENCE).expect_err("forged");
    assert!(matches!(&why, Error::Startpoint(why) if why.contains("forged")), "{why:?}");
    assert_eq!(owner.refused(Refusal::Unproven), 1);
    assert_eq!(owner.bytes(), [0; 1000]);
}

#[test]
fn regions_belong_to_their_endpoint_and_end_with_who_holds_them() {
    let owner = Owner::new(false, vec![1; 100]);
    let other = owner.domain.endpoint(Attributes::default(), Handlers::new()).expect("an endpoint");
    let secret = [(); 3].map(|()| other.region(vec![2; 100]));
    let beyond = secret.each_ref().map(|region| Window { length: u64::MAX, ..region.whole(BOTH) });
    let (_client, startpoint) = owner.link_with(&owner.capability(beyond));
    // The numbers are those of this endpoint's own, of which there is but one.
    for (at, region) in secret.iter().enumerate() {
        let got = startpoint.get_into(region.number(), 0, &mut [0; 4], PATIENCE);
        assert_eq!(got.is_ok(), region.number() == owner.region.number(), "region {at}");
    }
    assert_eq!(owner.refused(Refusal::Absent), 2);
    // A window may be longer than its region; the region ends where it ends.
    startpoint.put(owner.region.number(), 96, &[3; 4], PATIENCE).expect("inside");
    let why = startpoint.put(owner.region.number(), 97, &[4; 4], PATIENCE).expect_err("beyond the end").to_string();
    assert!(why.contains("ends before this access does"), "{why}");
    assert_eq!(owner.bytes()[96..], [3; 4]);

    // It is there as long as somebody holds it, and its number comes to no other.
    let region = owner.endpoint.region(vec![5; 10]);
    let (_client, startpoint) = owner.link_with(&owner.capability([region.whole(BOTH)]));
    let (number, held) = (region.number(), region.clone());
    drop(region);
    startpoint.put(number, 0, &[6; 10], PATIENCE).expect("it is held");
    drop(held);
    let newer = owner.endpoint.region(vec![7; 10]);
    assert_ne!(newer.number(), number);
    let why = startpoint.get_into(number, 0, &mut [0; 10], PATIENCE).expect_err("nobody holds it").to_string();
    assert!(why.contains("is not there any more"), "{why}");
    assert_eq!(owner.refused(Refusal::Absent), 4);
    assert!(secret.iter().all(|region| region.with(|bytes| *bytes == [2; 100]).expect("no handler")));
}

#[test]
fn startpoints_that_are_used_up_revoked_or_expired_reach_no_memory() {
    let owner = Owner::new(true, vec![0; 10]);
    let number = owner.region.number();
    let memory = || Caveat::Memory(vec![owner.region.whole(BOTH)]);
    let says = |outcome: Result<(), Error>| outcome.expect_err("refused").to_string();

    let limited = owner.endpoint.startpoint([Caveat::Uses(3), memory()]).expect("a startpoint");
    let (_client, startpoint) = owner.link_with(&limited);
    startpoint.put(number, 0, &[1], PATIENCE).expect("the first use");
    startpoint.put(number, 11, &[1], PATIENCE).expect_err("outside, and so no use");
    startpoint.get_into(number, 0, &mut [0], PATIENCE).expect("the second use");
    startpoint.call(PEEK, &[1], PATIENCE).expect("the third use");
    let why = says(startpoint.put(number, 0, &[2], PATIENCE));
    assert!(why.contains("used up"), "{why}");
    assert_eq!(owner.refused(Refusal::UsedUp), 1);

    let capability = owner.endpoint.startpoint([memory()]).expect("a startpoint");
    let (_client, startpoint) = owner.link_with(&capability);
    startpoint.put(number, 0, &[3], PATIENCE).expect("it is in force");
    owner.endpoint.revoke(&capability).expect("it was made here");
    for bytes in [&[4][..], &[]] {
        let why = says(startpoint.put(number, 0, bytes, PATIENCE));
        assert!(why.contains("revoked"), "{why}");
    }
    assert_eq!(owner.refused(Refusal::Revoked), 1, "a put of nothing is none");

    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let brief = owner.endpoint.startpoint([Caveat::Expires(now + 2), memory()]).expect("a startpoint");
    let (_client, startpoint) = owner.link_with(&brief);
    let why = loop {
        match startpoint.put(number, 1, &[5], PATIENCE) {
            Ok(()) => std::thread::sleep(Duration::from_millis(20)),
            Err(why) => break why.to_string(),
        }
    };
    assert!(why.contains("expired"), "{why}");
    assert_eq!(owner.refused(Refusal::Expired), 1);
    assert_eq!(owner.bytes()[0], 3);
}

#[test]
fn who_reaches_for_a_region_in_use_waits_and_nobody_else() {
    for shm in [true, false] {
        let owner = Owner::new(shm, vec![0; 100]);
        let number = owner.region.number();
        let free = owner.endpoint.region(vec![0; 100]);
        let (_client, startpoint) = owner.link();
        let (_other_client, other) = owner.link_with(&owner.capability([free.whole(BOTH)]));
        let (client, dropped) = owner.link();
        let held = owner.region.with(|bytes| {
            startpoint.put_one_way(number, 0, &[1; 100]).expect("it goes");
            let behind = startpoint.start(PEEK_INLINE, &[2]).expect("it goes");
            let got = startpoint.start_get(number, 98, 2).expect("it goes");
            dropped.put_one_way(number, 99, &[2]).expect("it goes");
            drop(dropped);
            // Nothing of another link or region waits, not even in the region's own domain.
            for turn in 0..20 {
                other.put(free.number(), 0, &[turn; 10], PATIENCE).expect("that one is free");
            }
            let late = startpoint.put(number, 0, &[9; 100], Duration::from_millis(50)).expect_err("it is in use");
            assert!(matches!(late, Error::TimedOut(_)), "{late}");
            // A get that nobody waits for any more is not done at all.
            let late = startpoint.get_into(number, 0, &mut [0; 100], Duration::from_millis(20)).expect_err("in use");
            assert!(matches!(late, Error::TimedOut(_)), "{late}");
            assert_eq!(*bytes, [0; 100]);
            (behind, got)
        });
        let (behind, got) = held.expect("no handler");
        assert_eq!(behind.wait(PATIENCE).expect("an answer"), [1; 2], "a request that came behind the put");
        assert_eq!(got.wait(PATIENCE).expect("an answer")[0], 1);
        startpoint.put(number, 0, &[], PATIENCE).expect("all has landed");
        // That nobody waits any more for the answer to a put takes nothing back.
        let last = owner.bytes()[99];
        assert_eq!(owner.bytes()[..99], [9; 99]);
        assert!(last == 9 || last == 2, "what the other link put landed before or after");
        // Who is gone meanwhile has put nevertheless.
        let third = client.startpoint(&owner.capability([owner.region.whole(BOTH)]), PATIENCE).expect("a link");
        let held = owner.region.with(|_| {
            third.put_one_way(number, 50, &[8; 5]).expect("it goes");
            drop(third);
            drop(client);
        });
        held.expect("no handler");
        while owner.bytes()[50..55] != [8; 5] {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_handler_that_is_not_threaded_does_not_wait_for_a_region() {
    let owner = Owner::new(true, vec![3; 10]);
    let (_client, startpoint) = owner.link();
    assert_eq!(startpoint.call(PEEK_INLINE, &[2], PATIENCE).expect("an answer"), [3; 2]);
    let (tell, told) = mpsc::channel::<()>();
    let (held, is_held) = mpsc::channel::<()>();
    let region = owner.region.clone();
    let holder = std::thread::spawn(move || {
        region.with(|_| {
            held.send(()).expect("the test is there");
            told.recv().expect("the test is there");
        })
    });
    is_held.recv().expect("it is held");
    let why = startpoint.call(PEEK_INLINE, &[2], PATIENCE).expect_err("in use").to_string();
    assert!(why.contains("`threaded`"), "{why}");
    tell.send(()).expect("the holder is there");
    holder.join().expect("no panic").expect("no handler");
    assert_eq!(startpoint.call(PEEK_INLINE, &[2], PATIENCE).expect("an answer"), [3; 2]);
}
