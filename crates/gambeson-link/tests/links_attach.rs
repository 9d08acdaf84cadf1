//! Programs that attach to a running one by a name: who may, and who is taken for whom.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gambeson_link::{
    Attributes, Caveat, Config, Domain, Endpoint, Error, Expected, Handlers, Identity, KeyHash, Progress, Transport,
    Trust,
};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const PATIENCE: Duration = Duration::from_secs(10);
const WHO: u32 = 0;
const OTHER: u32 = 1;
const NAME: &str = "model/ocean";

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn handlers() -> Handlers {
    Handlers::new()
        .inline(WHO, |call| call.answer(call.peer.name.as_bytes()))
        .inline(OTHER, |call| call.answer(b"not for all"))
}

/// A model that couplers may attach to, and clients that it knows as: a coupler, and a visitor.
struct Model {
    domain: Domain,
    endpoint: Endpoint,
    coupler: Domain,
    visitor: Domain,
}

fn model() -> Model {
    let [model, coupler, visitor] = [(); 3].map(|()| Identity::generate().expect("a key"));
    let knows = Trust::default().pinned(coupler.key_hash(), "the coupler", &["coupler"]).pinned(
        visitor.key_hash(),
        "a visitor",
        &["visitor"],
    );
    let known = Trust::default().pinned(model.key_hash(), "the model", &["model", "coupler"]);
    let domain = Domain::open(Config::new(model, knows).listen(local())).expect("a domain");
    let endpoint = domain.endpoint(Attributes::default().class("fluxes"), handlers()).expect("an endpoint");
    endpoint.publish(NAME, &["coupler"], [Caveat::methods([WHO])]).expect("a name");
    let open = |identity| Domain::open(Config::new(identity, known.clone())).expect("a domain");
    Model { coupler: open(coupler), visitor: open(visitor), domain, endpoint }
}

fn role(role: &str) -> Expected {
    Expected::Role(role.into())
}

impl Model {
    fn at(&self) -> SocketAddr {
        self.domain.listening()[0]
    }

    fn refused(&self, by: &Domain, name: &str) -> String {
        let refused = by.attach(self.at(), &role("model"), name, PATIENCE).err().expect("refused");
        assert!(matches!(refused, Error::Startpoint(_)), "{refused:?}");
        refused.to_string()
    }
}

#[test]
fn who_has_the_role_gets_a_copy_for_itself_alone() {
    let model = model();
    for expected in [role("model"), Expected::Key(model.domain.key_hash())] {
        let startpoint = model.coupler.attach(model.at(), &expected, NAME, PATIENCE).expect("attached");
        assert_eq!(startpoint.call(WHO, &[], PATIENCE).expect("an answer"), b"the coupler");
        assert_eq!(startpoint.capability().holder(), Some(&model.coupler.key_hash().0));
        assert_eq!(startpoint.capability().class(), "fluxes");
        let narrowed = startpoint.call(OTHER, &[], PATIENCE).expect_err("not what was published").to_string();
        assert!(narrowed.contains("does not allow this handler"), "{narrowed}");
        // Stolen bytes of it open nothing, even for somebody whom the model knows.
        let stolen = model.visitor.startpoint(startpoint.capability(), PATIENCE);
        let refused = stolen.and_then(|stolen| stolen.call(WHO, &[], PATIENCE)).expect_err("another's").to_string();
        assert!(refused.contains("bound to another process's key"), "{refused}");
    }
}

#[test]
fn who_may_not_have_a_name_does_not_learn_whether_it_is_there() {
    let model = model();
    let there = model.refused(&model.visitor, NAME);
    let not_there = model.refused(&model.visitor, "model/ocEan");
    assert!(there.contains("has nothing published as \"model/ocean\" that is for this domain"), "{there}");
    assert_eq!(there, not_there.replace("ocEan", "ocean"));
    assert_eq!(model.refused(&model.coupler, "model/ocEan"), not_there);
    assert_eq!(model.domain.refusals().expect("no handler").names, 3);
}

