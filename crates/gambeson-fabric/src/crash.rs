//! Says so when the core provider crashes: forged headers of its own protocol can make it follow a null pointer.
//!
//! Nothing above the core can prevent that, and an exit status of the launcher's tells nobody. The first
//! segmentation fault whose instruction lies in the core's library leaves a sentence for the user and
//! the launcher; then, as for every other fault, the handler of before gets its turn.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::job;

struct Watch {
    /// The core's library in memory.
    library: std::ops::Range<usize>,
    /// Made in advance: a handler must not allocate.
    sentence: String,
    line: String,
    before: libc::sigaction,
}

static WATCH: OnceLock<Watch> = OnceLock::new();

/// Watches the library that `code` lies in, from now on.
pub(crate) fn watch(code: *const c_void) {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if BEGUN.swap(true, Ordering::AcqRel) {
        return;
    }
    let library = library_of(code as usize);
    let sentence = format!(
        "{}libfabric crashed (signal 11) over bytes that came from the network: somebody alters or forges this job's \
         traffic, or this libfabric is faulty; nothing of it reached the program, and the job ends here",
        job::prefix()
    );
    let line = format!("gambeson: {sentence}\n");
    // SAFETY: all-zero bytes are a sigaction; the handler is a function of this library, which is never unloaded.
    unsafe {
        let mut before: libc::sigaction = MaybeUninit::zeroed().assume_init();
        libc::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut before);
        if WATCH.set(Watch { library, sentence, line, before }).is_err() {
            return;
        }
        let mut ours: libc::sigaction = MaybeUninit::zeroed().assume_init();
        ours.sa_sigaction = on_fault as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSEGV, &raw const ours, std::ptr::null_mut());
    }
}

/// The instruction is tried again when this returns, under the handler of before.
unsafe extern "C" fn on_fault(signal: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(watch) = WATCH.get() else { return };
    // SAFETY: the kernel passes the context of the fault.
    if watch.library.contains(&unsafe { instruction(&*context.cast()) }) {
        // SAFETY: the buffer is valid for its length.
        unsafe { libc::write(libc::STDERR_FILENO, watch.line.as_ptr().cast(), watch.line.len()) };
        job::failed(&watch.sentence);
    }
    // SAFETY: what sigaction told.
    unsafe { libc::sigaction(signal, &raw const watch.before, std::ptr::null_mut()) };
}

fn instruction(context: &libc::ucontext_t) -> usize {
    #[cfg(target_arch = "x86_64")]
    return context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    return context.uc_mcontext.pc as usize;
    #[cfg(target_arch = "riscv64")]
    return context.uc_mcontext.__gregs[libc::REG_PC] as usize;
}

/// From the first to the last byte of the loaded object that an address lies in; empty if there is none.
fn library_of(address: usize) -> std::ops::Range<usize> {
    struct Search {
        address: usize,
        found: std::ops::Range<usize>,
    }
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid info and the pointer it was given.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        // SAFETY: the headers belong to the info.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let spans = loaded.map(|header| {
            let start = (info.dlpi_addr + header.p_vaddr) as usize;
            start..start + header.p_memsz as usize
        });
        let whole = spans.reduce(|all, span| all.start.min(span.start)..all.end.max(span.end)).unwrap_or(0..0);
        if whole.contains(&search.address) {
            search.found = whole;
        }
        0
    }
    let mut search = Search { address, found: 0..0 };
    // SAFETY: `visit` keeps to the contract of dl_iterate_phdr, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_lies_in_its_own_library_alone() {
        let own = library_of(library_of as *const () as usize);
        assert!(own.contains(&(watch as *const () as usize)));
        assert!(!own.contains(&(libc::getpid as *const () as usize)));
        assert!(library_of(0).is_empty());
    }
}
