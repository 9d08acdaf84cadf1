//! Questions of a job's processes on another host, which are answered where the job was started: `gambeson keep` sends them to
//! its agent, which asks the holder of the job's secrets there.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gambeson_launch::wire::Secret;
use zeroize::Zeroizing;

use super::frame::{Frame, Frames};

/// Questions that wait for their answers.
#[derive(Default)]
pub(crate) struct Questions(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    next: u32,
    waiting: BTreeMap<u32, Sender<Secret>>,
}

impl Questions {
    /// Asks the other side, and waits for the answer; without one an empty answer, which nobody takes for any.
    pub(crate) fn ask(&self, frames: &Arc<Frames<impl Write>>, name: &str, question: &[u8]) -> Zeroizing<Vec<u8>> {
        let (answer, answered) = channel();
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next = number.wrapping_add(1);
        waiting.waiting.insert(number, answer);
        drop(waiting);
        let sent = frames.send(&Frame::Question(number, name.to_owned(), question.to_vec()));
        let answer = sent.ok().and_then(|()| answered.recv_timeout(PATIENCE).ok());
        self.waiting().waiting.remove(&number);
        Zeroizing::new(answer.unwrap_or_default().as_bytes().to_vec())
    }

    /// An answer has come.
    pub(crate) fn answered(&self, number: u32, answer: Secret) {
        if let Some(waits) = self.waiting().waiting.remove(&number) {
            // Who has waited long enough is gone.
            let _ = waits.send(answer);
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shorter than what who asked waits.
const PATIENCE: Duration = Duration::from_secs(45);

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;

    #[test]
    fn each_question_gets_its_own_answer() {
        let (questions, frames) = (Arc::new(Questions::default()), Arc::new(Frames::new(Vec::new())));
        let asked = |text: &'static [u8]| {
            let (questions, frames) = (questions.clone(), frames.clone());
            std::thread::spawn(move || questions.ask(&frames, "anchor", text).to_vec())
        };
        let (one, two) = (asked(b"one"), asked(b"two"));
        let mut seen = BTreeMap::new();
        while seen.len() < 2 {
            let bytes = frames.with(std::mem::take);
            let mut from = &bytes[..];
            while let Some(Frame::Question(number, _, text)) = frame::read(&mut from).unwrap() {
                seen.insert(text, number);
            }
        }
        questions.answered(seen[&b"two"[..]], b"2"[..].into());
        questions.answered(seen[&b"one"[..]], b"1"[..].into());
        questions.answered(99, b"nobody's"[..].into());
        assert_eq!((one.join().unwrap(), two.join().unwrap()), (b"1".to_vec(), b"2".to_vec()));
    }
}
