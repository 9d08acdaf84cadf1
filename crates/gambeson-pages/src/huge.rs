//! Long buffers in huge pages, where the system gives them to who asks: memory that is new for each message otherwise costs
//! a fault every 4 KiB, which takes longer than to open what goes there.

/// The size of a huge page.
const HUGE: usize = 2 << 20;
/// Shorter buffers come from memory that was used before.
const LONG: usize = 4 << 20;

/// Makes room for `more` bytes beyond those that a vector has, as [`Vec::reserve_exact`] does.
pub fn reserve(bytes: &mut Vec<u8>, more: usize) {
    bytes.reserve_exact(more);
    if bytes.capacity() < LONG {
        return;
    }
    let start = bytes.as_mut_ptr();
    let begin = start.addr().next_multiple_of(HUGE);
    let end = (start.addr() + bytes.capacity()) / HUGE * HUGE;
    if end > begin {
        let begin = start.with_addr(begin);
        // SAFETY: the range is within the vector's own memory, and this advice alters none of it. A system without huge
        // pages refuses; then the pages are small.
        let _ = unsafe { libc::madvise(begin.cast(), end - begin.addr(), libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::reserve;

    #[test]
    fn there_is_room_and_what_was_there_stays() {
        for more in [0, 1, 5 << 20, 64 << 20] {
            let mut bytes = vec![7; 100];
            reserve(&mut bytes, more);
            assert!(bytes.capacity() >= 100 + more);
            bytes.resize(100 + more, 9);
            assert!(bytes[..100].iter().all(|&byte| byte == 7) && bytes[100..].iter().all(|&byte| byte == 9));
        }
    }
}
