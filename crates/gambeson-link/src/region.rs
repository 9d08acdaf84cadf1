//! Memory regions of an endpoint, which startpoints put bytes into and get bytes from (secure-nexus paper, section 3.2).
//!
//! An access comes as a message of its link, in turn with the requests. It is decided when all of it is here and proved
//! (threat-model rule 10): a put lands whole or not at all. While the program has a region in its hands, who wants to
//! reach into it waits, with what follows on its link; the domain and all other links go on.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use gambeson_proto::record::{Envelope, Kind, answer, request};
use gambeson_proto::startpoint::{Refusal, Window};

use crate::desk::in_handler;
use crate::domain::Progress;
use crate::endpoint::Table;
use crate::error::Error;
use crate::link::Bytes;
use crate::request::Responder;
use crate::session::Incident;
use crate::shared::Shared;
use crate::startpoint::{Pending, Startpoint};

/// How long a program that wants a region waits for an access that came before it.
const WAY: Duration = Duration::from_millis(20);

/// Memory of an endpoint that startpoints reach, as far as their windows go. It is there as long as somebody holds it;
/// clones are the same memory.
#[derive(Clone)]
pub struct Region(Arc<Memory>);

/// A region's bytes.
pub(crate) struct Memory {
    number: u64,
    length: u64,
    bytes: Mutex<Vec<u8>>,
    /// Whether an access found it in the program's hands, and waits.
    wanted: AtomicBool,
    table: Weak<Table>,
    shared: Weak<Shared>,
}

impl Region {
    pub(crate) fn new(table: &Arc<Table>, shared: Weak<Shared>, bytes: Vec<u8>) -> Self {
        let make = |number| {
            let (length, wanted, table) = (bytes.len() as u64, AtomicBool::new(false), Arc::downgrade(table));
            Arc::new(Memory { number, length, bytes: Mutex::new(bytes), wanted, table, shared })
        };
        Region(table.enter(make))
    }

    /// Its number at its endpoint, which no other region has or will have.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Its length in bytes; it never changes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.length
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A window of `length` bytes from `offset` on, for a startpoint's [`crate::Caveat::Memory`]; `rights` are
    /// [`Window::READ`], [`Window::WRITE`] or both.
    #[must_use]
    pub fn window(&self, offset: u64, length: u64, rights: u8) -> Window {
        Window { region: self.number(), offset, length, rights }
    }

    /// A window onto all of it.
    #[must_use]
    pub fn whole(&self, rights: u8) -> Window {
        self.window(0, self.len(), rights)
    }

    /// Copies from `offset` on into `into`. No put is seen in part.
    ///
    /// # Errors
    /// When that goes beyond the region's end, and as [`Region::with`].
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let range = self.range(offset, into.len())?;
        self.with(|bytes| into.copy_from_slice(&bytes[range]))
    }

    /// Copies `from` to `offset`.
    ///
    /// # Errors
    /// As [`Region::read`].
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let range = self.range(offset, from.len())?;
        self.with(|bytes| bytes[range].copy_from_slice(from))
    }

    /// Does something with the bytes where they are. Meanwhile whoever puts or gets waits, and so does another thread
    /// that wants the region; `work` must not want it a second time.
    ///
    /// # Errors
    /// In a handler that is not threaded, when somebody has the region already: such a handler cannot wait.
    pub fn with<T>(&self, work: impl FnOnce(&mut [u8]) -> T) -> Result<T, Error> {
        if !in_handler() {
            self.0.give_way();
        }
        // Dropped last, whatever the work comes to.
        let _told = Told(&self.0);
        let mut bytes = if in_handler() {
            let busy =
                "the region is in use, and a handler that is not threaded cannot wait; register it with `threaded`";
            self.0.try_lock().ok_or_else(|| Error::Handler(busy.into()))?
        } else {
            self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner)
        };
        Ok(work(&mut bytes))
    }

    fn range(&self, offset: u64, length: usize) -> Result<Range<usize>, Error> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.len());
        let end = end.ok_or_else(|| {
            let what = format!("{length} bytes from {offset} on go beyond the region, which has {}", self.len());
            Error::Startpoint(what)
        })?;
        Ok(offset as usize..end as usize)
    }
}

