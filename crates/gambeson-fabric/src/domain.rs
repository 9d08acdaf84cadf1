//! fid_domain: one lock around everything that is opened in it.
//!
//! The core is opened for one thread at a time, whatever the program asks for, and the lock makes
//! that true: a program that promises to serialise pays for an uncontended lock, and one that asks
//! for FI_THREAD_SAFE gets it.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ops::{Index, IndexMut};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use crate::av::Vector;
use crate::cntr::Counter;
use crate::core::{self, Info};
use crate::cq::Queue;
use crate::endpoint::Endpoint;
use crate::fabric::{self, Fabric};
use crate::fid::{self, Errno, Object, Outcome, alive, header, put, status};
use crate::job::{self, Membership};
use crate::mr::Regions;
use crate::unsupported::unsupported;
use crate::{av, cntr, cq, endpoint, info, mr, watchdog};
use gambeson_libfabric_sys::{self as sys, fi_info, fid_domain, fid_ep, fid_fabric};

/// A domain, shared by its objects and the watchdog.
pub(crate) struct Domain {
    pub(crate) membership: &'static Membership,
    /// The core's description of the interface.
    pub(crate) info: Info,
    /// Whether the program wants progress without calling us.
    pub(crate) auto_progress: bool,
    /// The interface version of the program.
    pub(crate) api_version: u32,
    state: Mutex<State>,
}

// SAFETY: the info is never written once the domain is open.
unsafe impl Sync for Domain {}

/// Everything opened in a domain.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) core: Option<core::Domain>,
    pub(crate) endpoints: Table<Endpoint>,
    pub(crate) queues: Table<Queue>,
    pub(crate) vectors: Table<Vector>,
    pub(crate) counters: Table<Counter>,
    pub(crate) regions: Regions,
}

impl Domain {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The state, unless another thread has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl State {
    /// Drives one endpoint and hands what it completed to its queues. Whether anything happened.
    pub(crate) fn pump(&mut self, endpoint: usize) -> bool {
        let moved = self.endpoints[endpoint].pump();
        self.deliver(endpoint);
        moved
    }

    /// Drives every endpoint.
    pub(crate) fn pump_all(&mut self) -> bool {
        let mut moved = false;
        for endpoint in 0..self.endpoints.end() {
            if self.endpoints.has(endpoint) {
                moved |= self.pump(endpoint);
            }
        }
        moved
    }

    /// Hands what an endpoint completed to its queues and counters.
    pub(crate) fn deliver(&mut self, endpoint: usize) {
        let endpoint = &mut self.endpoints[endpoint];
        endpoint.serve(&mut self.regions);
        endpoint.deliver(&mut self.queues, &mut self.counters);
    }
}

/// What an object of a domain knows: the domain, kept alive by the object, and its place in it.
pub(crate) struct Member {
    domain: ManuallyDrop<Arc<Domain>>,
    index: usize,
}

impl Member {
    /// A C object for the thing at `index`.
    pub(crate) fn handle<F>(domain: &Arc<Domain>, fid: F, index: usize) -> Outcome<*mut F> {
        let domain = ManuallyDrop::new(Arc::clone(domain));
        Object::allocate(fid, Member { domain, index })
    }

