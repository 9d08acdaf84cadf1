//! Wrapping a file's data keys under the newest versions of their labels: its data stays as it is.

use gambeson_proto::file::state::Status;
use gambeson_proto::file::table::{Fields, Label, WrappedKey};

use crate::access;
use crate::body::Body;
use crate::create::{self, place};
use crate::error::{Cause, Error};
use crate::lock::{Held, Mode, SESSION};
use crate::sealed::SealedFile;

impl<B: Body> SealedFile<B> {
    /// Wraps the data keys of all regions under the newest versions of their labels; whether anything changed. Whoever has
    /// old versions alone can't open the file any more, unless he has kept its data keys: `gambeson file rekey` is the
    /// answer to that.
    ///
    /// The generation rises, so that the old header, put back, is noticed.
    ///
    /// # Errors
    /// A label is not here or may not be written with; the file is open or was never closed; or what the body says.
    pub fn rewrap(&mut self) -> Result<bool, Error> {
        let held = self.lock_out()?;
        if self.state.status == Status::Open {
            let what = "it was never closed; look at it with `gambeson file verify`, and take it for what it is with `gambeson file accept` first";
            return Err(Error::new(Cause::Unanchored, &self.name, what));
        }
        let fields = self.rewrapped()?;
        if fields.labels == self.header.table().labels() {
            return Ok(false);
        }
        let table = create::table(&self.name, fields)?;
        let signatures = create::sign(self.keys.as_ref(), &table);
        self.state.generation += 1;
        (self.state.closed, self.state.base) = (self.state.generation, self.state.generation);
        self.header = create::header(&self.name, self.keys.as_ref(), table, &signatures, self.state)?;
        // To both places: what was wrapped under old versions is not to stay.
        self.write_header()?;
        self.body.sync().map_err(|error| Error::below(&self.name, "writing its header failed", error))?;
        drop(held);
        self.set_anchor();
        self.reread()?;
        Ok(true)
    }

    /// Keeps all others from opening the file for writing, as far as its file system has locks, and takes over what they
    /// have written.
    ///
    /// # Errors
    /// Somebody has it open for writing.
    pub fn lock_out(&mut self) -> Result<Vec<Held>, Error> {
        let header = self.lock_header().ok();
        let session = match self.body.try_lock(SESSION, Mode::Exclusive) {
            Ok(None) => return Err(self.in_use()),
            Ok(held) => held,
            Err(_) => None,
        };
        self.reread()?;
        Ok(header.into_iter().chain(session).collect())
    }

    fn rewrapped(&self) -> Result<Fields, Error> {
        let table = self.header.table();
        let mut fields = Fields { labels: Vec::new(), ..table.fields().clone() };
        for (number, region) in (0..).zip(&mut fields.regions) {
            let mut keys: Vec<WrappedKey> = Vec::new();
            for epoch in region.keys.chunk_by(|a, b| a.epoch == b.epoch) {
                let id = table.key_id(number, epoch[0].epoch);
                let name = |key: &WrappedKey| &table.labels()[usize::from(key.label)];
                let refused = |error| {
                    Error::key(&self.name, &format!("region {number} (label \"{}\")", name(&epoch[0]).name), &error)
                };
                let secret = access::unwrap(table, epoch, id, self.keys.as_ref()).map_err(refused)?;
                let mut labels: Vec<&Label> = epoch.iter().map(name).collect();
                labels.dedup_by(|a, b| a.name == b.name);
                for label in labels {
                    let offer = create::rewrap(self.keys.as_ref(), &label.name, &secret, id).map_err(refused)?;
                    let label = place(&mut fields.labels, &offer.label);
                    keys.push(WrappedKey {
                        epoch: id.epoch,
                        label,
                        wrapped: offer.wrapped,
                        commitment: offer.commitment,
                    });
                }
            }
            keys.sort_by_key(|key| (key.epoch, key.label));
            keys.dedup_by_key(|key| (key.epoch, key.label));
            region.keys = keys;
        }
        Ok(fields)
    }
}
