//! A domain that closes: what was handed over to it arrives, nobody comes in any more, and who still holds something of it
//! hears so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gambeson_link::{Attributes, Config, Domain, Endpoint, Error, Handlers, Identity, Progress, Trust};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const PATIENCE: Duration = Duration::from_secs(10);
const COUNT: u32 = 0;
const ECHO: u32 = 1;
const BLOCK: usize = 100_000;

fn config(shm: bool) -> Config {
    let job_secret = Secret32::from_bytes([1; 32]);
    let job = JobKeys { job_id: [1; 16], job_secret, policy_hash: [1; 32], suite: Suite::Aes256Gcm };
    let mut config = Config::new(Identity::generate().expect("a key"), Trust::default().job(job));
    config = config.listen("127.0.0.1:0".parse().expect("an address"));
    config.shm = shm;
    config
}

fn handlers(count: &Arc<AtomicU64>) -> Handlers {
    let [counted, echoed] = [(); 2].map(|()| count.clone());
    Handlers::new()
        .inline(COUNT, move |call| {
            counted.fetch_add(call.payload.len() as u64, Ordering::SeqCst);
        })
        .inline(ECHO, move |call| {
            echoed.fetch_add(call.payload.len() as u64, Ordering::SeqCst);
            call.answer(call.payload);
        })
}

fn server(shm: bool, count: &Arc<AtomicU64>) -> (Domain, Endpoint) {
    let domain = Domain::open(config(shm)).expect("a domain");
    let endpoint = domain.endpoint(Attributes::default(), handlers(count)).expect("an endpoint");
    (domain, endpoint)
}

#[test]
fn what_was_handed_over_before_arrives() {
    for (shm, progress) in
        [(true, Progress::Auto), (false, Progress::Auto), (true, Progress::Manual), (false, Progress::Manual)]
    {
        let count = Arc::new(AtomicU64::new(0));
        let (_server, endpoint) = server(shm, &count);
        let mut config = config(shm);
        config.progress = progress;
        let client = Domain::open(config).expect("a domain");
        let startpoint = client.startpoint(&endpoint.startpoint([]).expect("a startpoint"), PATIENCE).expect("a link");
        // More than a link's window, and answers that nobody takes.
        for _ in 0..20 {
            startpoint.post(COUNT, &[1; BLOCK]).expect("it is kept");
            std::mem::forget(startpoint.start(ECHO, &[1; BLOCK]).expect("it is kept"));
        }
        drop(client);
        let over = startpoint.call(ECHO, b"", PATIENCE).expect_err("the domain is closed").to_string();
        assert!(over.contains("this domain has closed"), "{over}");
        // The last of it may be in a handler yet.
        let came = || count.load(Ordering::SeqCst);
        let until = Instant::now() + PATIENCE;
        while came() < 40 * BLOCK as u64 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(came(), 40 * BLOCK as u64, "shm {shm}, {progress:?}");
    }
}

#[test]
fn a_peer_that_takes_nothing_is_not_waited_for_without_end() {
    for shm in [true, false] {
        let count = Arc::new(AtomicU64::new(0));
        let mut config = config(shm);
        config.progress = Progress::Manual;
        let server = Domain::open(config).expect("a domain");
        let endpoint = server.endpoint(Attributes::default(), handlers(&count)).expect("an endpoint");
        let capability = endpoint.startpoint([]).expect("a startpoint");
        let client = Domain::open(self::config(shm)).expect("a domain");
        // It comes in, and is then left alone.
        let startpoint = std::thread::scope(|scope| {
            let bound = scope.spawn(|| client.startpoint(&capability, PATIENCE).expect("a link"));
            while !bound.is_finished() {
                server.progress(Duration::from_millis(1)).expect("no handler");
            }
            bound.join().expect("no panic")
        });
        for _ in 0..40 {
            startpoint.post(COUNT, &[1; BLOCK]).expect("it is kept");
        }
        drop(client);
        assert!(count.load(Ordering::SeqCst) < 40 * BLOCK as u64);
    }
}

#[test]
fn a_domain_that_has_closed_listens_no_more_though_somebody_holds_its_endpoint() {
    let count = Arc::new(AtomicU64::new(0));
    for progress in [Progress::Auto, Progress::Manual] {
        let mut config = config(true);
        config.progress = progress;
        let server = Domain::open(config).expect("a domain");
        let address = server.listening()[0];
        let endpoint = server.endpoint(Attributes::default(), handlers(&count)).expect("an endpoint");
        let capability = endpoint.startpoint([]).expect("a startpoint");
        let region = endpoint.region(vec![1; 100]);
        drop(server);
        let client = Domain::open(self::config(true)).expect("a domain");
        let refused = client.startpoint(&capability, PATIENCE).err().expect("nobody listens there");
        assert!(!matches!(refused, Error::TimedOut(_)), "{refused}");
        std::net::TcpListener::bind(address).expect("the address is free");
        for said in [endpoint.startpoint([]).map(drop), endpoint.revoke(&capability)] {
            let said = said.expect_err("the domain is closed").to_string();
            assert!(said.contains("the domain is closed"), "{said}");
        }
        assert!(region.with(|bytes| bytes == [1; 100]).expect("the memory is the program's"));
    }
}
