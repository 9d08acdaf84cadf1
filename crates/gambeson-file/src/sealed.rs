//! One sealed file that is open: header, keys, tree, and what this process has written.

use std::sync::Arc;

use gambeson_keys::{Anchor, KeyError, Keys};
use gambeson_proto::file::Digest;
use gambeson_proto::file::entry::{ENTRY_LEN, Entry};
use gambeson_proto::file::geometry::{Geometry, Half, HeaderCopy};
use gambeson_proto::file::header::{self, Distrust, Header};
use gambeson_proto::file::region::RegionId;
use gambeson_proto::file::state::{State, Status};
use gambeson_proto::file::table::Label;

use crate::access::{self, RegionAccess};
use crate::below::Below;
use crate::body::Body;
use crate::error::{Cause, Error};
use crate::head::Head;
use crate::lock::{self, Held, Mode};
use crate::plan::{Extent, Plan};
use crate::recent::Recent;
use crate::tree::{self, Tree};
use crate::write::Staged;
use crate::written::Journal;

/// A sealed file over a body of bytes.
pub struct SealedFile<B> {
    pub(crate) name: String,
    pub(crate) body: Below<B>,
    pub(crate) keys: Arc<dyn Keys>,
    pub(crate) header: Header,
    /// Which copy of the header it was.
    pub(crate) copy: HeaderCopy,
    /// As in the header, and as it will be in the next one.
    pub(crate) state: State,
    pub(crate) geometry: Geometry,
    pub(crate) access: Vec<RegionAccess>,
    pub(crate) tree: Tree,
    pub(crate) session: Option<Session>,
    pub(crate) anchoring: Anchoring,
    /// A generation that is known to have been, whatever header and key store say.
    pub(crate) above: u64,
    /// Whether the caller holds the locks of what it accesses.
    pub(crate) is_locked: bool,
    pub(crate) plan: Plan,
    /// Room for what is read, and for what is written.
    pub(crate) staging: Vec<u8>,
    pub(crate) staged: Staged,
    pub(crate) recent: Recent,
}

/// What a writer knows that the header does not say yet.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) journal: Journal,
    /// The file's size, as far as this process knows.
    pub(crate) size: u64,
    /// Whether there are sessions beside this one, or have been.
    pub(crate) is_shared: bool,
    /// Held by the process that began the session, as long as the file is open.
    pub(crate) lock: Option<Held>,
}

/// Whether an old version of the whole file, put back, would have been noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anchoring {
    /// The key store knows this file, and this is what it knows or newer.
    Covered,
    /// It would not: the reason.
    NotCovered(String),
}

impl<B: Body> SealedFile<B> {
    /// Opens a file for reading, whose head was read. `name`: for sentences.
    ///
    /// # Errors
    /// No label of it is known here; or it was altered; or it is older than what the key store has seen.
    pub fn open(name: &str, body: Below<B>, head: Head, keys: Arc<dyn Keys>) -> Result<Self, Error> {
        Self::open_vouched(name, body, head, keys, None)
    }

    /// As [`SealedFile::open`], also if no label of the file is known here, when somebody who knows one vouches for the
    /// table: a process of the same program. It sees what is plain.
    ///
    /// # Errors
    /// As [`SealedFile::open`].
    pub fn open_vouched(
        name: &str,
        body: Below<B>,
        head: Head,
        keys: Arc<dyn Keys>,
        vouched: Option<Digest>,
    ) -> Result<Self, Error> {
        let (head, believed) = match believe(name, &head, keys.as_ref(), vouched) {
            Err(error) if error.cause == Cause::Altered => {
                // Perhaps another session has anchored the file since its head was read.
                let _held = body.lock(lock::HEADER, Mode::Exclusive);
                let again = Head::read(body.sealed()).ok().flatten().filter(|again| *again != head).ok_or(error)?;
                let believed = believe(name, &again, keys.as_ref(), vouched)?;
                (again, believed)
            }
            believed => (head, believed?),
        };
        let (header, copy, anchoring) = believed;
        let (geometry, state) = (*header.table().geometry(), *header.state());
        body.check(name, &geometry)?;
        let tree = Tree::new(body.sealed(), &geometry, head.digests, &state)
            .map_err(|error| Error::below(name, "reading its tree failed", error))?;
        Ok(SealedFile {
            name: name.to_owned(),
            body,
            access: access::of(header.table(), keys.as_ref()),
            keys,
            header,
            copy,
            state,
            geometry,
            tree,
            session: None,
            anchoring,
            above: 0,
            is_locked: false,
            plan: Plan::default(),
            staging: Vec::new(),
            staged: Staged::default(),
            recent: Recent::default(),
        })
    }

