//! What is used of libfabric, which is looked for when it is first asked for: a program runs where there is none, too.
//!
//! This is all the unsafe code of the carrier. A [`Port`] is one endpoint with its queue and its buffers. libfabric has
//! pointers to those that were posted until it reports them or the endpoint is closed: so nobody gets a reference to a
//! buffer that is lent, and the memory goes after the endpoint.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gambeson_libfabric_sys as sys;
use sys::{fi_addr_t, fi_context2, fi_info, fid};

/// The interface of which only is used what it has: libfabric 1.17.
const VERSION: u32 = 1 << 16 | 17;
/// Finds providers that FI_PROVIDER hides, as it does in a job whose messages are sealed by our own.
const HIDDEN: u64 = 1 << 60;
/// Modes that are no trouble: every operation has memory of libfabric's own (fabric.h).
const CONTEXTS: u64 = 1 << 59 | 1 << 52;
/// What memory may need before it is used: FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY (fabric.h).
const REGISTRATION: u64 = sys::FI_MR_LOCAL | 1 << 4 | 1 << 5 | 1 << 6;
const NOWHERE: fi_addr_t = fi_addr_t::MAX;
/// The longest address of an endpoint.
pub(super) const ADDRESS_MAX: usize = 96;
/// Completions that are read at once.
const BATCH: usize = 16;

type Getinfo = unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;
type Fabric = unsafe extern "C" fn(*mut sys::fi_fabric_attr, *mut *mut sys::fid_fabric, *mut c_void) -> c_int;

/// libfabric's functions; those of its objects are in their tables.
struct Library {
    getinfo: Getinfo,
    freeinfo: unsafe extern "C" fn(*mut fi_info),
    dupinfo: unsafe extern "C" fn(*const fi_info) -> *mut fi_info,
    fabric: Fabric,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
}

fn library() -> Result<&'static Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref().map_err(String::clone)
}

fn load() -> Result<Library, String> {
    // SAFETY: libfabric's initialisation has no requirements, and it is never closed again.
    let handle = unsafe { libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err("there is no libfabric on this host (libfabric.so.1); install it, or use another transport".into());
    }
    let symbol = |name: &CStr| {
        // SAFETY: the handle is open.
        let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
        NonNull::new(address).ok_or_else(|| format!("the libfabric of this host has no {}", name.to_string_lossy()))
    };
    // SAFETY: libfabric's public functions have had these types since 1.5.
    unsafe {
        Ok(Library {
            getinfo: std::mem::transmute::<NonNull<c_void>, Getinfo>(symbol(c"fi_getinfo")?),
            freeinfo: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut fi_info)>(symbol(
                c"fi_freeinfo",
            )?),
            dupinfo: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*const fi_info) -> *mut fi_info>(
                symbol(c"fi_dupinfo")?,
            ),
            fabric: std::mem::transmute::<NonNull<c_void>, Fabric>(symbol(c"fi_fabric")?),
            strerror: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(c_int) -> *const c_char>(symbol(
                c"fi_strerror",
            )?),
        })
    }
}

/// The sentence for one of libfabric's numbers, and what kind of thing that is.
fn failed(doing: &str, error: i32) -> io::Error {
    let kind = match error {
        sys::FI_ENODATA | sys::FI_EADDRNOTAVAIL => io::ErrorKind::NotFound,
        sys::FI_ECONNREFUSED => io::ErrorKind::ConnectionRefused,
        sys::FI_ECONNRESET | sys::FI_ECONNABORTED | sys::FI_ENOTCONN | sys::FI_ESHUTDOWN => {
            io::ErrorKind::ConnectionReset
        }
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("{doing}: {}", describe(error)))
}

fn describe(error: i32) -> String {
    let Ok(library) = library() else { return format!("error {error}") };
    // SAFETY: fi_strerror takes any number and gives a constant string.
    unsafe { CStr::from_ptr((library.strerror)(error)) }.to_string_lossy().into_owned()
}

fn check(result: c_int, doing: &str) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(failed(doing, -result)) }
}

/// What fi_getinfo said of an interface.
pub(super) struct Info(NonNull<fi_info>);

