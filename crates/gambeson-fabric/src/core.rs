//! The libfabric that loaded us, and the core provider's objects that it gives us.
//!
//! The library is found by the address it calls from and never linked to, since several copies may
//! be loaded. Of its structs we touch only what libfabric 1.17 has: newer fields lie behind.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use crate::address::{self, Raw};
use crate::fid::{Errno, Outcome};
use gambeson_libfabric_sys::{self as sys, fi_info};

type Getinfo = unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;

/// Functions of the libfabric that loaded us.
pub(crate) struct Library {
    getinfo: Getinfo,
    freeinfo: unsafe extern "C" fn(*mut fi_info),
    dupinfo: unsafe extern "C" fn(*const fi_info) -> *mut fi_info,
    fabric: unsafe extern "C" fn(*mut sys::fi_fabric_attr, *mut *mut sys::fid_fabric, *mut c_void) -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
    version: unsafe extern "C" fn() -> u32,
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// Finds the functions of the library that `caller` lies in.
///
/// # Safety
/// `caller` is an address in loaded code.
pub(crate) unsafe fn load(caller: *const c_void) -> Result<&'static Library, String> {
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr accepts any address and fills the struct when it returns non-zero.
    if unsafe { libc::dladdr(caller, found.as_mut_ptr()) } == 0 {
        return Err("the libfabric that loaded this provider can't be found in the process; use the libfabric that \
                    your MPI was built with"
            .into());
    }
    // SAFETY: filled, and a loaded object has a name.
    let name = unsafe { CStr::from_ptr(found.assume_init().dli_fname) };
    // SAFETY: opens what is loaded already, or fails.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    // A program that is linked with libfabric statically is its own libfabric.
    let handle = if handle.is_null() { libc::RTLD_DEFAULT } else { handle };
    let symbol = |symbol: &CStr| {
        // SAFETY: the handle stays open for good, so what it gives stays loaded.
        let address = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
        NonNull::new(address).ok_or_else(|| {
            let (symbol, name) = (symbol.to_string_lossy(), name.to_string_lossy());
            format!(
                "{name} loaded this provider but has no {symbol}; it needs libfabric 1.17 or newer as a shared library"
            )
        })
    };
    // SAFETY: libfabric's public functions have had these types since 1.5.
    let library = unsafe {
        Library {
            getinfo: std::mem::transmute::<NonNull<c_void>, Getinfo>(symbol(c"fi_getinfo")?),
            freeinfo: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut fi_info)>(symbol(
                c"fi_freeinfo",
            )?),
            dupinfo: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*const fi_info) -> *mut fi_info>(
                symbol(c"fi_dupinfo")?,
            ),
            fabric: std::mem::transmute::<
                NonNull<c_void>,
                unsafe extern "C" fn(*mut sys::fi_fabric_attr, *mut *mut sys::fid_fabric, *mut c_void) -> c_int,
            >(symbol(c"fi_fabric")?),
            strerror: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(c_int) -> *const c_char>(symbol(
                c"fi_strerror",
            )?),
            version: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn() -> u32>(symbol(c"fi_version")?),
        }
    };
    Ok(LIBRARY.get_or_init(|| library))
}

/// The libfabric that loaded us. Nothing of ours runs before it did.
pub(crate) fn library() -> &'static Library {
    LIBRARY.get().expect("libfabric calls fi_prov_ini first")
}

impl Library {
    /// Its version, as FI_VERSION writes it.
    pub(crate) fn version(&self) -> u32 {
        // SAFETY: fi_version has no preconditions.
        unsafe { (self.version)() }
    }

    /// The interface version we speak with core providers.
    pub(crate) fn core_version(&self) -> u32 {
        self.version().min(CORE_VERSION)
    }

    /// What an error number means.
    pub(crate) fn describe(&self, error: i32) -> String {
        // SAFETY: a constant string.
        unsafe { CStr::from_ptr(self.describe_raw(error)) }.to_string_lossy().into_owned()
    }

    /// As [`Library::describe`], for C.
    pub(crate) fn describe_raw(&self, error: i32) -> *const c_char {
        // SAFETY: fi_strerror accepts any number.
        unsafe { (self.strerror)(error) }
    }

