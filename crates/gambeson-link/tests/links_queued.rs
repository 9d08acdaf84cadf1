//! Requests that are put by and taken later, domains that begin and cease to be accepted, and code that a domain has signed.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use gambeson_link::{Attributes, Config, Domain, Error, Handlers, Identity, KeyHash, Request, Trust};
use gambeson_proto::staging::Staged;

const PATIENCE: Duration = Duration::from_secs(10);
/// Of a link, in each direction.
const WINDOW: usize = 2 << 20;

fn domain(trust: Trust, shm: bool) -> (Domain, KeyHash) {
    let identity = Identity::generate().expect("a key");
    let key = identity.key_hash();
    let mut config = Config::new(identity, trust).listen("127.0.0.1:0".parse().expect("an address"));
    config.shm = shm;
    (Domain::open(config).expect("a domain"), key)
}

fn queue() -> (Handlers, Receiver<Request>) {
    let (put, taken) = channel();
    let handlers = Handlers::new().queued(0, move |request| put.send(request).expect("somebody takes it"));
    (handlers.inline(1, |call| call.answer(call.payload)), taken)
}

#[test]
fn who_does_not_take_what_was_put_by_holds_the_sender_up() {
    for shm in [true, false] {
        let (server, server_key) = domain(Trust::default(), shm);
        let (client, client_key) = domain(Trust::default().pinned(server_key, "the server", &[]), shm);
        server.pin(client_key, "the client", &[]);
        let (handlers, taken) = queue();
        let endpoint = server.endpoint(Attributes::default(), handlers).expect("an endpoint");
        let startpoint = client.startpoint(&endpoint.startpoint([]).expect("a startpoint"), PATIENCE).expect("a link");
        let block = vec![7; 50_000];
        for _ in 0..100 {
            startpoint.post(0, &block).expect("it is kept");
        }
        assert!(!startpoint.flush(Duration::from_millis(300)).expect("the link is there"), "nothing held it up");
        let mut held: Vec<Request> = taken.try_iter().collect();
        assert!(held.len() * block.len() <= WINDOW && held.len() * block.len() > WINDOW / 2, "{} came", held.len());
        // Taken, they make room for others.
        let until = Instant::now() + PATIENCE;
        let mut count = 0;
        while count < 100 && Instant::now() < until {
            count += held.len();
            assert!(held.iter().all(|request| request.payload == block && request.peer.name == "the client"));
            held = taken.recv_timeout(Duration::from_millis(100)).into_iter().collect();
        }
        assert_eq!(count, 100);
        assert!(startpoint.flush(PATIENCE).expect("the link is there"));
        // One that wants an answer gets it from whoever took it.
        let pending = startpoint.start(0, b"question").expect("the link is there");
        taken.recv_timeout(PATIENCE).expect("it came").answer(b"answer");
        assert_eq!(pending.wait(PATIENCE).expect("it was answered"), b"answer");
        let dropped = startpoint.start(0, b"question").expect("the link is there");
        drop(taken.recv_timeout(PATIENCE).expect("it came"));
        let refused = dropped.wait(PATIENCE).expect_err("nobody answered").to_string();
        assert!(refused.contains("the handler gave no answer"), "{refused}");
    }
}

#[test]
fn a_key_is_accepted_from_when_it_is_pinned_until_it_is_not() {
    let (server, server_key) = domain(Trust::default(), true);
    let (handlers, _taken) = queue();
    let endpoint = server.endpoint(Attributes::default(), handlers).expect("an endpoint");
    let capability = endpoint.startpoint([]).expect("a startpoint");
    let (client, client_key) = domain(Trust::default().pinned(server_key, "the server", &[]), true);
    let (other, other_key) = domain(Trust::default().pinned(server_key, "the server", &[]), true);
    assert!(client.startpoint(&capability, PATIENCE).is_err(), "nobody had pinned it");
    assert!(!server.unpin(&client_key).expect("it may be asked"));
    server.pin(client_key, "the client", &["worker"]);
    server.pin(other_key, "another", &[]);
    let startpoint = Arc::new(client.startpoint(&capability, PATIENCE).expect("a link"));
    let beside = other.startpoint(&capability, PATIENCE).expect("a link");
    assert_eq!(startpoint.call(1, b"there", PATIENCE).expect("an answer"), b"there");
    let pending = startpoint.start_owned(0, b"never answered").expect("it is sent");
    assert!(server.unpin(&client_key).expect("it may be asked"));
    let over = pending.wait(PATIENCE).expect_err("its session has ended");
    assert!(matches!(over, Error::Lost(_)), "{over}");
    assert!(startpoint.call(1, b"there", PATIENCE).is_err());
    assert!(client.startpoint(&capability, Duration::from_secs(2)).is_err(), "it is accepted still");
    assert_eq!(beside.call(1, b"here", PATIENCE).expect("others stay"), b"here");
}

#[test]
fn code_that_a_domain_has_signed_is_known_by_its_key() {
    let (domain, key) = domain(Trust::default(), false);
    let staged = Staged { job: [1; 16], stage: "render", version: 1, hash: [2; 32] };
    let voucher = domain.sign(&staged).expect("it has an Ed25519 key");
    assert!(staged.is_signed(&key.0, &voucher));
    assert!(!Staged { hash: [3; 32], ..staged }.is_signed(&key.0, &voucher));
    assert!(!staged.is_signed(&[4; 32], &voucher));
}