// SAFETY: it belongs to whoever holds it; libfabric keeps nothing of it.
unsafe impl Send for Info {}
// SAFETY: it is only read after it was made.
unsafe impl Sync for Info {}

impl Drop for Info {
    fn drop(&mut self) {
        if let Ok(library) = library() {
            // SAFETY: it was allocated by this library, and nobody uses it any more.
            unsafe { (library.freeinfo)(self.0.as_ptr()) };
        }
    }
}

impl Info {
    /// The provider's interface: that of `node`, or, from here towards an address, or the first.
    ///
    /// # Errors
    /// When there is no libfabric, it has no such provider, or that has no reliable messages.
    pub(super) fn find(provider: &str, node: Option<&str>, towards: Option<&[u8]>) -> io::Result<Info> {
        let unfit = |why: String| io::Error::new(io::ErrorKind::NotFound, why);
        if provider.contains("gambeson") {
            let why = "links seal what they send: choose a provider that does not do so again";
            return Err(unfit(why.into()));
        }
        let library = library().map_err(unfit)?;
        let name = CString::new(provider).map_err(|_| unfit("a provider's name has no zero byte".into()))?;
        let node = node.map(CString::new).transpose().map_err(|_| unfit("a host's name has no zero byte".into()))?;
        let format = match towards {
            Some(_) => usual(provider).map_err(unfit)?.get().addr_format,
            None => 0,
        };
        // SAFETY: fi_dupinfo of null allocates one with all its parts, or says that it cannot.
        let hints = NonNull::new(unsafe { (library.dupinfo)(ptr::null()) });
        let hints = Info(hints.ok_or_else(|| unfit("libfabric has no memory".into()))?);
        // SAFETY: the hints are ours alone, and fi_dupinfo has allocated their parts; what is put into them is from
        // malloc, as libfabric frees it.
        unsafe {
            let hints = hints.0.as_ptr();
            ((*hints).caps, (*hints).mode) = (sys::FI_MSG, CONTEXTS);
            (*(*hints).ep_attr).type_ = sys::FI_EP_RDM;
            (*(*hints).tx_attr).msg_order = sys::FI_ORDER_SAS;
            (*(*hints).rx_attr).msg_order = sys::FI_ORDER_SAS;
            (*(*hints).domain_attr).threading = sys::FI_THREAD_DOMAIN;
            (*(*hints).domain_attr).resource_mgmt = sys::FI_RM_ENABLED;
            (*(*hints).domain_attr).mr_mode = REGISTRATION as c_int;
            (*(*hints).fabric_attr).prov_name = libc::strdup(name.as_ptr());
            if let Some(address) = towards {
                let copy = libc::malloc(address.len());
                if !copy.is_null() {
                    ptr::copy_nonoverlapping(address.as_ptr(), copy.cast(), address.len());
                    ((*hints).dest_addr, (*hints).dest_addrlen) = (copy, address.len());
                    (*hints).addr_format = format;
                }
            }
        }
        let (node, source) = match &node {
            Some(node) => (node.as_ptr(), sys::FI_SOURCE),
            None => (ptr::null(), 0),
        };
        let mut found = ptr::null_mut();
        // SAFETY: strings and hints last as long as the call; what it gives is ours to free.
        let result =
            unsafe { (library.getinfo)(VERSION, node, ptr::null(), source | HIDDEN, hints.0.as_ptr(), &raw mut found) };
        let none = || unfit(format!("the libfabric of this host has no provider {provider} that can do that here"));
        let found = NonNull::new(found).filter(|_| result == 0).map(Info).ok_or_else(none)?;
        // SAFETY: getinfo's answer has fabric attributes, and a provider has a name.
        let is = unsafe { CStr::from_ptr((*found.get().fabric_attr).prov_name) }.to_string_lossy();
        if is.contains("gambeson") { Err(none()) } else { Ok(found) }
    }

    fn get(&self) -> &fi_info {
        // SAFETY: it is allocated as long as this is, and only read.
        unsafe { self.0.as_ref() }
    }
}

