//! Remote service requests: who waits for answers, and what a handler sees (secure-nexus paper, section 3.2).

use std::collections::VecDeque;
use std::task::Waker;

use gambeson_proto::key_cache::KeyCache;
use gambeson_proto::record::{Envelope, Kind, answer, request};
use subtle::ConstantTimeEq;

use crate::answers::{STREAM_WINDOW, cost};
use crate::endpoint::too_long;
use crate::error::Error;
use crate::identity::Peer;
use crate::link::Link;
use crate::session::ANSWER_MAX;
use crate::stream::Outgoing;

/// The requests of a startpoint that wait for answers. A number names its place and how often that was used, so that an
/// answer that comes too late finds nobody.
pub(crate) struct Waiting {
    places: Vec<Place>,
    free: Vec<u32>,
    /// What the endpoint must answer to the activation; `None` once it has.
    expected: Option<[u8; 16]>,
    /// Whether records may go before: sealed ones prove by themselves who can read them.
    ahead: bool,
    class: Box<str>,
    /// The longest message that the endpoint takes, once that is known.
    message_max: u64,
    /// Answers that are here and not taken.
    ready: usize,
    /// Why nothing will come any more, and whether that is the endpoint's will.
    over: Option<(String, bool)>,
}

#[derive(Default)]
struct Place {
    turn: u32,
    taken: bool,
    answers: VecDeque<Result<Vec<u8>, String>>,
    last: bool,
    /// Of its stream's window, what is here and not read, and what was read and not told.
    unread: usize,
    read: usize,
    waker: Option<Waker>,
    /// Memory of answers that were read.
    spare: Vec<Vec<u8>>,
}

/// Memory of so many answers is kept for the next ones of the same place, none longer than that.
const SPARE: usize = 2;
const SPARE_BYTES: usize = 64 << 10;

/// What there is of an answer.
pub(crate) enum Answer {
    /// Nothing yet.
    None,
    /// The next of the stream, or the only one.
    Some(Vec<u8>),
    /// The handler, or the link, says no.
    Refused(Error),
    /// The stream is at its end.
    End,
}

impl Waiting {
    /// For a link whose endpoint must answer so.
    pub(crate) fn new(expected: [u8; 16], ahead: bool, class: &str) -> Self {
        let class = class.into();
        Waiting {
            places: Vec::new(),
            free: Vec::new(),
            expected: Some(expected),
            ahead,
            class,
            message_max: u64::MAX,
            ready: 0,
            over: None,
        }
    }

    /// The link's class.
    pub(crate) fn class(&self) -> &str {
        &self.class
    }

    /// Whether the link's records may go.
    pub(crate) fn may_send(&self) -> bool {
        (self.ahead || self.expected.is_none()) && self.over.is_none()
    }

    /// The endpoint answered: with what proves it, and the longest message that it takes. Whether it has the link's keys.
    pub(crate) fn granted(&mut self, said: &[u8]) -> bool {
        let Some((answer, rest)) = said.split_first_chunk::<16>() else { return false };
        let Ok(message_max) = rest.try_into() else { return false };
        let proved = self.expected.take().is_some_and(|expected| bool::from(expected.ct_eq(answer)));
        if proved {
            self.message_max = u64::from_be_bytes(message_max);
        }
        proved
    }

    /// # Errors
    /// When the endpoint is known not to take so many bytes. As long as it is not, it says no by itself.
    pub(crate) fn check(&self, len: usize) -> Result<(), Error> {
        match len as u64 {
            len if len > self.message_max => Err(Error::Message(too_long(len, self.message_max))),
            _ => Ok(()),
        }
    }

    /// Why nothing that is sent comes anywhere.
    pub(crate) fn refused(&self) -> Option<Error> {
        self.over.clone().map(|(why, denied)| if denied { Error::Startpoint(why) } else { Error::Lost(why) })
    }

    /// Whether somebody waits.
    pub(crate) fn is_any(&self) -> bool {
        self.places.len() > self.free.len()
    }

    /// Whether answers are here that nobody has taken.
    pub(crate) fn has_answers(&self) -> bool {
        self.ready > 0
    }

