//! Opening for writing, and closing: between them the file says that it is open, and what was written is not anchored yet.
//!
//! A session belongs to one process (the leader of a job's ranks). Processes that open the file at the same time without
//! knowing of each other share it: who comes first begins it, who goes last closes it.

use std::collections::BTreeMap;

use gambeson_keys::Anchor;
use gambeson_proto::file::Digest;
use gambeson_proto::file::entry::ENTRY_LEN;
use gambeson_proto::file::header::Unverified;
use gambeson_proto::file::state::{State, Status};

use crate::body::{Body, Piece};
use crate::create::sign_state;
use crate::error::{Cause, Error};
use crate::head::Head;
use crate::lock::{HEADER, Held, Mode, SESSION};
use crate::sealed::{Anchoring, SealedFile, Session};
use crate::tree;
use crate::written::{Dirty, Written};

/// What becomes of a session once it is anchored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The file stays open for writing.
    GoOn,
    /// It is closed.
    Close,
}

/// What others have anchored was taken over; where there are locks, nothing is added to it as long as this lives.
#[must_use]
pub(crate) struct CaughtUp {
    _held: Option<Held>,
}

/// Keeps other sessions from anchoring as long as it lives.
#[must_use]
#[derive(Debug)]
pub struct Settled {
    /// Nothing where the file system has no locks.
    _header: Option<Held>,
    /// What all processes of the program take over by [`SealedFile::share`] before they anchor a group: there are other
    /// sessions, or there were.
    pub news: Option<Head>,
}

impl<B: Body> SealedFile<B> {
    /// Begins a session, as the one process that answers for it; the head that others of its program go on with.
    ///
    /// # Errors
    /// None of the file's labels may be written with here; or the header can't be written.
    pub fn begin(&mut self) -> Result<Head, Error> {
        let mut session = Session::default();
        match self.lock_header() {
            Ok(header) => {
                // Somebody else's session may have come and gone since the head was read.
                self.reread()?;
                session.is_shared = self.has_others();
                if !session.is_shared || self.state.status == Status::Closed {
                    self.raise()?;
                }
                let lock = self.body.lock(SESSION, Mode::Shared).map_err(|error| self.locking(&error))?;
                session.lock = Some(lock);
                drop(header);
            }
            // Without locks nobody can know of other sessions, and independent writes are refused.
            Err(_) => self.raise()?,
        }
        session.size = self.state.size;
        self.session = Some(session);
        self.head()
    }

    /// Takes part in a session that another process of the same program began.
    ///
    /// # Errors
    /// As [`SealedFile::open`].
    pub fn join(&mut self, head: Head) -> Result<(), Error> {
        self.renew(head)?;
        self.session = Some(Session { size: self.state.size, ..Session::default() });
        Ok(())
    }

    /// A new generation, which the header says is open.
    fn raise(&mut self) -> Result<(), Error> {
        if self.geometry.two_slots && self.state.status == Status::Open {
            let restored = self.tree.restore(self.body.sealed(), &self.geometry, self.state.size);
            restored.map_err(|error| Error::below(&self.name, "writing its tree failed", error))?;
        }
        let anchored = match self.keys.anchor(self.header.table().file()) {
            Ok(anchor) => anchor.map_or(0, |anchor| anchor.generation),
            Err(_) => 0,
        };
        // What is between it and the last close is of sessions that were never closed, and no more believed than before.
        self.state.base = self.state.generation.max(anchored).max(self.above);
        self.state.generation = self.state.base.saturating_add(1);
        self.state.status = Status::Open;
        self.write_header()
    }

    /// What this process wrote since the file was last anchored; it is anchored by whoever gets it.
    pub fn take_written(&mut self) -> Dirty {
        self.session.as_mut().map(|session| session.journal.take()).unwrap_or_default()
    }

    /// Comes before groups are anchored, as the process that began the session, once all others of the program have
    /// written: no other session anchors anything until this one has, and what others have anchored since is known.
    ///
    /// # Errors
    /// What the others have left is not to be believed; or as the body has them.
    pub fn settle(&mut self) -> Result<Settled, Error> {
        let header = self.lock_header().ok();
        let is_shared = self.session.as_ref().is_some_and(|session| session.is_shared);
        let mut news = None;
        if header.is_some() && (is_shared || self.is_overtaken()? || self.has_others()) {
            let head = self.head()?;
            self.share(head.clone())?;
            news = Some(head);
        }
        Ok(Settled { _header: header, news })
    }

    /// Takes over what other sessions of the file have anchored. What this process has written counts from now on only
    /// where nobody has written since.
    ///
    /// # Errors
    /// As [`SealedFile::open`].
    pub fn share(&mut self, head: Head) -> Result<(), Error> {
        self.renew(head)?;
        self.session.as_mut().expect("who anchors has a session").is_shared = true;
        Ok(())
    }