/// The provider's usual interface; asked for once. Names come from startpoints, so not many are remembered.
fn usual(provider: &str) -> Result<Arc<Info>, String> {
    static KNOWN: Mutex<BTreeMap<String, Result<Arc<Info>, String>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(answer) = known.get(provider) {
        return answer.clone();
    }
    let answer = Info::find(provider, None, None).map(Arc::new).map_err(|cause| cause.to_string());
    if known.len() < 64 {
        known.insert(provider.to_owned(), answer.clone());
    }
    answer
}

/// Whether this host has the provider; if not, why.
pub(super) fn has(provider: &str) -> Result<(), String> {
    usual(provider).map(drop)
}

/// An object of libfabric's. Closed when it is dropped.
struct Object(NonNull<fid>);

impl Object {
    fn new<T>(result: c_int, object: *mut T, doing: &str) -> io::Result<Object> {
        check(result, doing)?;
        NonNull::new(object.cast()).map(Object).ok_or_else(|| failed(doing, sys::FI_EOTHER))
    }

    /// Every object begins with its fid.
    fn raw<T>(&self) -> *mut T {
        self.0.as_ptr().cast()
    }

    /// Whether libfabric has let go of it.
    fn close(&self) -> bool {
        // SAFETY: it is open, and whoever asks does not use it again.
        unsafe { (*(*self.0.as_ptr()).ops).close.is_some_and(|close| close(self.0.as_ptr()) == 0) }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.close();
    }
}

/// Calls an entry of an object's table.
macro_rules! call {
    ($object:expr, $type:ty, $table:ident . $entry:ident ( $($argument:expr),* $(,)? )) => {{
        let object: *mut $type = $object.raw();
        ((*(*object).$table).$entry.expect("a provider fills its tables"))(object, $($argument),*)
    }};
}

/// Buffers, each behind the memory that libfabric wants with an operation on it.
struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    size: usize,
    stride: usize,
}

const CONTEXT: usize = size_of::<fi_context2>();

impl Memory {
    fn new(count: usize, size: usize) -> Memory {
        let stride = CONTEXT + size.next_multiple_of(64);
        let layout = Layout::from_size_align(count * stride, 4096).expect("a few megabytes");
        // SAFETY: the layout has a size.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        Memory { base, layout, size, stride }
    }

    fn context(&self, buffer: usize) -> *mut u8 {
        assert!((buffer + 1) * self.stride <= self.layout.size(), "a buffer that there is");
        // SAFETY: it is inside the allocation.
        unsafe { self.base.as_ptr().add(buffer * self.stride) }
    }

    fn bytes(&self, buffer: usize) -> *mut u8 {
        // SAFETY: as above; a buffer follows its context.
        unsafe { self.context(buffer).add(CONTEXT) }
    }

