//! Faults between real processes: hosts that are cut off or vanish, readers that stop, and a relay that flips, drops,
//! repeats and delays bytes. Numbered requests, streams and transfers in both directions go on, none lost, none twice.
//!
//! Hosts are network namespaces, which each test makes and removes; they need root. `cargo test -p gambeson-link --test
//! links_faults -- --ignored a_host` runs the long ones.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use gambeson_link::{Attributes, Capability, Config, Domain, Handlers, Identity, Startpoint, Trust};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(150);
const ECHO: u32 = 0;
const NUMBER: u32 = 1;
const TOLD: u32 = 2;
const STREAM: u32 = 3;
const ENDLESS: u32 = 4;

const ROLE: &str = "GAMBESON_TEST_ROLE";
const LISTEN: &str = "GAMBESON_TEST_LISTEN";
const STARTPOINT: &str = "GAMBESON_TEST_STARTPOINT";
const SILENCE: &str = "GAMBESON_TEST_SILENCE_MS";
const WAIT: &str = "GAMBESON_TEST_PATIENCE_MS";

fn config() -> Config {
    let job_secret = Secret32::from_bytes([1; 32]);
    let job = JobKeys { job_id: [1; 16], job_secret, policy_hash: [1; 32], suite: Suite::Aes256Gcm };
    let mut config = Config::new(Identity::generate().expect("a key"), Trust::default().job(job));
    config.shm = false;
    let time = |variable: &str| Some(Duration::from_millis(std::env::var(variable).ok()?.parse().expect("ms")));
    config.silence = time(SILENCE).unwrap_or(config.silence);
    config.patience = time(WAIT).unwrap_or(config.patience);
    config
}

fn hex(capability: &Capability) -> String {
    capability.encode().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Capability {
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
    Capability::decode(&bytes).expect("a startpoint")
}

/// What a process counts of the numbers that it is sent.
#[derive(Default)]
struct Numbers {
    next: AtomicU64,
    wrong: AtomicU64,
}

fn handlers() -> Handlers {
    let numbers = Arc::new(Numbers::default());
    let told = numbers.clone();
    Handlers::new()
        .inline(ECHO, |call| call.answer(call.payload))
        .inline(NUMBER, move |call| {
            let number = u64::from_le_bytes(call.payload[..8].try_into().expect("a number"));
            if number != numbers.next.fetch_add(1, Ordering::Relaxed) {
                numbers.wrong.fetch_add(1, Ordering::Relaxed);
            }
        })
        .inline(TOLD, move |call| {
            let all = [&told.next, &told.wrong].map(|count| count.load(Ordering::Relaxed).to_le_bytes());
            call.answer(&all.concat());
        })
        .threaded(STREAM, |mut request| {
            for at in 0..request.payload[0] {
                if request.item(&[at; 1000]).is_err() {
                    return;
                }
            }
        })
        .threaded(ENDLESS, |mut request| {
            let block = vec![1; 60_000];
            for _ in 0..3000 {
                if request.item(&block).is_err() {
                    return;
                }
            }
        })
}

/// Asks until it is told to stop; the longest time that one request took.
fn ask(startpoint: &Startpoint, stop: &AtomicBool) -> Result<(u64, Duration), String> {
    let (mut number, mut longest) = (0_u64, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        startpoint.send(NUMBER, &number.to_le_bytes()).map_err(|cause| cause.to_string())?;
        let len = if number.is_multiple_of(32) { 1 << 20 } else { 100 + (number * 7919 % 40_000) as usize };
        let mut block = vec![number as u8; len];
        block[..8].copy_from_slice(&number.to_le_bytes());
        let answer = startpoint.call(ECHO, &block, PATIENCE).map_err(|cause| cause.to_string())?;
        assert!(answer == block, "request {number} has another answer");
        if number.is_multiple_of(16) {
            let mut items = startpoint.stream(STREAM, &[20]).map_err(|cause| cause.to_string())?;
            for at in 0..20 {
                let item = items.next(PATIENCE).map_err(|cause| cause.to_string())?;
                assert_eq!(item, Some(vec![at; 1000]), "an item of stream {number}");
            }
            assert_eq!(items.next(PATIENCE).map_err(|cause| cause.to_string())?, None);
        }
        number += 1;
        longest = longest.max(began.elapsed());
    }
    let told = startpoint.call(TOLD, &[], PATIENCE).map_err(|cause| cause.to_string())?;
    assert_eq!(told, [number.to_le_bytes(), [0; 8]].concat(), "one-way requests came once and in order");
    Ok((number, longest))
}

#[test]
#[ignore = "what the processes of the tests below run"]
fn a_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = stop.clone();
    let told = std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stopping.store(true, Ordering::Relaxed);
    });
    if role == "server" {
        let address = std::env::var(LISTEN).expect("an address").parse().expect("an address");
        let domain = Domain::open(config().listen(address)).expect("a domain");
        let endpoint = domain.endpoint(Attributes::default(), handlers()).expect("an endpoint");
        println!("says {}", hex(&endpoint.startpoint([]).expect("a startpoint")));
        told.join().expect("it is told");
        return;
    }
    let domain = Domain::open(config()).expect("a domain");
    let capability = unhex(&std::env::var(STARTPOINT).expect("a startpoint"));
    let startpoint = domain.startpoint(&capability, PATIENCE).expect("a link");
    if role == "reader" {
        let mut items = startpoint.stream(ENDLESS, &[]).expect("it goes");
        println!("says begun");
        while items.next(PATIENCE).expect("an item").is_some() {}
        println!("says end");
        return;
    }
    startpoint.call(ECHO, &[], PATIENCE).expect("an answer");
    println!("says begun");
    match ask(&startpoint, &stop) {
        Ok((requests, longest)) => println!("says {requests} {}", longest.as_millis()),
        Err(why) => println!("says lost: {why}"),
    }
}