    /// Takes over what another process of the same program has read or written of the head since.
    ///
    /// # Errors
    /// As [`SealedFile::open`].
    pub fn renew(&mut self, head: Head) -> Result<(), Error> {
        let vouched = Some(*self.header.table().digest());
        let (header, copy, anchoring) = believe(&self.name, &head, self.keys.as_ref(), vouched)?;
        if header.table() != self.header.table() {
            self.access = access::of(header.table(), self.keys.as_ref());
            self.geometry = *header.table().geometry();
            self.body.check(&self.name, &self.geometry)?;
        }
        let state = *header.state();
        self.tree = Tree::new(self.body.sealed(), &self.geometry, head.digests, &state)
            .map_err(|error| Error::below(&self.name, "reading its tree failed", error))?;
        (self.header, self.copy, self.state, self.anchoring) = (header, copy, state, anchoring);
        self.recent.forget();
        Ok(())
    }

    /// The file's name, as its opener gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The header that is believed.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What is below.
    pub fn body(&self) -> &Below<B> {
        &self.body
    }

    /// Whether an old version of the file, put back as a whole, would have been noticed.
    pub fn anchoring(&self) -> &Anchoring {
        &self.anchoring
    }

    /// Whether this identity may seal in a region and close the file.
    pub fn may_write(&self, region: RegionId) -> bool {
        self.access[usize::from(region)].newest().is_ok()
    }

    /// Whether this identity may sign for the file, under one of its labels.
    pub fn may_sign(&self) -> bool {
        let may = |label: &Label| access::may_write(self.keys.as_ref(), &label.name, label.version).is_ok();
        self.header.table().labels().iter().any(may)
    }

    /// Whether this identity may seal in a region.
    ///
    /// # Errors
    /// Why not.
    pub fn check_writable(&self, region: RegionId) -> Result<(), Error> {
        let access = &self.access[usize::from(region)];
        access.newest().map(|_| ()).map_err(|error| Error::key(&self.name, &access.name, error))
    }

    /// Why this identity may not sign for the file, as who gives the keys says it, who takes note of it.
    pub fn refused_writing(&self) -> Option<KeyError> {
        self.header.table().labels().iter().find_map(|label| self.keys.refused_writing(&label.name))
    }

    /// As [`SealedFile::check_writable`], for who is about to seal there: a refusal is told to who gives the keys.
    ///
    /// # Errors
    /// Why not.
    pub fn begin_writing(&self, region: RegionId) -> Result<(), Error> {
        let access = &self.access[usize::from(region)];
        access.newest().map(|_| ()).map_err(|error| {
            let told = match error {
                KeyError::MayNotWrite { label, .. } => self.keys.refused_writing(label),
                _ => None,
            };
            Error::key(&self.name, &access.name, told.as_ref().unwrap_or(error))
        })
    }

    /// Whether this identity can read a region.
    ///
    /// # Errors
    /// Why not.
    pub fn check_readable(&self, region: RegionId) -> Result<(), Error> {
        let access = &self.access[usize::from(region)];
        access.unreadable().map_or(Ok(()), |error| Err(Error::key(&self.name, &access.name, error)))
    }

    /// The file's measures.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Takes note that the file goes at least so far.
    pub fn extend_known(&mut self, size: u64) {
        if let Some(session) = &mut self.session {
            session.size = session.size.max(size);
        }
    }

    /// What the file below has refused.
    pub fn storage_error(&self, doing: &str, error: std::io::Error) -> Error {
        Error::below(&self.name, doing, error)
    }

    /// Why this identity can't read a region; nothing if it can.
    pub fn unreadable(&self, region: RegionId) -> Option<&KeyError> {
        self.access[usize::from(region)].unreadable()
    }

    /// Bytes of the file as programs see it.
    ///
    /// # Errors
    /// As the body has them.
    pub fn size(&mut self) -> Result<u64, Error> {
        let known = self.known_size();
        if self.state.status == Status::Closed && self.session.is_none() {
            return Ok(known);
        }
        // Others may have written behind what this process knows.
        let size = known.max(self.size_below()?);
        if let Some(session) = &mut self.session {
            session.size = size;
        }
        Ok(size)
    }

    /// As [`SealedFile::size`], without looking at the file.
    pub(crate) fn known_size(&self) -> u64 {
        self.session.as_ref().map_or(self.state.size, |session| session.size)
    }

    /// How far the last block says that the file goes.
    fn size_below(&self) -> Result<u64, Error> {
        let failed = |error: std::io::Error| Error::below(&self.name, "looking for its end failed", error);
        let mut blocks = self.geometry.slots_begun(self.body.length().map_err(failed)?);
        let length = self.body.data_length().map_err(failed)?;
        if self.geometry.detached {
            // What is plain has no entry.
            blocks = blocks.max(self.geometry.blocks(length).min(self.geometry.blocks_max()));
        }
        let Some(last) = blocks.checked_sub(1) else { return Ok(0) };
        self.end_of_block(last, length).map_err(failed)
    }

