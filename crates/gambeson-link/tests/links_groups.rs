//! Groups: every member is reached once, by whichever way, answers come together in one order, and who fails is named.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gambeson_link::{
    Attributes, Capability, Caveat, Config, Domain, Endpoint, Error, FORWARD, Handlers, Identity, KeyHash, Operation,
    Progress, Trust,
};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const PATIENCE: Duration = Duration::from_secs(20);
/// Answers with its member's number.
const WHICH: u32 = 0;
/// Answers with 1 / (number + 3), as a number.
const SHARE: u32 = 1;
/// Never answers in time.
const SLOW: u32 = 2;

fn job() -> Trust {
    let job_secret = Secret32::from_bytes([1; 32]);
    Trust::default().job(JobKeys { job_id: [1; 16], job_secret, policy_hash: [1; 32], suite: Suite::Aes256Gcm })
}

fn config(identity: Identity, trust: Trust, shm: bool) -> Config {
    let mut config = Config::new(identity, trust).listen("127.0.0.1:0".parse().expect("an address"));
    config.shm = shm;
    config
}

fn generate() -> Identity {
    Identity::generate().expect("a key")
}

fn own() -> Operation {
    Operation::own("longer", |one, other| Ok(if one.len() < other.len() { other } else { one }.to_vec()))
}

/// Who called which member, and with what.
type Log = Arc<Mutex<Vec<(u8, String, Vec<u8>)>>>;

struct Member {
    domain: Domain,
    endpoint: Endpoint,
}

impl Member {
    fn new(config: Config, number: u8, forwards: bool, log: &Log) -> Self {
        let domain = Domain::open(config).expect("a domain");
        let log = log.clone();
        let handlers = Handlers::new()
            .inline(WHICH, move |call| {
                let entry = (number, format!("{:?}", call.peer.key), call.payload.to_vec());
                log.lock().expect("no panic").push(entry);
                call.answer(&[number]);
            })
            .inline(SHARE, move |call| call.answer(&(1.0 / f64::from(number + 3)).to_le_bytes()))
            .threaded(SLOW, |request| {
                std::thread::sleep(Duration::from_secs(3));
                request.answer(b"late");
            });
        let handlers = if forwards { handlers.forwards([own()]) } else { handlers };
        let endpoint = domain.endpoint(Attributes::default(), handlers).expect("an endpoint");
        Member { domain, endpoint }
    }

    fn capability(&self) -> Capability {
        self.endpoint.startpoint([]).expect("a startpoint")
    }
}

/// Members of a job, of whom those that `forwards` says pass on.
fn members(count: u8, shm: bool, forwards: impl Fn(u8) -> bool, log: &Log) -> Vec<Member> {
    (0..count).map(|at| Member::new(config(generate(), job(), shm), at, forwards(at), log)).collect()
}

fn capabilities(members: &[Member]) -> Vec<Capability> {
    members.iter().map(Member::capability).collect()
}

fn caller() -> Domain {
    Domain::open(Config::new(generate(), job())).expect("a domain")
}

fn callers(log: &Log) -> Vec<String> {
    let mut callers: Vec<String> = log.lock().expect("no panic").iter().map(|(_, who, _)| who.clone()).collect();
    callers.sort();
    callers.dedup();
    callers
}

