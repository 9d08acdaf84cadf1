//! What passes between the agent and `gambeson keep`, once the job's files are there.
//!
//! ```text
//! length u32, big endian | a Frame
//! ```
//! The carrier seals it; it is no protection by itself.

use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};

use gambeson_keyd::wire;
use gambeson_launch::wire::{Secret, Text, Variable};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// One word of either side.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame {
    /// To the host: the launcher's command, for a shell, and what its processes find beside the account's variables.
    Run { command: Text, environment: Vec<Variable> },
    /// To the host: the command's standard input; without any, that is at its end.
    Input(Vec<u8>),
    /// To the host: a signal for the command.
    Signal(u8),
    /// To the agent: the command's standard output.
    Output(Vec<u8>),
    /// To the agent: a process of the command's has connected to what it takes for the launcher.
    Connected,
    /// Both ways: bytes of that connection; without any, this side sends no more.
    Control(Vec<u8>),
    /// To the agent: a question of one of the job's processes to the holder of its secrets: its number, its name, and what is
    /// asked.
    Question(u32, String, Vec<u8>),
    /// To the host: the answer to that, which may have keys; without any, nobody has one.
    Answer(u32, Secret),
    /// To the agent: the command has ended, with what a shell has for its status. What follows is the ranks' pages.
    Ended(u8),
}

/// Reads the next frame; none at the end.
pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > LENGTH_MAX {
        return Err(io::Error::other("what came is no frame"));
    }
    let mut bytes = Zeroizing::new(vec![0; length]);
    from.read_exact(&mut bytes)?;
    wire::decode(&bytes).map(Some).map_err(io::Error::other)
}

/// Where frames of many threads go, one after the other.
pub(crate) struct Frames<W>(Mutex<W>);

impl<W: Write> Frames<W> {
    pub(crate) fn new(to: W) -> Self {
        Self(Mutex::new(to))
    }

    pub(crate) fn send(&self, frame: &Frame) -> io::Result<()> {
        let bytes = wire::encode(frame);
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let whole = Zeroizing::new([&length.to_be_bytes()[..], &bytes].concat());
        self.with(|to| to.write_all(&whole).and_then(|()| to.flush()))
    }

    /// Sends what a reader brings until its end, each part as `make` has it, and the end as an empty part.
    pub(crate) fn pump(&self, mut from: impl Read, make: impl Fn(Vec<u8>) -> Frame) {
        let mut buffer = vec![0; PART];
        loop {
            let count = match from.read(&mut buffer) {
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
                read => read.unwrap_or(0),
            };
            if self.send(&make(buffer[..count].to_vec())).is_err() || count == 0 {
                return;
            }
        }
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut W) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A command and an environment may be long.
const LENGTH_MAX: usize = 64 << 20;
const PART: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_one_after_the_other() {
        let frames = Frames::new(Vec::new());
        let sent = [
            Frame::Run { command: "true".into(), environment: vec![("A".into(), "b c".into())] },
            Frame::Control(b"abc".to_vec()),
            Frame::Ended(3),
        ];
        sent.iter().for_each(|frame| frames.send(frame).unwrap());
        frames.pump(&b"out"[..], Frame::Output);
        let bytes = frames.with(std::mem::take);
        let mut from = &bytes[..];
        for frame in sent.into_iter().chain([Frame::Output(b"out".to_vec()), Frame::Output(Vec::new())]) {
            assert_eq!(read(&mut from).unwrap(), Some(frame));
        }
        assert_eq!(read(&mut from).unwrap(), None);
        assert!(read(&mut &b"\xff\xff\xff\xff"[..]).is_err(), "no frame is that long");
        assert!(read(&mut &bytes[..9]).is_err(), "a frame that is cut off");
    }
}
