//! Requests made of several buffers, gathered at once or packed one after the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gambeson_link::{
    Attributes, Config, Domain, Endpoint, Error, Handlers, Identity, Policy, Progress, Protection, Startpoint, Trust,
};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const PATIENCE: Duration = Duration::from_secs(10);
const ECHO: u32 = 0;
const KEEP: u32 = 1;
const COUNT: u32 = 2;
const SLOW: u32 = 3;

fn config(shm: bool) -> Config {
    let job = JobKeys {
        job_id: [1; 16],
        job_secret: Secret32::from_bytes([1; 32]),
        policy_hash: [1; 32],
        suite: Suite::Aes256Gcm,
    };
    let mut config = Config::new(Identity::generate().expect("a key"), Trust::default().job(job));
    (config.shm, config.policy) = (shm, Policy::uniform(Protection::None));
    config
}

struct Pair {
    startpoint: Startpoint,
    kept: Arc<Mutex<Vec<Vec<u8>>>>,
    _client: Domain,
    _endpoint: Endpoint,
    _server: Domain,
}

fn pair(shm: bool, progress: Progress, attributes: Attributes) -> Pair {
    let server = config(shm).listen("127.0.0.1:0".parse().expect("an address"));
    let server = Domain::open(server).expect("a domain");
    let kept = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let (keeping, count) = (kept.clone(), AtomicU64::new(0));
    let handlers = Handlers::new()
        .inline(ECHO, |call| call.answer(call.payload))
        .inline(KEEP, move |call| {
            assert!(!call.wants_answer());
            keeping.lock().expect("no panic").push(call.payload.to_vec());
        })
        .threaded(COUNT, |mut request| {
            for at in 0..3 {
                request.item(&[at + request.payload[0]]).expect("somebody reads");
            }
        })
        .threaded(SLOW, move |request| {
            std::thread::sleep(Duration::from_millis(1));
            count.fetch_add(request.payload.len() as u64, Ordering::Relaxed);
            let sum = count.load(Ordering::Relaxed);
            request.answer(&sum.to_le_bytes());
        });
    let endpoint = server.endpoint(attributes, handlers).expect("an endpoint");
    let mut client = config(shm);
    client.progress = progress;
    let client = Domain::open(client).expect("a domain");
    let startpoint = client.startpoint(&endpoint.startpoint([]).expect("a startpoint"), PATIENCE).expect("a link");
    Pair { startpoint, kept, _client: client, _endpoint: endpoint, _server: server }
}

/// Over both carriers, in every protection, with and without a module.
fn over_all(mut test: impl FnMut(&Pair)) {
    for shm in [true, false] {
        for protection in Protection::ALL {
            test(&pair(shm, Progress::Auto, Attributes::default().protection(protection)));
        }
        test(&pair(shm, Progress::Manual, Attributes::default().protection(Protection::Privacy)));
        test(&pair(shm, Progress::Auto, Attributes::default().protection(Protection::Privacy).transform("zstd")));
    }
}

fn block(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + seed) as u8).collect()
}

#[test]
fn gathered_buffers_arrive_as_one_message() {
    over_all(|pair| {
        let startpoint = &pair.startpoint;
        for lens in [&[][..], &[0], &[1, 0, 7], &[65_536, 1], &[100_000, 50_000, 3], &[5000, 65_536, 200_000, 0]] {
            let buffers: Vec<Vec<u8>> = lens.iter().enumerate().map(|(at, len)| block(*len, at)).collect();
            let pieces: Vec<&[u8]> = buffers.iter().map(Vec::as_slice).collect();
            let answer = startpoint.gather(ECHO, &pieces).call(PATIENCE).expect("an answer");
            assert!(answer == buffers.concat(), "{lens:?}");
        }
        // More than the window has room for, so that part of it waits.
        let long = block(1_500_000, 5);
        let pending: Vec<_> = (0..3)
            .map(|_| startpoint.gather(ECHO, &[&long[..1000], &long[1000..]]).start().expect("it goes"))
            .collect();
        for pending in pending {
            assert!(pending.wait(PATIENCE).expect("an answer") == long);
        }
        startpoint.gather(KEEP, &[b"one", b" ", b"way"]).send().expect("it goes");
        let mut answers = startpoint.gather(COUNT, &[&[], &[5], &[]]).stream().expect("it goes");
        for at in 5..8 {
            assert_eq!(answers.next(PATIENCE).expect("an answer"), Some(vec![at]));
        }
        assert_eq!(*pair.kept.lock().expect("no panic"), [b"one way"]);
    });
    let owned = {
        let Pair { startpoint, _client, _endpoint, _server, .. } =
            pair(true, Progress::Auto, Attributes::default().protection(Protection::Privacy));
        let pending = Arc::new(startpoint).gather_owned(ECHO, &[b"kept", b" apart"]).start().expect("it goes");
        pending.wait(PATIENCE).expect("an answer")
    };
    assert_eq!(owned, b"kept apart");
}

