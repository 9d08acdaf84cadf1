//! Requests that are packed buffer by buffer (secure-nexus paper, section 6): each is sealed into the session's stream as
//! it is put, and the message stands nowhere as a whole on its way.
//!
//! ```text
//!  Request, open: size | More ... | End: how it is answered, or that it was given up
//! ```
//!
//! From the first record on the pack has its link, and what others send over that waits behind it. A pack that is
//! dropped gives the message up: its endpoint throws it away, and no handler sees it.

use std::ops::Deref;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use gambeson_proto::record::{Envelope, Kind, request};

use crate::error::Error;
use crate::link::RECORD_MAX;
use crate::startpoint::{Answers, Pending, Startpoint, waiting};
use crate::state::State;

/// Puts at least so long are sealed from where they are; shorter ones are put together first.
const DIRECT: usize = 4 << 10;
/// Bytes that are put together before they are sealed.
const STAGE: usize = 16 << 10;
/// Bytes that are sealed before the carrier is given them.
const STEP: usize = 4 * RECORD_MAX;

/// A request that is being packed. It belongs to the thread that began it, whose other requests over this link are refused
/// meanwhile: they would wait for it. Any thread may drop it.
#[must_use = "a pack that is dropped gives its message up"]
pub struct Pack<S: Deref<Target = Startpoint>> {
    startpoint: S,
    thread: ThreadId,
    handler: u32,
    size: usize,
    put: usize,
    staged: Vec<u8>,
    /// Nothing is sealed before all is there: a short message, or one that modules want as a whole.
    whole: bool,
    /// Whether the link is ours.
    holds: bool,
    /// Whether the first record has gone.
    begun: bool,
}

impl Startpoint {
    /// Begins to pack a request whose message will have `size` bytes. Over links with transform modules it is put
    /// together first.
    ///
    /// # Errors
    /// When the link is over, or in a handler that is not threaded; and when the endpoint is known not to take so much.
    pub fn pack(&self, handler: u32, size: usize) -> Result<Pack<&Self>, Error> {
        Pack::begin(self, handler, size)
    }

    /// [`Startpoint::pack`], for who keeps it longer than he borrows the startpoint.
    ///
    /// # Errors
    /// As there.
    pub fn pack_owned(self: &Arc<Self>, handler: u32, size: usize) -> Result<Pack<Arc<Self>>, Error> {
        Pack::begin(self.clone(), handler, size)
    }
}

impl<S: Deref<Target = Startpoint> + Clone> Pack<S> {
    fn begin(startpoint: S, handler: u32, size: usize) -> Result<Self, Error> {
        let transformed = startpoint.link(&mut *startpoint.shared.lock()?, |link, _, _| {
            waiting(link).check(size)?;
            Ok::<_, Error>(link.stack.is_some())
        })??;
        let whole = transformed || size <= STAGE;
        Ok(Pack {
            startpoint,
            thread: std::thread::current().id(),
            handler,
            size,
            put: 0,
            staged: Vec::with_capacity(if transformed { 0 } else { size.min(STAGE + DIRECT) }),
            whole,
            holds: false,
            begun: false,
        })
    }