/// Remote memory access. What it needs at the endpoint is a window ([`crate::Caveat::Memory`]) with the right; it counts as
/// one use.
impl Startpoint {
    /// Puts bytes into a memory region of the endpoint, from `offset` on, and waits until they are there, at most so long.
    /// They land whole or not at all, in turn with the link's requests, other puts, and gets.
    ///
    /// A put of no bytes reaches no memory: its answer says that all before it has landed or was refused.
    ///
    /// # Errors
    /// When the startpoint has no window for that, the region is not there or ends before, nothing comes in time, or the
    /// link is over.
    pub fn put(&self, region: u64, offset: u64, bytes: &[u8], patience: Duration) -> Result<(), Error> {
        self.start_put(region, offset, bytes)?.wait_for(patience, |_| ())
    }

    /// [`Startpoint::put`] without an answer: it lands before what follows on the link, or is refused and nobody hears.
    ///
    /// # Errors
    /// When the link is over, or in a handler that is not threaded.
    pub fn put_one_way(&self, region: u64, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.begin_put(region, offset, bytes, 0)?;
        self.drain(None).map(drop)
    }

    /// A [`Startpoint::put`] that is waited for later, or awaited; its answer is empty.
    ///
    /// # Errors
    /// As [`Startpoint::start`].
    pub fn start_put(&self, region: u64, offset: u64, bytes: &[u8]) -> Result<Pending<&Self>, Error> {
        Ok(Pending::new(self, self.begin_put(region, offset, bytes, request::ANSWER)?))
    }

    /// [`Startpoint::start_put`], for who keeps the request longer than he borrows the startpoint.
    ///
    /// # Errors
    /// As there.
    pub fn start_put_owned(
        self: &Arc<Self>,
        region: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Pending<Arc<Self>>, Error> {
        Ok(Pending::new(self.clone(), self.begin_put(region, offset, bytes, request::ANSWER)?))
    }

    fn begin_put(&self, region: u64, offset: u64, bytes: &[u8], flags: u8) -> Result<u64, Error> {
        let size = bytes.len() as u64;
        let envelope = Envelope { flags, id: region, tag: offset, size, ..Envelope::new(Kind::Put) };
        self.ask(&mut *self.shared.lock()?, envelope, bytes)
    }

    /// Gets as many bytes of a memory region of the endpoint as `into` has, from `offset` on; waits at most so long. No put
    /// is seen in part.
    ///
    /// # Errors
    /// As [`Startpoint::put`].
    pub fn get_into(&self, region: u64, offset: u64, into: &mut [u8], patience: Duration) -> Result<(), Error> {
        let mut came = 0;
        self.start_get(region, offset, into.len() as u64)?.wait_for(patience, |bytes| {
            came = bytes.len();
            if came == into.len() {
                into.copy_from_slice(bytes);
            }
        })?;
        if came != into.len() {
            let what = format!("{came} bytes came in place of {}: the endpoint misbehaves", into.len());
            return Err(Error::Protocol(what));
        }
        Ok(())
    }

    /// A get of `length` bytes that is waited for later, or awaited.
    ///
    /// # Errors
    /// As [`Startpoint::start`].
    pub fn start_get(&self, region: u64, offset: u64, length: u64) -> Result<Pending<&Self>, Error> {
        Ok(Pending::new(self, self.begin_get(region, offset, length)?))
    }

    /// [`Startpoint::start_get`], for who keeps the request longer than he borrows the startpoint.
    ///
    /// # Errors
    /// As there.
    pub fn start_get_owned(
        self: &Arc<Self>,
        region: u64,
        offset: u64,
        length: u64,
    ) -> Result<Pending<Arc<Self>>, Error> {
        Ok(Pending::new(self.clone(), self.begin_get(region, offset, length)?))
    }

    fn begin_get(&self, region: u64, offset: u64, length: u64) -> Result<u64, Error> {
        let flags = request::ANSWER;
        let envelope = Envelope { flags, id: region, tag: offset, size: length, ..Envelope::new(Kind::Get) };
        self.ask(&mut *self.shared.lock()?, envelope, &[])
    }
}

/// Tells who waits for a region that it is free.
struct Told<'m>(&'m Memory);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if self.0.wanted.load(Ordering::SeqCst)
            && let Some(shared) = self.0.shared.upgrade()
        {
            shared.ring();
        }
    }
}