#[test]
fn every_member_is_called_once_and_answers_in_its_place() {
    // All pass on; half of them; nobody.
    for (shm, every) in [(true, Some(1)), (false, Some(2)), (false, None)] {
        let log = Log::default();
        let members = members(24, shm, |at| every.is_some_and(|every| at % every == 0), &log);
        let root = caller();
        let group = root.group(capabilities(&members));
        for turn in 0..3_u8 {
            let answers = group.call(WHICH, &[turn; 1000], PATIENCE);
            let answers: Vec<Vec<u8>> = answers.into_iter().map(|answer| answer.expect("an answer")).collect();
            assert!(answers.iter().enumerate().all(|(at, answer)| *answer == [at as u8]), "{answers:?}");
        }
        let sent = group.send(WHICH, b"sent", PATIENCE);
        assert!(sent.len() == 24 && sent.iter().all(Result::is_ok), "{sent:?}");
        // Sent is not handled yet.
        while log.lock().expect("no panic").len() < 4 * 24 {
            std::thread::yield_now();
        }
        let mut came: Vec<(u8, Vec<u8>)> =
            log.lock().expect("no panic").iter().map(|(at, _, payload)| (*at, payload.clone())).collect();
        came.sort();
        let expected =
            |at: u8| [vec![0; 1000], vec![1; 1000], vec![2; 1000], b"sent".to_vec()].map(|payload| (at, payload));
        assert!(came == (0..24).flat_map(expected).collect::<Vec<_>>(), "each once");
        // Eight parts of three: their first members called the rest where they pass on.
        let others = callers(&log).len() - 1;
        assert_eq!(others, every.map_or(0, |every| 8 / every as usize), "{:?}", callers(&log));

        log.lock().expect("no panic").clear();
        let flat = root.group(capabilities(&members)).flat();
        assert!(flat.call(WHICH, b"flat", PATIENCE).iter().all(Result::is_ok));
        assert_eq!(callers(&log), [format!("{:?}", root.key_hash())]);
    }
}

#[test]
fn answers_come_together_in_one_order() {
    let log = Log::default();
    let members = members(40, true, |at| at % 7 != 5, &log);
    let root = caller();
    let group = root.group(capabilities(&members));
    let flat = root.group(capabilities(&members)).flat();
    let row = group.reduce(WHICH, &[], &Operation::CONCATENATE, PATIENCE).expect("all answer");
    assert_eq!(row, (0..40).collect::<Vec<u8>>());
    let sum = flat.reduce(SHARE, &[], &Operation::SUM_F64, PATIENCE).expect("all answer");
    let close = (0..40).map(|at| 1.0 / f64::from(at + 3)).sum::<f64>();
    let number = f64::from_le_bytes(sum[..].try_into().expect("8 bytes"));
    assert!((number - close).abs() < 1e-12);
    for _ in 0..5 {
        let again = group.reduce(SHARE, &[], &Operation::SUM_F64, PATIENCE).expect("all answer");
        assert_eq!(again, sum, "the same to the last bit, by tree or flat");
    }
    let least = group.reduce(SHARE, &[], &Operation::MIN_F64, PATIENCE).expect("all answer");
    assert_eq!(least, (1.0_f64 / 42.0).to_le_bytes());
    // One that all who pass on know, and one that nobody knows but the caller.
    for operation in [own(), Operation::own("mine", |one, other| Ok([one, other].concat()))] {
        let came = group.reduce(WHICH, &[], &operation, PATIENCE).expect("all answer");
        assert_eq!(came.len() as u64, if came.len() == 1 { 1 } else { 40 }, "{operation:?}");
        assert_eq!(came, flat.reduce(WHICH, &[], &operation, PATIENCE).expect("all answer"));
    }
    let odd = group.reduce(WHICH, &[], &Operation::SUM_I64, PATIENCE).expect_err("one byte is no number").to_string();
    assert!(odd.contains("member ") && odd.contains("cannot be combined"), "{odd}");
    let panics = Operation::own("longer", |_, _| Err("never".into()));
    assert!(group.reduce(WHICH, &[], &panics, PATIENCE).is_err());
    assert!(root.group([]).reduce(WHICH, &[], &Operation::SUM_F64, PATIENCE).expect("nothing").is_empty());
    assert_eq!(root.group([members[9].capability()]).call(WHICH, &[], PATIENCE)[0].as_deref().expect("one"), [9]);
}