    /// Takes over what other sessions have anchored, if they have; they anchor nothing more as long as what it gives lives,
    /// for tables are read when they are needed.
    ///
    /// # Errors
    /// As [`SealedFile::open`].
    pub(crate) fn catch_up(&mut self) -> Result<Option<CaughtUp>, Error> {
        // Not in the midst of what another writes; who reads alone may be unable to lock, and is refused then.
        let held = self.session.is_some().then(|| self.lock_header().ok()).flatten();
        if !self.is_overtaken()? {
            return Ok(None);
        }
        let head = self.head()?;
        if self.session.is_some() {
            self.share(head)?;
        } else {
            self.renew(head)?;
        }
        Ok(Some(CaughtUp { _held: held }))
    }

    /// Whether another session has written the header since this one did.
    fn is_overtaken(&self) -> Result<bool, Error> {
        let mut copy = vec![0; self.geometry.header_len as usize];
        let piece = Piece { offset: self.geometry.header(self.copy.other()), length: copy.len() };
        let read = self.body.read(&[piece], &mut copy);
        read.map_err(|error| Error::below(&self.name, "reading its header failed", error))?;
        Ok(Unverified::decode(&copy).is_ok_and(|header| header.state().serial > self.state.serial))
    }

    /// Takes what was written in one group, by all processes of the program, into the group's entry table; its digest.
    /// Of several entries for one share the one counts that is in the file. `cut`: of what they wrote, together.
    ///
    /// # Errors
    /// As the body has them.
    pub fn anchor_group(&mut self, group: u64, written: &[Written], cut: Option<u64>) -> Result<Digest, Error> {
        let failed = |name: &str, error: std::io::Error| Error::below(name, "writing its tree failed", error);
        let mut table =
            self.tree.table(self.body.sealed(), &self.geometry, group).map_err(|error| failed(&self.name, error))?;
        let first = group * u64::from(self.geometry.group_blocks);
        if let Some(cut) = cut
            && cut < first + u64::from(self.geometry.group_blocks)
        {
            table[self.geometry.entry_in_table(cut.max(first), 0)..].fill(0);
        }
        let is_shared = self.session.as_ref().is_some_and(|session| session.is_shared);
        let mut times: BTreeMap<u32, usize> = BTreeMap::new();
        for Written { at, .. } in written {
            *times.entry(*at).or_default() += 1;
        }
        // Where several have written, the file says who was the last.
        times.retain(|_, times| is_shared || *times > 1);
        let (mut start, mut there) = (0, Vec::new());
        if let (Some((from, _)), Some((to, _))) = (times.first_key_value(), times.last_key_value()) {
            let block = |at: &u32| first + u64::from(*at) / self.geometry.entries_len() as u64;
            let blocks = block(from)..block(to) + 1;
            start = self.geometry.entry_in_table(blocks.start, 0);
            there = tree::inline_entries(self.body.sealed(), &self.geometry, blocks, u64::MAX)
                .map_err(|error| failed(&self.name, error))?;
        }
        for Written { at, entry } in written {
            let place = *at as usize;
            if times.contains_key(at) && there[place - start..][..ENTRY_LEN] != *entry {
                continue;
            }
            table[place..place + ENTRY_LEN].copy_from_slice(entry);
        }
        let piece = Piece { offset: self.geometry.entry_table(group), length: table.len() };
        self.body.write(&[piece], &table).map_err(|error| failed(&self.name, error))?;
        Ok(tree::digest(&table))
    }

    /// Anchors what was written, as the process that began the session: digests of the groups that changed, by whoever
    /// anchored them, and the file's size. The head that others of the program go on with, if they do.
    ///
    /// # Errors
    /// As the body and the key store have them. A file that could not be anchored with the key store is closed all the
    /// same: [`SealedFile::anchoring`] says so.
    pub fn finish(
        &mut self,
        settled: Settled,
        digests: &[(u64, Digest)],
        cut: Option<u64>,
        size: u64,
        then: Then,
    ) -> Result<Option<Head>, Error> {
        let size = if cut.is_some() { size } else { size.max(self.state.size) };
        if let Some(cut) = cut {
            self.tree.cut(self.geometry.group(cut));
        }
        self.write_digests(digests, size)?;
        let is_alone = !self.has_others();
        let State { generation, .. } = self.state;
        self.state.size = size;
        self.state.root = self.tree.root(&self.geometry);
        self.state.closed = generation;
        self.tree.closed = generation;
        (self.state.status, self.state.generation) =
            if is_alone && then == Then::Close { (Status::Closed, generation) } else { (Status::Open, generation + 1) };
        // Others go on in the generation that they began in, and this session with them.
        if is_alone {
            self.state.base = generation;
        }
        self.write_header()?;
        match then {
            Then::Close => self.session = None,
            Then::GoOn => self.go_on(),
        }
        drop(settled);
        self.set_anchor();
        (then == Then::GoOn).then(|| self.head()).transpose()
    }