#[test]
fn what_is_packed_arrives_as_one_message() {
    over_all(|pair| {
        let startpoint = &pair.startpoint;
        let packs = [(0, 1), (1, 1), (5000, 1000), (16_384, 100), (16_385, 16_385), (100_000, 700), (1 << 20, 4096)];
        for (size, len) in packs.into_iter().chain([(3_000_000, 1 << 20), (400_000, 65_537)]) {
            let message = block(size, len);
            let packed = || {
                let mut pack = startpoint.pack(ECHO, size).expect("a link");
                for (at, part) in message.chunks(len).enumerate() {
                    // Now and then a short one between long ones, and nothing.
                    let (first, rest) = part.split_at(if at % 3 == 0 { part.len().min(10) } else { 0 });
                    pack.put(first).expect("it goes");
                    pack.put(rest).expect("it goes");
                }
                pack
            };
            assert!(packed().call(PATIENCE).expect("an answer") == message, "{size} bytes, {len} at a time");
            let (one, other) = (packed().start().expect("it goes"), packed().start().expect("it goes"));
            assert!(other.wait(PATIENCE).expect("an answer") == message);
            assert!(one.wait(PATIENCE).expect("an answer") == message);
        }
        for (size, handler) in [(3, KEEP), (50_000, KEEP)] {
            let mut pack = startpoint.pack(handler, size).expect("a link");
            pack.put(&block(size, 0)).expect("it goes");
            pack.send().expect("it goes");
        }
        let mut pack = startpoint.pack(COUNT, 20_000).expect("a link");
        pack.put(&[5; 20_000]).expect("it goes");
        let mut answers = pack.stream().expect("it goes");
        for at in 5..8 {
            assert_eq!(answers.next(PATIENCE).expect("an answer"), Some(vec![at]));
        }
        assert!(*pair.kept.lock().expect("no panic") == [block(3, 0), block(50_000, 0)]);
    });
}

#[test]
fn others_wait_behind_a_pack_and_nothing_mixes() {
    for shm in [true, false] {
        let pair = pair(shm, Progress::Auto, Attributes::default().protection(Protection::Privacy));
        let startpoint = &pair.startpoint;
        std::thread::scope(|threads| {
            for thread in 0..3 {
                threads.spawn(move || {
                    for round in 0..30 {
                        let message = block(100 + 3000 * round, thread);
                        assert!(startpoint.call(ECHO, &message, PATIENCE).expect("an answer") == message);
                        startpoint.send(KEEP, &message).expect("it goes");
                    }
                });
                threads.spawn(move || {
                    for round in 0..10 {
                        let message = block(20_000 + 30_000 * round, 100 + thread);
                        let mut pack = startpoint.pack(ECHO, message.len()).expect("a link");
                        for part in message.chunks(5000) {
                            pack.put(part).expect("it goes");
                            std::thread::yield_now();
                        }
                        if round % 4 == 3 {
                            drop(pack);
                        } else {
                            assert!(pack.call(PATIENCE).expect("an answer") == message);
                        }
                    }
                });
            }
        });
        startpoint.call(ECHO, b"last", PATIENCE).expect("an answer");
        assert_eq!(pair.kept.lock().expect("no panic").len(), 90);
    }
}

#[test]
fn a_pack_that_is_dropped_never_reaches_its_handler_and_costs_the_link_nothing() {
    over_all(|pair| {
        let startpoint = &pair.startpoint;
        // More than a window of each kind: not begun, begun, and all put.
        for round in 0..30 {
            for put in [0, 1000, 60_000, 200_000] {
                let mut pack = startpoint.pack(KEEP, 200_000).expect("a link");
                pack.put(&block(put, round)).expect("it goes");
                drop(pack);
            }
        }
        assert_eq!(startpoint.call(ECHO, b"still there", PATIENCE).expect("an answer"), b"still there");
        startpoint.send(KEEP, &block(900_000, 1)).expect("there is room");
        startpoint.call(ECHO, &[], PATIENCE).expect("an answer");
        assert_eq!(pair.kept.lock().expect("no panic").len(), 1, "none of those was handled");
    });
}