impl Memory {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Vec<u8>>> {
        match self.bytes.try_lock() {
            Ok(bytes) => Some(bytes),
            Err(TryLockError::Poisoned(broken)) => Some(broken.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The bytes, unless somebody has them: who does rings when he is through.
    fn claim(&self) -> Option<MutexGuard<'_, Vec<u8>>> {
        let claimed = self.try_lock().or_else(|| {
            self.wanted.store(true, Ordering::SeqCst);
            // He may have gone in between, before he saw that.
            self.try_lock()
        });
        if claimed.is_some() {
            self.wanted.store(false, Ordering::SeqCst);
        }
        claimed
    }

    /// Lets an access go first that found the region in the program's hands: a program that takes it again and again would
    /// keep it out for ever. Not for long, as the access may have been given up; and where the program itself moves bytes,
    /// nobody would come.
    fn give_way(&self) {
        let auto = || self.shared.upgrade().is_some_and(|shared| shared.progress == Progress::Auto);
        if !self.wanted.load(Ordering::SeqCst) || !auto() {
            return;
        }
        let until = Instant::now() + WAY;
        while self.wanted.load(Ordering::SeqCst) {
            if Instant::now() > until {
                self.wanted.store(false, Ordering::SeqCst);
                return;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.leave(self.number);
        }
    }
}

/// Does what a put or a get asks for, or says no, in the words of `refused`. Its bytes come back when it has to wait.
pub(crate) fn reach<'i>(
    incident: Incident<'i>,
    now: u64,
    refused: impl FnOnce(Refusal) -> String,
) -> Result<(), Bytes<'i>> {
    let Incident { binding, envelope, bytes, credit, link, out, cache, .. } = incident;
    let puts = envelope.kind == Kind::Put;
    // Who asks for more than it takes has one answer waiting here, and not all.
    if !puts && !link.is_drained() {
        return Err(bytes);
    }
    let found = binding.table.region(envelope.id);
    let mut memory = match &found {
        Some(region) => match region.claim() {
            Some(memory) => Some(memory),
            None => return Err(bytes),
        },
        None => None,
    };
    let (length, rights) = if puts { (bytes.get().len() as u64, Window::WRITE) } else { (envelope.size, Window::READ) };
    let access = Window { region: envelope.id, offset: envelope.tag, length, rights };
    let there = memory.as_ref().map(|memory| memory.len() as u64);
    let mut responder = Responder { link, out, cache, request: envelope.data, flags: envelope.flags, done: false };
    // No bytes are in no region: that only asks whether all before has landed.
    let permitted = match length {
        0 => binding.grant.is_in_force(now),
        _ => binding.grant.access(&access, there, now),
    };
    match (permitted, memory.as_deref_mut().filter(|_| length > 0)) {
        (Err(refusal), _) => responder.refuse(&refused(refusal)),
        (Ok(()), None) => responder.send(&[], answer::LAST),
        (Ok(()), Some(memory)) => {
            let reached = &mut memory[envelope.tag as usize..][..length as usize];
            if puts {
                reached.copy_from_slice(bytes.get());
                responder.send(&[], answer::LAST);
            } else {
                responder.send(reached, answer::LAST);
            }
        }
    }
    let Responder { link, out, cache, .. } = responder;
    link.handled(out, cache, credit);
    Ok(())
}
