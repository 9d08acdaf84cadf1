//! Requests made of several buffers, which are sealed from where they are.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use gambeson_proto::record::request;

use crate::error::Error;
use crate::startpoint::{Answers, Pending, Startpoint};

/// A request whose message is these buffers, one behind the other; the handler gets them as one. Records that lie within
/// a buffer are sealed straight from there.
#[must_use = "nothing is sent yet"]
pub struct Gather<'p, S: Deref<Target = Startpoint>> {
    startpoint: S,
    handler: u32,
    pieces: &'p [&'p [u8]],
}

impl Startpoint {
    /// A request made of several buffers.
    pub fn gather<'p>(&self, handler: u32, pieces: &'p [&'p [u8]]) -> Gather<'p, &Self> {
        Gather { startpoint: self, handler, pieces }
    }

    /// [`Startpoint::gather`], for who keeps the request longer than he borrows the startpoint.
    pub fn gather_owned<'p>(self: &Arc<Self>, handler: u32, pieces: &'p [&'p [u8]]) -> Gather<'p, Arc<Self>> {
        Gather { startpoint: self.clone(), handler, pieces }
    }
}

impl<S: Deref<Target = Startpoint>> Gather<'_, S> {
    fn issue(&self, flags: u8) -> Result<u64, Error> {
        let mut state = self.startpoint.shared.lock()?;
        self.startpoint.issue(&mut state, self.handler, self.pieces, flags)
    }

    /// As [`Startpoint::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(self) -> Result<(), Error> {
        self.issue(0)?;
        self.startpoint.drain(None).map(drop)
    }

    /// As [`Startpoint::post`].
    ///
    /// # Errors
    /// As there.
    pub fn post(self) -> Result<(), Error> {
        self.issue(0).map(drop)
    }

    /// As [`Startpoint::call`].
    ///
    /// # Errors
    /// As there.
    pub fn call(self, patience: Duration) -> Result<Vec<u8>, Error> {
        self.start()?.wait(patience)
    }

    /// As [`Startpoint::call_into`].
    ///
    /// # Errors
    /// As there.
    pub fn call_into(self, answer: &mut Vec<u8>, patience: Duration) -> Result<(), Error> {
        self.start()?.wait_into(answer, patience)
    }

    /// As [`Startpoint::start`].
    ///
    /// # Errors
    /// As there.
    pub fn start(self) -> Result<Pending<S>, Error> {
        let number = self.issue(request::ANSWER)?;
        Ok(Pending::new(self.startpoint, number))
    }

    /// As [`Startpoint::stream`].
    ///
    /// # Errors
    /// As there.
    pub fn stream(self) -> Result<Answers<S>, Error> {
        let number = self.issue(request::STREAM)?;
        Ok(Answers::new(self.startpoint, number))
    }
}
