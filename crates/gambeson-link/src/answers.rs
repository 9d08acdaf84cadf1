//! What the endpoint's end of a link still owes: requests that are put aside or answered by a stream, and how much of each
//! stream its reader has no room for yet.

use std::collections::{HashMap, VecDeque};

use gambeson_proto::record::answer;

/// Bytes of a stream of answers that may be under way or unread, with [`COST`] for each answer; the last one before that
/// may go beyond.
pub(crate) const STREAM_WINDOW: usize = 256 << 10;
/// What an answer costs beside its bytes.
const COST: usize = 64;

/// What of a stream's window an answer takes. Its end takes nothing.
pub(crate) fn cost(len: usize, flags: u8) -> usize {
    if flags & answer::LAST != 0 { 0 } else { len + COST }
}

/// Requests of a link that are not answered yet, by their numbers.
#[derive(Default)]
pub(crate) struct Answers(HashMap<u64, Owed>);

#[derive(Default)]
struct Owed {
    /// Of its stream's window, what is under way or unread.
    used: usize,
    /// Answers that found no room, with their flags.
    waiting: VecDeque<(Vec<u8>, u8)>,
}

impl Answers {
    /// A request came that is not answered at once.
    pub(crate) fn begin(&mut self, request: u64) {
        self.0.insert(request, Owed::default());
    }

    /// Whether somebody still waits for a request's answers.
    pub(crate) fn is_open(&self, request: u64) -> bool {
        self.0.contains_key(&request)
    }

    /// Whether answers of a request wait for its reader.
    pub(crate) fn waits(&self, request: u64) -> bool {
        self.0.get(&request).is_some_and(|owed| !owed.waiting.is_empty())
    }

    /// Whether this answer may go now. If not, it is kept, or nobody wants it.
    pub(crate) fn admit(&mut self, request: u64, bytes: &[u8], flags: u8) -> bool {
        let Some(owed) = self.0.get_mut(&request) else { return false };
        if !owed.waiting.is_empty() || (owed.used >= STREAM_WINDOW && flags & answer::LAST == 0) {
            owed.waiting.push_back((bytes.to_vec(), flags));
            return false;
        }
        self.gone(request, bytes.len(), flags);
        true
    }

    /// The next answer that waited and may go now.
    pub(crate) fn next(&mut self, request: u64) -> Option<(Vec<u8>, u8)> {
        let owed = self.0.get_mut(&request).filter(|owed| owed.used < STREAM_WINDOW)?;
        let (bytes, flags) = owed.waiting.pop_front()?;
        self.gone(request, bytes.len(), flags);
        Some((bytes, flags))
    }

    fn gone(&mut self, request: u64, len: usize, flags: u8) {
        if flags & answer::LAST != 0 {
            self.0.remove(&request);
        } else if let Some(owed) = self.0.get_mut(&request) {
            owed.used += cost(len, flags);
        }
    }

    /// Its reader has taken so much. False: more than there was.
    pub(crate) fn credited(&mut self, request: u64, size: u64) -> bool {
        // Its end may have passed the credit on the way.
        let Some(owed) = self.0.get_mut(&request) else { return true };
        match usize::try_from(size).ok().and_then(|size| owed.used.checked_sub(size)) {
            Some(used) => {
                owed.used = used;
                true
            }
            None => false,
        }
    }

    /// Nobody waits for a request's answers any more.
    pub(crate) fn cancel(&mut self, request: u64) {
        self.0.remove(&request);
    }
}