#[test]
fn a_pack_holds_what_was_said_of_it_and_its_thread_does_not_wait_for_itself() {
    over_all(|pair| {
        let startpoint = &pair.startpoint;
        let says = |error: Error| match error {
            Error::Message(why) => why,
            other => panic!("{other:?}"),
        };
        for size in [10, 100_000] {
            let mut pack = startpoint.pack(KEEP, size).expect("a link");
            pack.put(&block(size - 1, 0)).expect("it goes");
            assert!(says(pack.put(&[1, 2]).expect_err("a byte too many")).contains("was to have"));
            let short = says(pack.send().expect_err("a byte is missing"));
            assert!(short.contains(&format!("{} bytes were put", size - 1)), "{short}");
        }
        let transformed = !startpoint.capability().transforms().is_empty();
        let mut pack = startpoint.pack(ECHO, 100_000).expect("a link");
        pack.put(&block(90_000, 0)).expect("it goes");
        if !transformed {
            for refused in [
                startpoint.send(KEEP, &[1]),
                startpoint.call(ECHO, &[1], PATIENCE).map(drop),
                startpoint.gather(ECHO, &[&[1]]).call(PATIENCE).map(drop),
                startpoint.pack(ECHO, 100_000).and_then(|mut pack| pack.put(&block(100_000, 0))),
            ] {
                assert!(says(refused.expect_err("it would wait for itself")).contains("send or drop that first"));
            }
        }
        pack.put(&block(10_000, 1)).expect("it goes");
        assert!(pack.call(PATIENCE).expect("an answer") == [block(90_000, 0), block(10_000, 1)].concat());
        assert!(pair.kept.lock().expect("no panic").is_empty());
    });
}

#[test]
fn a_pack_is_put_by_turns_and_belongs_to_the_thread_that_began_it() {
    over_all(|pair| {
        let transformed = !pair.startpoint.capability().transforms().is_empty();
        let message = block(300_000, 3);
        std::thread::scope(|scope| {
            let mut first = pair.startpoint.pack(KEEP, 100_000).expect("a link");
            first.put(&block(50_000, 0)).expect("it goes");
            let (begun, waits) = std::sync::mpsc::channel();
            let message = &message;
            let second = scope.spawn(move || {
                let mut second = pair.startpoint.pack(ECHO, message.len()).expect("a link");
                if !transformed {
                    // The other one has the link.
                    let turn = Duration::from_millis(10);
                    assert_eq!(second.put_within(&message[..10], turn).expect("a link"), 10);
                    assert_eq!(second.put_within(&message[10..], turn).expect("a link"), 0);
                    assert!(!second.flush(turn).expect("a link"));
                } else {
                    second.put(&message[..10]).expect("it goes");
                }
                begun.send(()).expect("somebody waits");
                let mut put = 10;
                while put < message.len() {
                    put += second.put_within(&message[put..], Duration::from_millis(1)).expect("a link");
                }
                assert!(second.flush(PATIENCE).expect("a link"));
                second.call(PATIENCE).expect("an answer")
            });
            waits.recv().expect("it waits");
            scope.spawn(move || {
                for refused in [first.put(&[1]), first.flush(PATIENCE).map(drop), first.send()] {
                    match refused {
                        Err(Error::Message(why)) => assert!(why.contains("another thread"), "{why}"),
                        other => panic!("{other:?}"),
                    }
                }
            });
            assert!(second.join().expect("no panic") == *message);
        });
        assert!(pair.kept.lock().expect("no panic").is_empty(), "what was sent from another thread was given up");
    });
}

#[test]
fn a_pack_over_a_link_that_is_refused_or_over_says_so() {
    let pair = pair(true, Progress::Auto, Attributes::default().protection(Protection::Privacy));
    let revoked = pair._endpoint.startpoint([]).expect("a startpoint");
    pair._endpoint.revoke(&revoked).expect("it is its own");
    let startpoint = pair._client.startpoint(&revoked, PATIENCE).expect("a link, as far as can be known here");
    let refused = startpoint.pack(ECHO, 60 << 20).and_then(|mut pack| {
        let block = block(1 << 20, 0);
        (0..60).try_for_each(|_| pack.put(&block))
    });
    assert!(matches!(&refused, Err(Error::Startpoint(why)) if why.contains("revoked")), "{refused:?}");
    let mut pack = pair.startpoint.pack(SLOW, 60 << 20).expect("a link");
    pack.put(&block(1 << 20, 0)).expect("it goes");
    drop(pair._server);
    let over = (0..59).try_for_each(|_| pack.put(&block(1 << 20, 0)));
    assert!(matches!(over, Err(Error::Lost(_))), "{over:?}");
}
