//! What ranks write to each other when they exchange shares: numbers, little endian, and bytes.

/// A message being written.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u64(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("a share is shorter"));
        self.0.extend_from_slice(bytes);
    }
}

/// A message being read. It comes from a rank of this program: what is not as it was written is a bug.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    whole: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Reader { whole: message, at: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.at == self.whole.len()
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().expect("8 bytes"))
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().expect("4 bytes"))
    }

    pub(super) fn bytes(&mut self) -> &'a [u8] {
        let length = self.u32() as usize;
        self.take(length)
    }

    /// Skips bytes; where they began.
    pub(super) fn skip(&mut self, length: usize) -> usize {
        self.take(length);
        self.at - length
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let taken = &self.whole[self.at..self.at + length];
        self.at += length;
        taken
    }
}
