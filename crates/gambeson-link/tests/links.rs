//! Two domains over TCP: requests, answers, streams, who is refused, and what is bounded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use gambeson_link::{
    Attributes, Capability, Caveat, Config, Domain, Endpoint, Error, Handlers, Identity, Progress, Refusal, Request,
    Startpoint, Transport, Trust,
};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const PATIENCE: Duration = Duration::from_secs(10);
const ECHO: u32 = 0;
const COUNT: u32 = 1;
const STREAM: u32 = 2;
const SLOW: u32 = 3;
const PANIC: u32 = 4;
const SILENT: u32 = 5;
const WHO: u32 = 6;
const HOLD: u32 = 7;

fn job(secret: u8, policy: u8) -> JobKeys {
    JobKeys {
        job_id: [1; 16],
        job_secret: Secret32::from_bytes([secret; 32]),
        policy_hash: [policy; 32],
        suite: Suite::Aes256Gcm,
    }
}

fn config(trust: Trust) -> Config {
    Config::new(Identity::generate().expect("a key"), trust)
}

fn listening(trust: Trust) -> Config {
    config(trust).listen("127.0.0.1:0".parse().expect("an address"))
}

/// Over shared memory and over TCP.
fn over_both(mut test: impl FnMut(Config)) {
    for shm in [true, false] {
        let mut config = listening(of_job());
        config.shm = shm;
        test(config);
    }
}

fn of_job() -> Trust {
    Trust::default().job(job(1, 1))
}

fn handlers(count: &Arc<AtomicU64>) -> Handlers {
    let count = count.clone();
    Handlers::new()
        .inline(ECHO, |call| call.answer(call.payload))
        .inline(COUNT, move |call| {
            count.fetch_add(call.payload.len() as u64, Ordering::Relaxed);
        })
        .threaded(STREAM, |mut request| {
            for at in 0..request.payload[0] {
                request.item(&[at]).expect("somebody reads");
            }
        })
        .threaded(SLOW, |request| {
            std::thread::sleep(Duration::from_millis(200));
            let payload = request.payload.clone();
            request.answer(&payload);
        })
        .inline(PANIC, |_| panic!("a bug in a handler"))
        .inline(SILENT, |_| ())
        .inline(WHO, |call| call.answer(call.peer.name.as_bytes()))
}

struct Server {
    domain: Domain,
    endpoint: Endpoint,
    count: Arc<AtomicU64>,
}

fn server(config: Config) -> Server {
    let domain = Domain::open(config).expect("the domain opens");
    let count = Arc::new(AtomicU64::new(0));
    let endpoint = domain.endpoint(Attributes::default(), handlers(&count)).expect("an endpoint");
    Server { domain, endpoint, count }
}

impl Server {
    fn capability(&self) -> Capability {
        self.endpoint.startpoint([]).expect("a startpoint")
    }
}

#[test]
fn a_request_is_answered() {
    over_both(|over| {
        let server = server(over);
        let client = Domain::open(config(of_job())).expect("a domain");
        let startpoint = client.startpoint(&server.capability(), PATIENCE).expect("a link");
        for len in [0, 1, 8, 100, 4096, 4097, 65_536, 65_537, 1 << 20, 5 << 20] {
            let sent: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
            let answer = startpoint.call(ECHO, &sent, PATIENCE);
            assert!(answer.as_ref().is_ok_and(|answer| *answer == sent), "{len} bytes: {:?}", answer.err());
        }
        assert_eq!(startpoint.call(WHO, &[], PATIENCE).expect("an answer"), b"a process of the job");
    });
}

#[test]
fn requests_without_an_answer_all_arrive_in_order_and_memory_stays_bounded() {
    over_both(|over| {
        let server = server(over);
        let client = Domain::open(config(of_job())).expect("a domain");
        let startpoint = client.startpoint(&server.capability(), PATIENCE).expect("a link");
        let block = vec![7; 10_000];
        for _ in 0..2000 {
            startpoint.send(COUNT, &block).expect("it goes");
        }
        startpoint.call(ECHO, &[], PATIENCE).expect("what came before it has arrived");
        assert_eq!(server.count.load(Ordering::Relaxed), 20_000_000);
    });
}

#[test]
fn a_queue_gets_requests_in_their_order_and_holds_their_senders_to_its_pace() {
    over_both(|over| {
        let server = server(over);
        let (queue, queued) = mpsc::channel();
        let handlers = Handlers::new().queued(0, move |request| queue.send(request).expect("the test takes them"));
        let endpoint = server.domain.endpoint(Attributes::default(), handlers).expect("an endpoint");
        let client = Domain::open(config(of_job())).expect("a domain");
        let capability = endpoint.startpoint([]).expect("a startpoint");
        let [one, other] = [(); 2].map(|()| client.startpoint(&capability, PATIENCE).expect("a link"));
        let sent = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in 0..1000_u64 {
                    one.send(0, &[&at.to_le_bytes()[..], &[7; 10_000]].concat()).expect("it goes");
                    sent.store(at + 1, Ordering::Relaxed);
                }
            });
            std::thread::sleep(Duration::from_millis(300));
            // A window of 2 MiB, and the one that waits.
            let before = sent.load(Ordering::Relaxed);
            assert!((1..=210).contains(&before), "{before} went while nobody took them");
            other.send(0, b"beside them").expect("its own window");
            let mut links = Vec::new();
            let mut next = 0_u64;
            while next < 1000 || links.len() < 2 {
                let request: Request = queued.recv_timeout(PATIENCE).expect("a request");
                if !links.contains(&request.link()) {
                    links.push(request.link());
                }
                if request.payload.len() > 1000 {
                    assert_eq!((&request.payload[..8], request.link()), (&next.to_le_bytes()[..], links[0]));
                    next += 1;
                }
            }
            assert_ne!(links[0], links[1]);
        });
    });
}

