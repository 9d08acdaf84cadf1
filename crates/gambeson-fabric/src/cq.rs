//! fid_cq: a queue of completions, read by polling.
//!
//! Reading drives the endpoints bound to the queue. There is nothing to sleep on: fi_cq_sread polls,
//! and yields the processor when nothing comes.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::time::{Duration, Instant};

use crate::carrier::Completion;
use crate::core::{UNREACHABLE, library};
use crate::domain::{self, Member, State, enter, of, try_enter};
use crate::fid::{self, Errno, Outcome, alive, header, put, size, status};
use crate::unsupported::unsupported;
use gambeson_libfabric_sys::{self as sys, fi_addr_t, fi_cq_attr, fi_cq_err_entry, fid_cq, fid_domain};

/// A completion queue.
pub(crate) struct Queue {
    format: sys::fi_cq_format,
    entries: VecDeque<Completion>,
    /// Endpoints that are bound to it.
    endpoints: Vec<usize>,
    /// Set by fi_cq_signal: a thread that waits comes back empty-handed.
    signalled: bool,
}

impl Queue {
    /// Appends completions.
    pub(crate) fn extend(&mut self, completions: impl Iterator<Item = Completion>) {
        self.entries.extend(completions);
    }

    pub(crate) fn bind(&mut self, endpoint: usize) {
        if !self.endpoints.contains(&endpoint) {
            self.endpoints.push(endpoint);
        }
    }

    pub(crate) fn unbind(&mut self, endpoint: usize) {
        self.endpoints.retain(|&bound| bound != endpoint);
    }

    /// Moves up to `count` entries out; an error stops there until it is read by itself.
    ///
    /// # Safety
    /// `entries` has room for `count` entries of the queue's format, `sources` is null or as long.
    unsafe fn read(&mut self, entries: *mut c_void, count: usize, sources: *mut fi_addr_t) -> Outcome<usize> {
        let mut read = 0;
        while read < count {
            match self.entries.front() {
                None => break,
                Some(entry) if entry.error != 0 => {
                    return if read > 0 { Ok(read) } else { Err(Errno(sys::FI_EAVAIL)) };
                }
                Some(entry) => {
                    // SAFETY: promised by the caller.
                    unsafe {
                        put_entry(self.format, entries, read, entry);
                        if !sources.is_null() {
                            sources.add(read).write(entry.source);
                        }
                    }
                    self.entries.pop_front();
                    read += 1;
                }
            }
        }
        if read > 0 || count == 0 { Ok(read) } else { Err(Errno(sys::FI_EAGAIN)) }
    }

    /// Moves the error at the head out.
    fn read_error(&mut self) -> Option<Completion> {
        self.entries.pop_front_if(|entry| entry.error != 0)
    }
}

/// Writes one entry as the program's format has it.
///
/// # Safety
/// `entries` has room for `index + 1` entries of this format.
unsafe fn put_entry(format: sys::fi_cq_format, entries: *mut c_void, index: usize, entry: &Completion) {
    let &Completion { context: op_context, flags, len, buffer, data, tag, .. } = entry;
    let buf = buffer.cast();
    // SAFETY: promised by the caller.
    unsafe {
        match format {
            sys::FI_CQ_FORMAT_CONTEXT => {
                entries.cast::<sys::fi_cq_entry>().add(index).write(sys::fi_cq_entry { op_context });
            }
            sys::FI_CQ_FORMAT_MSG => {
                let entry = sys::fi_cq_msg_entry { op_context, flags, len };
                entries.cast::<sys::fi_cq_msg_entry>().add(index).write(entry);
            }
            sys::FI_CQ_FORMAT_DATA => {
                let entry = sys::fi_cq_data_entry { op_context, flags, len, buf, data };
                entries.cast::<sys::fi_cq_data_entry>().add(index).write(entry);
            }
            _ => {
                let entry = sys::fi_cq_tagged_entry { op_context, flags, len, buf, data, tag };
                entries.cast::<sys::fi_cq_tagged_entry>().add(index).write(entry);
            }
        }
    }
}

impl State {
    /// Drives the endpoints of a queue, if it has nothing to read.
    fn fill(&mut self, queue: usize) {
        if !self.queues[queue].entries.is_empty() {
            return;
        }
        for at in 0.. {
            let Some(&endpoint) = self.queues[queue].endpoints.get(at) else { break };
            self.pump(endpoint);
        }
    }
}