    /// An empty fi_info with all its parts.
    pub(crate) fn empty_info(&self) -> Outcome<Info> {
        // SAFETY: fi_dupinfo of null allocates.
        Info::new(unsafe { (self.dupinfo)(ptr::null()) }).ok_or(Errno(sys::FI_ENOMEM))
    }

    /// A copy of one fi_info, without its successors.
    pub(crate) fn duplicate(&self, info: &fi_info) -> Outcome<Info> {
        // SAFETY: the reference is to a fi_info that this library allocated.
        let mut copy = Info::new(unsafe { (self.dupinfo)(info) }).ok_or(Errno(sys::FI_ENOMEM))?;
        copy.get_mut().next = ptr::null_mut();
        Ok(copy)
    }

    /// Asks for the core provider's fi_info, hidden as it is when FI_PROVIDER names only us.
    pub(crate) fn core_info(&self, question: &Question<'_>, hints: &Info) -> Outcome<Info> {
        let mut found = ptr::null_mut();
        let (node, service) = (pointer(question.node), pointer(question.service));
        let flags = question.flags | GETINFO_HIDDEN;
        // SAFETY: strings and hints are valid for the call, the result is ours to free.
        let result =
            unsafe { (self.getinfo)(self.core_version(), node, service, flags, hints.0.as_ptr(), &raw mut found) };
        if result != 0 {
            return Err(Errno(-result));
        }
        Info::new(found).ok_or(Errno(sys::FI_ENODATA))
    }

    /// Opens the core provider's fabric.
    pub(crate) fn open_fabric(&self, info: &Info) -> Outcome<NonNull<sys::fid_fabric>> {
        let mut fabric = ptr::null_mut();
        // SAFETY: an fi_info that getinfo returned has fabric attributes.
        let result = unsafe { (self.fabric)(info.get().fabric_attr, &raw mut fabric, ptr::null_mut()) };
        opened(result, fabric)
    }
}

/// Where fi_getinfo shall look.
#[derive(Clone, Copy, Default)]
pub(crate) struct Question<'q> {
    pub(crate) node: Option<&'q CStr>,
    pub(crate) service: Option<&'q CStr>,
    pub(crate) flags: u64,
}

/// A list of fi_info that the library allocated and will free.
pub(crate) struct Info(NonNull<fi_info>);

// SAFETY: a list belongs to whoever holds it; the library keeps no reference to it.
unsafe impl Send for Info {}

impl Info {
    fn new(info: *mut fi_info) -> Option<Self> {
        NonNull::new(info).map(Info)
    }

    /// The first of the list.
    pub(crate) fn get(&self) -> &fi_info {
        // SAFETY: ours, and freed only when dropped.
        unsafe { self.0.as_ref() }
    }

    /// The first of the list.
    pub(crate) fn get_mut(&mut self) -> &mut fi_info {
        // SAFETY: as above, and borrowed uniquely.
        unsafe { self.0.as_mut() }
    }

    /// All of the list.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &fi_info> {
        std::iter::successors(Some(self.get()), |info| {
            // SAFETY: the list's links are null or valid as long as the list.
            unsafe { info.next.as_ref() }
        })
    }

    /// The list without those that are not wanted; `None` when nothing is left.
    pub(crate) fn retain(self, wanted: impl Fn(&fi_info) -> bool) -> Option<Self> {
        let mut kept = List::default();
        let mut rest = Some(self);
        while let Some(mut info) = rest.take() {
            rest = Info::new(std::mem::replace(&mut info.get_mut().next, ptr::null_mut()));
            if wanted(info.get()) {
                kept.push(info);
            }
        }
        kept.into_info()
    }

    /// Hands the list to C.
    pub(crate) fn into_raw(self) -> *mut fi_info {
        std::mem::ManuallyDrop::new(self).0.as_ptr()
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: allocated by this library, and nobody uses it any more.
        unsafe { (library().freeinfo)(self.0.as_ptr()) };
    }
}