#[test]
fn a_stream_ends_and_many_requests_are_under_way_at_once() {
    over_both(|over| {
        let server = server(over);
        let client = Domain::open(config(of_job())).expect("a domain");
        let startpoint = client.startpoint(&server.capability(), PATIENCE).expect("a link");
        let mut answers = startpoint.stream(STREAM, &[100]).expect("it goes");
        for at in 0..100 {
            assert_eq!(answers.next(PATIENCE).expect("an answer"), Some(vec![at]));
        }
        assert_eq!(answers.next(PATIENCE).expect("the end"), None);
        drop(answers);
        let pending: Vec<_> =
            (0..200_u32).map(|at| startpoint.start(ECHO, &at.to_le_bytes()).expect("it goes")).collect();
        for (at, pending) in pending.into_iter().enumerate().rev() {
            assert_eq!(pending.wait(PATIENCE).expect("an answer"), (at as u32).to_le_bytes());
        }
    });
}

#[test]
fn what_goes_wrong_at_the_handler_is_said() {
    over_both(|over| {
        let server = server(over);
        let client = Domain::open(config(of_job())).expect("a domain");
        let startpoint = client.startpoint(&server.capability(), PATIENCE).expect("a link");
        let says = |handler| startpoint.call(handler, &[], PATIENCE).expect_err("no answer").to_string();
        assert_eq!(says(99), "the endpoint has no handler 99");
        assert_eq!(says(PANIC), "the handler panicked");
        assert_eq!(says(SILENT), "the handler gave no answer");
        let late = startpoint.call(SLOW, &[1], Duration::from_millis(20)).expect_err("too late");
        assert!(matches!(late, Error::TimedOut(_)), "{late}");
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(startpoint.call(ECHO, b"still there", PATIENCE).expect("an answer"), b"still there");
    });
}

#[test]
fn caveats_hold_at_the_endpoint() {
    let server = server(listening(of_job()));
    let client = Domain::open(config(of_job())).expect("a domain");
    let narrowed = server.endpoint.startpoint([Caveat::methods([ECHO]), Caveat::Uses(2)]).expect("a startpoint");
    let startpoint = client.startpoint(&narrowed, PATIENCE).expect("a link");
    startpoint.call(COUNT, &[1], PATIENCE).expect_err("not its handler");
    let refused = startpoint.stream(STREAM, &[1]).expect("it goes").next(PATIENCE).expect_err("not its handler");
    assert!(refused.to_string().contains("does not allow this handler"), "{refused}");
    startpoint.call(ECHO, &[1], PATIENCE).expect("the first use");
    startpoint.call(ECHO, &[1], PATIENCE).expect("the second use");
    let used_up = startpoint.call(ECHO, &[1], PATIENCE).expect_err("no third use");
    assert!(used_up.to_string().contains("used up"), "{used_up}");
    let expired = server.endpoint.startpoint([Caveat::Expires(1)]).expect("a startpoint");
    let startpoint = client.startpoint(&expired, PATIENCE).expect("a link, as far as can be known here");
    let refused = startpoint.call(ECHO, &[1], PATIENCE).expect_err("it has expired");
    assert!(matches!(refused, Error::Startpoint(_)), "{refused:?}");
    let revoked = server.capability();
    let startpoint = client.startpoint(&revoked, PATIENCE).expect("a link");
    startpoint.call(ECHO, &[1], PATIENCE).expect("not yet revoked");
    server.endpoint.revoke(&revoked).expect("it is this endpoint's");
    let refused = startpoint.call(ECHO, &[1], PATIENCE).expect_err("revoked");
    assert!(refused.to_string().contains("revoked"), "{refused}");
}

#[test]
fn a_message_that_is_too_long_is_refused_with_its_reason_and_all_else_goes_on() {
    over_both(|over| {
        let server = server(over);
        let little = server.domain.endpoint(Attributes::default().message_max(1000), handlers(&server.count));
        let little = little.expect("an endpoint");
        let mut client = config(of_job());
        client.progress = Progress::Manual;
        let client = Domain::open(client).expect("a domain");
        let other = client.startpoint(&server.capability(), PATIENCE).expect("a link");
        let startpoint = client.startpoint(&little.startpoint([]).expect("a startpoint"), PATIENCE).expect("a link");
        // Before the client has heard what the endpoint takes, and since.
        for len in [1001, 300_000] {
            let refused = startpoint.call(ECHO, &vec![1; len], PATIENCE).expect_err("too long").to_string();
            assert!(refused.contains(&format!("has {len} bytes")) && refused.contains("1000 at most"), "{refused}");
            let refusals = server.domain.refusals().expect("no handler");
            assert_eq!((refusals.of(Refusal::TooLong), refusals.tampered), (1, 0));
        }
        assert!(matches!(startpoint.pack(ECHO, 1001).err(), Some(Error::Message(_))));
        assert!(matches!(startpoint.put(0, 0, &[1; 1001], PATIENCE), Err(Error::Message(_))));
        assert_eq!(startpoint.call(ECHO, &[1; 1000], PATIENCE).expect("short enough").len(), 1000);
        assert_eq!(other.call(ECHO, &[1; 1001], PATIENCE).expect("another endpoint").len(), 1001);
    });
}

