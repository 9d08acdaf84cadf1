//! Memory for messages that arrived before their receive, and for those that wait to be sent, used again and again.

/// Free buffers by power of two.
#[derive(Default)]
pub(super) struct Spare {
    classes: [Vec<Vec<u8>>; CLASSES],
}

const CLASSES: usize = 22;
/// Free buffers kept of each class.
const KEPT: usize = 1024;
/// Free bytes kept of each class.
const KEPT_BYTES: usize = 8 << 20;

impl Spare {
    /// A buffer of `len` bytes, of unspecified content.
    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        if len == 0 {
            return Vec::new();
        }
        let class = class(len);
        let mut buffer = self.classes[class].pop().unwrap_or_else(|| Vec::with_capacity(1 << class));
        buffer.resize(len, 0);
        buffer
    }

    /// A buffer with these bytes.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.take(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Takes a buffer back.
    pub(super) fn put(&mut self, buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity == 0 {
            return;
        }
        let free = &mut self.classes[capacity.ilog2().min(CLASSES as u32 - 1) as usize];
        if free.len() < KEPT && free.len() * capacity < KEPT_BYTES {
            // With its length, so that the next to take it writes no zeros first.
            free.push(buffer);
        }
    }
}

/// The smallest class whose buffers hold `len` bytes; no message of more than 2 MiB is held whole.
fn class(len: usize) -> usize {
    (len.next_power_of_two().ilog2() as usize).clamp(6, CLASSES - 1)
}
