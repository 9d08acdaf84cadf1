//! Messages of several buffers: how they stand on the wire, so that each comes out as it went in.
//!
//! ```text
//!  number 8 | word 4 | buffers 4 | their lengths 8 each, unless it is one | zeroes | buffer | zeroes | buffer ...
//! ```
//!
//! Little-endian. Each buffer begins at a multiple of 16 bytes, as memory from the allocator does: arrays are used where they
//! are. Nothing that comes is believed before its lengths add up.

/// Buffers begin at multiples of so many bytes.
const ALIGN: usize = 16;
const FIXED: usize = 16;
/// What stands between two buffers, as much of it as [`padding`] says.
pub const PAD: [u8; ALIGN] = [0; ALIGN];

/// What comes in front of a message's buffers.
#[must_use]
pub fn header(number: u64, word: u32, lengths: &[usize]) -> Vec<u8> {
    let table = if lengths.len() == 1 { 0 } else { 8 * lengths.len() };
    let mut header = Vec::with_capacity((FIXED + table).next_multiple_of(ALIGN));
    header.extend(number.to_le_bytes());
    header.extend(word.to_le_bytes());
    header.extend((lengths.len() as u32).to_le_bytes());
    if lengths.len() != 1 {
        lengths.iter().for_each(|&length| header.extend((length as u64).to_le_bytes()));
    }
    header.resize(header.len().next_multiple_of(ALIGN), 0);
    header
}

/// How many zeroes come behind a buffer that another one follows.
#[must_use]
pub fn padding(length: usize) -> usize {
    length.next_multiple_of(ALIGN) - length
}

/// A message as it came.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its number.
    pub number: u64,
    /// Its word.
    pub word: u32,
    /// Where its buffers are: from, and to.
    pub buffers: Vec<(usize, usize)>,
}

impl Frame {
    /// Reads what came; `None` if its lengths do not add up.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let number = u64::from_le_bytes(*bytes.first_chunk()?);
        let word = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
        let count = u32::from_le_bytes(*bytes.get(12..)?.first_chunk()?) as usize;
        if count == 1 {
            return Some(Frame { number, word, buffers: vec![(FIXED, bytes.len())] });
        }
        let table = bytes.get(FIXED..FIXED.checked_add(count.checked_mul(8)?)?)?;
        let mut at = (FIXED + table.len()).next_multiple_of(ALIGN);
        let mut buffers = Vec::with_capacity(count);
        let mut end = at;
        for length in table.chunks_exact(8) {
            let length = usize::try_from(u64::from_le_bytes(*length.first_chunk()?)).ok()?;
            end = at.checked_add(length).filter(|&end| end <= bytes.len())?;
            buffers.push((at, end));
            at = end.next_multiple_of(ALIGN);
        }
        (end == bytes.len()).then_some(Frame { number, word, buffers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(number: u64, word: u32, buffers: &[&[u8]]) -> Vec<u8> {
        let lengths: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
        let mut bytes = header(number, word, &lengths);
        for (at, buffer) in buffers.iter().enumerate() {
            bytes.extend(*buffer);
            if at + 1 < buffers.len() {
                bytes.extend(&PAD[..padding(buffer.len())]);
            }
        }
        bytes
    }

    #[test]
    fn buffers_come_out_as_they_went_in_and_begin_where_arrays_may() {
        let long = [7; 100];
        for buffers in
            [&[][..], &[&b""[..]], &[b"one"], &[b"", b""], &[b"x", &long, b"", b"yz"], &[&long, &long, &long]]
        {
            let bytes = framed(5, 6, buffers);
            let frame = Frame::parse(&bytes).expect("it is whole");
            assert_eq!((frame.number, frame.word), (5, 6));
            let found: Vec<&[u8]> = frame.buffers.iter().map(|&(from, to)| &bytes[from..to]).collect();
            assert_eq!(found, buffers);
            assert!(frame.buffers.iter().all(|&(from, _)| from % ALIGN == 0));
        }
    }

    #[test]
    fn lengths_that_do_not_add_up_are_refused() {
        let bytes = framed(1, 2, &[b"first", b"second", b"third"]);
        for cut in 0..bytes.len() {
            assert_eq!(Frame::parse(&bytes[..cut]), None, "{cut}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(Frame::parse(&longer), None);
        for (at, claimed) in
            [(12, u32::MAX.to_le_bytes()), (16, u32::MAX.to_le_bytes()), (20, [0xff; 4]), (24, [40, 0, 0, 0])]
        {
            let mut altered = bytes.clone();
            altered[at..at + 4].copy_from_slice(&claimed);
            assert_eq!(Frame::parse(&altered), None, "{at}");
        }
    }
}
