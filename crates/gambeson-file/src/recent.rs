//! The share at hand: what is read and written bit by bit.

use gambeson_proto::file::entry::HOLE;

use crate::body::{Body, Piece};
use crate::error::Error;
use crate::plan::Access;
use crate::sealed::SealedFile;
use crate::written::RawEntry;

/// The share that was read or written last in part, in clear, and its entry: as long as the file has that, a program that
/// goes through a block bit by bit need not have all of it read and opened each time.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    of: Option<(u64, u16, RawEntry)>,
    plain: Vec<u8>,
}

impl Recent {
    /// Its room, empty, for another share.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.of = None;
        let mut room = std::mem::take(&mut self.plain);
        room.clear();
        room
    }

    pub(crate) fn keep(&mut self, access: &Access, entry: RawEntry, plain: Vec<u8>) {
        *self = Recent { of: Some((access.block, access.share.region, entry)), plain };
    }

    pub(crate) fn forget(&mut self) {
        self.of = None;
        zeroize::Zeroize::zeroize(&mut self.plain);
    }
}

impl<B: Body> SealedFile<B> {
    /// What a share holds of which a part is read or written: its entry, and its bytes.
    pub(crate) fn before(&mut self, access: &Access) -> Result<(RawEntry, Vec<u8>), Error> {
        let index = access.share.entry.expect("plain shares are written where they stand");
        let (half, entry) = self.entry_there(access, index)?;
        if entry == HOLE {
            self.judge(access, index, &entry)?;
            return Ok((entry, self.recent.take()));
        }
        if self.recent.of == Some((access.block, access.share.region, entry)) {
            self.recent.of = None;
            return Ok((entry, std::mem::take(&mut self.recent.plain)));
        }
        let mut data = self.recent.take();
        data.resize(access.share.len as usize, 0);
        self.body
            .read(&[Piece { offset: self.data(access, half), length: data.len() }], &mut data)
            .map_err(|error| Error::below(&self.name, "reading it failed", error))?;
        let length = self.open_share(access, index, &entry, &mut data, None)?;
        data.truncate(length);
        Ok((entry, data))
    }
}
