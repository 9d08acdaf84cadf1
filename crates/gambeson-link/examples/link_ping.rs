//! How long a request and its answer take over links, beside the same bytes over a bare connection.
//!
//! `cargo run --release --example link_ping [RUNS] [rates] [shm] [tcp] [LIBFABRIC_PROVIDER[@NODE]]`: two threads with a
//! domain each, progress by the program; `rates` leaves out what takes long.

use std::io::IoSlice;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use gambeson_link::carrier::{Carrier, ofi, shm, tcp};
use gambeson_link::{
    Attributes, Capability, Config, Domain, Handlers, Identity, Policy, Progress, Protection, Startpoint, Transport,
    Trust,
};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const PATIENCE: Duration = Duration::from_secs(10);
const PROTECTIONS: [Protection; 3] = [Protection::None, Protection::Integrity, Protection::Privacy];

fn config() -> Config {
    let job_secret = Secret32::from_bytes([1; 32]);
    let job = JobKeys { job_id: [1; 16], job_secret, policy_hash: [1; 32], suite: Suite::Aes256Gcm };
    let mut config = Config::new(Identity::generate().expect("a key"), Trust::default().job(job));
    config.progress = Progress::Manual;
    config.policy = Policy::uniform(Protection::None);
    config
}

/// Sends or takes a whole buffer over a bare carrier, without ever sleeping.
fn write_whole(carrier: &mut dyn Carrier, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let sent = carrier.write(&[IoSlice::new(bytes)]).expect("it goes");
        bytes = &bytes[sent..];
    }
}

fn read_whole(carrier: &mut dyn Carrier, into: &mut [u8]) -> bool {
    let mut got = 0;
    while got < into.len() {
        match carrier.read(&mut into[got..]) {
            Ok(count) => got += count,
            Err(_) => return false,
        }
    }
    true
}

/// Two ends of a bare carrier.
fn pair(over: &Over) -> (Box<dyn Carrier>, Box<dyn Carrier>) {
    if let Some((provider, node)) = &over.fabric {
        return fabric_pair(provider, node.as_deref());
    }
    if over.transport == Transport::Shm {
        let folder = shm::Folder::of_user().expect("a folder");
        let listener = folder.listen("link-ping").expect("a name");
        let one = folder.connect("link-ping", PATIENCE).expect("a carrier");
        let other = std::iter::from_fn(|| Some(listener.accept().expect("somebody"))).find_map(|came| came);
        return (Box::new(one), Box::new(other.expect("it came")));
    }
    let listener = tcp::Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let one = tcp::Tcp::connect(listener.address(), PATIENCE).expect("a carrier");
    let other = std::iter::from_fn(|| Some(listener.accept().expect("somebody"))).find_map(|came| came);
    (Box::new(one), Box::new(other.expect("it came")))
}

fn fabric_pair(provider: &str, node: Option<&str>) -> (Box<dyn Carrier>, Box<dyn Carrier>) {
    let mut listener = ofi::Listener::bind(provider, node).expect("a provider");
    let (name, address) = (provider.to_owned(), listener.address().to_vec());
    let one = std::thread::spawn(move || ofi::Ofi::connect(&name, &address, PATIENCE).expect("a carrier"));
    let mut other = std::iter::repeat_with(|| listener.accept().expect("somebody")).flatten().next().expect("it came");
    while !one.is_finished() {
        other.arm(false).expect("it moves on");
    }
    (Box::new(one.join().expect("it connects")), Box::new(other))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What runs on the other side: one thing at a time, so that nothing else spins.
const IDLE: u32 = 0;
const BARE: u32 = 1;
const LINKS: u32 = 2;
const STOP: u32 = 3;

/// What is measured: a transport and, of libfabric, which provider, and where.
#[derive(Clone)]
struct Over {
    transport: Transport,
    fabric: Option<(String, Option<String>)>,
}

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let runs = words.first().and_then(|word| word.parse().ok());
    words.drain(..usize::from(runs.is_some()));
    let rates = words.iter().position(|word| word == "rates").map(|at| words.remove(at)).is_some();
    if words.is_empty() {
        words = vec!["shm".into(), "tcp".into()];
    }
    for word in words {
        let over = match word.as_str() {
            "shm" => Over { transport: Transport::Shm, fabric: None },
            "tcp" => Over { transport: Transport::Tcp, fabric: None },
            named => {
                let (provider, node) = named.split_once('@').map_or((named, None), |(name, node)| (name, Some(node)));
                Over { transport: Transport::Fabric, fabric: Some((provider.into(), node.map(str::to_owned))) }
            }
        };
        measure(&over, runs.unwrap_or(300), rates);
    }
}