    /// Puts these bytes behind those that were put before. What of them is not sealed yet when it returns was copied.
    /// Waits, as [`Startpoint::send`] does, while there is no room or others' messages go first.
    ///
    /// # Errors
    /// When there are more bytes than were said, the endpoint refuses the startpoint, the link is over, or another thread
    /// began to pack.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.put_until(bytes, None).map(drop)
    }

    /// As [`Pack::put`], and waits at most so long; how many of the bytes, from the first on, were put.
    ///
    /// # Errors
    /// As there.
    pub fn put_within(&mut self, bytes: &[u8], patience: Duration) -> Result<usize, Error> {
        self.put_until(bytes, Some(Instant::now() + patience))
    }

    fn put_until(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<usize, Error> {
        self.check_thread()?;
        if bytes.len() > self.size - self.put {
            let (size, put) = (self.size, self.put + bytes.len());
            return Err(Error::Message(format!("{put} bytes were put into a message that was to have {size}")));
        }
        if !self.whole && (bytes.len() >= DIRECT || self.staged.len() >= STAGE) && !self.seal_staged(deadline)? {
            return Ok(0);
        }
        let put = if self.whole || bytes.len() < DIRECT {
            self.staged.extend_from_slice(bytes);
            bytes.len()
        } else {
            self.seal(bytes, deadline)?
        };
        self.put += put;
        Ok(put)
    }

    /// Waits until nothing more of what was put has to be sealed before the message can go, at most so long; whether it
    /// has not.
    ///
    /// # Errors
    /// As [`Pack::put`].
    pub fn flush(&mut self, patience: Duration) -> Result<bool, Error> {
        self.check_thread()?;
        if self.whole { Ok(true) } else { self.seal_staged(Some(Instant::now() + patience)) }
    }

    /// Sends it; nobody answers.
    ///
    /// # Errors
    /// As [`Pack::put`], and when fewer bytes were put than were said.
    pub fn send(self) -> Result<(), Error> {
        let startpoint = self.startpoint.clone();
        self.finish(0)?;
        startpoint.drain(None).map(drop)
    }

    /// As [`Pack::send`], and does not wait until there was room for a short message.
    ///
    /// # Errors
    /// As there.
    pub fn post(self) -> Result<(), Error> {
        self.finish(0).map(drop)
    }

    /// Sends it and waits for the answer, at most so long.
    ///
    /// # Errors
    /// As [`Pack::send`] and [`Startpoint::call`].
    pub fn call(self, patience: Duration) -> Result<Vec<u8>, Error> {
        self.start()?.wait(patience)
    }

    /// Sends it; the answer is waited for later, or awaited.
    ///
    /// # Errors
    /// As [`Pack::send`].
    pub fn start(self) -> Result<Pending<S>, Error> {
        let startpoint = self.startpoint.clone();
        Ok(Pending::new(startpoint, self.finish(request::ANSWER)?))
    }

    /// Sends it; a stream answers.
    ///
    /// # Errors
    /// As [`Pack::send`].
    pub fn stream(self) -> Result<Answers<S>, Error> {
        let startpoint = self.startpoint.clone();
        Ok(Answers::new(startpoint, self.finish(request::STREAM)?))
    }

    fn check_thread(&self) -> Result<(), Error> {
        if self.thread == std::thread::current().id() {
            return Ok(());
        }
        Err(Error::Message("another thread began to pack this request, and goes on with it".into()))
    }

    fn finish(mut self, flags: u8) -> Result<u64, Error> {
        self.check_thread()?;
        if self.put < self.size {
            let (size, put) = (self.size, self.put);
            return Err(Error::Message(format!("{put} bytes were put into a message that was to have {size}")));
        }
        if self.whole {
            let mut state = self.startpoint.shared.lock()?;
            return self.startpoint.issue(&mut state, self.handler, &self.staged[..], flags);
        }
        self.seal_staged(None)?;
        let mut state = self.startpoint.shared.lock()?;
        let number = self.startpoint.link(&mut state, |link, out, cache| link.end_pack(out, cache, Some(flags)))?;
        self.holds = false;
        self.startpoint.push(&mut state);
        self.startpoint.shared.stirred(&state);
        Ok(number)
    }

    /// Whether all of it is sealed.
    fn seal_staged(&mut self, deadline: Option<Instant>) -> Result<bool, Error> {
        if self.staged.is_empty() {
            return Ok(true);
        }
        let mut staged = std::mem::take(&mut self.staged);
        let sealed = self.seal(&staged, deadline);
        staged.drain(..*sealed.as_ref().unwrap_or(&0));
        self.staged = staged;
        sealed.map(|_| self.staged.is_empty())
    }

    /// Seals these bytes into the stream, in their turn and as there is room; how many.
    fn seal(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<usize, Error> {
        let first = Envelope {
            flags: request::OPEN,
            tag: self.handler.into(),
            size: self.size as u64,
            ..Envelope::new(Kind::Request)
        };
        let Pack { startpoint, thread, holds, begun, .. } = self;
        let mut gone = begun.then_some(0);
        while gone != Some(bytes.len()) {
            // So much at a time, that the other end opens some while the rest is sealed.
            let end = bytes.len().min(gone.unwrap_or(0) + STEP);
            let step = |state: &mut State| {
                let went = startpoint.link(state, |link, out, cache| {
                    if !*holds && link.is_packed_here() {
                        return Some(Err(Startpoint::waits_for_itself()));
                    }
                    *holds = *holds || link.begin_pack(*thread);
                    if *holds {
                        gone = link.emit(out, cache, first, &bytes[..end], gone);
                        *begun |= gone.is_some();
                    }
                    (gone == Some(end)).then_some(Ok(()))
                });
                startpoint.push(state);
                went.unwrap_or_else(|cause| Some(Err(cause)))
            };
            match startpoint.shared.wait_until(deadline, step)? {
                Some(went) => went?,
                None => break,
            }
        }
        Ok(gone.unwrap_or(0))
    }
}

impl<S: Deref<Target = Startpoint>> Drop for Pack<S> {
    fn drop(&mut self) {
        if self.holds {
            self.startpoint.give_up_pack(self.begun);
        }
    }
}
