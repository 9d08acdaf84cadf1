//! Looks whether the provider is loaded in this process and has opened an endpoint of this job.

use std::ffi::CStr;

use crate::real::{loaded, symbol};
use crate::refusal::Refusal;

/// How the provider is told which rank of the world the next empty message is for; it answers how many addresses
/// it saw since the last time.
pub(crate) type RollCall = extern "C" fn(i64) -> u64;

/// The provider's ear for a roll call.
pub(crate) fn roll_call() -> Option<RollCall> {
    let address = loaded(is_provider).iter().find_map(|object| symbol(object, c"gambeson_roll_call"))?;
    // SAFETY: the provider exports this function with this prototype.
    Some(unsafe { std::mem::transmute::<*const std::ffi::c_void, RollCall>(address) })
}

/// Counts the endpoints opened with the job's secret in this process.
pub(crate) fn check() -> Result<(), Refusal> {
    let mut seen = false;
    for object in loaded(is_provider) {
        let Some(address) = symbol(&object, c"gambeson_endpoints_open") else {
            continue;
        };
        seen = true;
        // SAFETY: the provider exports this function with this prototype.
        let endpoints_open = unsafe { std::mem::transmute::<*const std::ffi::c_void, extern "C" fn() -> u64>(address) };
        if endpoints_open() > 0 {
            return Ok(());
        }
    }
    Err(if seen { Refusal::no_endpoint() } else { Refusal::no_provider() })
}

fn is_provider(object: &CStr) -> bool {
    let path = object.to_bytes();
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    name.starts_with(b"libgambeson-fi.so") || name.starts_with(b"libgambeson_fi.so")
}
