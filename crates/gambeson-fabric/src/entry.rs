//! The exported symbols: `fi_prov_ini` for libfabric, the others for the guard.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

use crate::core::{self, Library};
use crate::report::refuse;
use crate::{fabric, info, job, watchdog, world};
use gambeson_libfabric_sys::{fi_context, fi_provider};

/// libfabric calls this when it has loaded the library. It tail-calls [`provider`] with the return
/// address, which lies in the libfabric that asks: MPI libraries load their own copies, often
/// invisible to the rest of the process.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn fi_prov_ini() -> *mut fi_provider {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("mov rdi, [rsp]", "jmp {provider}", provider = sym provider);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("mov x0, x30", "b {provider}", provider = sym provider);
    #[cfg(target_arch = "riscv64")]
    std::arch::naked_asm!("mv a0, ra", "tail {provider}", provider = sym provider);
}

/// How many endpoints of this process are open. The guard asks this of a process that has begun to
/// talk to others.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gambeson_endpoints_open() -> u64 {
    if gambeson_pages::alive() { job::endpoints_open() } else { 0 }
}

/// The guard calls the roll of the world: see [`world`].
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gambeson_roll_call(rank: i64) -> u64 {
    if gambeson_pages::alive() { world::call(rank) } else { 0 }
}

/// The provider's entry table. libfabric writes to it, so it is made once and never freed.
unsafe extern "C" fn provider(caller: *const c_void) -> *mut fi_provider {
    static PROVIDER: OnceLock<usize> = OnceLock::new();
    if !gambeson_pages::alive() {
        return ptr::null_mut();
    }
    // SAFETY: the address is where this function returns to, hence in loaded code.
    let library = match unsafe { core::load(caller) } {
        Ok(library) => library,
        Err(sentence) => {
            refuse(sentence);
            return ptr::null_mut();
        }
    };
    *PROVIDER.get_or_init(|| table(library) as usize) as *mut fi_provider
}

fn table(library: &Library) -> *mut fi_provider {
    let provider = fi_provider {
        version: VERSION,
        // Less than what a program asks for, and libfabric passes the provider over.
        fi_version: library.version(),
        context: fi_context { internal: [ptr::null_mut(); 4] },
        name: info::NAME.as_ptr(),
        getinfo: Some(info::getinfo),
        fabric: Some(fabric::open),
        cleanup: Some(cleanup),
    };
    // SAFETY: malloc takes any size; a provider table needs no more than malloc's alignment.
    let made: *mut fi_provider = unsafe { libc::malloc(size_of::<fi_provider>()) }.cast();
    if !made.is_null() {
        // SAFETY: fresh memory of this size.
        unsafe { made.write(provider) };
    }
    made
}

/// libfabric is being unloaded or the process ends.
unsafe extern "C" fn cleanup() {
    if gambeson_pages::alive() {
        watchdog::end();
    }
}

/// This provider's version as libfabric shows it: 0.1, in FI_VERSION's form.
const VERSION: u32 = 1;