    /// Whose context it is.
    fn buffer(&self, context: *mut c_void) -> Option<usize> {
        let offset = (context as usize).checked_sub(self.base.as_ptr() as usize)?;
        (offset < self.layout.size() && offset.is_multiple_of(self.stride)).then(|| offset / self.stride)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was allocated so, and libfabric has let go of it: see `Port`.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    Us,
    Receiving,
    Sending,
}

/// What became of a buffer that was lent; it is ours again.
pub(super) enum Event {
    /// So many bytes came.
    Received { buffer: usize, len: usize },
    /// It has gone out.
    Sent { buffer: usize },
    /// Something longer came, and is lost.
    Truncated { buffer: usize },
    /// It did not get there, or nothing will come.
    Failed { why: io::Error },
}

/// Another endpoint, as one's address vector knows it.
#[derive(Clone, Copy)]
pub(super) struct Peer(fi_addr_t);

/// An endpoint with its queue and its buffers. What it consists of is closed in the order of the fields.
pub(super) struct Port {
    endpoint: ManuallyDrop<Object>,
    queue: Object,
    addresses: Object,
    region: Option<Object>,
    _domain: Object,
    fabric: Object,
    memory: Option<Memory>,
    holders: Vec<Holder>,
    address: Vec<u8>,
    format: u32,
    wait: Option<RawFd>,
}

// SAFETY: it has a domain of its own, opened for one thread at a time, and whoever uses it has it alone.
unsafe impl Send for Port {}

impl Port {
    /// Opens one with `count` buffers of `size` bytes.
    pub(super) fn open(info: &Info, count: usize, size: usize) -> io::Result<Port> {
        let library = library().map_err(|why| io::Error::new(io::ErrorKind::NotFound, why))?;
        let (info, doing) = (info.0.as_ptr(), "cannot open an endpoint of libfabric");
        let memory = Memory::new(count, size);
        // SAFETY: all objects are opened from those above them, which outlive them; attributes of zeros mean the
        // defaults; an info of getinfo's has all its parts and is only read.
        unsafe {
            let mut fabric = ptr::null_mut();
            let result = (library.fabric)((*info).fabric_attr, &raw mut fabric, ptr::null_mut());
            let fabric = Object::new(result, fabric, doing)?;
            let mut domain = ptr::null_mut();
            let result = call!(fabric, sys::fid_fabric, ops.domain(info, &raw mut domain, ptr::null_mut()));
            let domain = Object::new(result, domain, doing)?;
            let (queue, has_descriptor) = open_queue(&domain, 2 * count)?;
            let mut addresses = ptr::null_mut();
            let mut attributes: sys::fi_av_attr = std::mem::zeroed();
            attributes.type_ = match (*(*info).domain_attr).av_type {
                sys::FI_AV_UNSPEC => sys::FI_AV_TABLE,
                kind => kind,
            };
            let made =
                call!(domain, sys::fid_domain, ops.av_open(&raw mut attributes, &raw mut addresses, ptr::null_mut()));
            let addresses = Object::new(made, addresses, doing)?;
            let mut region = None;
            if (*(*info).domain_attr).mr_mode as u64 & sys::FI_MR_LOCAL != 0 {
                let access = sys::FI_SEND | sys::FI_RECV;
                let (base, len) = (memory.base.as_ptr().cast_const().cast(), memory.layout.size());
                let mut made = ptr::null_mut();
                let raw: *mut sys::fid_domain = domain.raw();
                let register = (*(*raw).mr).reg.expect("a provider fills its tables");
                let result = register(raw.cast(), base, len, access, 0, 0, 0, &raw mut made, ptr::null_mut());
                region = Some(Object::new(result, made, doing)?);
            }
            let mut endpoint = ptr::null_mut();
            let made = call!(domain, sys::fid_domain, ops.endpoint(info, &raw mut endpoint, ptr::null_mut()));
            let endpoint = Object::new(made, endpoint, doing)?;
            let mut port = Port {
                endpoint: ManuallyDrop::new(endpoint),
                queue,
                addresses,
                region,
                _domain: domain,
                fabric,
                memory: Some(memory),
                holders: vec![Holder::Us; count],
                address: Vec::new(),
                format: (*info).addr_format,
                wait: None,
            };
            let both = sys::FI_SEND | sys::FI_RECV;
            check(call!(port.endpoint, fid, ops.bind(port.queue.raw(), both)), doing)?;
            check(call!(port.endpoint, fid, ops.bind(port.addresses.raw(), 0)), doing)?;
            check(call!(port.endpoint, fid, ops.control(sys::FI_ENABLE as c_int, ptr::null_mut())), doing)?;
            if has_descriptor {
                let mut descriptor: RawFd = -1;
                let asked = sys::FI_GETWAIT as c_int;
                check(call!(port.queue, fid, ops.control(asked, (&raw mut descriptor).cast())), doing)?;
                port.wait = Some(descriptor);
            }
            port.address = port.name()?;
            Ok(port)
        }
    }

    fn name(&self) -> io::Result<Vec<u8>> {
        let mut name = [0; ADDRESS_MAX];
        let mut len = name.len();
        // SAFETY: the endpoint is open, and the place has `len` bytes.
        let result = unsafe {
            let endpoint: *mut sys::fid_ep = self.endpoint.raw();
            let getname = (*(*endpoint).cm).getname.expect("a provider fills its tables");
            getname(endpoint.cast(), name.as_mut_ptr().cast(), &raw mut len)
        };
        check(result, "cannot tell an endpoint's address")?;
        Ok(name[..len.min(ADDRESS_MAX)].to_vec())
    }

    /// Where others find it.
    pub(super) fn address(&self) -> &[u8] {
        &self.address
    }