#[test]
fn who_does_not_answer_is_named_and_nobody_else_is_missed() {
    for tree in [true, false] {
        let log = Log::default();
        let mut members = members(24, false, |_| true, &log);
        let mut given = capabilities(&members);
        // A startpoint that allows another handler, one that is used up, and one that does not let its endpoint pass on.
        given[7] = members[7].endpoint.startpoint([Caveat::methods([9])]).expect("a startpoint");
        given[9] = members[9].endpoint.startpoint([Caveat::Uses(1)]).expect("a startpoint");
        given[12] = members[12].endpoint.startpoint([Caveat::methods([WHICH])]).expect("a startpoint");
        given[15] = members[15].endpoint.startpoint([Caveat::methods([WHICH, FORWARD])]).expect("a startpoint");
        let root = caller();
        let group = root.group(given);
        let group = if tree { group } else { group.flat() };
        // A first one of a part and one behind another.
        for gone in [18, 4] {
            members[gone] = Member::new(config(generate(), job(), false), 99, false, &log);
        }
        let began = Instant::now();
        let first = group.call(WHICH, b"first", PATIENCE);
        assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
        let wrong: Vec<usize> = (0..24).filter(|at| first[*at].is_err()).collect();
        // The use of 9 goes into asking it to pass on, if it is asked.
        let expected = if tree { vec![4, 7, 9, 18] } else { vec![4, 7, 18] };
        assert_eq!(wrong, expected, "{first:?}");
        for at in wrong {
            let why = first[at].as_ref().expect_err("wrong").to_string();
            assert!(why.starts_with(&format!("member {at} at 127.0.0.1:")), "{why}");
            assert!(at != 7 || why.contains("does not allow this handler"), "{why}");
            assert!(at != 4 || !tree || why.contains("through the one at"), "{why}");
        }
        let why =
            group.reduce(WHICH, &[], &Operation::CONCATENATE, PATIENCE).expect_err("some are missing").to_string();
        assert!(why.starts_with("member 4 at 127.0.0.1:"), "{why}");
        // Each was called once and no more for the first call.
        let log = log.lock().expect("no panic");
        let mut called: Vec<u8> = log.iter().filter(|(_, _, what)| what == b"first").map(|entry| entry.0).collect();
        called.sort_unstable();
        assert_eq!(called, (0..24).filter(|at| !expected.contains(&(*at as usize))).collect::<Vec<u8>>());
    }
}

#[test]
fn members_that_are_slow_time_out_each_for_itself() {
    let log = Log::default();
    let members = members(12, true, |_| true, &log);
    let root = caller();
    let group = root.group(capabilities(&members));
    assert!(group.call(WHICH, &[], PATIENCE).iter().all(Result::is_ok));
    let late = group.call(SLOW, &[], Duration::from_millis(400));
    assert!(late.iter().all(|one| matches!(one, Err(Error::TimedOut(_)))), "{late:?}");
    assert!(group.call(WHICH, &[], PATIENCE).iter().all(Result::is_ok), "it goes on");
}

#[test]
fn a_member_that_says_nothing_holds_nobody_else_up() {
    let log = Log::default();
    let mut members = members(12, false, |_| true, &log);
    // It listens, and nobody moves a byte there.
    let mut mute = config(generate(), job(), false);
    mute.progress = Progress::Manual;
    members[4] = Member::new(mute, 4, true, &log);
    let root = caller();
    let group = root.group(capabilities(&members));
    let answers = group.call(WHICH, &[], Duration::from_secs(6));
    let missing: Vec<usize> = (0..12).filter(|at| answers[*at].is_err()).collect();
    assert_eq!(missing, [4], "{answers:?}");
    assert!(matches!(&answers[4], Err(Error::TimedOut(why)) if why.starts_with("member 4 at")), "{:?}", answers[4]);
}

