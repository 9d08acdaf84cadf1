//! What a forked child finds, and what the kernel was told of the pages.
#![cfg(not(any(miri, asan)))]

use std::fs;

use gambeson_pages::PageBox;

/// Flags of the mapping that an address is in (proc(5), smaps).
fn flags(address: usize) -> String {
    let smaps = fs::read_to_string("/proc/self/smaps").expect("proc is mounted");
    let mut inside = false;
    for line in smaps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let range = range.and_then(|(from, to)| Some((hex(from)?, hex(to)?)));
        if let Some((from, to)) = range {
            inside = (from..to).contains(&address);
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
            return flags.to_owned();
        }
    }
    panic!("no mapping holds {address:x}");
}

fn hex(text: &str) -> Option<usize> {
    usize::from_str_radix(text, 16).ok()
}

#[test]
fn the_kernel_leaves_them_out_of_core_dumps_and_wipes_them_on_fork() {
    // In a slot, and in a block of its own.
    let (small, large) = (PageBox::new([7_u8; 32]), PageBox::new([7_u8; 100]));
    for address in [small.as_ptr(), large.as_ptr()] {
        let flags = flags(address as usize);
        assert!(flags.contains(" dd") && flags.contains(" wf"), "{flags}");
    }
}

/// What went wrong in the child, as its exit status.
fn child(secret: PageBox<[u8; 32]>, address: *const u8) -> i32 {
    if secret.is_here() {
        return 1;
    }
    if *secret != [0; 32] {
        return 2;
    }
    drop(secret);
    // It may have secrets of its own, elsewhere.
    let own = PageBox::new([8_u8; 32]);
    if !own.is_here() || *own != [8; 32] || own.as_ptr() == address {
        return 3;
    }
    drop(own);
    0
}

#[test]
fn a_child_finds_nothing_and_may_have_its_own() {
    let secret = PageBox::new([7_u8; 32]);
    let address = secret.as_ptr();
    // SAFETY: the child touches its own memory alone and ends by _exit.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "no fork");
    if process == 0 {
        let status = child(secret, address);
        // SAFETY: nothing of the parent's is run on the way out.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: our own child, and an integer of ours.
    assert_eq!(unsafe { libc::waitpid(process, &mut status, 0) }, process);
    assert_eq!(libc::WEXITSTATUS(status), 0, "see `child`");
    assert!(secret.is_here() && *secret == [7; 32]);
}