/// Opens a queue.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    status((|| {
        alive()?;
        // SAFETY: a domain of ours and null or the program's attributes.
        let (domain, attr) = unsafe { (domain::own(domain), attr.as_ref()) };
        let (format, wait, size) = attr.map_or((0, 0, 0), |attr| (attr.format, attr.wait_obj, attr.size));
        let format = match format {
            sys::FI_CQ_FORMAT_UNSPEC => sys::FI_CQ_FORMAT_TAGGED,
            known @ sys::FI_CQ_FORMAT_CONTEXT..=sys::FI_CQ_FORMAT_TAGGED => known,
            _ => return Err(Errno(sys::FI_ENOSYS)),
        };
        if !matches!(wait, sys::FI_WAIT_NONE | sys::FI_WAIT_UNSPEC | sys::FI_WAIT_YIELD) {
            return Err(Errno(sys::FI_ENOSYS));
        }
        let entries = VecDeque::with_capacity(size.clamp(DEPTH_MIN, DEPTH_MAX));
        let queue = Queue { format, entries, endpoints: Vec::new(), signalled: false };
        let index = domain.lock().queues.insert(queue);
        let fid = fid_cq { fid: header(sys::FI_CLASS_CQ, context, &FID_OPS), ops: fid::ptr(&OPS) };
        // SAFETY: the out-parameter is the program's.
        unsafe { put(cq, Member::handle(domain, fid, index)?) }
    })())
}

/// Whether an object is a queue of this provider.
///
/// # Safety
/// `fid` is null or an open object.
pub(crate) unsafe fn is_ours(fid: *const sys::fid) -> bool {
    // SAFETY: promised by the caller.
    unsafe { fid::has_table(fid, &FID_OPS) }
}

/// Whether a queue has something to read after its endpoints were driven.
///
/// # Safety
/// `cq` is an open queue of ours.
pub(crate) unsafe fn has_entries(cq: *mut fid_cq) -> Outcome<bool> {
    // SAFETY: promised by the caller.
    unsafe {
        enter(cq, |state, index| {
            state.fill(index);
            Ok(!state.queues[index].entries.is_empty())
        })
    }
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    // SAFETY: a queue of ours.
    unsafe {
        domain::close_member::<fid_cq>(fid, |state, index| {
            if !state.queues[index].endpoints.is_empty() {
                return Err(Errno(sys::FI_EBUSY));
            }
            state.queues.remove(index);
            Ok(())
        })
    }
}

unsafe extern "C" fn read(cq: *mut fid_cq, entries: *mut c_void, count: usize) -> isize {
    // SAFETY: the same arguments.
    unsafe { readfrom(cq, entries, count, std::ptr::null_mut()) }
}

/// Many threads may poll one queue. One of them does the work, the others come back at once.
unsafe extern "C" fn readfrom(cq: *mut fid_cq, entries: *mut c_void, count: usize, sources: *mut fi_addr_t) -> isize {
    // SAFETY: a queue of ours, and room for `count` entries of its format.
    size(unsafe {
        try_enter(cq, |state, index| {
            state.fill(index);
            state.queues[index].read(entries, count, sources)
        })
    })
}

unsafe extern "C" fn readerr(cq: *mut fid_cq, entry: *mut fi_cq_err_entry, _: u64) -> isize {
    // SAFETY: a queue of ours and the program's error entry.
    size(unsafe {
        enter(cq, |state, index| {
            let error = state.queues[index].read_error().ok_or(Errno(sys::FI_EAGAIN))?;
            let api_version = of(cq).0.api_version;
            put_error(entry, &error, api_version).map(|()| 1)
        })
    })
}

