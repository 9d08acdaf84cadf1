//! Messages of several buffers, as they come out of a link.

use gambeson_proto::frame::{Frame, PAD, header, padding};

/// What is read of any bytes lies within them, and is the same when it is written anew.
pub fn frame(data: &[u8]) {
    let Some(frame) = Frame::parse(data) else { return };
    let mut last = 0;
    for &(from, to) in &frame.buffers {
        assert!(last <= from && from <= to && to <= data.len() && from % 16 == 0);
        last = to;
    }
    let buffers: Vec<&[u8]> = frame.buffers.iter().map(|&(from, to)| &data[from..to]).collect();
    let lengths: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
    let mut written = header(frame.number, frame.word, &lengths);
    for (at, buffer) in buffers.iter().enumerate() {
        written.extend_from_slice(buffer);
        if at + 1 < buffers.len() {
            written.extend_from_slice(&PAD[..padding(buffer.len())]);
        }
    }
    assert_eq!(written.len(), data.len());
    assert_eq!(Frame::parse(&written), Some(frame));
}

/// Some messages.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let written = |buffers: &[&[u8]]| {
        let lengths: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
        let mut bytes = header(7, 9, &lengths);
        for (at, buffer) in buffers.iter().enumerate() {
            bytes.extend_from_slice(buffer);
            if at + 1 < buffers.len() {
                bytes.extend_from_slice(&PAD[..padding(buffer.len())]);
            }
        }
        bytes
    };
    vec![
        ("none", written(&[])),
        ("one", written(&[b"pickled"])),
        ("empty", written(&[b""])),
        ("several", written(&[b"stream", &[1; 40], b"", &[2; 16]])),
        ("cut", written(&[b"stream", &[1; 40]])[..50].to_vec()),
    ]
}