    /// Splits a request into what it wants of each share; for callers that write shares together.
    pub fn plan(&self, plan: &mut Plan, extents: &[Extent], limit: u64) {
        plan.fill(self.header.table().layout(), extents, limit);
    }

    pub(crate) fn altered(&self, region: RegionId, block: u64, why: &str) -> Error {
        let region = &self.access[usize::from(region)].name;
        Error::new(Cause::Altered, &self.name, format!("{region}, block {block}: {why}"))
    }
}

/// Finds the header to believe, and what the key store says of it.
fn believe(
    name: &str,
    head: &Head,
    keys: &dyn Keys,
    vouched: Option<Digest>,
) -> Result<(Header, HeaderCopy, Anchoring), Error> {
    let (unverified, copy) = header::choose(&head.copies[0], &head.copies[1])
        .map_err(|error| Error::new(Cause::Header, name, error.to_string()))?;
    let is_vouched = vouched == Some(*unverified.table_digest());
    let pinned = |label: &Label| {
        let known = keys.verifying_key(&label.name, label.version).ok();
        known.or(is_vouched.then_some(label.verifying_key))
    };
    let named = unverified.fields().labels.clone();
    keys.prepare(&named.iter().map(|label| (label.name.as_str(), label.version)).collect::<Vec<_>>());
    let header = unverified.verify(pinned).map_err(|error| {
        if !matches!(error, Distrust::Unknown) {
            return Error::new(Cause::Header, name, error.to_string());
        }
        // Nobody vouches for the names yet, but whoever sealed the file knows which it would take.
        let labels = named.iter();
        let mut why: Vec<_> = labels
            .filter_map(|label| keys.verifying_key(&label.name, label.version).err())
            .map(|why| why.to_string())
            .collect();
        why.dedup();
        why.truncate(REASONS_MAX);
        Error::new(Cause::Key, name, format!("no label of it is known here: {}", why.join("; ")))
    })?;
    let anchoring = match keys.anchor(header.table().file()) {
        Ok(Some(anchor)) => {
            check_anchor(name, &header, &anchor)?;
            Anchoring::Covered
        }
        Ok(None) => Anchoring::NotCovered("the key store has not seen this file before".to_owned()),
        Err(error) => Anchoring::NotCovered(error.to_string()),
    };
    Ok((header, copy, anchoring))
}

/// Of a file of many labels so many are named that are not known.
const REASONS_MAX: usize = 3;

fn check_anchor(name: &str, header: &Header, anchor: &Anchor) -> Result<(), Error> {
    let state = header.state();
    let same = state.closed == anchor.generation;
    if state.closed > anchor.generation || (same && state.root == anchor.root) {
        return Ok(());
    }
    let what = format!(
        "an old version of it was put back: it was last closed at generation {}, and the key store has seen generation {}; take the file from where it was altered last, or accept this one: gambeson file accept --older {name}",
        state.closed, anchor.generation
    );
    Err(Error::new(Cause::Altered, name, what))
}

impl<B: Body> SealedFile<B> {
    /// Where the program's bytes in a block end, as its entries say; for plain bytes at a slot's end, where the file that
    /// the data is in ends. Plain bytes in its midst, or in a slot with two halves, say nothing: who wrote them knows, and all know once the file is anchored.
    fn end_of_block(&self, block: u64, length: u64) -> std::io::Result<u64> {
        let map = self.header.table().layout().block(block);
        let first = block * u64::from(self.geometry.block_len);
        let entries = tree::inline_entries(self.body.sealed(), &self.geometry, block..block + 1, u64::MAX)?;
        let data = self.geometry.data(block, Half::First);
        let mut end = first;
        for (place, share) in map.shares().iter().enumerate() {
            let written = match share.entry {
                Some(index) => {
                    let entry = entries[usize::from(index) * ENTRY_LEN..][..ENTRY_LEN].try_into().expect("64 bytes");
                    Entry::decode(entry).entry().map_or(0, |entry| entry.length.min(share.len))
                }
                None if self.geometry.two_slots || share.area + share.len < self.geometry.block_len => 0,
                None => {
                    let behind = length.saturating_sub(data + u64::from(share.area));
                    u32::try_from(behind).unwrap_or(u32::MAX).min(share.len)
                }
            };
            let last = map.runs(place).iter().rfind(|run| run.within < written);
            if let Some(run) = last {
                end = end.max(first + u64::from(run.offset + (written - run.within).min(run.len)));
            }
        }
        Ok(end)
    }
}