    /// Another endpoint, of which somebody says that this is its address.
    ///
    /// # Errors
    /// When it cannot be one: libfabric reads as many bytes as addresses of its format have, whatever there are.
    pub(super) fn insert(&mut self, address: &[u8]) -> io::Result<Peer> {
        let family = |address: &[u8]| address.first_chunk::<2>().copied();
        let can_be = match self.format {
            sys::FI_ADDR_STR => {
                let text = address.split_last().filter(|(last, _)| **last == 0).map(|(_, text)| text);
                text.is_some_and(|text| text.iter().all(u8::is_ascii_graphic))
            }
            sys::FI_SOCKADDR | sys::FI_SOCKADDR_IN | sys::FI_SOCKADDR_IN6 => {
                address.len() == self.address.len() && family(address) == family(&self.address)
            }
            _ => address.len() == self.address.len(),
        };
        let doing = "an endpoint of libfabric cannot be reached";
        if !can_be {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{doing}: what is said is no address")));
        }
        let mut peer = NOWHERE;
        // SAFETY: the vector is open; one address goes in, as long as its format says, and one handle comes out.
        let count = unsafe {
            call!(
                self.addresses,
                sys::fid_av,
                ops.insert(address.as_ptr().cast(), 1, &raw mut peer, 0, ptr::null_mut())
            )
        };
        if count == 1 && peer != NOWHERE { Ok(Peer(peer)) } else { Err(failed(doing, sys::FI_EADDRNOTAVAIL)) }
    }

    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("it goes with the port")
    }

    fn descriptor(&self) -> *mut c_void {
        // SAFETY: a region is an open fid_mr.
        self.region.as_ref().map_or(ptr::null_mut(), |region| unsafe { (*region.raw::<sys::fid_mr>()).mem_desc })
    }

    /// A buffer that is ours.
    pub(super) fn buffer(&self, buffer: usize) -> &[u8] {
        assert!(self.holders[buffer] == Holder::Us, "nobody looks at what is lent");
        // SAFETY: it is inside the memory, which was zeroed, and libfabric does not have it.
        unsafe { std::slice::from_raw_parts(self.memory().bytes(buffer), self.memory().size) }
    }

    /// A buffer that is ours, to write to.
    pub(super) fn buffer_mut(&mut self, buffer: usize) -> &mut [u8] {
        assert!(self.holders[buffer] == Holder::Us, "nobody writes to what is lent");
        // SAFETY: as above, and the port is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.memory().bytes(buffer), self.memory().size) }
    }

    /// Lends a buffer for what comes from anybody. False: not now.
    pub(super) fn receive(&mut self, buffer: usize) -> io::Result<bool> {
        assert!(self.holders[buffer] == Holder::Us, "it is ours to lend");
        let (memory, descriptor) = (self.memory(), self.descriptor());
        let (bytes, context) = (memory.bytes(buffer).cast(), memory.context(buffer).cast());
        // SAFETY: buffer and context stay until they are reported or the endpoint is closed, and nobody else touches
        // them meanwhile.
        let result =
            unsafe { call!(self.endpoint, sys::fid_ep, msg.recv(bytes, memory.size, descriptor, NOWHERE, context)) };
        self.lent(buffer, result as c_int, Holder::Receiving, "cannot receive over libfabric")
    }

    /// Lends a buffer of which `len` bytes go to another endpoint. False: not now.
    pub(super) fn send(&mut self, buffer: usize, len: usize, to: Peer) -> io::Result<bool> {
        let (memory, descriptor) = (self.memory(), self.descriptor());
        assert!(self.holders[buffer] == Holder::Us && len <= memory.size, "it is ours to lend");
        let (bytes, context) = (memory.bytes(buffer).cast_const().cast(), memory.context(buffer).cast());
        // SAFETY: as for receiving.
        let result = unsafe { call!(self.endpoint, sys::fid_ep, msg.send(bytes, len, descriptor, to.0, context)) };
        self.lent(buffer, result as c_int, Holder::Sending, "cannot send over libfabric")
    }