#[test]
fn strangers_are_refused_at_both_ends_with_the_reason() {
    let server = server(listening(of_job()));
    let refused = |trust: Trust| {
        let stranger = Domain::open(config(trust)).expect("a domain");
        stranger.startpoint(&server.capability(), PATIENCE).err().expect("refused").to_string()
    };
    let other_secret = refused(Trust::default().job(job(2, 1)));
    assert!(other_secret.contains("does not accept"), "{other_secret}");
    let other_policy = refused(Trust::default().job(job(1, 2)));
    assert!(other_policy.contains("does not accept") || other_policy.contains("policy"), "{other_policy}");
    let nobody = refused(Trust::default());
    assert!(nobody.contains("neither pinned here nor certified"), "{nobody}");
    // An impostor at the owner's address: the startpoint names another key.
    let impostor = listening(of_job());
    let impostor = Domain::open(impostor).expect("a domain");
    let client = Domain::open(config(of_job())).expect("a domain");
    let mut bytes = server.capability().encode().to_vec();
    bytes[1..33].copy_from_slice(&impostor.key_hash().0);
    let forged = Capability::decode(&bytes).expect("a startpoint");
    let refused = client.startpoint(&forged, PATIENCE).err().expect("refused").to_string();
    assert!(refused.contains("another process listens there"), "{refused}");
}

#[test]
fn pinned_keys_know_each_other_by_name() {
    let (here, there) = (Identity::generate().expect("a key"), Identity::generate().expect("a key"));
    let (here_key, there_key) = (here.key_hash(), there.key_hash());
    let local = "127.0.0.1:0".parse().expect("an address");
    let server = server(Config::new(here, Trust::default().pinned(there_key, "alice", &["worker"])).listen(local));
    let client = Config::new(there, Trust::default().pinned(here_key, "bob", &[]));
    let client = Domain::open(client).expect("a domain");
    let startpoint = client.startpoint(&server.capability(), PATIENCE).expect("a link");
    assert_eq!(startpoint.call(WHO, &[], PATIENCE).expect("an answer"), b"alice");
}

#[test]
fn a_copy_is_its_holders_alone_and_the_holder_copies_further() {
    let server = server(listening(of_job()));
    let [alice, bob, mallory] = [(); 3].map(|()| Domain::open(config(of_job())).expect("a domain"));
    let root = server.capability();
    let of_alice = server.domain.copy_for(&root, alice.key_hash()).expect("a copy");
    let of_bob = alice.copy_for(&of_alice, bob.key_hash()).expect("its holder may");
    for (domain, copy) in [(&alice, &of_alice), (&bob, &of_bob)] {
        let startpoint = domain.startpoint(copy, PATIENCE).expect("a link");
        assert_eq!(startpoint.call(ECHO, b"mine", PATIENCE).expect("an answer"), b"mine");
        let stolen = mallory.startpoint(copy, PATIENCE).err().expect("not its holder").to_string();
        assert!(stolen.contains("bound to another"), "{stolen}");
        let stolen = mallory.copy_for(copy, mallory.key_hash()).expect_err("not its holder").to_string();
        assert!(stolen.contains("bound to another"), "{stolen}");
    }
    let links = [(&alice, &of_alice), (&bob, &of_bob)].map(|(domain, copy)| domain.startpoint(copy, PATIENCE));
    let [of_alice_open, of_bob_open] = links.map(|link| link.expect("a link"));
    server.endpoint.revoke(&of_bob).expect("a copy of its startpoint");
    of_alice_open.call(ECHO, &[], PATIENCE).expect("what bob's came from goes on");
    let refused = of_bob_open.call(ECHO, &[], PATIENCE).expect_err("revoked").to_string();
    assert!(refused.contains("revoked"), "{refused}");
}

#[test]
fn what_is_under_way_is_waited_for_again_awaited_and_kept_apart_from_its_startpoint() {
    let server = server(listening(of_job()));
    let client = Domain::open(config(of_job())).expect("a domain");
    let startpoint = Arc::new(client.startpoint(&server.capability(), PATIENCE).expect("a link"));
    let mut pending = startpoint.start_owned(SLOW, &[7]).expect("it goes");
    let mut answers = startpoint.stream_owned(STREAM, &[3]).expect("it goes");
    drop(startpoint);
    let mut answer = Vec::new();
    let late = pending.wait_into(&mut answer, Duration::from_millis(5));
    assert!(matches!(late, Err(Error::TimedOut(_))), "{late:?}");
    pending.wait_into(&mut answer, PATIENCE).expect("it comes all the same");
    assert_eq!(answer, [7]);
    let again = pending.wait_into(&mut answer, PATIENCE).expect_err("it was taken").to_string();
    assert!(again.contains("taken before"), "{again}");
    let parked = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&parked);
    let mut came = Vec::new();
    loop {
        match answers.poll_next(&mut context) {
            std::task::Poll::Pending => std::thread::park(),
            std::task::Poll::Ready(Some(answer)) => came.extend(answer.expect("an answer")),
            std::task::Poll::Ready(None) => break,
        }
    }
    assert_eq!(came, [0, 1, 2]);
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn who_posts_goes_on_and_learns_when_there_was_room() {
    let server = server(listening(of_job()));
    let client = Domain::open(config(of_job())).expect("a domain");
    let startpoint = client.startpoint(&server.capability(), PATIENCE).expect("a link");
    // More than a link's window takes, while no thread of the pool is free to handle any.
    let block = vec![5; 300_000];
    for _ in 0..8 {
        startpoint.post(SLOW, &block).expect("it goes");
    }
    assert!(!startpoint.flush(Duration::from_millis(20)).expect("the link is there"), "no room yet");
    assert!(startpoint.flush(PATIENCE).expect("the link is there"), "room in the end");
}