/// A list of fi_info that is being made.
#[derive(Default)]
pub(crate) struct List {
    first: Option<Info>,
    last: Option<NonNull<fi_info>>,
}

impl List {
    /// Appends one.
    pub(crate) fn push(&mut self, info: Info) {
        let added = info.0;
        match self.last.replace(added) {
            None => self.first = Some(info),
            // SAFETY: the last one is part of the list we hold.
            Some(mut last) => unsafe { last.as_mut().next = info.into_raw() },
        }
    }

    /// Those appended so far.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &fi_info> {
        self.first.iter().flat_map(Info::iter)
    }

    pub(crate) fn into_info(self) -> Option<Info> {
        self.first
    }
}

impl fmt::Debug for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Info").finish_non_exhaustive()
    }
}

/// Calls an entry of a core object's table.
macro_rules! call {
    ($object:expr, $table:ident . $entry:ident ( $($argument:expr),* $(,)? )) => {{
        let object = $object;
        ((*(*object).$table).$entry.expect("a core provider fills its tables"))(object, $($argument),*)
    }};
}

/// The core provider's domain.
pub(crate) struct Domain(NonNull<sys::fid_domain>);

// SAFETY: opened for one thread at a time, which our domain's lock ensures.
unsafe impl Send for Domain {}

impl Domain {
    /// Opens the interface that `info` describes.
    ///
    /// # Safety
    /// `fabric` is a core fabric that outlives the domain.
    pub(crate) unsafe fn open(fabric: NonNull<sys::fid_fabric>, info: &Info) -> Outcome<Self> {
        let (mut domain, info) = (ptr::null_mut(), info.0.as_ptr());
        // SAFETY: the fabric is open and the info came from this provider.
        let result = unsafe { call!(fabric.as_ptr(), ops.domain(info, &raw mut domain, ptr::null_mut())) };
        opened(result, domain).map(Domain)
    }

    /// Opens and enables an endpoint with a queue and an address vector of its own.
    pub(crate) fn endpoint(&self, info: &Info, depth: usize) -> Outcome<Endpoint> {
        let domain = self.0.as_ptr();
        let (mut endpoint, mut queue, mut addresses) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: all-zero attributes are valid and mean the default.
        let mut queue_attr: sys::fi_cq_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        queue_attr.size = depth;
        queue_attr.format = sys::FI_CQ_FORMAT_MSG;
        // SAFETY: as above.
        let mut address_attr: sys::fi_av_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: getinfo's answer has domain attributes.
        address_attr.type_ = match unsafe { (*info.get().domain_attr).av_type } {
            sys::FI_AV_UNSPEC => sys::FI_AV_TABLE,
            kind => kind,
        };
        // SAFETY: the domain is open, the attributes are valid for the calls.
        let made = unsafe {
            let result = call!(domain, ops.cq_open(&raw mut queue_attr, &raw mut queue, ptr::null_mut()));
            let queue = Owned(opened(result, queue)?.cast());
            let result = call!(domain, ops.av_open(&raw mut address_attr, &raw mut addresses, ptr::null_mut()));
            let addresses = Owned(opened(result, addresses)?.cast());
            let result = call!(domain, ops.endpoint(info.0.as_ptr(), &raw mut endpoint, ptr::null_mut()));
            let endpoint = Owned(opened(result, endpoint)?.cast());
            Endpoint { endpoint, queue, addresses }
        };
        // SAFETY: all three objects are open, and of one domain.
        unsafe {
            let fid = made.endpoint.0.as_ptr();
            check(call!(fid, ops.bind(made.queue.0.as_ptr(), sys::FI_SEND | sys::FI_RECV)))?;
            check(call!(fid, ops.bind(made.addresses.0.as_ptr(), 0)))?;
            check(call!(fid, ops.control(sys::FI_ENABLE as c_int, ptr::null_mut())))?;
        }
        Ok(made)
    }

