//! Attackers with stolen goods: startpoints that were stolen, forged, stripped, widened, or used for too long or too
//! often. The endpoint's domain refuses each with its reason, and counts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gambeson_link::{
    Attributes, Capability, Caveat, Config, Domain, Endpoint, Error, Handlers, Identity, Policy, Protection, Refusal,
    Trust,
};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const PATIENCE: Duration = Duration::from_secs(10);
const ECHO: u32 = 0;
const COUNT: u32 = 1;
const SLOW: u32 = 2;

fn config() -> Config {
    let job_secret = Secret32::from_bytes([1; 32]);
    let job = JobKeys { job_id: [1; 16], job_secret, policy_hash: [1; 32], suite: Suite::Aes256Gcm };
    Config::new(Identity::generate().expect("a key"), Trust::default().job(job))
}

fn domain() -> Domain {
    Domain::open(config()).expect("a domain")
}

struct Owner {
    domain: Domain,
    endpoint: Endpoint,
    handled: Arc<AtomicU64>,
}

impl Owner {
    fn new() -> Self {
        let domain = Domain::open(config().listen("127.0.0.1:0".parse().expect("an address"))).expect("a domain");
        let handled = Arc::new(AtomicU64::new(0));
        let counter = handled.clone();
        let handlers = Handlers::new()
            .inline(ECHO, |call| call.answer(call.payload))
            .inline(COUNT, move |call| {
                counter.fetch_add(1, Ordering::Relaxed);
                call.answer(&[]);
            })
            .threaded(SLOW, |request| {
                std::thread::sleep(Duration::from_millis(300));
                request.answer(b"done");
            });
        let endpoint = domain.endpoint(Attributes::default(), handlers).expect("an endpoint");
        Owner { domain, endpoint, handled }
    }

    fn startpoint<const N: usize>(&self, caveats: [Caveat; N]) -> Capability {
        self.endpoint.startpoint(caveats).expect("a startpoint")
    }

    fn refused(&self, reason: Refusal) -> u64 {
        self.domain.refusals().expect("not in a handler").of(reason)
    }

    fn all_refused(&self) -> u64 {
        let refusals = self.domain.refusals().expect("not in a handler");
        refusals.startpoints.iter().map(|(_, count)| count).sum()
    }
}

/// What a request over a link says that a thief opens with these bytes.
fn attempt(thief: &Domain, stolen: &Capability, handler: u32) -> Result<Vec<u8>, Error> {
    thief.startpoint(stolen, PATIENCE)?.call(handler, b"mine now", PATIENCE)
}

/// The encoding cut into what is before the caveats, the caveats, and the secret.
fn parts(capability: &Capability) -> (Vec<u8>, Vec<Vec<u8>>, Vec<u8>) {
    let bytes = capability.encode().to_vec();
    let addresses: usize = capability.addresses().iter().map(|address| 2 + address.text.len()).sum();
    let transforms = capability.transforms().as_str().len();
    let start = 1 + 32 + 8 + 16 + 1 + capability.class().len() + 1 + transforms + 1 + addresses;
    let (head, rest) = bytes.split_at(start);
    let (caveats, secret) = rest.split_at(rest.len() - 32);
    let mut left = &caveats[1..];
    let mut each = Vec::new();
    while !left.is_empty() {
        let len = 3 + usize::from(u16::from_be_bytes([left[1], left[2]]));
        each.push(left[..len].to_vec());
        left = &left[len..];
    }
    assert_eq!(each.len(), capability.caveats().count());
    (head.to_vec(), each, secret.to_vec())
}

fn whole((head, caveats, secret): (Vec<u8>, Vec<Vec<u8>>, Vec<u8>)) -> Capability {
    let bytes = [head, vec![caveats.len() as u8], caveats.concat(), secret].concat();
    Capability::decode(&bytes).expect("it has the form of a startpoint")
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than that").as_secs()
}

#[test]
fn a_copy_that_was_stolen_opens_nothing_however_it_is_dressed_up() {
    let owner = Owner::new();
    let (holder, thief) = (domain(), domain());
    let copy = owner.domain.copy_for(&owner.startpoint([]), holder.key_hash()).expect("a copy");
    attempt(&holder, &copy, ECHO).expect("it is its holder's");
    let as_it_is = attempt(&thief, &copy, ECHO).expect_err("it is another's").to_string();
    assert!(as_it_is.contains("bound to another"), "{as_it_is}");
    // The thief's name in place of the holder's; then the copy's caveat taken away, as if it were the parent.
    let (head, mut caveats, secret) = parts(&copy);
    let last = caveats.len() - 1;
    caveats[last][3 + 16..3 + 48].copy_from_slice(&thief.key_hash().0);
    let renamed = whole((head.clone(), caveats.clone(), secret.clone()));
    caveats.pop();
    let stripped = whole((head, caveats, secret));
    for (at, forged) in [renamed, stripped].iter().enumerate() {
        let refused = attempt(&thief, forged, ECHO).expect_err("it is forged").to_string();
        assert!(refused.contains("could not prove"), "{refused}");
        assert_eq!(owner.refused(Refusal::Unproven), at as u64 + 1);
    }
    assert_eq!(owner.all_refused(), 2);
    attempt(&holder, &copy, ECHO).expect("its holder is not harmed");
}