    /// A number for a new request.
    pub(crate) fn begin(&mut self) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[at as usize];
        (place.taken, place.last) = (true, false);
        (place.unread, place.read) = (0, 0);
        u64::from(place.turn) << 32 | u64::from(at)
    }

    fn place(&mut self, number: u64) -> Option<&mut Place> {
        let place = self.places.get_mut(number as u32 as usize)?;
        (place.taken && u64::from(place.turn) == number >> 32).then_some(place)
    }

    /// Takes an answer in, for whoever waits for it. False: there is no room for it, and its sender knew.
    pub(crate) fn answered(&mut self, envelope: &Envelope, bytes: &[u8]) -> bool {
        let Some(place) = self.place(envelope.data).filter(|place| !place.last) else { return true };
        let cost = cost(bytes.len(), envelope.flags);
        if cost > 0 && place.unread >= STREAM_WINDOW {
            return false;
        }
        place.unread += cost;
        place.last |= envelope.flags & answer::LAST != 0;
        let before = place.answers.len();
        if envelope.flags & answer::REFUSED != 0 {
            place.answers.push_back(Err(String::from_utf8_lossy(bytes).into_owned()));
        } else if envelope.flags & answer::END == 0 {
            let mut memory = place.spare.pop().unwrap_or_default();
            memory.extend_from_slice(bytes);
            place.answers.push_back(Ok(memory));
        }
        let more = place.answers.len() - before;
        if let Some(waker) = place.waker.take() {
            waker.wake();
        }
        self.ready += more;
        true
    }

    /// What was read of a stream since its sender was last told, once it is worth a record.
    pub(crate) fn read(&mut self, number: u64) -> Option<usize> {
        let place = self.place(number).filter(|place| place.read >= STREAM_WINDOW / 2 && !place.last)?;
        Some(std::mem::take(&mut place.read))
    }

    /// What has come of an answer; `waker` hears of more when nothing has.
    pub(crate) fn poll(&mut self, number: u64, waker: Option<&Waker>) -> Answer {
        let over = self.refused();
        let Some(place) = self.place(number) else { return Answer::End };
        match place.answers.pop_front() {
            Some(Ok(bytes)) => {
                let cost = cost(bytes.len(), 0).min(place.unread);
                place.unread -= cost;
                place.read += cost;
                self.ready -= 1;
                Answer::Some(bytes)
            }
            Some(Err(why)) => {
                self.ready -= 1;
                Answer::Refused(Error::Handler(why))
            }
            None if place.last => Answer::End,
            None => match over {
                Some(Error::Lost(why)) => {
                    Answer::Refused(Error::Lost(format!("{why}; the request may have been carried out, or not")))
                }
                Some(why) => Answer::Refused(why),
                None => {
                    if let Some(waker) = waker {
                        place.waker = Some(waker.clone());
                    }
                    Answer::None
                }
            },
        }
    }

    /// Nobody waits for this request any more. Whether answers may still come.
    pub(crate) fn end(&mut self, number: u64) -> bool {
        let Some(place) = self.place(number) else { return false };
        let open = !place.last;
        let left = place.answers.len();
        place.answers.clear();
        (place.taken, place.waker) = (false, None);
        place.turn = place.turn.wrapping_add(1);
        self.ready -= left;
        self.free.push(number as u32);
        open
    }

    /// Gives an answer's memory back.
    pub(crate) fn recycle(&mut self, number: u64, mut memory: Vec<u8>) {
        if let Some(place) = self.place(number).filter(|place| place.spare.len() < SPARE)
            && memory.capacity() <= SPARE_BYTES
        {
            memory.clear();
            place.spare.push(memory);
        }
    }

    /// The session is over: no answer will come any more.
    pub(crate) fn give_up(&mut self, why: &str) {
        self.end_all(why, false);
    }

    /// The endpoint refuses the startpoint.
    pub(crate) fn deny(&mut self, why: &str) {
        self.end_all(why, true);
    }

    fn end_all(&mut self, why: &str, denied: bool) {
        self.over.get_or_insert((why.to_owned(), denied));
        for place in &mut self.places {
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        }
    }
}

/// A request at its endpoint, as an inline handler sees it.
pub struct Call<'c> {
    /// The handler's number.
    pub handler: u32,
    /// What was sent.
    pub payload: &'c [u8],
    /// Who sent it, proved.
    pub peer: &'c Peer,
    pub(crate) responder: Responder<'c>,
}

pub(crate) struct Responder<'c> {
    pub(crate) link: &'c mut Link,
    pub(crate) out: &'c mut Outgoing,
    pub(crate) cache: &'c mut KeyCache,
    pub(crate) request: u64,
    pub(crate) flags: u8,
    pub(crate) done: bool,
}

impl Call<'_> {
    /// Whether the other end waits for an answer.
    #[must_use]
    pub fn wants_answer(&self) -> bool {
        self.responder.flags & (request::ANSWER | request::STREAM) != 0
    }

    /// Answers; of a stream, the last word. One-way requests take none.
    pub fn answer(&mut self, bytes: &[u8]) {
        self.responder.send(bytes, answer::LAST);
    }

    /// Sends one of a stream of answers.
    pub fn item(&mut self, bytes: &[u8]) {
        if self.responder.flags & request::STREAM != 0 {
            self.responder.send(bytes, 0);
        }
    }

    /// Ends a stream of answers.
    pub fn finish(&mut self) {
        self.responder.send(&[], answer::LAST | answer::END);
    }

    /// Says no, and why.
    pub fn refuse(&mut self, why: &str) {
        self.responder.refuse(why);
    }
}

impl Responder<'_> {
    pub(crate) fn refuse(&mut self, why: &str) {
        self.send(why.as_bytes(), answer::LAST | answer::REFUSED);
    }

    /// What a handler left open: nobody waits for ever.
    pub(crate) fn close(&mut self) {
        if self.flags & request::STREAM != 0 {
            self.send(&[], answer::LAST | answer::END);
        } else {
            self.refuse("the handler gave no answer");
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8], flags: u8) {
        if self.done || self.flags & (request::ANSWER | request::STREAM) == 0 {
            return;
        }
        self.done = flags & answer::LAST != 0;
        if self.flags & request::STREAM == 0 || self.link.answers().admit(self.request, bytes, flags) {
            answer(self.link, self.out, self.cache, self.request, flags, bytes);
        }
    }
}

/// Sends an answer to a request, or says that it is too long or a transform module does not take it.
pub(crate) fn answer(link: &mut Link, out: &mut Outgoing, cache: &mut KeyCache, request: u64, flags: u8, bytes: &[u8]) {
    let envelope = |flags, bytes: &[u8]| {
        let size = bytes.len() as u64;
        Envelope { flags, size, data: request, ..Envelope::new(Kind::Answer) }
    };
    let sent = match bytes.len() {
        len if len > ANSWER_MAX => Err(format!(
            "the answer has {len} bytes, and {ANSWER_MAX} are the most; ask for it in parts, or for a stream"
        )),
        _ => link.transmit(out, cache, envelope(flags, bytes), bytes),
    };
    if let Err(why) = sent {
        link.send(out, cache, envelope(answer::LAST | answer::REFUSED, why.as_bytes()), why.as_bytes());
        // What comes behind it in a stream is of no use.
        if flags & answer::LAST == 0 {
            link.answers().cancel(request);
        }
    }
}
