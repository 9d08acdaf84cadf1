//! Notes when the process makes children that share its memory.
//!
//! Such a child has its parent's keys, and only its process number tells it apart. To ask for that
//! before every send costs a system call, so the provider asks only once this was noted. What makes
//! a child by a bare system call of its own is not seen here; what forks is told by its wiped keys.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether there may have been a child that shares this process's memory. The provider reads it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static gambeson_memory_was_shared: AtomicBool = AtomicBool::new(false);

/// Stands in front of the C library's function: notes it and becomes it, since the parent's and the
/// child's return use the same stack.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn vfork() -> c_int {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("sub rsp, 8", "call {real}", "add rsp, 8", "jmp rax", real = sym real_vfork);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "bl {real}",
        "ldp x29, x30, [sp], #16",
        "br x0",
        real = sym real_vfork
    );
    #[cfg(target_arch = "riscv64")]
    std::arch::naked_asm!(
        "addi sp, sp, -16",
        "sd ra, 8(sp)",
        "call {real}",
        "ld ra, 8(sp)",
        "addi sp, sp, 16",
        "jr a0",
        real = sym real_vfork
    );
}

extern "C" fn real_vfork() -> *const c_void {
    real(c"vfork")
}

/// Stands in front of the C library's function: notes a child that shares memory and is no thread.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clone(
    function: *const c_void,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut c_void,
    storage: *mut c_void,
    child: *mut c_void,
) -> c_int {
    type Clone = unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        c_int,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
    ) -> c_int;
    // SAFETY: the C library's function of this name; the last three are there or not, as the flags say, and
    // the same registers carry them.
    let real = unsafe { std::mem::transmute::<*const c_void, Clone>(real(c"clone")) };
    // SAFETY: the caller's own arguments.
    unsafe { real(function, stack, flags, argument, parent, storage, child) }
}

fn real(name: &CStr) -> *const c_void {
    gambeson_memory_was_shared.store(true, Ordering::Release);
    // SAFETY: dlsym takes any handle constant and a C string.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.cast_const();
    assert!(!real.is_null(), "every C library has this function");
    real
}
