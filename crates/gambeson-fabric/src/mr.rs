//! fid_mr: memory that peers may read and write (see `remote`).
//!
//! Nothing is pinned or told to any device: a registration is an entry in a table that requests are
//! checked against. Keys are the program's, offsets count from the beginning of the region.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use crate::domain::{self, Member};
use crate::fid::{Errno, Outcome, alive, header, put, status};
use crate::unsupported::unsupported;
use gambeson_libfabric_sys::{self as sys, fid_mr, iovec};

/// Registered memory, by the key that the program chose.
#[derive(Default)]
pub(crate) struct Regions(HashMap<u64, Region>);

struct Region {
    base: *mut u8,
    len: usize,
    /// FI_REMOTE_READ, FI_REMOTE_WRITE.
    access: u64,
    /// Operations that are going on with it.
    pins: usize,
}

/// What a peer wants to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

// SAFETY: the memory is the program's, and is used under the domain's lock.
unsafe impl Send for Region {}

impl Regions {
    /// Memory that a peer asks for; it stays registered until [`Regions::unpin`].
    pub(crate) fn pin(&mut self, key: u64, offset: u64, len: u64, access: Access) -> Outcome<(*mut u8, usize)> {
        let needed = match access {
            Access::Read => sys::FI_REMOTE_READ,
            Access::Write => sys::FI_REMOTE_WRITE,
        };
        let region = self.0.get_mut(&key).filter(|region| region.access & needed != 0);
        let region = region.ok_or(Errno(sys::FI_EACCES))?;
        let (offset, len) = (usize::try_from(offset), usize::try_from(len));
        let (Ok(offset), Ok(len)) = (offset, len) else { return Err(Errno(sys::FI_EACCES)) };
        if offset.checked_add(len).is_none_or(|end| end > region.len) {
            return Err(Errno(sys::FI_EACCES));
        }
        region.pins += 1;
        Ok((region.base.wrapping_add(offset), len))
    }

    pub(crate) fn unpin(&mut self, key: u64) {
        if let Some(region) = self.0.get_mut(&key) {
            region.pins -= 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What a program registers.
struct Request {
    base: *const c_void,
    len: usize,
    access: u64,
    key: u64,
    context: *mut c_void,
}

/// # Safety
/// `domain` is an open domain of ours, `mr` null or the program's.
unsafe fn register(domain: *mut sys::fid, request: Request, mr: *mut *mut fid_mr) -> Outcome {
    alive()?;
    // SAFETY: promised by the caller; a domain begins with its fid.
    let domain = unsafe { domain::own(domain.cast()) };
    let Request { base, len, access, key, context } = request;
    let mut state = domain.lock();
    if state.regions.0.contains_key(&key) {
        return Err(Errno(sys::FI_ENOKEY));
    }
    let fid = fid_mr { fid: header(sys::FI_CLASS_MR, context, &FID_OPS), mem_desc: std::ptr::null_mut(), key };
    let place = usize::try_from(key).map_err(|_| Errno(sys::FI_ENOKEY))?;
    // SAFETY: promised by the caller.
    unsafe { put(mr, Member::handle(domain, fid, place)?)? };
    state.regions.0.insert(key, Region { base: base.cast_mut().cast(), len, access, pins: 0 });
    Ok(())
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    // SAFETY: a region of ours.
    unsafe {
        domain::close_member::<fid_mr>(fid, |state, key| {
            let key = key as u64;
            if state.regions.0.get(&key).is_some_and(|region| region.pins > 0) {
                return Err(Errno(sys::FI_EBUSY));
            }
            state.regions.0.remove(&key);
            Ok(())
        })
    }
}

unsafe extern "C" fn reg(
    domain: *mut sys::fid,
    base: *const c_void,
    len: usize,
    access: u64,
    _: u64,
    key: u64,
    _: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a domain of ours and an out-parameter.
    status(unsafe { register(domain, Request { base, len, access, key, context }, mr) })
}

unsafe extern "C" fn regv(
    domain: *mut sys::fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    _: u64,
    key: u64,
    _: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    if count != 1 {
        return -sys::FI_ENOSYS;
    }
    // SAFETY: a domain of ours, one vector and an out-parameter.
    unsafe {
        let iovec { iov_base, iov_len } = *iov;
        reg(domain, iov_base, iov_len, access, 0, key, 0, mr, context)
    }
}

unsafe extern "C" fn regattr(
    domain: *mut sys::fid,
    attr: *const sys::fi_mr_attr,
    flags: u64,
    mr: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: the program's attributes. The first six fields are as old as the struct.
    let (iov, count, access, key, context) = unsafe {
        let iov = (*attr).__bindgen_anon_1.mr_iov;
        (iov, (*attr).iov_count, (*attr).access, (*attr).requested_key, (*attr).context)
    };
    // SAFETY: a domain of ours, `count` vectors and an out-parameter.
    unsafe { regv(domain, iov, count, access, 0, key, flags, mr, context) }
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

pub(crate) static OPS: sys::fi_ops_mr =
    sys::fi_ops_mr { size: size_of::<sys::fi_ops_mr>(), reg: Some(reg), regv: Some(regv), regattr: Some(regattr) };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_get_at_what_is_registered_for_it_and_nothing_else() {
        let mut memory = [0; 100];
        let base = memory.as_mut_ptr();
        let region = |access| Region { base, len: 100, access, pins: 0 };
        let (readable, writable) = (region(sys::FI_REMOTE_READ), region(sys::FI_REMOTE_WRITE));
        let mut regions = Regions(HashMap::from([(7, readable), (8, writable)]));
        assert_eq!(regions.pin(7, 10, 90, Access::Read), Ok((base.wrapping_add(10), 90)));
        assert_eq!(regions.pin(8, 0, 100, Access::Write), Ok((base, 100)));
        for (key, offset, len) in [(7, 10, 91), (7, u64::MAX, 2), (7, 101, 0), (8, 0, 1), (9, 0, 1)] {
            let refused = regions.pin(key, offset, len, Access::Read);
            assert_eq!(refused, Err(Errno(sys::FI_EACCES)), "{len} bytes at {offset} of {key}");
        }
        assert!(regions.pin(7, 0, 1, Access::Write).is_err());
        assert_eq!(regions.0[&7].pins, 1);
        regions.unpin(7);
        assert_eq!(regions.0[&7].pins, 0);
    }
}