/// Writes an error entry as far as the program's version of libfabric has it.
///
/// # Safety
/// `entry` is null or an error entry of interface version `api_version`.
unsafe fn put_error(entry: *mut fi_cq_err_entry, error: &Completion, api_version: u32) -> Outcome {
    if entry.is_null() {
        return Err(Errno(sys::FI_EINVAL));
    }
    // SAFETY: promised by the caller. A reference to the whole could be longer than what is there.
    unsafe {
        (&raw mut (*entry).op_context).write(error.context);
        (&raw mut (*entry).flags).write(error.flags);
        (&raw mut (*entry).len).write(error.len);
        (&raw mut (*entry).buf).write(error.buffer.cast());
        (&raw mut (*entry).data).write(error.data);
        (&raw mut (*entry).tag).write(error.tag);
        (&raw mut (*entry).olen).write(error.overflow);
        (&raw mut (*entry).err).write(error.error);
        (&raw mut (*entry).prov_errno).write(error.error);
        if api_version >= WITH_ERROR_DATA {
            (&raw mut (*entry).err_data_size).write(0);
        }
        if api_version >= WITH_ERROR_SOURCE {
            (&raw mut (*entry).src_addr).write(error.source);
        }
    }
    Ok(())
}

unsafe extern "C" fn sread(
    cq: *mut fid_cq,
    entries: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the same arguments.
    unsafe { sreadfrom(cq, entries, count, std::ptr::null_mut(), cond, timeout) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut fid_cq,
    entries: *mut c_void,
    count: usize,
    sources: *mut fi_addr_t,
    _: *const c_void,
    timeout: c_int,
) -> isize {
    let mut wait = Wait::new(timeout);
    loop {
        // SAFETY: a queue of ours, and room for `count` entries of its format.
        let read = size(unsafe {
            try_enter(cq, |state, index| {
                state.fill(index);
                let queue = &mut state.queues[index];
                let read = queue.read(entries, count, sources);
                if read == Err(Errno(sys::FI_EAGAIN)) && std::mem::take(&mut queue.signalled) {
                    return Err(Errno(sys::FI_ECANCELED));
                }
                read
            })
        });
        match read as i32 {
            again if again == -sys::FI_EAGAIN && wait.pause() => (),
            cancelled if cancelled == -sys::FI_ECANCELED => return -(sys::FI_EAGAIN as isize),
            _ => return read,
        }
    }
}

unsafe extern "C" fn signal(cq: *mut fid_cq) -> c_int {
    // SAFETY: a queue of ours.
    status(unsafe {
        enter(cq, |state, index| {
            state.queues[index].signalled = true;
            Ok(())
        })
    })
}

unsafe extern "C" fn strerror(
    _: *mut fid_cq,
    error: c_int,
    _: *const c_void,
    buffer: *mut c_char,
    len: usize,
) -> *const c_char {
    let text = library().describe_raw(error);
    if !buffer.is_null() && len > 0 {
        // SAFETY: the program's buffer has `len` bytes, and the text ends with a zero.
        unsafe { libc::snprintf(buffer, len, c"%s".as_ptr(), text) };
        return buffer;
    }
    text
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

static OPS: sys::fi_ops_cq = sys::fi_ops_cq {
    size: size_of::<sys::fi_ops_cq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
    export_xpu: unsupported(),
};

/// Waiting by polling: briskly at first, then leaving the processor to others.
pub(crate) struct Wait {
    began: Instant,
    until: Option<Duration>,
    polls: u32,
}

impl Wait {
    /// `timeout` in ms; negative waits for ever.
    pub(crate) fn new(timeout: c_int) -> Self {
        let until = u64::try_from(timeout).ok().map(Duration::from_millis);
        Wait { began: Instant::now(), until, polls: 0 }
    }

    /// Waits a little. `false`: the time is up.
    pub(crate) fn pause(&mut self) -> bool {
        self.polls = self.polls.saturating_add(1);
        if self.until.is_some_and(|until| self.began.elapsed() >= until) {
            return false;
        }
        match self.polls {
            ..BRISK => std::hint::spin_loop(),
            BRISK..YIELDING => std::thread::yield_now(),
            _ => std::thread::sleep(NAP),
        }
        true
    }
}

/// Polls before waiting gets slower, and slower still.
const BRISK: u32 = 200;
const YIELDING: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);
/// Entries that a queue has room for from the beginning.
const DEPTH_MIN: usize = 1024;
const DEPTH_MAX: usize = 65536;
/// Interface versions that brought fields of fi_cq_err_entry.
const WITH_ERROR_DATA: u32 = 1 << 16 | 5;
const WITH_ERROR_SOURCE: u32 = 1 << 16 | 20;

const _: () = assert!(UNREACHABLE == fi_addr_t::MAX);