#[test]
fn a_name_is_taken_once_and_what_was_attached_ends_with_it() {
    let model = model();
    let publish = |name: &str, roles: &[&str], caveats: Vec<Caveat>| {
        model.endpoint.publish(name, roles, caveats).expect_err("refused").to_string()
    };
    assert!(publish(NAME, &["visitor"], vec![]).contains("already"));
    assert!(publish("", &["visitor"], vec![]).contains("is no name"));
    assert!(publish(&"n".repeat(201), &["visitor"], vec![]).contains("is no name"));
    assert!(publish("for nobody", &[], vec![]).contains("name a role"));
    // What cannot be bound to anybody's key is not published: all that asked would be refused.
    assert!(publish("narrow", &["visitor"], vec![Caveat::Uses(1); 15]).contains("caveats"));
    let attached = model.coupler.attach(model.at(), &role("model"), NAME, PATIENCE).expect("attached");
    attached.call(WHO, &[], PATIENCE).expect("an answer");
    model.endpoint.withdraw(NAME).expect("it is there");
    let ended = attached.call(WHO, &[], PATIENCE).expect_err("withdrawn").to_string();
    assert!(ended.contains("revoked"), "{ended}");
    model.refused(&model.coupler, NAME);
    model.endpoint.publish(NAME, &["visitor"], []).expect("free again");
    let attached = model.visitor.attach(model.at(), &role("model"), NAME, PATIENCE).expect("attached");
    assert_eq!(attached.call(WHO, &[], PATIENCE).expect("an answer"), b"a visitor");
    drop(model.endpoint);
    let gone = model.visitor.attach(model.domain.listening()[0], &role("model"), NAME, PATIENCE);
    gone.err().expect("its endpoint is gone");
}

#[test]
fn nobody_is_attached_to_whoever_answers() {
    let model = model();
    let at = model.at();
    let refused =
        |by: &Domain, expected: Expected| by.attach(at, &expected, NAME, PATIENCE).err().expect("refused").to_string();
    let wrong_role = refused(&model.coupler, role("atmosphere"));
    assert!(wrong_role.contains("has not the role \"atmosphere\" that is expected there"), "{wrong_role}");
    let wrong_key = refused(&model.coupler, Expected::Key(KeyHash([7; 32])));
    assert!(wrong_key.contains("another process listens there"), "{wrong_key}");
    let nobody = model.coupler.attach("127.0.0.1:1", &role("model"), NAME, PATIENCE).err().expect("refused");
    assert!(nobody.to_string().contains("nobody listens there"), "{nobody}");
    // A stranger has no credential: neither end talks to the other.
    let stranger = Domain::open(Config::new(Identity::generate().expect("a key"), Trust::default())).expect("a domain");
    refused(&stranger, role("model"));
    // One that takes the model for what it is, and that the model does not know.
    let trust = Trust::default().pinned(model.domain.key_hash(), "the model", &["model"]);
    let unknown = Domain::open(Config::new(Identity::generate().expect("a key"), trust)).expect("a domain");
    let unknown = refused(&unknown, role("model"));
    assert!(unknown.contains("does not accept") || unknown.contains("refuses"), "{unknown}");
    // Whom it met before under one role is not what another role asks for.
    model.coupler.attach(at, &role("model"), NAME, PATIENCE).expect("attached");
    assert_eq!(refused(&model.coupler, role("atmosphere")), wrong_role);
}

#[test]
fn processes_of_a_job_attach_by_their_role_as_ranks() {
    let job = |secret: u8| JobKeys {
        job_id: [1; 16],
        job_secret: Secret32::from_bytes([secret; 32]),
        policy_hash: [1; 32],
        suite: Suite::Aes256Gcm,
    };
    let open = |secret, listen: Option<SocketAddr>| {
        let mut config = Config::new(Identity::generate().expect("a key"), Trust::default().job(job(secret)));
        config.listen.extend(listen);
        Domain::open(config).expect("a domain")
    };
    let owner = open(1, Some(local()));
    let endpoint = owner.endpoint(Attributes::default(), handlers()).expect("an endpoint");
    endpoint.publish(NAME, &["rank"], []).expect("a name");
    let at = owner.listening()[0];
    let attached = open(1, None);
    let startpoint = attached.attach(at, &role("rank"), NAME, PATIENCE).expect("attached");
    assert_eq!(startpoint.call(OTHER, &[], PATIENCE).expect("an answer"), b"not for all");
    open(2, None).attach(at, &role("rank"), NAME, PATIENCE).err().expect("of another job");
}