    /// Gives a C object up, and with it its hold on the domain.
    ///
    /// # Safety
    /// `fid` came from [`Member::handle`]; nobody uses it any more.
    pub(crate) unsafe fn free<F>(fid: *mut F) {
        // SAFETY: promised by the caller; the body is read out once, before its memory goes.
        let member = unsafe { std::ptr::from_ref(Object::<F, Member>::body(fid)).read() };
        drop(ManuallyDrop::into_inner(member.domain));
        // SAFETY: promised by the caller.
        unsafe { Object::<F, Member>::free(fid) };
    }
}

/// Runs `work` on the thing behind a C object, under its domain's lock.
///
/// # Safety
/// `fid` came from [`Member::handle`] and is open.
pub(crate) unsafe fn enter<F, R>(fid: *mut F, work: impl FnOnce(&mut State, usize) -> Outcome<R>) -> Outcome<R> {
    alive()?;
    // SAFETY: promised by the caller.
    let member = unsafe { Object::<F, Member>::body(fid) };
    work(&mut member.domain.lock(), member.index)
}

/// Closes a C object: `remove` takes the thing behind it out of its domain, or says why it stays.
///
/// # Safety
/// As for [`enter`]; when this returns 0 nobody uses the object any more.
pub(crate) unsafe fn close_member<F>(fid: *mut sys::fid, remove: impl FnOnce(&mut State, usize) -> Outcome) -> c_int {
    // What a forked child holds is gone already.
    if alive().is_err() {
        return 0;
    }
    let object: *mut F = fid.cast();
    // SAFETY: promised by the caller.
    unsafe {
        let removed = enter(object, remove);
        if removed.is_ok() {
            Member::free(object);
        }
        status(removed)
    }
}

/// As [`enter`], but refuses with FI_EAGAIN when another thread is inside, which then does the work.
///
/// # Safety
/// As for [`enter`].
pub(crate) unsafe fn try_enter<F, R>(fid: *mut F, work: impl FnOnce(&mut State, usize) -> Outcome<R>) -> Outcome<R> {
    alive()?;
    // SAFETY: promised by the caller.
    let member = unsafe { Object::<F, Member>::body(fid) };
    let mut state = member.domain.try_lock().ok_or(Errno(sys::FI_EAGAIN))?;
    work(&mut state, member.index)
}

/// The domain of a C object, and the object's place in it.
///
/// # Safety
/// As for [`enter`].
pub(crate) unsafe fn of<'a, F>(fid: *mut F) -> (&'a Arc<Domain>, usize) {
    // SAFETY: promised by the caller.
    let member = unsafe { Object::<F, Member>::body(fid) };
    (&member.domain, member.index)
}

/// The domain's own C object.
struct Own {
    domain: ManuallyDrop<Arc<Domain>>,
    fabric: *const Fabric,
}

type Handle = Object<fid_domain, Own>;

/// Opens a domain.
///
/// # Safety
/// `fabric` is an open fabric of ours.
pub(crate) unsafe fn open(fabric: *mut fid_fabric, wanted: &fi_info, context: *mut c_void) -> Outcome<*mut fid_domain> {
    // SAFETY: promised by the caller.
    let (api_version, parent) = unsafe { ((*fabric).api_version, fabric::of(fabric)) };
    let membership = job::membership(true).ok_or(Errno(sys::FI_EPERM))?;
    let info = info::core_of_domain(wanted)?;
    // SAFETY: the core's fabric is closed after its domains.
    let core = unsafe { core::Domain::open(parent.core, &info)? };
    // SAFETY: the program passes what getinfo returned, with all attributes.
    let auto_progress = unsafe { wanted.domain_attr.as_ref() }.is_some_and(info::wants_auto_progress);
    let state = Mutex::new(State { core: Some(core), ..State::default() });
    let domain = Arc::new(Domain { membership, info, auto_progress, api_version, state });
    let fid = fid_domain {
        fid: header(sys::FI_CLASS_DOMAIN, context, &FID_OPS),
        ops: fid::ptr(&OPS),
        mr: fid::ptr(&mr::OPS),
    };
    fabric::domain_opens(parent)?;
    watchdog::add(&domain);
    Handle::allocate(fid, Own { domain: ManuallyDrop::new(domain), fabric: parent })
}

/// The domain behind its C object.
///
/// # Safety
/// libfabric calls our tables with our objects only.
pub(crate) unsafe fn own<'a>(fid: *mut fid_domain) -> &'a Arc<Domain> {
    // SAFETY: promised by the caller.
    unsafe { &Handle::body(fid).domain }
}