/// A process in one of the roles above, perhaps on another host.
struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    says: Receiver<String>,
}

impl Process {
    fn start(host: Option<&str>, role: &str, environment: &[(&str, &str)]) -> Self {
        let program = std::env::current_exe().expect("this program");
        let arguments = ["--ignored", "--exact", "a_process", "--nocapture"];
        let mut command = match host {
            Some(host) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", host]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(arguments).env(ROLE, role).envs(environment.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (tell, says) = channel();
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((_, said)) = line.split_once("says ") {
                    let _ = tell.send(said.to_owned());
                }
            }
        });
        Process { stdin: child.stdin.take(), child, says }
    }

    fn server(host: Option<&str>, address: &str) -> (Self, Capability) {
        let server = Self::start(host, "server", &[(LISTEN, address)]);
        let capability = unhex(&server.hear());
        (server, capability)
    }

    fn hear(&self) -> String {
        self.says.recv_timeout(PATIENCE).expect("it says something")
    }

    /// Tells it to stop, and hears what it says then.
    fn end(&mut self) -> String {
        drop(self.stdin.take());
        self.hear()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).expect("a process"), signal).expect("it is there");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn outcome(said: &str) -> (u64, Duration) {
    let numbers = said.split_once(' ').and_then(|(one, other)| Some((one.parse().ok()?, other.parse().ok()?)));
    let (requests, longest) = numbers.unwrap_or_else(|| panic!("{said}"));
    (requests, Duration::from_millis(longest))
}

/// Two hosts with a cable between them.
struct Hosts([String; 2]);

fn ip(words: &[&str]) {
    let done = Command::new("ip").args(words).output().expect("iproute2 is there");
    assert!(done.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Hosts {
    /// None for those who may not make any.
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            eprintln!("left out: hosts are network namespaces, and only root makes those");
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let hosts = Hosts(["a", "b"].map(|end| format!("gbl{}n{number}{end}", std::process::id())));
        let [a, b] = [&hosts.0[0], &hosts.0[1]];
        for host in [a, b] {
            ip(&["netns", "add", host]);
        }
        ip(&["link", "add", "eth0", "netns", a, "type", "veth", "peer", "name", "eth0", "netns", b]);
        for (host, address) in [(a, "10.78.0.1/24"), (b, "10.78.0.2/24")] {
            ip(&["-n", host, "addr", "add", address, "dev", "eth0"]);
            ip(&["-n", host, "link", "set", "lo", "up"]);
            ip(&["-n", host, "link", "set", "eth0", "up"]);
        }
        Some(hosts)
    }

    fn cable(&self, state: &str) {
        ip(&["-n", &self.0[1], "link", "set", "eth0", state]);
    }

    /// A server on the second host, and a client on the first that asks it.
    fn pair(&self, environment: &[(&str, &str)]) -> (Process, Process) {
        let (server, capability) = Process::server(Some(&self.0[1]), "10.78.0.2:0");
        let startpoint = hex(&capability);
        let environment = [environment, &[(STARTPOINT, &startpoint)]].concat();
        let client = Process::start(Some(&self.0[0]), "client", &environment);
        assert_eq!(client.hear(), "begun");
        (server, client)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", host]).status();
        }
    }
}