#[test]
fn members_that_do_not_accept_each_other_say_so_and_are_reached_flat() {
    let root_identity = generate();
    let root_key = root_identity.key_hash();
    let identities: Vec<Identity> = (0..12).map(|_| generate()).collect();
    let keys: Vec<KeyHash> = identities.iter().map(Identity::key_hash).collect();
    let log = Log::default();
    let members: Vec<Member> = identities
        .into_iter()
        .enumerate()
        .map(|(at, identity)| {
            let trust = Trust::default().pinned(root_key, "root", &[]);
            Member::new(config(identity, trust, false), at as u8, true, &log)
        })
        .collect();
    let trust = keys.iter().fold(Trust::default(), |trust, key| trust.pinned(*key, "member", &[]));
    let root = Domain::open(Config::new(root_identity, trust)).expect("a domain");
    let group = root.group(capabilities(&members));
    let answers = group.call(WHICH, &[], PATIENCE);
    let reached: Vec<usize> = (0..12).filter(|at| answers[*at].is_ok()).collect();
    assert_eq!(reached, [0, 1, 3, 4, 6, 7, 9, 10], "the first of each part");
    for at in [2, 5, 8, 11] {
        let why = answers[at].as_ref().expect_err("its parent does not know it").to_string();
        let parent = members[at - 1].domain.listening()[0];
        assert!(why.contains(&format!("through the one at {parent}: ")), "{why}");
        assert!(why.contains("neither pinned here nor certified") || why.contains("does not accept"), "{why}");
    }
    assert!(group.flat().call(WHICH, &[], PATIENCE).iter().all(Result::is_ok));
}

#[test]
#[ignore = "what the other processes of the test below run"]
fn another_process() {
    let log = Log::default();
    let members = members(4, std::env::var("GAMBESON_TEST_SHM").is_ok_and(|word| word == "1"), |_| true, &log);
    for member in &members {
        let bytes = member.capability().encode();
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        println!("startpoint {digits}");
    }
    std::thread::sleep(Duration::from_secs(120));
}

struct Process(Child, Vec<Capability>);

impl Process {
    fn start(shm: bool) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "another_process", "--nocapture"])
            .env("GAMBESON_TEST_SHM", if shm { "1" } else { "0" })
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let startpoint = |line: String| {
            let (_, digits) = line.split_once("startpoint ")?;
            let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
            let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
            Some(Capability::decode(&bytes).expect("a startpoint"))
        };
        let startpoints = lines.filter_map(startpoint).take(4).collect();
        Process(process, startpoints)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_dies_costs_what_went_through_it_and_no_more() {
    for shm in [true, false] {
        let mut processes: Vec<Process> = (0..3).map(|_| Process::start(shm)).collect();
        // Parts of one or two members: in those of two, each from another process than the first.
        let given: Vec<Capability> = (0..12).map(|at| processes[at % 3].1[at / 3].clone()).collect();
        let root = caller();
        let group = root.group(given);
        assert!(group.call(WHICH, &[], PATIENCE).iter().all(Result::is_ok));
        let pending = std::thread::scope(|scope| {
            let slow = scope.spawn(|| group.call(SLOW, &[], PATIENCE));
            std::thread::sleep(Duration::from_millis(300));
            processes[1].0.kill().expect("it is there");
            processes[1].0.wait().expect("it ends");
            let began = Instant::now();
            let answers = slow.join().expect("no panic");
            assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
            answers
        });
        for (at, answer) in pending.iter().enumerate() {
            // 1, 4, 7 and 10 are gone; 2, 5, 8 and 11 come through 1, 4, 7 and 10.
            let lost = at % 3 != 0;
            assert_eq!(answer.is_err(), lost, "member {at} with shm {shm}: {answer:?}");
            let named = answer.as_ref().err().map(ToString::to_string);
            assert!(named.is_none_or(|why| why.starts_with(&format!("member {at} at 127.0.0.1:"))));
        }
        // Later what came through it is called from here.
        let after = group.call(WHICH, &[], PATIENCE);
        let lost: Vec<usize> = (0..12).filter(|at| after[*at].is_err()).collect();
        assert_eq!(lost, [1, 4, 7, 10], "shm {shm}: {after:?}");
    }
}