    /// Goes on with a session that another process of the program has anchored.
    ///
    /// # Errors
    /// As [`SealedFile::open`].
    pub fn resume(&mut self, head: Head) -> Result<(), Error> {
        self.renew(head)?;
        self.go_on();
        Ok(())
    }

    fn go_on(&mut self) {
        let (size, is_shared) = (self.state.size, self.state.base + 1 < self.state.generation);
        let session = self.session.as_mut().expect("who anchors has a session");
        (session.size, session.is_shared) = (size, is_shared);
    }

    /// Anchors what this process alone has written, and closes the session or goes on with it.
    ///
    /// # Errors
    /// As [`SealedFile::finish`].
    pub fn anchor(&mut self, then: Then) -> Result<(), Error> {
        let size = self.size()?;
        let settled = self.settle()?;
        let mut dirty = self.take_written();
        dirty.with_cut_group(&self.geometry);
        let mut digests = Vec::new();
        for (group, written) in &dirty.groups {
            digests.push((*group, self.anchor_group(*group, written, dirty.cut)?));
        }
        self.finish(settled, &digests, dirty.cut, size, then).map(|_| ())
    }

    pub(crate) fn set_anchor(&mut self) {
        let anchor = Anchor { generation: self.state.closed, root: self.state.root };
        let table = self.header.table();
        let mut labels: Vec<&str> = table.labels().iter().map(|label| label.name.as_str()).collect();
        labels.dedup();
        self.anchoring = match self.keys.set_anchor(table.file(), &labels, &anchor) {
            Ok(()) => Anchoring::Covered,
            Err(error) => Anchoring::NotCovered(error.to_string()),
        };
    }

    fn write_digests(&mut self, digests: &[(u64, Digest)], size: u64) -> Result<(), Error> {
        for (group, digest) in digests {
            self.tree.set_digest(&self.geometry, *group, *digest);
        }
        self.tree.cover(&self.geometry, size);
        // A cut at a chapter's start leaves nothing of the chapter.
        let there = self.geometry.chapters_of(self.geometry.blocks(size));
        let chapters = digests.iter().map(|(group, _)| self.geometry.chapter(*group));
        let mut chapters: Vec<u64> = chapters.filter(|&chapter| chapter < there).collect();
        chapters.dedup();
        for chapter in chapters {
            let table = self.tree.digest_table(&self.geometry, chapter);
            let piece = Piece { offset: self.geometry.digest_table(chapter), length: table.len() };
            let written = self.body.write(&[piece], table);
            written.map_err(|error| Error::below(&self.name, "writing its tree failed", error))?;
        }
        Ok(())
    }

    /// Writes the header where the older copy is, signed anew. A closed one then goes to both places, so that a file
    /// outlives the damage of either.
    pub(crate) fn write_header(&mut self) -> Result<(), Error> {
        self.state.serial += 1;
        let (signer, signature) = sign_state(&self.name, self.keys.as_ref(), self.header.table(), &self.state)?;
        self.header = self.header.with_state(self.state, signer, signature);
        let bytes = self.header.encode().map_err(|error| Error::new(Cause::Header, &self.name, error.to_string()))?;
        for _ in 0..if self.state.status == Status::Closed { 2 } else { 1 } {
            let other = self.copy.other();
            let piece = Piece { offset: self.geometry.header(other), length: bytes.len() };
            let written = self.body.write(&[piece], &bytes);
            written.map_err(|error| Error::below(&self.name, "writing its header failed", error))?;
            self.copy = other;
        }
        Ok(())
    }

    /// What others have to know of the head as it is now.
    pub(crate) fn head(&self) -> Result<Head, Error> {
        let read = Head::read(self.body.sealed())
            .map_err(|error| Error::below(&self.name, "reading its header failed", error))?;
        read.ok_or_else(|| Error::new(Cause::Header, &self.name, "its header is gone"))
    }

    pub(crate) fn reread(&mut self) -> Result<(), Error> {
        let head = self.head()?;
        self.renew(head)
    }

    pub(crate) fn lock_header(&self) -> std::io::Result<Held> {
        self.body.lock(HEADER, Mode::Exclusive)
    }

    /// Whether other sessions hold the file open; without locks nobody can know. Anybody can take such a lock: what is
    /// believed then is bounded by what the header says.
    fn has_others(&self) -> bool {
        matches!(self.body.locked(SESSION), Ok(true))
    }

    fn locking(&self, error: &std::io::Error) -> Error {
        Error::no_locks(&self.name, "opening it for writing", error)
    }
}