/// Whether an object handed in by a program is a domain of this provider.
pub(crate) fn is_ours(domain: *const fid_domain) -> bool {
    // SAFETY: a program passes null or an open domain.
    unsafe { domain.as_ref() }.is_some_and(|domain| std::ptr::eq(domain.fid.ops, &FID_OPS))
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    status((|| {
        if alive().is_err() {
            return Ok(());
        }
        let fid: *mut fid_domain = fid.cast();
        // SAFETY: a domain of ours.
        let domain = unsafe { own(fid) };
        let mut state = domain.lock();
        if !state.is_empty() {
            return Err(Errno(sys::FI_EBUSY));
        }
        watchdog::remove(domain);
        let closed = state.core.take().map_or(Ok(()), core::Domain::close);
        drop(state);
        // SAFETY: read out once, before its memory goes; the fabric outlives its domains.
        let Own { domain, fabric } = unsafe { std::ptr::from_ref(Handle::body(fid)).read() };
        drop(ManuallyDrop::into_inner(domain));
        // SAFETY: as above.
        fabric::domain_closed(unsafe { &*fabric });
        // SAFETY: the program gives it up.
        unsafe { Handle::free(fid) };
        closed
    })())
}

impl State {
    fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
            && self.queues.is_empty()
            && self.vectors.is_empty()
            && self.counters.is_empty()
            && self.regions.is_empty()
    }
}

unsafe extern "C" fn open_endpoint(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    status((|| {
        alive()?;
        // SAFETY: a domain of ours, an fi_info and an out-parameter.
        unsafe { put(ep, endpoint::open(own(domain), info.as_ref().ok_or(Errno(sys::FI_EINVAL))?, context)?) }
    })())
}

unsafe extern "C" fn open_endpoint2(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -sys::FI_EINVAL;
    }
    // SAFETY: the same arguments.
    unsafe { open_endpoint(domain, info, ep, context) }
}

static FID_OPS: sys::fi_ops = sys::fi_ops {
    size: size_of::<sys::fi_ops>(),
    close: Some(close),
    bind: unsupported(),
    control: unsupported(),
    ops_open: unsupported(),
    tostr: unsupported(),
    ops_set: unsupported(),
};

static OPS: sys::fi_ops_domain = sys::fi_ops_domain {
    size: size_of::<sys::fi_ops_domain>(),
    av_open: Some(av::open),
    cq_open: Some(cq::open),
    endpoint: Some(open_endpoint),
    scalable_ep: unsupported(),
    cntr_open: Some(cntr::open),
    poll_open: unsupported(),
    stx_ctx: unsupported(),
    srx_ctx: unsupported(),
    query_atomic: unsupported(),
    query_collective: unsupported(),
    endpoint2: Some(open_endpoint2),
    xpu_ctx: unsupported(),
};

/// Things with a fixed place while they are open.
pub(crate) struct Table<T>(Vec<Option<Box<T>>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table(Vec::new())
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&mut self, thing: T) -> usize {
        let free = self.0.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        self.0[place] = Some(Box::new(thing));
        place
    }

    pub(crate) fn remove(&mut self, place: usize) -> Option<Box<T>> {
        self.0[place].take()
    }

    pub(crate) fn has(&self, place: usize) -> bool {
        self.0.get(place).is_some_and(Option::is_some)
    }

    /// Everything in the table.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flatten().map(Box::as_mut)
    }

    /// One more than the last place.
    pub(crate) fn end(&self) -> usize {
        self.0.len()
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

impl<T> Index<usize> for Table<T> {
    type Output = T;

    fn index(&self, place: usize) -> &T {
        self.0[place].as_ref().expect("an open object's place is taken")
    }
}

impl<T> IndexMut<usize> for Table<T> {
    fn index_mut(&mut self, place: usize) -> &mut T {
        self.0[place].as_mut().expect("an open object's place is taken")
    }
}