#[test]
fn no_altered_byte_of_a_startpoint_opens_a_link() {
    let owner = Owner::new();
    let thief = domain();
    let genuine = owner.startpoint([Caveat::methods([ECHO]), Caveat::Uses(1000), Caveat::Expires(seconds() + 1000)]);
    attempt(&thief, &genuine, ECHO).expect("it is good as it is");
    // While it holds a link, there is a session, and nobody asks at addresses.
    let _open = thief.startpoint(&genuine, PATIENCE).expect("a link");
    let bytes = genuine.encode().to_vec();
    let hints = {
        let (head, ..) = parts(&genuine);
        1 + 32 + 8 + 16 + 1 + genuine.class().len() + 1..head.len()
    };
    let (mut refused, mut unreadable) = (0, 0);
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 1 << (at % 8);
        let Ok(forged) = Capability::decode(&altered) else {
            unreadable += 1;
            continue;
        };
        match attempt(&thief, &forged, ECHO) {
            Ok(_) => assert!(hints.contains(&at), "byte {at} was altered"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 100 && unreadable > 5, "{refused} refused, {unreadable} not even sent");
    let by_reason = owner.domain.refusals().expect("not in a handler").startpoints;
    // Another owner's name ends at the thief's own domain; all else was refused here.
    assert_eq!(by_reason.iter().map(|(_, count)| count).sum::<u64>() + 32, refused, "{by_reason:?}");
    assert!(owner.refused(Refusal::Unproven) > 0 && owner.refused(Refusal::Unknown) > 0, "{by_reason:?}");
}

#[test]
fn caveats_are_neither_stripped_nor_moved_nor_widened() {
    let owner = Owner::new();
    let thief = domain();
    let narrow = owner.startpoint([Caveat::methods([ECHO]), Caveat::Uses(5), Caveat::Expires(seconds() + 1000)]);
    let (head, caveats, secret) = parts(&narrow);
    let mut forged = Vec::new();
    for at in 0..caveats.len() {
        let mut stripped = caveats.clone();
        stripped.remove(at);
        let mut doubled = caveats.clone();
        doubled.insert(at, caveats[at].clone());
        forged.extend([stripped, doubled]);
        for other in 0..at {
            let mut moved = caveats.clone();
            moved.swap(at, other);
            forged.push(moved);
        }
    }
    // kind 1: a list of handlers; 2: uses; 3: an expiry.
    for (kind, content) in
        [(1_u8, vec![0, 0, 0, 0, 0, 0, 0, 1]), (2, u64::MAX.to_be_bytes().into()), (3, u64::MAX.to_be_bytes().into())]
    {
        let mut widened = caveats.clone();
        let caveat = widened.iter_mut().find(|caveat| caveat[0] == kind).expect("it has one");
        *caveat = [vec![kind, 0, content.len() as u8], content].concat();
        forged.push(widened);
    }
    let count = forged.len() as u64;
    for caveats in forged {
        let refused = attempt(&thief, &whole((head.clone(), caveats.clone(), secret.clone())), ECHO);
        let refused = refused.expect_err(&format!("{caveats:02x?}")).to_string();
        assert!(refused.contains("could not prove"), "{refused}");
    }
    assert_eq!(owner.refused(Refusal::Unproven), count);
    attempt(&thief, &narrow, ECHO).expect("as it is it opens");
}

#[test]
fn nothing_goes_on_after_its_time() {
    let owner = Owner::new();
    let client = domain();
    let short = owner.startpoint([Caveat::Expires(seconds() + 2)]);
    let open = client.startpoint(&short, PATIENCE).expect("a link");
    open.call(ECHO, &[], PATIENCE).expect("it is in time");
    while seconds() < short.caveats().find_map(expiry).expect("it has one") {
        std::thread::sleep(Duration::from_millis(50));
    }
    // The endpoint's clock may be some milliseconds behind: it costs no system call.
    std::thread::sleep(Duration::from_millis(50));
    let late = open.call(ECHO, &[], PATIENCE).expect_err("too late, over a link that is open").to_string();
    assert!(late.contains("expired"), "{late}");
    let late = attempt(&client, &short, ECHO).expect_err("too late for a new link").to_string();
    assert!(late.contains("expired"), "{late}");
    assert_eq!((owner.refused(Refusal::Expired), owner.all_refused()), (2, 2));
}

fn expiry(caveat: &Caveat) -> Option<u64> {
    match caveat {
        Caveat::Expires(second) => Some(*second),
        _ => None,
    }
}

#[test]
fn what_is_revoked_ends_with_the_request_that_is_under_way_and_so_does_all_that_came_from_it() {
    let owner = Owner::new();
    let [parent, child, bystander] = [(); 3].map(|()| domain());
    let root = owner.startpoint([]);
    let of_parent = owner.domain.copy_for(&root, parent.key_hash()).expect("a copy");
    let of_child = parent.copy_for(&of_parent, child.key_hash()).expect("a copy of the copy");
    let beside = owner.domain.copy_for(&root, bystander.key_hash()).expect("another copy");
    let open = |domain: &Domain, copy| domain.startpoint(copy, PATIENCE).expect("a link");
    let (by_parent, by_child, by_bystander) =
        (open(&parent, &of_parent), open(&child, &of_child), open(&bystander, &beside));
    by_parent.call(ECHO, &[], PATIENCE).expect("an answer");
    by_bystander.call(ECHO, &[], PATIENCE).expect("an answer");
    let under_way = by_child.start(SLOW, &[]).expect("it goes");
    by_child.call(ECHO, &[], PATIENCE).expect("the request before has come, too");
    owner.endpoint.revoke(&of_parent).expect("it is this endpoint's");
    assert_eq!(under_way.wait(PATIENCE).expect("what was begun is answered"), b"done");
    for open in [&by_parent, &by_child] {
        let refused = open.call(COUNT, &[], PATIENCE).expect_err("revoked").to_string();
        assert!(refused.contains("revoked"), "{refused}");
        // One-way requests are refused as well, and nobody hears of it but the owner.
        open.send(COUNT, &[]).expect("it goes");
    }
    for (domain, copy) in [(&parent, &of_parent), (&child, &of_child)] {
        let refused = attempt(domain, copy, COUNT).expect_err("revoked").to_string();
        assert!(refused.contains("revoked"), "{refused}");
    }
    by_bystander.call(COUNT, &[], PATIENCE).expect("what is beside goes on");
    assert_eq!(owner.handled.load(Ordering::Relaxed), 1, "nothing that was revoked was handled");
    assert_eq!((owner.refused(Refusal::Revoked), owner.all_refused()), (6, 6));
}

#[test]
fn uses_are_counted_over_all_copies_and_all_links() {
    let owner = Owner::new();
    let domains = [(); 3].map(|()| domain());
    let root = owner.startpoint([Caveat::Uses(10), Caveat::Expires(seconds() + 1000)]);
    let copies: Vec<_> =
        domains.iter().map(|domain| owner.domain.copy_for(&root, domain.key_hash()).expect("a copy")).collect();
    std::thread::scope(|scope| {
        for (domain, copy) in domains.iter().zip(&copies) {
            scope.spawn(move || {
                for _ in 0..10 {
                    // A link each, and some of them refused.
                    let _ = attempt(domain, copy, COUNT);
                }
            });
        }
    });
    assert_eq!(owner.handled.load(Ordering::Relaxed), 10);
    assert_eq!((owner.refused(Refusal::UsedUp), owner.all_refused()), (20, 20));
}

#[test]
fn a_handler_that_a_startpoint_does_not_name_is_refused_over_a_link_in_clear_too() {
    let mut weak = config().listen("127.0.0.1:0".parse().expect("an address"));
    weak.policy = Policy::uniform(Protection::None);
    let domain = Domain::open(weak).expect("a domain");
    let handlers = Handlers::new().inline(ECHO, |call| call.answer(call.payload));
    let attributes = Attributes::default().protection(Protection::None);
    let endpoint = domain.endpoint(attributes, handlers).expect("an endpoint");
    let in_clear = endpoint.startpoint([Caveat::methods([COUNT])]).expect("a startpoint");
    let mut client = config();
    client.policy = Policy::uniform(Protection::None);
    let client = Domain::open(client).expect("a domain");
    let refused = attempt(&client, &in_clear, ECHO).expect_err("not its handler").to_string();
    assert!(refused.contains("does not allow this handler"), "{refused}");
    assert_eq!(domain.refusals().expect("not in a handler").of(Refusal::Method), 1);
}