/// Connections of this process to an address.
fn connections(to: SocketAddr) -> usize {
    let there = format!("0100007F:{:04X}", to.port());
    let all = std::fs::read_to_string("/proc/self/net/tcp").expect("the kernel tells");
    let established = |line: &&str| {
        let mut words = line.split_whitespace().skip(2);
        words.next() == Some(&there) && words.next() == Some("01")
    };
    all.lines().filter(established).count()
}

#[test]
fn who_asks_again_and_again_has_one_connection_which_gives_way_to_shared_memory() {
    let model = model();
    for _ in 0..50 {
        model.refused(&model.coupler, "model/not yet");
    }
    let startpoint = model.coupler.attach(model.at(), &role("model"), NAME, PATIENCE).expect("attached");
    // The kernel's list may miss or double a line while other tests connect.
    let counts: Vec<usize> = (0..20).map(|_| connections(model.at())).collect();
    assert!(counts.contains(&1), "{counts:?}");
    let began = Instant::now();
    while startpoint.carrier().expect("it is open").is_none_or(|carrier| carrier.transport() != Transport::Shm) {
        startpoint.call(WHO, &[], PATIENCE).expect("an answer");
        assert!(began.elapsed() < PATIENCE, "it stays with TCP");
    }
}

#[test]
fn who_has_connected_is_asked_over_that_very_session() {
    let model = model();
    let there = model.coupler.endpoint(Attributes::default(), handlers()).expect("an endpoint");
    there.publish("coupler", &["coupler"], []).expect("a name");
    let expected = Expected::Key(model.coupler.key_hash());
    let nowhere = model.domain.attach("127.0.0.1:1", &expected, "coupler", PATIENCE).err().expect("not met yet");
    assert!(nowhere.to_string().contains("nobody listens"), "{nowhere}");
    let _held = model.coupler.attach(model.at(), &role("model"), NAME, PATIENCE).expect("attached");
    // It listens nowhere, and the address leads nowhere: only the session does.
    let back = model.domain.attach("127.0.0.1:1", &expected, "coupler", PATIENCE).expect("attached");
    assert_eq!(back.call(WHO, &[], PATIENCE).expect("an answer"), b"the model");
}

#[test]
fn an_owner_that_does_nothing_is_waited_for_so_long_and_no_longer() {
    let [model, coupler] = [(); 2].map(|()| Identity::generate().expect("a key"));
    let knows = Trust::default().pinned(coupler.key_hash(), "the coupler", &["coupler"]);
    let known = Trust::default().pinned(model.key_hash(), "the model", &["model"]);
    let mut config = Config::new(model, knows).listen(local());
    config.progress = Progress::Manual;
    let domain = Domain::open(config).expect("a domain");
    let coupler = Domain::open(Config::new(coupler, known)).expect("a domain");
    let endpoint = domain.endpoint(Attributes::default(), handlers()).expect("an endpoint");
    endpoint.publish(NAME, &["coupler"], []).expect("a name");
    let at = domain.listening()[0];
    let attach = |patience| coupler.attach(at, &role("model"), NAME, patience);
    let late = attach(Duration::from_millis(50)).err().expect("nobody makes progress");
    assert!(matches!(late, Error::TimedOut(_)), "{late:?}");
    let stop = AtomicBool::new(false);
    let attached = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                domain.progress(Duration::from_millis(1)).expect("no handler");
            }
        });
        let attached = attach(PATIENCE);
        stop.store(true, Ordering::Relaxed);
        attached
    });
    let attached = attached.expect("attached");
    // It is met now, and does nothing.
    let late = attach(Duration::from_millis(50)).err().expect("nobody makes progress");
    assert!(late.to_string().contains("has not said in time what is published there"), "{late}");
    drop((domain, endpoint));
    assert!(attached.call(WHO, &[], PATIENCE).is_err());
    assert!(attach(PATIENCE).err().is_some_and(|gone| gone.to_string().contains("nobody listens there")));
}
