//! What a startpoint costs its endpoint: at most 512 bytes, its two sessions included, with 10,000 of them there.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use gambeson_proto::key_schedule::{End, KeyHash, SessionKeys};
use gambeson_proto::secret::Secret32;
use gambeson_proto::session::{EpochLimits, ReceiveSession, SendSession};
use gambeson_proto::startpoint::{
    Caveat, EndpointKey, Grant, Limits, Session, Startpoint, StartpointBook, Terms, Transforms,
};
use gambeson_proto::suite::{Protection, Suite};

const STARTPOINTS: u64 = 10_000;
const MOST: usize = 512;
/// A link's two roots, which come from pages of their own and not from this allocator.
const ROOTS: usize = 2 * 32;
const OWNER: KeyHash = [1; 32];
const OPENER: KeyHash = [2; 32];

/// Counts what glibc's malloc takes for what is asked for: 8 bytes more, in steps of 16, 32 at least.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

fn chunk(size: usize) -> usize {
    (size + 8).next_multiple_of(16).max(32)
}

// SAFETY: it is the system's allocator, with a number kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(chunk(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(chunk(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What an endpoint has of a link.
type Link = (Grant, ReceiveSession, SendSession);

struct Owner {
    book: StartpointBook,
    here: Session,
    there: Session,
    links: Vec<Link>,
    first: Option<Startpoint>,
}

impl Owner {
    fn new() -> Self {
        let mut book = StartpointBook::new(OWNER, Limits::default());
        book.open_endpoint(1, EndpointKey::from_bytes([3; 32]), "data", Transforms::default()).expect("a class");
        let keys = |own, peer| SessionKeys {
            exporter: Secret32::from_bytes([4; 32]),
            own,
            peer,
            job_id: [0; 16],
            policy_hash: [0; 32],
            suite: Suite::Aes256Gcm,
        };
        let here = Session::new(keys(OPENER, OWNER), End::Startpoint);
        let there = Session::new(keys(OWNER, OPENER), End::Endpoint);
        Owner { book, here, there, links: Vec::new(), first: None }
    }

    fn mint(&mut self, root: u64, caveats: Vec<Caveat>) -> Startpoint {
        self.book.mint(1, id(root), Vec::new(), caveats).expect("it can be made")
    }

    fn open(&mut self, startpoint: &Startpoint) {
        let opening =
            startpoint.activate(&mut self.here, [5; 16], Protection::Privacy, None).expect("it is the opener's");
        let terms = |_: &str| Terms { floor: Protection::Privacy, partition: None };
        let admitted =
            self.book.admit(&mut self.there, &opening.activation.encode(), 1_000, terms).expect("it is genuine");
        let (suite, protection) = (Suite::Aes256Gcm, admitted.activation.protection);
        if self.links.is_empty() {
            // The table as it is, not how it grows.
            self.links.reserve_exact(STARTPOINTS as usize);
        }
        let receive = ReceiveSession::new(admitted.keys.from_startpoint, suite, protection);
        let send = SendSession::new(admitted.keys.from_endpoint, suite, protection, EpochLimits::default());
        self.links.push((admitted.grant, receive, send));
    }
}

/// Bytes for each, with the link's place in a table.
fn measure(what: &str, open: impl Fn(&mut Owner, u64)) -> usize {
    let before = LIVE.load(Ordering::Relaxed);
    let mut owner = Owner::new();
    for number in 0..STARTPOINTS {
        open(&mut owner, number);
    }
    let roots = if owner.links.is_empty() { 0 } else { ROOTS };
    let each = (LIVE.load(Ordering::Relaxed) - before).div_ceil(STARTPOINTS as usize) + roots;
    println!("{STARTPOINTS} {what}: {each} bytes each (a link in its table: {})", size_of::<Link>());
    assert!(owner.links.iter().all(|(grant, ..)| grant.permit(1, 1_000).is_ok()));
    each
}

fn id(number: u64) -> [u8; 16] {
    (u128::from(number) + 1).to_be_bytes()
}

fn copy(startpoint: &Startpoint, number: u64) -> Startpoint {
    startpoint.copy_for(OPENER, id(number), |_| unreachable!("a bearer's")).expect("it can be copied")
}

fn usual() -> Vec<Caveat> {
    vec![Caveat::methods([1, 2, 3, 4]), Caveat::Expires(2_000), Caveat::Uses(100)]
}

/// One test, since all that the process allocates is counted.
#[test]
fn ten_thousand_startpoints_on_one_endpoint_take_at_most_512_bytes_each() {
    let unopened = measure("made and not opened", |owner, number| drop(owner.mint(number, usual())));
    let plain = measure("made without caveats, opened", |owner, number| {
        let startpoint = owner.mint(number, Vec::new());
        owner.open(&startpoint);
    });
    let made = measure("made with handlers, expiry and uses, copied to the holder, opened", |owner, number| {
        let startpoint = owner.mint(number, usual());
        owner.open(&copy(&startpoint, number));
    });
    let copied = measure("copies of one, each with handlers, expiry and uses of its own, opened", |owner, number| {
        if number == 0 {
            owner.first = Some(owner.mint(0, Vec::new()));
        }
        let mut copy = copy(owner.first.as_ref().expect("it was made"), number);
        usual().into_iter().for_each(|caveat| copy.narrow(caveat).expect("there is room"));
        owner.open(&copy);
    });
    for each in [unopened, plain, made, copied] {
        assert!(each <= MOST, "{each} bytes");
    }
}
