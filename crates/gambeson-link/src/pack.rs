//! Requests that are packed buffer by buffer (secure-nexus paper, section 6): each is sealed into the session's stream as
//! it is put, and the message stands nowhere as a whole on its way.
//!
//! ```text
//!  Request, open: size | More ... | End: how it is answered, or that it was given up
//! ```
//!
//! From the first record on the pack has its link, and what others send over that waits behind it. A pack that is
//! dropped gives the message up: its endpoint throws it away, and no handler sees it.

use std::marker::PhantomData;
use std::time::Duration;

use gambeson_proto::record::{Envelope, Kind, request};

use crate::error::Error;
use crate::startpoint::{Answers, Pending, Startpoint, waiting};
use crate::state::State;

/// Puts at least so long are sealed from where they are; shorter ones are put together first.
const DIRECT: usize = 4 << 10;
/// Bytes that are put together before they are sealed.
const STAGE: usize = 16 << 10;

/// A request that is being packed. It stays on its thread, whose other requests over this link are refused meanwhile:
/// they would wait for it.
#[must_use = "a pack that is dropped gives its message up"]
pub struct Pack<'s> {
    startpoint: &'s Startpoint,
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
    on_its_thread: PhantomData<*const ()>,
}

impl Startpoint {
    /// Begins to pack a request whose message will have `size` bytes. Over links with transform modules it is put
    /// together first.
    ///
    /// # Errors
    /// When the link is over, or in a handler that is not threaded; and when the endpoint is known not to take so much.
    pub fn pack(&self, handler: u32, size: usize) -> Result<Pack<'_>, Error> {
        let transformed = self.link(&mut *self.shared.lock()?, |link, _, _| {
            waiting(link).check(size)?;
            Ok::<_, Error>(link.stack.is_some())
        })??;
        let whole = transformed || size <= STAGE;
        Ok(Pack {
            startpoint: self,
            handler,
            size,
            put: 0,
            staged: Vec::with_capacity(if transformed { 0 } else { size.min(STAGE + DIRECT) }),
            whole,
            holds: false,
            begun: false,
            on_its_thread: PhantomData,
        })
    }
}

impl<'s> Pack<'s> {
    /// Puts these bytes behind those that were put before. What of them is not sealed yet when it returns was copied.
    /// Waits, as [`Startpoint::send`] does, while there is no room or others' messages go first.
    ///
    /// # Errors
    /// When there are more bytes than were said, the endpoint refuses the startpoint, or the link is over.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > self.size - self.put {
            let (size, put) = (self.size, self.put + bytes.len());
            return Err(Error::Message(format!("{put} bytes were put into a message that was to have {size}")));
        }
        if self.whole || bytes.len() < DIRECT {
            self.staged.extend_from_slice(bytes);
            if !self.whole && self.staged.len() >= STAGE {
                self.seal_staged()?;
            }
        } else {
            self.seal_staged()?;
            self.seal(bytes)?;
        }
        self.put += bytes.len();
        Ok(())
    }

    /// Sends it; nobody answers.
    ///
    /// # Errors
    /// As [`Pack::put`], and when fewer bytes were put than were said.
    pub fn send(self) -> Result<(), Error> {
        let startpoint = self.startpoint;
        self.finish(0)?;
        startpoint.drain(None).map(drop)
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
    pub fn start(self) -> Result<Pending<&'s Startpoint>, Error> {
        let startpoint = self.startpoint;
        Ok(Pending::new(startpoint, self.finish(request::ANSWER)?))
    }

    /// Sends it; a stream answers.
    ///
    /// # Errors
    /// As [`Pack::send`].
    pub fn stream(self) -> Result<Answers<&'s Startpoint>, Error> {
        let startpoint = self.startpoint;
        Ok(Answers::new(startpoint, self.finish(request::STREAM)?))
    }

    fn finish(mut self, flags: u8) -> Result<u64, Error> {
        if self.put < self.size {
            let (size, put) = (self.size, self.put);
            return Err(Error::Message(format!("{put} bytes were put into a message that was to have {size}")));
        }
        if self.whole {
            let mut state = self.startpoint.shared.lock()?;
            return self.startpoint.issue(&mut state, self.handler, &self.staged[..], flags);
        }
        self.seal_staged()?;
        let mut state = self.startpoint.shared.lock()?;
        let number = self.startpoint.link(&mut state, |link, out, cache| link.end_pack(out, cache, Some(flags)))?;
        self.holds = false;
        self.startpoint.push(&mut state);
        self.startpoint.shared.stirred(&state);
        Ok(number)
    }

    fn seal_staged(&mut self) -> Result<(), Error> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let mut staged = std::mem::take(&mut self.staged);
        let sealed = self.seal(&staged);
        staged.clear();
        self.staged = staged;
        sealed
    }

    /// Seals these bytes into the stream, in their turn and as there is room.
    fn seal(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let first = Envelope {
            flags: request::OPEN,
            tag: self.handler.into(),
            size: self.size as u64,
            ..Envelope::new(Kind::Request)
        };
        let Pack { startpoint, holds, begun, .. } = self;
        let me = std::thread::current().id();
        let mut gone = begun.then_some(0);
        let step = |state: &mut State| {
            let went = startpoint.link(state, |link, out, cache| {
                if !*holds && link.is_packed_here() {
                    return Some(Err(Startpoint::waits_for_itself()));
                }
                *holds = *holds || link.begin_pack(me);
                if *holds {
                    gone = link.emit(out, cache, first, bytes, gone);
                    *begun |= gone.is_some();
                }
                (gone == Some(bytes.len())).then_some(Ok(()))
            });
            startpoint.push(state);
            went.unwrap_or_else(|cause| Some(Err(cause)))
        };
        startpoint.shared.wait_until(None, step)?.unwrap_or(Ok(()))
    }
}

impl Drop for Pack<'_> {
    fn drop(&mut self) {
        if self.holds
            && let Ok(mut state) = self.startpoint.shared.lock()
        {
            let begun = self.begun;
            // If the link is over, nobody waits behind it.
            let _ = self.startpoint.link(&mut state, |link, out, cache| match begun {
                true => drop(link.end_pack(out, cache, None)),
                false => link.leave_pack(out, cache),
            });
            self.startpoint.push(&mut state);
            self.startpoint.shared.stirred(&state);
        }
    }
}
