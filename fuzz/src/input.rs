//! An input read as a program: bytes and small numbers, zero once it is at its end.

pub(crate) struct Input<'d>(pub(crate) &'d [u8]);

impl<'d> Input<'d> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub(crate) fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Up to `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> &'d [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// A number that is small or near a limit far more often than not.
    pub(crate) fn number(&mut self) -> u64 {
        let small = u64::from(self.byte());
        match small {
            0..=199 => small,
            200..=219 => u64::from(self.short()),
            220..=229 => 1 << (small - 220 + u64::from(self.byte() % 54)),
            230..=239 => u64::MAX - (small - 230),
            _ => {
                let mut word = [0; 8];
                let bytes = self.bytes(8);
                word[..bytes.len()].copy_from_slice(bytes);
                u64::from_le_bytes(word)
            }
        }
    }
}
