//! fid_cntr: how many operations an endpoint completed.

use std::ffi::{c_int, c_void};

use crate::cq::Wait;
use crate::domain::{self, Member, State, enter};
use crate::fid::{self, Errno, alive, header, put, status};
use crate::unsupported::unsupported;
use gambeson_libfabric_sys::{self as sys, fi_cntr_attr, fid_cntr, fid_domain};

/// A counter.
#[derive(Default)]
pub(crate) struct Counter {
    value: u64,
    errors: u64,
    /// Reads in which nothing moved, since the last in which something did.
    idle_reads: u32,
    /// Endpoints that are bound to it.
    endpoints: Vec<usize>,
}

impl Counter {
    pub(crate) fn add(&mut self, completed: u64) {
        self.value = self.value.wrapping_add(completed);
    }

    pub(crate) fn bind(&mut self, endpoint: usize) {
        if !self.endpoints.contains(&endpoint) {
            self.endpoints.push(endpoint);
        }
    }

    pub(crate) fn unbind(&mut self, endpoint: usize) {
        self.endpoints.retain(|&bound| bound != endpoint);
    }
}

impl State {
    /// Drives the endpoints of a counter.
    fn advance(&mut self, counter: usize) -> &mut Counter {
        let mut moved = false;
        for at in 0.. {
            let Some(&endpoint) = self.counters[counter].endpoints.get(at) else { break };
            moved |= self.pump(endpoint);
        }
        let counter = &mut self.counters[counter];
        counter.idle_reads = if moved { 0 } else { counter.idle_reads.wrapping_add(1) };
        counter
    }
}

/// Opens a counter.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    cntr: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    status((|| {
        alive()?;
        // SAFETY: a domain of ours and null or the program's attributes.
        let (domain, attr) = unsafe { (domain::own(domain), attr.as_ref()) };
        let (events, wait) = attr.map_or((0, 0), |attr| (attr.events, attr.wait_obj));
        if events != sys::FI_CNTR_EVENTS_COMP
            || !matches!(wait, sys::FI_WAIT_NONE | sys::FI_WAIT_UNSPEC | sys::FI_WAIT_YIELD)
        {
            return Err(Errno(sys::FI_ENOSYS));
        }
        let index = domain.lock().counters.insert(Counter::default());
        let fid = fid_cntr { fid: header(sys::FI_CLASS_CNTR, context, &FID_OPS), ops: fid::ptr(&OPS) };
        // SAFETY: the out-parameter is the program's.
        unsafe { put(cntr, Member::handle(domain, fid, index)?) }
    })())
}

/// Whether an object is a counter of this provider.
///
/// # Safety
/// `fid` is null or an open object.
pub(crate) unsafe fn is_ours(fid: *const sys::fid) -> bool {
    // SAFETY: promised by the caller.
    unsafe { fid::has_table(fid, &FID_OPS) }
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    // SAFETY: a counter of ours.
    unsafe {
        domain::close_member::<fid_cntr>(fid, |state, index| {
            if !state.counters[index].endpoints.is_empty() {
                return Err(Errno(sys::FI_EBUSY));
            }
            state.counters.remove(index);
            Ok(())
        })
    }
}

/// MPICH reads a counter a thousand times before it waits or yields. The rank whose answer would move the counter may
/// have no processor meanwhile, and is offered this one.
unsafe extern "C" fn read(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: a counter of ours.
    let read = unsafe {
        enter(cntr, |state, index| {
            let counter = state.advance(index);
            Ok((counter.value, counter.idle_reads))
        })
    };
    let (value, idle_reads) = read.unwrap_or_default();
    if idle_reads > 0 && idle_reads.is_multiple_of(READS_PER_YIELD) {
        std::thread::yield_now();
    }
    value
}

unsafe extern "C" fn readerr(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: a counter of ours.
    unsafe { enter(cntr, |state, index| Ok(state.advance(index).errors)) }.unwrap_or(0)
}

/// Changes a counter.
///
/// # Safety
/// `cntr` is an open counter of ours.
unsafe fn change(cntr: *mut fid_cntr, change: impl FnOnce(&mut Counter)) -> c_int {
    // SAFETY: promised by the caller.
    status(unsafe {
        enter(cntr, |state, index| {
            change(&mut state.counters[index]);
            Ok(())
        })
    })
}

unsafe extern "C" fn add(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: a counter of ours.
    unsafe { change(cntr, |counter| counter.add(value)) }
}

unsafe extern "C" fn set(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: a counter of ours.
    unsafe { change(cntr, |counter| counter.value = value) }
}

unsafe extern "C" fn adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: a counter of ours.
    unsafe { change(cntr, |counter| counter.errors = counter.errors.wrapping_add(value)) }
}

unsafe extern "C" fn seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: a counter of ours.
    unsafe { change(cntr, |counter| counter.errors = value) }
}

/// Waits until the counter reaches a threshold or counts an error.
unsafe extern "C" fn wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    let mut pace = Wait::new(timeout);
    let mut errors_before = None;
    loop {
        // SAFETY: a counter of ours.
        let counter = unsafe {
            enter(cntr, |state, index| {
                let counter = state.advance(index);
                Ok((counter.value, counter.errors))
            })
        };
        match counter {
            Err(Errno(error)) => return -error,
            Ok((value, _)) if value >= threshold => return 0,
            Ok((_, errors)) if *errors_before.get_or_insert(errors) != errors => return -sys::FI_EAVAIL,
            Ok(_) if pace.pause() => (),
            Ok(_) => return -sys::FI_ETIMEDOUT,
        }
    }
}

/// Idle reads of a counter between two offers of the processor.
const READS_PER_YIELD: u32 = 16;

static FID_OPS: sys::fi_ops = sys::fi_ops {
    size: size_of::<sys::fi_ops>(),
    close: Some(close),
    bind: unsupported(),
    control: unsupported(),
    ops_open: unsupported(),
    tostr: unsupported(),
    ops_set: unsupported(),
};

static OPS: sys::fi_ops_cntr = sys::fi_ops_cntr {
    size: size_of::<sys::fi_ops_cntr>(),
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
    export_xpu: unsupported(),
};