#[test]
fn a_host_cut_off_for_a_second_loses_and_doubles_nothing() {
    let Some(hosts) = Hosts::new() else { return };
    let (_server, mut client) = hosts.pair(&[]);
    std::thread::sleep(Duration::from_millis(300));
    hosts.cable("down");
    std::thread::sleep(Duration::from_secs(1));
    hosts.cable("up");
    std::thread::sleep(Duration::from_millis(300));
    let (requests, longest) = outcome(&client.end());
    println!("cut off for 1 s: {requests} requests, the longest {longest:?}");
    assert!(requests > 10 && longest > Duration::from_millis(900), "{requests} requests, the longest {longest:?}");
}

#[test]
#[ignore = "takes a minute and a half"]
fn a_host_cut_off_for_a_minute_goes_on_afterwards() {
    let Some(hosts) = Hosts::new() else { return };
    let (_server, mut client) = hosts.pair(&[]);
    std::thread::sleep(Duration::from_secs(1));
    hosts.cable("down");
    std::thread::sleep(Duration::from_secs(60));
    hosts.cable("up");
    let up = Instant::now();
    std::thread::sleep(Duration::from_secs(5));
    let (requests, longest) = outcome(&client.end());
    println!("cut off for 60 s: {requests} requests, the longest {longest:?}, told after {:?}", up.elapsed());
    assert!(longest > Duration::from_secs(59), "{requests} requests, the longest {longest:?}");
}

#[test]
fn a_host_that_vanishes_is_named_when_patience_is_over() {
    let Some(hosts) = Hosts::new() else { return };
    let (_server, client) = hosts.pair(&[(SILENCE, "1000"), (WAIT, "2000")]);
    std::thread::sleep(Duration::from_millis(200));
    hosts.cable("down");
    let began = Instant::now();
    let said = client.hear();
    println!("vanished: after {:?}: {said}", began.elapsed());
    assert!(said.starts_with("lost: ") && said.contains("no other way within 2s"), "{said}");
    assert!(said.contains("said nothing for 1s") || said.contains("cannot"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// Resident memory of a process in KiB, now and at the most.
fn memory(process: &str) -> [u64; 2] {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it is there");
    ["VmRSS:", "VmHWM:"].map(|field| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the kernel says");
        line.split_whitespace().next().expect("a number").parse().expect("a number")
    })
}

#[test]
fn a_reader_that_stops_costs_its_sender_little_memory() {
    let (server, capability) = Process::server(None, "127.0.0.1:0");
    let startpoint = hex(&capability);
    let readers: Vec<_> = (0..4).map(|_| Process::start(None, "reader", &[(STARTPOINT, &startpoint)])).collect();
    let of_server = server.child.id().to_string();
    let [before, _] = memory(&of_server);
    for reader in &readers {
        assert_eq!(reader.hear(), "begun");
        reader.signal(Signal::STOP);
    }
    // Each has 180 MB coming. Whoever does not wait for readers has all of it by now.
    std::thread::sleep(Duration::from_secs(2));
    let [_, most] = memory(&of_server);
    println!("4 readers stopped: {before} KiB before, {most} KiB at the most");
    assert!(most < before + 4 * (24 << 10), "{before} KiB before, {most} KiB at the most");
    for reader in &readers {
        reader.signal(Signal::CONT);
    }
    for reader in &readers {
        assert_eq!(reader.hear(), "end");
    }
    let [_, most] = memory(&of_server);
    assert!(most < before + 4 * (24 << 10), "{before} KiB before, {most} KiB at the most");
}

/// Sits between two processes and does to their bytes what its seed says.
fn relay(to: SocketAddr, seed: u64) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let faults = Arc::new(AtomicU64::new(0));
    let counted = faults.clone();
    std::thread::spawn(move || {
        for (connection, client) in listener.incoming().enumerate() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(to)) else { return };
            for (way, (mut from, mut to)) in
                [(client.try_clone().expect("a copy"), server.try_clone().expect("a copy")), (server, client)]
                    .into_iter()
                    .enumerate()
            {
                let faults = counted.clone();
                to.set_nodelay(true).expect("a socket");
                std::thread::spawn(move || {
                    let seed = seed << 32 | (connection as u64) << 1 | way as u64;
                    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
                    let mut buffer = [0; 20_000];
                    // The handshake is left alone; what is done to it is for the fuzz targets.
                    let mut calm = 8000_usize;
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        let mut bytes = buffer[..count].to_vec();
                        if calm > 0 {
                            calm = calm.saturating_sub(count);
                        } else if random.random_bool(0.01) {
                            faults.fetch_add(1, Ordering::Relaxed);
                            let at = random.random_range(0..count);
                            match random.random_range(0..5) {
                                0 => bytes[at] ^= 1 << random.random_range(0..8),
                                1 => bytes.truncate(at),
                                2 => bytes.extend_from_within(at..),
                                3 => std::thread::sleep(Duration::from_millis(random.random_range(1..50))),
                                _ => break,
                            }
                        }
                        if to.write_all(&bytes).is_err() {
                            break;
                        }
                    }
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                });
            }
        }
    });
    (address, faults)
}