#[test]
fn a_peer_that_is_gone_is_named() {
    let gone = server(listening(of_job()));
    let client = Domain::open(config(of_job())).expect("a domain");
    let startpoint = client.startpoint(&gone.capability(), PATIENCE).expect("a link");
    startpoint.call(ECHO, &[1], PATIENCE).expect("an answer");
    let pending = startpoint.start(SLOW, &[1]).expect("it goes");
    drop(gone.endpoint);
    drop(gone.domain);
    let lost = pending.wait(PATIENCE).expect_err("nobody answers");
    assert!(matches!(&lost, Error::Lost(why) if why.contains("a process of the job")), "{lost:?}");
    let lost = startpoint.call(ECHO, &[1], PATIENCE).expect_err("nobody is there");
    assert!(matches!(lost, Error::Lost(_)), "{lost:?}");
}

#[test]
fn the_program_itself_moves_bytes_if_it_wants_to() {
    let manual = |mut config: Config| {
        config.progress = Progress::Manual;
        config
    };
    let (tell, hear) = mpsc::channel();
    let (stop, stopped) = mpsc::channel::<()>();
    let serving = std::thread::spawn(move || {
        let server = server(manual(listening(of_job())));
        tell.send(server.capability()).expect("the test is there");
        while stopped.try_recv().is_err() {
            server.domain.progress(Duration::from_millis(10)).expect("not in a handler");
        }
    });
    let client = Domain::open(manual(config(of_job()))).expect("a domain");
    let startpoint = client.startpoint(&hear.recv().expect("a startpoint"), PATIENCE).expect("a link");
    let mut answer = Vec::new();
    for at in 0..1000_u32 {
        startpoint.call_into(ECHO, &at.to_le_bytes(), &mut answer, PATIENCE).expect("an answer");
        assert_eq!(answer, at.to_le_bytes());
    }
    stop.send(()).expect("the server is there");
    serving.join().expect("the server ends");
}

