//! Learns communicators' identifiers from the guard, and tells the protocol what is asked for them.
//!
//! Only MPI knows which identifier a communicator has. So the guard posts an empty receive for each of its ranks through
//! MPI, with a tag that nobody else has: what arrives here is not posted, but its tag and source are looked at. It stays
//! until the guard cancels it. Nothing is sent. Then the guard has the ranks agree on all that in collectives of that
//! communicator, whose tags must show the same identifier.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gambeson_proto::communicators::{Communicators, Layout, Refused, Step, Wish, WishNumber};
use gambeson_proto::endpoint::Lane;
use gambeson_proto::identity::PublicKey;
use gambeson_proto::policy::is_class;
use gambeson_proto::suite::Protection;

use crate::job;

/// In how many threads the guard looks at a communicator: nearly always none.
static WATCHED: AtomicU64 = AtomicU64::new(0);
static NOTES: Mutex<Option<Notes>> = Mutex::new(None);

/// What was seen in those threads, and what is known of communicators.
#[derive(Default)]
struct Notes {
    threads: HashMap<u64, Seen>,
    layout: Option<Layout>,
    /// The other processes of a communicator, by its identifier.
    members: HashMap<u64, Vec<PublicKey>>,
}

#[derive(Default)]
struct Seen {
    /// Tags and sources of the guard's receives; no source where the program names none.
    receives: Vec<(u64, Option<PublicKey>)>,
    /// Tags of messages.
    sends: Vec<u64>,
}

/// Whether the guard looks at a communicator in this thread.
pub(crate) fn is_watched() -> bool {
    WATCHED.load(Ordering::Relaxed) != 0
        && notes().as_ref().is_some_and(|notes| notes.threads.contains_key(&this_thread()))
}

/// Whether a receive is the guard's.
pub(crate) fn is_probe(lane: Lane, tag: u64, len: usize) -> bool {
    is_watched() && lane == Lane::Tagged && len == 0 && tag & 0xFFFF == PROBE
}

/// A receive of the guard's came.
#[cold]
pub(crate) fn probed(tag: u64, source: Option<PublicKey>) {
    with_seen(|seen| seen.receives.push((tag, source)));
}

/// A message goes out in the watched thread.
#[cold]
pub(crate) fn sends(tag: u64) {
    with_seen(|seen| seen.sends.push(tag));
}

fn with_seen(note: impl FnOnce(&mut Seen)) {
    notes().as_mut().and_then(|notes| notes.threads.get_mut(&this_thread())).map(note);
}

/// The guard begins to look at a communicator in this thread, or ends it.
pub(crate) fn watch(on: bool) {
    let mut notes = notes();
    let threads = &mut notes.get_or_insert_default().threads;
    if on {
        threads.insert(this_thread(), Seen::default());
    } else {
        threads.remove(&this_thread());
    }
    WATCHED.store(threads.len() as u64, Ordering::Release);
}

/// The identifier that the receives with MPI's tag `probe` showed; `NOTHING` when none came here. `largest` is MPI's
/// largest tag.
pub(crate) fn learn(probe: u64, largest: u64, open_mpi: bool) -> Result<u64, Outcome> {
    // Which endpoints of others are of one process is not known, and one-sided data may take any of them.
    if job::endpoints_open() > 1 {
        return Err(Outcome::Endpoints);
    }
    let mut notes = notes();
    let notes = notes.get_or_insert_default();
    let receives = std::mem::take(&mut notes.threads.get_mut(&this_thread()).ok_or(Outcome::Nothing)?.receives);
    let Some(&(tag, _)) = receives.first() else { return Err(Outcome::Nothing) };
    let mut layouts = Layout::of_family(open_mpi).iter();
    let fits = |layout: &&Layout| receives.iter().all(|(tag, _)| layout.fits(*tag, probe, largest));
    let layout = *layouts.find(fits).ok_or(Outcome::Layout)?;
    let identifier = layout.identifier(tag);
    let alike = receives.iter().all(|(tag, _)| layout.identifier(*tag) == identifier);
    if !alike || notes.layout.is_some_and(|known| known != layout) {
        return Err(Outcome::Layout);
    }
    let members = receives.iter().map(|(_, source)| *source).collect::<Option<_>>().ok_or(Outcome::Layout)?;
    communicators()?.set_layout(layout).map_err(Outcome::from)?;
    notes.layout = Some(layout);
    notes.members.insert(identifier, members);
    Ok(identifier)
}

/// Whether some of the messages that went out in the watched thread had this identifier, or none went out.
pub(crate) fn saw(identifier: u64) -> bool {
    let mut notes = notes();
    let Notes { threads, layout, .. } = notes.get_or_insert_default();
    let (Some(seen), Some(layout)) = (threads.get(&this_thread()), layout) else { return false };
    seen.sends.is_empty() || seen.sends.iter().any(|tag| layout.identifier(*tag) == identifier)
}