/// The same startpoint, with another address in place of its own.
fn redirect(capability: &Capability, to: SocketAddr) -> Capability {
    let mut bytes = capability.encode().to_vec();
    let old: usize = capability.addresses().iter().map(|address| 2 + address.text.len()).sum();
    let first = capability.addresses()[0].text.as_bytes();
    // Their number, and of the first its kind and its length, stand before it.
    let start = bytes.windows(first.len()).position(|window| window == first).expect("it is in there") - 3;
    let text = to.to_string();
    bytes.splice(start..start + 1 + old, [&[1, 1, text.len() as u8], text.as_bytes()].concat());
    Capability::decode(&bytes).expect("addresses are hints")
}

fn through_the_relay(seed: u64, time: Duration) {
    let (_server, capability) = Process::server(None, "127.0.0.1:0");
    let to = capability.addresses()[0].text.parse().expect("an address");
    let (address, faults) = relay(to, seed);
    let startpoint = hex(&redirect(&capability, address));
    let environment = [(STARTPOINT, startpoint.as_str()), (SILENCE, "400")];
    let mut client = Process::start(None, "client", &environment);
    assert_eq!(client.hear(), "begun", "seed {seed}");
    std::thread::sleep(time);
    let (requests, longest) = outcome(&client.end());
    let faults = faults.load(Ordering::Relaxed);
    println!("relay, seed {seed}: {requests} requests, {faults} faults, the longest {longest:?}");
    assert!(faults > 0 && requests > 0, "seed {seed}: {faults} faults, {requests} requests");
}

#[test]
fn a_relay_that_flips_drops_repeats_and_delays_bytes_changes_nothing() {
    through_the_relay(
        std::env::var("GAMBESON_SEED").map_or(1, |seed| seed.parse().expect("a number")),
        Duration::from_secs(3),
    );
}

#[test]
#[ignore = "takes minutes"]
fn a_host_behind_many_bad_relays_is_served() {
    for seed in 1..40 {
        through_the_relay(seed, Duration::from_secs(3));
    }
}

#[test]
fn processes_that_stop_and_go_on_lose_and_double_nothing() {
    let (server, capability) = Process::server(None, "127.0.0.1:0");
    let startpoint = hex(&capability);
    let mut client = Process::start(None, "client", &[(STARTPOINT, &startpoint), (SILENCE, "300")]);
    assert_eq!(client.hear(), "begun");
    for stopped in [&server, &client].into_iter().cycle().take(6) {
        stopped.signal(Signal::STOP);
        // Longer than the silence after which a connection is given up.
        std::thread::sleep(Duration::from_millis(450));
        stopped.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(100));
    }
    let (requests, longest) = outcome(&client.end());
    println!("stopped six times: {requests} requests, the longest {longest:?}");
}