    /// Registers memory for a core that wants it registered; its descriptor.
    pub(crate) fn register(&self, memory: &mut [u8]) -> Outcome<Registration> {
        let mut region = ptr::null_mut();
        // SAFETY: the caller keeps the memory until it drops the registration.
        let result = unsafe {
            let domain = self.0.as_ptr();
            let register = (*(*domain).mr).reg.expect("a core provider fills its tables");
            let access = sys::FI_SEND | sys::FI_RECV;
            let (base, len) = (memory.as_ptr().cast(), memory.len());
            register(domain.cast(), base, len, access, 0, 0, 0, &raw mut region, ptr::null_mut())
        };
        Ok(Registration(Owned(opened(result, region)?.cast())))
    }

    pub(crate) fn close(self) -> Outcome {
        // SAFETY: nobody uses it after this.
        unsafe { close(self.0.cast()) }
    }
}

/// Memory registered with the core provider.
pub(crate) struct Registration(Owned);

impl Registration {
    /// What transfers name the memory with.
    pub(crate) fn descriptor(&self) -> *mut c_void {
        // SAFETY: an open fid_mr.
        unsafe { (*self.0.0.as_ptr().cast::<sys::fid_mr>()).mem_desc }
    }
}

/// What an endpoint of ours needs of the core provider. Closed in the order of the fields.
pub(crate) struct Endpoint {
    endpoint: Owned,
    queue: Owned,
    addresses: Owned,
}

/// One completion of the core's queue.
pub(crate) enum Event {
    /// `context`, and the bytes received.
    Done { context: *mut c_void, len: usize },
    /// `context` failed for the reason of the number.
    Failed { context: *mut c_void, error: i32 },
}

impl Endpoint {
    fn raw(&self) -> *mut sys::fid_ep {
        self.endpoint.0.as_ptr().cast()
    }

    /// The address that others reach this endpoint at.
    pub(crate) fn name(&self) -> Outcome<Option<SocketAddr>> {
        let mut raw = [0; 256];
        let mut len = raw.len();
        // SAFETY: the endpoint is open; the buffer has `len` bytes.
        let result = unsafe {
            let getname = (*(*self.raw()).cm).getname.expect("a core provider fills its tables");
            getname(self.raw().cast(), raw.as_mut_ptr().cast(), &raw mut len)
        };
        check(result)?;
        // SAFETY: the core wrote at most `raw.len()` bytes.
        Ok(unsafe { address::read(raw.as_ptr(), len.min(raw.len())) })
    }

    /// An address in the code of the core provider.
    pub(crate) fn code(&self) -> *const c_void {
        let queue: *mut sys::fid_cq = self.queue.0.as_ptr().cast();
        // SAFETY: the queue is open, and its table stays as long as it.
        unsafe { (*(*queue).ops).read.map_or(ptr::null(), |read| read as *const c_void) }
    }

    /// Makes an address reachable.
    pub(crate) fn insert(&self, address: SocketAddr) -> Outcome<sys::fi_addr_t> {
        let (raw, mut at) = (Raw::from(address), UNREACHABLE);
        let av: *mut sys::fid_av = self.addresses.0.as_ptr().cast();
        // SAFETY: the vector is open; one address goes in, one handle comes out.
        let count =
            unsafe { call!(av, ops.insert(raw.as_bytes().as_ptr().cast(), 1, &raw mut at, 0, ptr::null_mut())) };
        if count == 1 && at != UNREACHABLE { Ok(at) } else { Err(Errno(sys::FI_EADDRNOTAVAIL)) }
    }

    /// Sends what the core copies before it returns.
    pub(crate) fn inject(&self, to: sys::fi_addr_t, record: &[u8]) -> Outcome {
        // SAFETY: the endpoint is open; the bytes are copied before the call returns.
        let result = unsafe { call!(self.raw(), msg.inject(record.as_ptr().cast(), record.len(), to)) };
        check(result as c_int)
    }

    /// Sends `len` bytes at `data`.
    ///
    /// # Safety
    /// The memory and the context stay until the completion with this context comes.
    pub(crate) unsafe fn send(&self, to: sys::fi_addr_t, data: Span, context: *mut c_void) -> Outcome {
        // SAFETY: promised by the caller.
        let result = unsafe {
            call!(self.raw(), msg.send(data.base.cast_const().cast(), data.len, data.descriptor, to, context))
        };
        check(result as c_int)
    }