/// The number of a wish.
pub(crate) fn wish(protection: u8, class: &CStr) -> Result<WishNumber, Outcome> {
    let protection = Protection::from_number(protection).ok_or(Outcome::Wish)?;
    // A name that no rule can have is none.
    let class = class.to_str().ok().filter(|class| is_class(class)).map(Into::into);
    let membership = job::membership(false).ok_or(Outcome::NoJob)?;
    let job = &membership.job;
    job.communicators.number(&job.policy, Wish { protection, class }).map_err(Outcome::from)
}

/// What tells a wish from all others that are probable, in every process alike: 30 bits, not all zero.
pub(crate) fn mark(number: WishNumber) -> u32 {
    let wish = communicators().ok().and_then(|communicators| communicators.wish(number));
    wish.map_or(0, |Wish { protection, class }| {
        let start = 0x811c_9dc5_u32 ^ u32::from(class.is_some());
        let hash = class
            .unwrap_or_default()
            .bytes()
            .fold(start, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        (protection as u32) << 28 | hash >> 4
    })
}

/// Takes a step for a communicator whose members are known.
pub(crate) fn step(identifier: u64, step: Step) -> Result<(), Outcome> {
    let notes = notes();
    let members = notes.as_ref().and_then(|notes| notes.members.get(&identifier)).ok_or(Outcome::Nothing)?;
    communicators()?.take(identifier, members, step).map_err(Outcome::from)
}

fn communicators() -> Result<&'static Communicators, Outcome> {
    Ok(&job::membership(false).ok_or(Outcome::NoJob)?.job.communicators)
}

fn notes() -> MutexGuard<'static, Option<Notes>> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn this_thread() -> u64 {
    // SAFETY: pthread_self has no preconditions.
    unsafe { libc::pthread_self() }
}

/// How the guard is told what came of a call: zero, a number that it asked for, or one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Outcome {
    /// No message of the communicator passes the provider.
    Nothing = -1,
    /// The policy allows nobody so little.
    Policy = -2,
    /// The tags are not those of a known MPI.
    Layout = -3,
    /// The identifier is too large.
    Identifier = -4,
    /// There are too many different wishes.
    Wishes = -5,
    /// No such protection.
    Wish = -6,
    /// This process is in no job.
    NoJob = -7,
    /// This process has several endpoints.
    Endpoints = -8,
}

impl From<Refused> for Outcome {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Policy => Outcome::Policy,
            Refused::Identifier => Outcome::Identifier,
            Refused::Layout => Outcome::Layout,
            Refused::Wishes => Outcome::Wishes,
        }
    }
}

/// See [`watch`].
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gambeson_communicator_watch(on: c_int) {
    if gambeson_pages::alive() {
        watch(on != 0);
    }
}

/// See [`learn`].
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gambeson_communicator_learn(probe: u64, largest: u64, open_mpi: c_int) -> i64 {
    if !gambeson_pages::alive() {
        return i64::from(Outcome::NoJob as i32);
    }
    // Identifiers have 30 bits at most.
    learn(probe, largest, open_mpi != 0).map_or_else(|error| i64::from(error as i32), |identifier| identifier as i64)
}

/// See [`saw`].
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gambeson_communicator_saw(identifier: u64) -> c_int {
    c_int::from(gambeson_pages::alive() && saw(identifier))
}

/// See [`wish`].
///
/// # Safety
/// `class` is a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gambeson_communicator_wish(protection: c_int, class: *const c_char) -> c_int {
    if !gambeson_pages::alive() {
        return Outcome::NoJob as c_int;
    }
    // SAFETY: promised by the caller.
    let class = unsafe { CStr::from_ptr(class) };
    let protection = u8::try_from(protection).unwrap_or(0);
    wish(protection, class).map_or_else(|error| error as c_int, c_int::from)
}

/// See [`mark`].
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gambeson_communicator_mark(wish: u8) -> c_int {
    if gambeson_pages::alive() { mark(wish) as c_int } else { 0 }
}

/// Sends satisfy the wishes `one` and `other` from now on, or with `demand` what arrives has to satisfy `one`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gambeson_communicator_step(identifier: u64, demand: c_int, one: u8, other: u8) -> c_int {
    if !gambeson_pages::alive() {
        return Outcome::NoJob as c_int;
    }
    let what = if demand != 0 { Step::Demand(one) } else { Step::Send([one, other]) };
    step(identifier, what).map_or_else(|error| error as c_int, |()| 0)
}

/// The low bits of the tag of the guard's receives, which every library here puts into the low bits of libfabric's.
const PROBE: u64 = 0x4743;