#[test]
fn a_stream_waits_for_its_reader_and_others_on_the_link_do_not() {
    const ENDLESS: u32 = 0;
    const ECHO: u32 = 1;
    const ITEM: usize = 10_000;
    over_both(|config| {
        let server = Domain::open(config).expect("a domain");
        let (sent, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (count, over) = (sent.clone(), ended.clone());
        let handlers = Handlers::new()
            .threaded(ENDLESS, move |mut request| {
                let mut item = vec![0; ITEM];
                while request.item(&item).is_ok() {
                    item[..8].copy_from_slice(&(count.fetch_add(1, Ordering::Relaxed) + 1).to_le_bytes());
                }
                assert!(request.is_cancelled());
                over.fetch_add(1, Ordering::Relaxed);
            })
            .inline(ECHO, |call| call.answer(call.payload));
        let endpoint = server.endpoint(Attributes::default(), handlers).expect("an endpoint");
        let client = Domain::open(self::config(of_job())).expect("a domain");
        let startpoint = client.startpoint(&endpoint.startpoint([]).expect("a startpoint"), PATIENCE).expect("bound");
        let mut streams: Vec<_> = (0..3).map(|_| startpoint.stream(ENDLESS, b"").expect("a stream")).collect();
        // What nobody reads comes to a halt; the link does not.
        let mut before = u64::MAX;
        while sent.load(Ordering::Relaxed) != before || before == 0 {
            before = sent.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(startpoint.call(ECHO, b"goes on", PATIENCE).expect("an answer"), b"goes on");
        }
        assert!(before <= 3 * (1 + (256 << 10) / ITEM as u64), "{before} items for nobody");
        // Whoever reads gets on, as far as he likes.
        let mut first = streams.remove(0);
        for _ in 0..500 {
            assert_eq!(first.next(PATIENCE).expect("an item").expect("it is endless").len(), ITEM);
        }
        drop((first, streams));
        let deadline = Instant::now() + PATIENCE;
        while ended.load(Ordering::Relaxed) < 3 {
            assert!(Instant::now() < deadline, "handlers of cancelled requests go on");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn many_peers_are_heard_whoever_of_them_speaks() {
    const PEERS: usize = 24;
    over_both(|config| {
        let server = server(config);
        let capability = server.endpoint.startpoint([]).expect("a startpoint");
        let domains: Vec<_> = (0..PEERS).map(|_| Domain::open(self::config(of_job())).expect("a domain")).collect();
        let bound = |domain: &Domain| domain.startpoint(&capability, PATIENCE).expect("it can be bound");
        let startpoints: Vec<_> = domains.iter().map(bound).collect();
        // One at a time, while the others say nothing, ...
        for round in 0..10 {
            let startpoint = &startpoints[round * 7 % PEERS];
            assert_eq!(startpoint.call(ECHO, b"one", PATIENCE).expect("an answer"), b"one");
            std::thread::sleep(Duration::from_millis(5));
        }
        // ... all at once, ...
        std::thread::scope(|scope| {
            for startpoint in &startpoints {
                scope.spawn(move || {
                    for len in [1, 100, 100_000] {
                        let sent = vec![7; len];
                        assert_eq!(startpoint.call(ECHO, &sent, PATIENCE).expect("an answer"), sent);
                    }
                });
            }
        });
        // ... and after some have left.
        let mut startpoints = startpoints;
        startpoints.truncate(PEERS / 2);
        let mut domains = domains;
        domains.truncate(PEERS / 2);
        for startpoint in &startpoints {
            assert_eq!(startpoint.call(ECHO, b"still", PATIENCE).expect("an answer"), b"still");
        }
    });
}

#[test]
fn a_handler_that_is_not_threaded_may_answer_what_was_put_aside_and_drop_what_it_likes() {
    const PUT_ASIDE: u32 = 0;
    const ANSWER: u32 = 1;
    const DROP: u32 = 2;
    over_both(|config| {
        let server = Domain::open(config).expect("a domain");
        let aside = Arc::new(Mutex::new(Vec::new()));
        let spare = server.endpoint(Attributes::default(), Handlers::new()).expect("an endpoint");
        let (kept, answered, spare) = (aside.clone(), aside.clone(), Mutex::new(Some(spare)));
        let handlers = Handlers::new()
            .threaded(PUT_ASIDE, move |request| kept.lock().unwrap().push(request))
            .inline(ANSWER, move |call| {
                answered.lock().unwrap().drain(..).for_each(|request: Request| request.answer(b"at last"));
                call.answer(b"");
            })
            .inline(DROP, move |call| {
                aside.lock().unwrap().clear();
                drop(spare.lock().unwrap().take());
                call.answer(b"");
            });
        let endpoint = server.endpoint(Attributes::default(), handlers).expect("an endpoint");
        let client = Domain::open(self::config(of_job())).expect("a domain");
        let startpoint = client.startpoint(&endpoint.startpoint([]).expect("a startpoint"), PATIENCE).expect("bound");
        // Again and again, until the thread has put the request aside.
        let after = |handler| {
            let mut aside = startpoint.start(PUT_ASIDE, b"").expect("a request");
            let mut answer = Vec::new();
            loop {
                startpoint.call(handler, b"", PATIENCE).expect("an answer");
                match aside.wait_into(&mut answer, Duration::from_millis(5)) {
                    Err(Error::TimedOut(_)) => {}
                    outcome => return outcome.map(|()| answer),
                }
            }
        };
        assert_eq!(after(ANSWER).expect("an answer"), b"at last");
        let why = after(DROP).expect_err("nobody answered").to_string();
        assert!(why.contains("gave no answer"), "{why}");
    });
}

#[test]
fn a_handler_that_is_not_threaded_cannot_wait_for_its_own_domain() {
    let domain = Arc::new(Domain::open(listening(of_job())).expect("a domain"));
    let own = domain.clone();
    let handlers = Handlers::new().inline(0, move |call| match own.progress(PATIENCE) {
        Err(cause) => call.refuse(&cause.to_string()),
        Ok(_) => call.answer(b"it went on"),
    });
    let endpoint = domain.endpoint(Attributes::default(), handlers).expect("an endpoint");
    let client = Domain::open(config(of_job())).expect("a domain");
    let startpoint = client.startpoint(&endpoint.startpoint([]).expect("a startpoint"), PATIENCE).expect("a link");
    let refused = startpoint.call(0, &[], PATIENCE).expect_err("it may only answer").to_string();
    assert!(refused.contains("`threaded`"), "{refused}");
}

/// Sits between two domains, and passes on, cuts or alters what goes through.
struct Relay {
    address: std::net::SocketAddr,
    cut: Arc<AtomicU64>,
    alter: Arc<AtomicU64>,
    /// Not zero: whoever connects is sent away.
    shut: Arc<AtomicU64>,
    /// Connections below this number lead nowhere, without a word to anybody.
    mute: Arc<AtomicU64>,
    target: Arc<Mutex<std::net::SocketAddr>>,
}

impl Relay {
    fn before(server: std::net::SocketAddr) -> Self {
        let target = Arc::new(Mutex::new(server));
        let server = target.clone();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let [cut, alter, shut, mute] = [(); 4].map(|()| Arc::new(AtomicU64::new(0)));
        let (cutting, altering, shutting, muting) = (cut.clone(), alter.clone(), shut.clone(), mute.clone());
        std::thread::spawn(move || {
            for (connection, client) in listener.incoming().enumerate() {
                if shutting.load(Ordering::Relaxed) != 0 {
                    continue;
                }
                let server = *server.lock().expect("no panic");
                let (Ok(client), Ok(server)) = (client, std::net::TcpStream::connect(server)) else { return };
                let number = cutting.load(Ordering::Relaxed);
                for (mut from, mut to) in [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))]
                    .map(|(one, other)| (one.expect("a copy"), other.expect("a copy")))
                {
                    let (cut, alter, mute) = (cutting.clone(), altering.clone(), muting.clone());
                    from.set_read_timeout(Some(Duration::from_millis(5))).expect("a time-out");
                    std::thread::spawn(move || {
                        let mut buffer = [0; 10_000];
                        while cut.load(Ordering::Relaxed) == number {
                            match std::io::Read::read(&mut from, &mut buffer) {
                                Ok(0) => break,
                                Ok(_) if mute.load(Ordering::Relaxed) > connection as u64 => {}
                                Ok(count) => {
                                    if alter.swap(0, Ordering::Relaxed) > 0 {
                                        buffer[count / 2] ^= 1;
                                    }
                                    if std::io::Write::write_all(&mut to, &buffer[..count]).is_err() {
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
        Relay { address, target, cut, alter, shut, mute }
    }

    /// The same startpoint, with the relay's address in place of the endpoint's, and no other.
    fn redirect(&self, capability: &Capability) -> Capability {
        with_addresses(capability, &[(1, self.address.to_string())])
    }
}

/// The same startpoint with other addresses: kind and text.
fn with_addresses(capability: &Capability, addresses: &[(u8, String)]) -> Capability {
    let mut bytes = capability.encode().to_vec();
    let listed = |address: &gambeson_proto::startpoint::Address| 2 + address.text.len();
    let old: usize = capability.addresses().iter().map(listed).sum();
    let first = capability.addresses()[0].text.clone().into_bytes();
    let at = bytes.windows(first.len()).position(|window| window == first).expect("it is in there") - 2;
    let new: Vec<u8> =
        addresses.iter().flat_map(|(kind, text)| [&[*kind, text.len() as u8], text.as_bytes()].concat()).collect();
    bytes[at - 1] = addresses.len() as u8;
    bytes.splice(at..at + old, new);
    Capability::decode(&bytes).expect("addresses are hints")
}

#[test]
fn a_session_survives_its_connections_and_what_is_done_to_them() {
    let server = server(listening(of_job()));
    let relay = Relay::before(server.domain.listening()[0]);
    let client = Domain::open(config(of_job())).expect("a domain");
    let startpoint = client.startpoint(&relay.redirect(&server.capability()), PATIENCE).expect("a link");
    let mut sent = 0;
    for round in 0..60_u64 {
        match round % 20 {
            7 => drop(relay.cut.fetch_add(1, Ordering::Relaxed)),
            14 => relay.alter.store(1, Ordering::Relaxed),
            _ => {}
        }
        for len in [1, 1000, 70_000] {
            startpoint.send(COUNT, &vec![1; len]).expect("it goes");
            sent += len as u64;
        }
        let block: Vec<u8> = (0..30_000).map(|at| (at as u64 * round % 251) as u8).collect();
        assert_eq!(startpoint.call(ECHO, &block, PATIENCE).expect("an answer"), block, "round {round}");
        assert_eq!(server.count.load(Ordering::Relaxed), sent, "nothing is lost and nothing comes twice");
    }
}

/// RFC 7468.
fn pem(label: &str, bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = bytes.chunks(3).flat_map(|three| {
        let bits = three.iter().enumerate().fold(0_u32, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
        let digit = move |at: usize| DIGITS[(bits >> (18 - 6 * at)) as usize % 64] as char;
        (0..4).map(move |at| if at > three.len() { '=' } else { digit(at) })
    });
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", digits.collect::<String>())
}

/// A key that a process keeps when it is started again.
fn kept_key() -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::default().self_signed(&key).expect("a certificate");
    (pem("CERTIFICATE", certificate.der()), pem("PRIVATE KEY", &key.serialize_der()))
}

/// A server over TCP with this key.
fn kept(key: &(String, String)) -> Server {
    let identity = Identity::from_pem(key.0.as_bytes(), key.1.as_bytes()).expect("an identity");
    let mut config = Config::new(identity, of_job()).listen("127.0.0.1:0".parse().expect("an address"));
    config.shm = false;
    let domain = Domain::open(config).expect("a domain");
    let count = Arc::new(AtomicU64::new(0));
    let handlers = handlers(&count).threaded(HOLD, std::mem::forget);
    let endpoint = domain.endpoint(Attributes::default(), handlers).expect("an endpoint");
    Server { domain, endpoint, count }
}

#[test]
fn a_server_that_was_started_anew_says_so_and_nobody_else_is_believed() {
    let (key, another) = (kept_key(), kept_key());
    let (before, after, impostor) = (kept(&key), kept(&key), kept(&another));
    let relay = Relay::before(before.domain.listening()[0]);
    let lead = |to: &Server| {
        *relay.target.lock().expect("no panic") = to.domain.listening()[0];
        relay.cut.fetch_add(1, Ordering::Relaxed);
    };
    let client = Domain::open(config(of_job())).expect("a domain");
    let startpoint = client.startpoint(&relay.redirect(&before.capability()), PATIENCE).expect("a link");
    let pending = startpoint.start(HOLD, &[1]).expect("it goes");
    startpoint.call(ECHO, &[1], PATIENCE).expect("an answer");
    // Another one of the job, who does not have the session, but not its peer's key either.
    lead(&impostor);
    while impostor.domain.refusals().expect("no handler").connections < 4 {
        std::thread::sleep(Duration::from_millis(1));
    }
    lead(&before);
    startpoint.call(ECHO, &[1], PATIENCE).expect("the session goes on");
    lead(&after);
    let lost = pending.wait(PATIENCE).expect_err("who had the request is gone").to_string();
    assert!(lost.contains("has this session no more") && lost.contains("may have been carried out, or not"), "{lost}");
    let lost = startpoint.call(ECHO, &[1], PATIENCE).expect_err("the session is over").to_string();
    assert!(lost.contains("ask for its startpoints again"), "{lost}");
    let anew = client.startpoint(&relay.redirect(&after.capability()), PATIENCE).expect("a link");
    assert_eq!(anew.call(ECHO, &[1], PATIENCE).expect("an answer"), [1]);
}

#[test]
fn a_session_does_not_go_on_with_itself() {
    let server = server(listening(of_job()));
    let relay = Relay::before(server.domain.listening()[0]);
    let mut config = listening(of_job());
    (config.patience, config.shm) = (Duration::from_millis(300), false);
    let client = Domain::open(config).expect("a domain");
    let startpoint = client.startpoint(&relay.redirect(&server.capability()), PATIENCE).expect("a link");
    startpoint.call(ECHO, &[1], PATIENCE).expect("an answer");
    // Who is on the way leads it back to itself, where there is a session of that name, with that secret.
    *relay.target.lock().expect("no panic") = client.listening()[0];
    relay.cut.fetch_add(1, Ordering::Relaxed);
    let lost = (0..100_000).find_map(|_| startpoint.call(ECHO, &[1], PATIENCE).err()).expect("nothing gets through");
    assert!(matches!(&lost, Error::Lost(why) if why.contains("no other way within 300ms")), "{lost:?}");
}

#[test]
fn a_session_whose_connection_does_not_come_back_is_over() {
    let server = server(listening(of_job()));
    let relay = Relay::before(server.domain.listening()[0]);
    let mut config = config(of_job());
    config.patience = Duration::from_millis(300);
    let client = Domain::open(config).expect("a domain");
    let startpoint = client.startpoint(&relay.redirect(&server.capability()), PATIENCE).expect("a link");
    startpoint.call(ECHO, &[1], PATIENCE).expect("an answer");
    relay.shut.store(1, Ordering::Relaxed);
    relay.cut.fetch_add(1, Ordering::Relaxed);
    // The relay notices within some milliseconds that it is to cut.
    let lost = (0..100_000).find_map(|_| startpoint.call(ECHO, &[1], PATIENCE).err()).expect("nothing gets through");
    assert!(matches!(&lost, Error::Lost(why) if why.contains("no other way within 300ms")), "{lost:?}");
}

#[test]
fn strangers_who_say_nothing_or_nonsense_keep_nobody_out() {
    let mut over_tcp = listening(of_job());
    over_tcp.shm = false;
    let server = server(over_tcp);
    let address = server.domain.listening()[0];
    let silent: Vec<_> = (0..300).map(|_| std::net::TcpStream::connect(address).expect("a connection")).collect();
    for at in 0..300_u32 {
        let mut stranger = std::net::TcpStream::connect(address).expect("a connection");
        let nonsense: Vec<u8> = (0..at).map(|byte| (byte * at + 22) as u8).collect();
        let _ = std::io::Write::write_all(&mut stranger, &nonsense);
    }
    let client = Domain::open(config(of_job())).expect("a domain");
    let startpoint = client.startpoint(&server.capability(), PATIENCE).expect("a link");
    startpoint.call(ECHO, &[1], PATIENCE).expect("an answer");
    drop(silent);
}

#[test]
fn a_connection_that_leads_nowhere_without_a_word_is_given_up() {
    let server = server(listening(of_job()));
    let relay = Relay::before(server.domain.listening()[0]);
    let mut config = config(of_job());
    config.silence = Duration::from_millis(300);
    let client = Domain::open(config).expect("a domain");
    let startpoint = client.startpoint(&relay.redirect(&server.capability()), PATIENCE).expect("a link");
    for connection in 1..4 {
        startpoint.call(ECHO, &[1], PATIENCE).expect("an answer");
        relay.mute.store(connection, Ordering::Relaxed);
        startpoint.send(COUNT, &[1]).expect("it goes, as far as can be known");
        assert_eq!(startpoint.call(ECHO, &[2], PATIENCE).expect("an answer, by another way"), [2]);
        assert_eq!(server.count.load(Ordering::Relaxed), connection);
    }
}

/// What a link goes over, once it goes over something.
fn transport(startpoint: &Startpoint) -> Transport {
    let known = || startpoint.carrier().expect("the link is there").map(|carrier| carrier.transport());
    std::iter::repeat_with(known).flatten().next().expect("it goes on asking")
}

/// Waits until a link goes over a transport, and uses it meanwhile.
fn comes_to(startpoint: &Startpoint, wished: Transport) {
    let began = std::time::Instant::now();
    while transport(startpoint) != wished {
        startpoint.call(ECHO, b"meanwhile", PATIENCE).expect("an answer");
        assert!(began.elapsed() < 2 * PATIENCE, "it stays with {}", transport(startpoint));
    }
    startpoint.call(ECHO, b"there", PATIENCE).expect("an answer");
}

#[test]
fn a_link_changes_its_transport_while_it_is_used() {
    for progress in [Progress::Auto, Progress::Manual] {
        let server = server(listening(of_job()));
        let mut config = config(of_job());
        config.progress = progress;
        let client = Domain::open(config).expect("a domain");
        let startpoint = client.startpoint(&server.capability(), PATIENCE).expect("a link");
        assert_eq!(transport(&startpoint), Transport::Shm);
        let stop = AtomicU64::new(0);
        let sent = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let mut sent = 0;
                while stop.load(Ordering::Relaxed) == 0 {
                    for len in [1, 1000, 70_000] {
                        startpoint.send(COUNT, &vec![1; len]).expect("it goes");
                        sent += len as u64;
                    }
                }
                sent
            });
            for round in 0..20_u32 {
                let wish = [Some(Transport::Tcp), Some(Transport::Shm), Some(Transport::Tcp), None][round as usize % 4];
                startpoint.prefer(wish, PATIENCE).expect("both are there");
                assert_eq!(transport(&startpoint), wish.unwrap_or(Transport::Shm), "round {round}");
                let block = vec![round as u8; 300_000];
                assert_eq!(startpoint.call(ECHO, &block, PATIENCE).expect("an answer"), block, "round {round}");
            }
            stop.store(1, Ordering::Relaxed);
            sending.join().expect("it sends")
        });
        startpoint.call(ECHO, &[], PATIENCE).expect("what came before it has arrived");
        assert_eq!(server.count.load(Ordering::Relaxed), sent, "nothing is lost and nothing comes twice");
    }
}

#[test]
fn links_that_wish_for_different_transports_go_different_ways() {
    let server = server(listening(of_job()));
    let client = Domain::open(config(of_job())).expect("a domain");
    let by_rule = client.startpoint(&server.capability(), PATIENCE).expect("a link");
    let over = |wish| client.startpoint_over(wish, &server.capability(), PATIENCE).expect("a link");
    let [tcp, shm] = [Transport::Tcp, Transport::Shm].map(over);
    for (startpoint, expected) in [(&by_rule, Transport::Shm), (&tcp, Transport::Tcp), (&shm, Transport::Shm)] {
        assert_eq!(transport(startpoint), expected);
        startpoint.call(ECHO, &[1], PATIENCE).expect("an answer");
    }
    // One that changes its wish takes along who shares its session, and nobody else.
    let also = client.startpoint(&server.capability(), PATIENCE).expect("a link");
    by_rule.prefer(Some(Transport::Tcp), PATIENCE).expect("it is there");
    let all = [&by_rule, &also, &tcp, &shm].map(transport);
    assert_eq!(all, [Transport::Tcp, Transport::Tcp, Transport::Tcp, Transport::Shm]);
    let new = client.startpoint(&server.capability(), PATIENCE).expect("a link");
    assert_eq!(transport(&new), Transport::Shm, "by the rule, whatever others wish");
}

#[test]
fn what_leads_nowhere_cannot_be_wished_for() {
    let mut only_tcp = listening(of_job());
    only_tcp.shm = false;
    let server = server(only_tcp);
    let client = Domain::open(config(of_job())).expect("a domain");
    let refused = client.startpoint_over(Transport::Shm, &server.capability(), PATIENCE).err().expect("no way");
    assert!(refused.to_string().contains("not to be reached over shared memory"), "{refused}");
    let startpoint = client.startpoint(&server.capability(), PATIENCE).expect("a link");
    let refused = startpoint.prefer(Some(Transport::Shm), PATIENCE).expect_err("no way");
    assert!(refused.to_string().contains("not to be reached over shared memory"), "{refused}");
    assert_eq!(startpoint.call(ECHO, b"still there", PATIENCE).expect("an answer"), b"still there");
    // It says that it listens in shared memory, and nobody does.
    let host = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the kernel tells");
    let there = format!("{}/nobody-{}", host.trim(), std::process::id());
    let tcp = server.domain.listening()[0].to_string();
    let misled = with_addresses(&server.capability(), &[(2, there), (1, tcp)]);
    let other = Domain::open(config(of_job())).expect("a domain");
    let startpoint = other.startpoint(&misled, PATIENCE).expect("a link over TCP");
    let refused = startpoint.prefer(Some(Transport::Shm), PATIENCE).expect_err("nobody is there");
    assert!(refused.to_string().contains("the link stays where it is"), "{refused}");
    assert_eq!(startpoint.call(ECHO, b"still there", PATIENCE).expect("an answer"), b"still there");
    // Who was connected to does not choose.
    let back = endpoint_at(&other);
    let back = server.domain.startpoint(&back.startpoint([]).expect("a startpoint"), PATIENCE).expect("a link");
    assert_eq!(back.call(ECHO, b"back", PATIENCE).expect("an answer"), b"back");
    let refused = back.prefer(Some(Transport::Tcp), PATIENCE).expect_err("the other end chooses");
    assert!(refused.to_string().contains("the transport is chosen there"), "{refused}");
}

fn endpoint_at(domain: &Domain) -> Endpoint {
    domain.endpoint(Attributes::default(), handlers(&Arc::default())).expect("an endpoint")
}

#[test]
fn a_session_moves_to_shared_memory_as_soon_as_that_is_there() {
    let server = server(listening(of_job()));
    let capability = server.capability();
    let (_, name) = capability.addresses()[0].text.split_once('/').expect("a host and a name");
    let folder = format!("/dev/shm/gambeson-{}", rustix::process::geteuid().as_raw());
    let (socket, hidden) = (format!("{folder}/{name}"), format!("{folder}/{name}-hidden"));
    std::fs::rename(&socket, &hidden).expect("it listens there");
    let client = Domain::open(config(of_job())).expect("a domain");
    let startpoint = client.startpoint(&capability, PATIENCE).expect("a link");
    assert_eq!(transport(&startpoint), Transport::Tcp);
    std::fs::rename(&hidden, &socket).expect("it is there");
    comes_to(&startpoint, Transport::Shm);
}

#[test]
fn a_lost_connection_is_replaced_by_another_transport_and_taken_up_again_if_that_is_wished_for() {
    let server = server(listening(of_job()));
    let relay = Relay::before(server.domain.listening()[0]);
    let both = [(1, relay.address.to_string()), (2, server.capability().addresses()[0].text.clone())];
    let capability = with_addresses(&server.capability(), &both);
    let client = Domain::open(config(of_job())).expect("a domain");
    let startpoint = client.startpoint_over(Transport::Tcp, &capability, PATIENCE).expect("a link");
    startpoint.call(ECHO, &[1], PATIENCE).expect("an answer");
    assert_eq!(transport(&startpoint), Transport::Tcp);
    relay.shut.store(1, Ordering::Relaxed);
    relay.cut.fetch_add(1, Ordering::Relaxed);
    comes_to(&startpoint, Transport::Shm);
    relay.shut.store(0, Ordering::Relaxed);
    comes_to(&startpoint, Transport::Tcp);
}