    fn lent(&mut self, buffer: usize, result: c_int, to: Holder, doing: &str) -> io::Result<bool> {
        if result == -sys::FI_EAGAIN {
            return Ok(false);
        }
        check(result, doing)?;
        self.holders[buffer] = to;
        Ok(true)
    }

    /// Moves on, and says what became of some buffers that were lent.
    pub(super) fn poll(&mut self, events: &mut Vec<Event>) {
        // SAFETY: entries are numbers and pointers, of which zeros are some.
        let mut entries: [sys::fi_cq_msg_entry; BATCH] = unsafe { std::mem::zeroed() };
        let place = entries.as_mut_ptr().cast();
        // SAFETY: the queue is open and of this format, and there is place for so many.
        let count = unsafe { call!(self.queue, sys::fid_cq, ops.read(place, BATCH)) };
        if count == -(sys::FI_EAVAIL as isize) {
            events.extend(self.failure());
        } else if count < 0 && count != -(sys::FI_EAGAIN as isize) {
            events.push(Event::Failed { why: failed("libfabric reports nothing any more", -count as i32) });
        }
        for entry in entries.iter().take(count.max(0) as usize) {
            let Some(buffer) = self.memory().buffer(entry.op_context) else { continue };
            let len = entry.len.min(self.memory().size);
            match std::mem::replace(&mut self.holders[buffer], Holder::Us) {
                Holder::Receiving => events.push(Event::Received { buffer, len }),
                Holder::Sending => events.push(Event::Sent { buffer }),
                Holder::Us => {}
            }
        }
    }

    fn failure(&mut self) -> Option<Event> {
        // SAFETY: as in `poll`; what an older libfabric does not fill stays zero.
        let mut entry: sys::fi_cq_err_entry = unsafe { std::mem::zeroed() };
        // SAFETY: as in `poll`.
        let count = unsafe { call!(self.queue, sys::fid_cq, ops.readerr(&raw mut entry, 0)) };
        if count != 1 {
            return None;
        }
        let Some(buffer) = self.memory().buffer(entry.op_context) else {
            return Some(Event::Failed { why: failed("libfabric reports", entry.err) });
        };
        let held = std::mem::replace(&mut self.holders[buffer], Holder::Us);
        Some(match (held, entry.err) {
            (Holder::Receiving, sys::FI_ETRUNC) => Event::Truncated { buffer },
            (Holder::Receiving, error) => Event::Failed { why: failed("nothing comes over libfabric any more", error) },
            (_, error) => Event::Failed { why: failed("the other end is not to be reached over libfabric", error) },
        })
    }

    /// What is readable when there may be something to poll for; not all providers have that.
    pub(super) fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: it is the queue's, and stays open as long as that.
        self.wait.map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Whether the descriptor, if there is one, will report what comes from now on.
    pub(super) fn may_wait(&self) -> bool {
        if self.wait.is_none() {
            return true;
        }
        let mut queue: *mut fid = self.queue.raw();
        // SAFETY: fabric and queue are open, and there is one in the list.
        unsafe { call!(self.fabric, sys::fid_fabric, ops.trywait(&raw mut queue, 1)) == 0 }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if !self.endpoint.close() {
            // It may still write to what was lent.
            std::mem::forget(self.memory.take());
        }
    }
}

/// A queue, and whether it has a descriptor.
fn open_queue(domain: &Object, size: usize) -> io::Result<(Object, bool)> {
    let mut failure = None;
    for wait in [sys::FI_WAIT_FD, sys::FI_WAIT_NONE] {
        let mut queue = ptr::null_mut();
        // SAFETY: attributes of zeros mean the defaults; the domain is open.
        let result = unsafe {
            let mut attributes: sys::fi_cq_attr = std::mem::zeroed();
            (attributes.size, attributes.format, attributes.wait_obj) = (size, sys::FI_CQ_FORMAT_MSG, wait);
            call!(domain, sys::fid_domain, ops.cq_open(&raw mut attributes, &raw mut queue, ptr::null_mut()))
        };
        match Object::new(result, queue, "cannot open a completion queue of libfabric") {
            Ok(queue) => return Ok((queue, wait == sys::FI_WAIT_FD)),
            Err(cause) => failure = Some(cause),
        }
    }
    Err(failure.expect("two were tried"))
}
