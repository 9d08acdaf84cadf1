//! Changes.

use std::ops::Deref;

use gambeson_keys::Anchor;

use super::Snapshot;
use crate::{Error, Event, LabelRecord, Who};

/// A change that is being made. It sees what it has changed.
#[derive(Debug)]
pub struct Transaction<'c>(Snapshot<'c>);

/// Whether an anchor may go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Only forward.
    Forward,
    /// Back, too, by who may administer the label.
    Back,
}

impl<'c> Deref for Transaction<'c> {
    type Target = Snapshot<'c>;

    fn deref(&self) -> &Snapshot<'c> {
        &self.0
    }
}

impl Transaction<'_> {
    /// Writes a label, and the row that says so.
    ///
    /// # Errors
    /// When it cannot be written, or this is a standby.
    pub fn put_label(&mut self, record: &LabelRecord, event: &Event) -> Result<(), Error> {
        let _ = (record, event);
        unimplemented!()
    }

    /// Removes a label.
    ///
    /// # Errors
    /// When it is not there, or as [`Transaction::put_label`].
    pub fn delete_label(&mut self, name: &str, event: &Event) -> Result<(), Error> {
        let _ = (name, event);
        unimplemented!()
    }

    /// Writes another record.
    ///
    /// # Errors
    /// As [`Transaction::put_label`].
    pub fn put_record(&mut self, kind: &str, name: &str, bytes: &[u8], event: &Event) -> Result<(), Error> {
        let _ = (kind, name, bytes, event);
        unimplemented!()
    }

    /// Removes another record.
    ///
    /// # Errors
    /// As [`Transaction::delete_label`].
    pub fn delete_record(&mut self, kind: &str, name: &str, event: &Event) -> Result<(), Error> {
        let _ = (kind, name, event);
        unimplemented!()
    }

    /// Writes a row. A standby writes it aside.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn log(&mut self, event: &Event) -> Result<(), Error> {
        let _ = event;
        unimplemented!()
    }

    /// Notes a refusal, whose row stays though the change says no.
    pub fn refuse(&mut self, event: Event) {
        let _ = event;
        unimplemented!()
    }

    /// Records where a file is now. The first anchor of a file binds it to a label; whoever records one needs the right to
    /// write under that, and who puts one back the right to administer it. Refusals are noted.
    ///
    /// # Errors
    /// [`Error::OlderAnchor`], [`Error::Refused`], or when it cannot be written.
    pub fn anchor(
        &mut self,
        who: &Who,
        label: Option<&str>,
        file: &[u8; 16],
        anchor: &Anchor,
        direction: Direction,
    ) -> Result<(), Error> {
        let _ = (who, label, file, anchor, direction);
        unimplemented!()
    }
}