fn measure(over: &Over, runs: u32, rates: bool) {
    println!(
        "{}{}",
        over.transport,
        over.fabric.as_ref().map_or(String::new(), |(provider, _)| format!("'s {provider}"))
    );
    let (tell, hear) = mpsc::channel::<Vec<Capability>>();
    let state = Arc::new(AtomicU32::new(IDLE));
    let length = Arc::new(AtomicUsize::new(8));
    let (mut bare, mut other) = pair(over);
    let served = over.clone();
    let (stated, sized) = (state.clone(), length.clone());
    let serving = std::thread::spawn(move || {
        let mut config = config();
        config.listen.push("127.0.0.1:0".parse().expect("an address"));
        config.shm = served.transport == Transport::Shm;
        config.fabric.extend(served.fabric);
        let domain = Domain::open(config).expect("a domain");
        let endpoints: Vec<_> = PROTECTIONS
            .map(|protection| {
                let handlers = Handlers::new().inline(0, |call| call.answer(call.payload));
                domain.endpoint(Attributes::default().protection(protection), handlers).expect("an endpoint")
            })
            .into();
        let capabilities = endpoints.iter().map(|endpoint| endpoint.startpoint([]).expect("a startpoint"));
        tell.send(capabilities.collect()).expect("main is there");
        let mut buffer = vec![0; 1 << 20];
        loop {
            match stated.load(Ordering::Acquire) {
                BARE => {
                    let buffer = &mut buffer[..sized.load(Ordering::Acquire)];
                    while read_whole(&mut *other, buffer) {
                        write_whole(&mut *other, buffer);
                        if buffer[0] == 255 {
                            break;
                        }
                    }
                    stated.store(IDLE, Ordering::Release);
                }
                STOP => return,
                _ => drop(domain.progress(Duration::ZERO).expect("not in a handler")),
            }
        }
    });
    let client = Domain::open(config()).expect("a domain");
    let capabilities = hear.recv().expect("startpoints");
    state.store(LINKS, Ordering::Release);
    let links: Vec<Startpoint> =
        capabilities.iter().map(|one| client.startpoint_over(over.transport, one, PATIENCE).expect("a link")).collect();
    let lengths: &[usize] = if rates { &[] } else { &[8, 92, 4096, 1 << 20] };
    for &len in lengths {
        // Many short runs: some of them have the machine to themselves.
        let rounds = if len > 4096 { 4 } else { 100 };
        let mut results = vec![Vec::new(); 4];
        let mut answer = Vec::new();
        for _ in 0..runs {
            let mut buffer = vec![1; len];
            length.store(len, Ordering::Release);
            state.store(BARE, Ordering::Release);
            let mut began = Instant::now();
            for round in 0..=rounds {
                if round == 1 {
                    began = Instant::now();
                }
                if round == rounds {
                    buffer[0] = 255;
                }
                write_whole(&mut *bare, &buffer);
                assert!(read_whole(&mut *bare, &mut buffer));
            }
            results[0].push(began.elapsed().as_secs_f64() / f64::from(rounds));
            while state.load(Ordering::Acquire) == BARE {}
            let buffer = vec![1; len];
            for (result, link) in results[1..].iter_mut().zip(&links) {
                link.call_into(0, &buffer, &mut answer, PATIENCE).expect("an answer");
                let began = Instant::now();
                for _ in 0..rounds {
                    link.call_into(0, &buffer, &mut answer, PATIENCE).expect("an answer");
                }
                result.push(began.elapsed().as_secs_f64() / f64::from(rounds));
            }
        }
        let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
        let base = least(&results[0]);
        print!("{len:8} B: bare {:8.3} us", base * 1e6);
        for (result, protection) in results[1..].iter().zip(PROTECTIONS) {
            let ratio = median(result.iter().zip(&results[0]).map(|(one, bare)| one / bare).collect());
            let least = least(result);
            print!("   {protection} {:8.3} us, x{:.2} (median of ratios x{ratio:.2})", least * 1e6, least / base);
        }
        println!();
    }
    for (link, protection) in links.iter().zip(PROTECTIONS) {
        let mut rates = Vec::new();
        for _ in 0..5 {
            let began = Instant::now();
            let mut under_way = std::collections::VecDeque::new();
            for _ in 0..runs * 100 {
                if under_way.len() == 64 {
                    let first: gambeson_link::Pending<&Startpoint> = under_way.pop_front().expect("64");
                    first.wait(PATIENCE).expect("an answer");
                }
                under_way.push_back(link.start(0, &[1; 8]).expect("it goes"));
            }
            while let Some(first) = under_way.pop_front() {
                first.wait(PATIENCE).expect("an answer");
            }
            rates.push(f64::from(runs * 100) / began.elapsed().as_secs_f64());
        }
        println!("  64 outstanding, 8 B, {protection}: {:.0} k requests/s", median(rates) / 1e3);
    }
    drop(links);
    state.store(STOP, Ordering::Release);
    serving.join().expect("it stops");
}
