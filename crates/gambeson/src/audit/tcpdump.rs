//! Listens through tcpdump, where that program may do what this one may not.
//!
//! It writes a pcap stream; frames come in its "cooked" form with the direction in front.

use std::io::{BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A running tcpdump.
pub(crate) struct Tcpdump {
    child: Child,
    frames: Receiver<Vec<u8>>,
}

impl Tcpdump {
    /// Starts it.
    ///
    /// # Errors
    /// What tcpdump says when it does not run or may not listen.
    pub(crate) fn start() -> Result<Self, String> {
        let mut child = Command::new("tcpdump")
            .args(["-i", "any", "-w", "-", "-U", "-s", "0", "--immediate-mode", "-B", "131072"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("tcpdump cannot be started: {error}"))?;
        let mut stream = BufReader::with_capacity(1 << 20, child.stdout.take().expect("standard output was asked for"));
        let mut head = [0; FILE_HEADER];
        if stream.read_exact(&mut head).is_err() {
            let mut said = String::new();
            if let Some(mut errors) = child.stderr.take() {
                let _ = errors.read_to_string(&mut said);
            }
            let _ = child.wait();
            return Err(format!(
                "tcpdump may not listen either: {}",
                said.lines().last().unwrap_or("it gave no reason")
            ));
        }
        // From here on it says nothing but its statistics; nobody must wait for them.
        let link = link_type(&head).ok_or("tcpdump writes a format that is not known here")?;
        let (sender, frames) = channel();
        std::thread::spawn(move || {
            while let Some(frame) = read_frame(&mut stream, link) {
                if frame.is_some_and(|frame| sender.send(frame).is_err()) {
                    return;
                }
            }
        });
        Ok(Self { child, frames })
    }

    /// Hands every frame that comes within `patience` to `look`.
    pub(crate) fn frames(&mut self, patience: Duration, mut look: impl FnMut(&[u8])) {
        let deadline = Instant::now() + patience;
        while let Ok(frame) = self.frames.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            look(&frame);
        }
    }

    /// Stops listening; returns the frames that were lost, as tcpdump counts them.
    pub(crate) fn stop(&mut self) -> u64 {
        use rustix::process::{Pid, Signal, kill_process};
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let mut said = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            let _ = errors.read_to_string(&mut said);
        }
        let _ = self.child.wait();
        dropped(&said)
    }
}

impl Drop for Tcpdump {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lengths of a pcap file's header, and of a packet's.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// No frame is longer; anything else means that the stream is not understood.
const FRAME_MAX: usize = 1 << 20;

/// The two cooked link types: where each has the packet's direction and the interface's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cooked {
    direction: usize,
    kind: usize,
    header: usize,
}

const LINUX_SLL: Cooked = Cooked { direction: 0, kind: 2, header: 16 };
const LINUX_SLL2: Cooked = Cooked { direction: 10, kind: 8, header: 20 };

fn link_type(head: &[u8; FILE_HEADER]) -> Option<Cooked> {
    // tcpdump writes in this machine's own byte order.
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    match (word(0), word(20)) {
        (0xa1b2_c3d4 | 0xa1b2_3c4d, 113) => Some(LINUX_SLL),
        (0xa1b2_c3d4 | 0xa1b2_3c4d, 276) => Some(LINUX_SLL2),
        _ => None,
    }
}

/// The next frame; the inner `None` is one that passes the loopback interface a second time.
fn read_frame(stream: &mut impl Read, link: Cooked) -> Option<Option<Vec<u8>>> {
    let mut head = [0; PACKET_HEADER];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_ne_bytes([head[8], head[9], head[10], head[11]]) as usize;
    if length > FRAME_MAX {
        return None;
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).ok()?;
    let half = |at: usize| frame.get(at..at + 2).map_or(0, |half| u16::from_be_bytes([half[0], half[1]]));
    let direction = if link == LINUX_SLL2 {
        u16::from(frame.get(link.direction).copied().unwrap_or(0))
    } else {
        half(link.direction)
    };
    let echo = direction == u16::from(libc::PACKET_OUTGOING) && half(link.kind) == libc::ARPHRD_LOOPBACK;
    let payload = frame.split_off(link.header.min(length));
    Some((!echo).then_some(payload))
}

/// The number in "12 packets dropped by kernel".
fn dropped(said: &str) -> u64 {
    let line = said.lines().find(|line| line.contains("dropped by kernel"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of a pcap stream with this cooked header in front.
    fn packet(cooked: &[u8], payload: &[u8]) -> Vec<u8> {
        let length = (cooked.len() + payload.len()) as u32;
        let head = [[0; 4], [0; 4], length.to_ne_bytes(), length.to_ne_bytes()].concat();
        [head.as_slice(), cooked, payload].concat()
    }

    fn sll2(direction: u8, kind: u16) -> Vec<u8> {
        let mut header = vec![0; 20];
        header[8..10].copy_from_slice(&kind.to_be_bytes());
        header[10] = direction;
        header
    }

    #[test]
    fn frames_are_taken_from_the_stream_once() {
        let stream = [
            packet(&sll2(0, libc::ARPHRD_LOOPBACK), b"there"),
            packet(&sll2(4, libc::ARPHRD_LOOPBACK), b"there"),
            packet(&sll2(4, libc::ARPHRD_ETHER), b"out"),
        ]
        .concat();
        let mut stream = stream.as_slice();
        assert_eq!(read_frame(&mut stream, LINUX_SLL2), Some(Some(b"there".to_vec())));
        assert_eq!(read_frame(&mut stream, LINUX_SLL2), Some(None));
        assert_eq!(read_frame(&mut stream, LINUX_SLL2), Some(Some(b"out".to_vec())));
        assert_eq!(read_frame(&mut stream, LINUX_SLL2), None);
    }

    #[test]
    fn a_nonsensical_length_ends_the_stream() {
        let mut stream: &[u8] = &[0xff; 64];
        assert_eq!(read_frame(&mut stream, LINUX_SLL2), None);
    }

    #[test]
    fn losses_are_read_from_the_statistics() {
        assert_eq!(dropped("10 packets captured\n20 packets received by filter\n7 packets dropped by kernel\n"), 7);
        assert_eq!(dropped(""), 0);
    }
}
