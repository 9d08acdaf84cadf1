//! fid_fabric: the network that domains are opened in.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::core::{self, library};
use crate::domain;
use crate::fid::{self, Errno, Object, Outcome, alive, header, put, status};
use crate::info;
use crate::unsupported::unsupported;
use gambeson_libfabric_sys::{self as sys, fi_info, fid_cq, fid_domain, fid_eq, fid_fabric};

/// What a fabric of ours knows.
pub(crate) struct Fabric {
    pub(crate) core: NonNull<fid_fabric>,
    /// Open domains.
    pub(crate) domains: AtomicUsize,
}

type Handle = Object<fid_fabric, Fabric>;

/// libfabric's way to a fabric of this provider.
pub(crate) unsafe extern "C" fn open(
    attr: *mut sys::fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    status((|| {
        alive()?;
        // SAFETY: libfabric passes the attributes of an fi_info.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno(sys::FI_EINVAL))?;
        let info = info::core_of_fabric(attr)?;
        let core = library().open_fabric(&info).inspect_err(|error| info::cannot_open(&info, *error))?;
        let fid = fid_fabric {
            fid: header(sys::FI_CLASS_FABRIC, context, &FID_OPS),
            ops: fid::ptr(&OPS),
            api_version: attr.api_version,
        };
        // SAFETY: the out-parameter is libfabric's.
        unsafe { put(fabric, Handle::allocate(fid, Fabric { core, domains: AtomicUsize::new(0) })?) }
    })())
}

/// Whether an object handed in by a program is a fabric of this provider.
pub(crate) fn is_ours(fabric: *const fid_fabric) -> bool {
    // SAFETY: a program passes null or an open fabric.
    unsafe { fabric.as_ref() }.is_some_and(|fabric| ptr::eq(fabric.fid.ops, &FID_OPS))
}

/// A fabric that an entry point was called on.
///
/// # Safety
/// libfabric calls our tables with our objects only.
pub(crate) unsafe fn of<'a>(fabric: *mut fid_fabric) -> &'a Fabric {
    // SAFETY: promised by the caller.
    unsafe { Handle::body(fabric) }
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    status((|| {
        if alive().is_err() {
            return Ok(());
        }
        // SAFETY: a fabric of ours.
        let fabric = unsafe { of(fid.cast()) };
        if fabric.domains.load(Ordering::Acquire) != 0 {
            return Err(Errno(sys::FI_EBUSY));
        }
        // SAFETY: no domain uses it any more. An event queue of the program's may, then it is busy.
        unsafe { core::close(fabric.core.cast())? };
        // SAFETY: the program gives it up.
        unsafe { Handle::free(fid.cast()) };
        Ok(())
    })())
}

unsafe extern "C" fn open_domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    status((|| {
        alive()?;
        // SAFETY: the arguments are a fabric of ours, an fi_info and an out-parameter.
        unsafe { put(domain, domain::open(fabric, info.as_ref().ok_or(Errno(sys::FI_EINVAL))?, context)?) }
    })())
}

unsafe extern "C" fn open_domain2(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -sys::FI_EINVAL;
    }
    // SAFETY: the same arguments.
    unsafe { open_domain(fabric, info, domain, context) }
}

/// Event queues report nothing of ours: the core's own serve as well as any.
unsafe extern "C" fn open_eq(
    fabric: *mut fid_fabric,
    attr: *mut sys::fi_eq_attr,
    eq: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    if let Err(Errno(error)) = alive() {
        return -error;
    }
    // SAFETY: a fabric of ours over an open core fabric; the other arguments pass through.
    unsafe {
        let core = of(fabric).core.as_ptr();
        (*(*core).ops).eq_open.expect("a core provider fills its tables")(core, attr, eq, context)
    }
}

/// Says whether a program may sleep on what it waits for. Our queues have nothing to sleep on, so
/// it only has to know whether one has entries.
unsafe extern "C" fn trywait(_: *mut fid_fabric, fids: *mut *mut sys::fid, count: c_int) -> c_int {
    status((|| {
        alive()?;
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the program passes `count` open objects.
            let fid = unsafe { *fids.add(index) };
            // SAFETY: as above; a queue is ours if its table is.
            if unsafe { crate::cq::is_ours(fid) } && unsafe { crate::cq::has_entries(fid.cast::<fid_cq>()) }? {
                return Err(Errno(sys::FI_EAGAIN));
            }
        }
        Ok(())
    })())
}

/// A domain was closed.
pub(crate) fn domain_closed(fabric: &Fabric) {
    fabric.domains.fetch_sub(1, Ordering::AcqRel);
}

/// A domain is being opened.
pub(crate) fn domain_opens(fabric: &Fabric) -> Outcome {
    fabric.domains.fetch_add(1, Ordering::AcqRel);
    Ok(())
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

static OPS: sys::fi_ops_fabric = sys::fi_ops_fabric {
    size: size_of::<sys::fi_ops_fabric>(),
    domain: Some(open_domain),
    passive_ep: unsupported(),
    eq_open: Some(open_eq),
    wait_open: unsupported(),
    trywait: Some(trywait),
    domain2: Some(open_domain2),
};