    /// Posts a receive from anybody.
    ///
    /// # Safety
    /// The memory and the context stay until the completion with this context comes.
    pub(crate) unsafe fn receive(&self, into: Span, context: *mut c_void) -> Outcome {
        // SAFETY: promised by the caller.
        let result =
            unsafe { call!(self.raw(), msg.recv(into.base.cast(), into.len, into.descriptor, UNREACHABLE, context)) };
        check(result as c_int)
    }

    /// Drives the core and takes a batch of its completions; how many there were.
    pub(crate) fn poll(&self, events: &mut Events) -> usize {
        let queue: *mut sys::fid_cq = self.queue.0.as_ptr().cast();
        // SAFETY: the queue is open with this entry format; the buffer holds BATCH entries.
        let count = unsafe { call!(queue, ops.read(events.entries.as_mut_ptr().cast(), BATCH)) };
        events.error = None;
        events.count = usize::try_from(count).unwrap_or(0);
        if count == -(sys::FI_EAVAIL as isize) {
            // SAFETY: all-zero bytes are a valid error entry.
            let mut entry: sys::fi_cq_err_entry = unsafe { MaybeUninit::zeroed().assume_init() };
            // SAFETY: as above.
            if unsafe { call!(queue, ops.readerr(&raw mut entry, 0)) } == 1 {
                events.error = Some((entry.op_context, entry.err));
                return 1;
            }
        }
        events.count
    }
}

/// Room for a batch of completions.
pub(crate) struct Events {
    entries: [sys::fi_cq_msg_entry; BATCH],
    count: usize,
    error: Option<(*mut c_void, i32)>,
}

// SAFETY: the contexts are those of buffers whose owner reads the events.
unsafe impl Send for Events {}

impl Events {
    pub(crate) fn new() -> Self {
        let entry = sys::fi_cq_msg_entry { op_context: ptr::null_mut(), flags: 0, len: 0 };
        Events { entries: [entry; BATCH], count: 0, error: None }
    }

    /// The batch that the last poll took.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Event> {
        let done =
            self.entries[..self.count].iter().map(|entry| Event::Done { context: entry.op_context, len: entry.len });
        done.chain(self.error.map(|(context, error)| Event::Failed { context, error }))
    }
}

/// Memory of a transfer, with its registration's descriptor.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) base: *mut u8,
    pub(crate) len: usize,
    pub(crate) descriptor: *mut c_void,
}

/// A core object that is closed when dropped.
struct Owned(NonNull<sys::fid>);

// SAFETY: opened for one thread at a time, which our domain's lock ensures.
unsafe impl Send for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the owner gives it up. A core that refuses to close leaks.
        let _ = unsafe { close(self.0) };
    }
}

/// Closes a core object.
///
/// # Safety
/// It is open, and nobody uses it any more unless this fails.
pub(crate) unsafe fn close(fid: NonNull<sys::fid>) -> Outcome {
    // SAFETY: promised by the caller.
    check(unsafe { call!(fid.as_ptr(), ops.close()) })
}

fn opened<T>(result: c_int, object: *mut T) -> Outcome<NonNull<T>> {
    check(result)?;
    NonNull::new(object).ok_or(Errno(sys::FI_EOTHER))
}

fn check(result: c_int) -> Outcome {
    if result < 0 { Err(Errno(-result)) } else { Ok(()) }
}

fn pointer(text: Option<&CStr>) -> *const c_char {
    text.map_or(ptr::null(), CStr::as_ptr)
}

/// FI_ADDR_UNSPEC and FI_ADDR_NOTAVAIL are one value.
pub(crate) const UNREACHABLE: sys::fi_addr_t = sys::fi_addr_t::MAX;
/// libfabric's internal flag that shows providers which FI_PROVIDER hides; the same from 1.17 on.
const GETINFO_HIDDEN: u64 = 1 << 60;
/// What our structs and habits are good for: 1.17, whatever is newer.
const CORE_VERSION: u32 = 1 << 16 | 17;
/// Completions that are taken at a time.
pub(crate) const BATCH: usize = 16;
