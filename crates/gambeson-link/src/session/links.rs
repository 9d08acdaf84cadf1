//! The links that one side of a session opened, by their numbers.

use std::collections::BTreeMap;

use crate::link::Link;

/// Numbers rise and none is left out, so one count tells those that are gone from those that never were, however many there
/// have been. No number comes a second time.
#[derive(Default)]
pub(super) struct Links {
    /// How many were opened, those that were refused included.
    opened: u64,
    /// Those that are there.
    open: BTreeMap<u64, Box<Link>>,
}

/// What a number names.
pub(super) enum Named<'l> {
    Open(&'l mut Link),
    /// Refused, or released.
    Gone,
    Never,
}

impl Links {
    /// Whether the next link has this number: who connected numbers its links 1, 3, 5, the other 2, 4, 6.
    pub(super) fn is_next(&self, number: u64) -> bool {
        number > 0 && (number - 1) / 2 == self.opened
    }

    /// The next one is there, or was refused.
    pub(super) fn open(&mut self, link: Option<Link>) {
        self.opened += 1;
        if let Some(link) = link {
            debug_assert_eq!((link.number() - 1) / 2 + 1, self.opened, "links are numbered in turn");
            self.open.insert(link.number(), Box::new(link));
        }
    }

    pub(super) fn find(&mut self, number: u64) -> Named<'_> {
        match self.open.get_mut(&number) {
            Some(link) => Named::Open(link),
            None if number > 0 && (number - 1) / 2 < self.opened => Named::Gone,
            None => Named::Never,
        }
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Link> {
        self.open.get_mut(&number).map(|link| &mut **link)
    }

    /// It is gone.
    pub(super) fn close(&mut self, number: u64) -> Option<Box<Link>> {
        self.open.remove(&number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Link> {
        self.open.values().map(|link| &**link)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.open.values_mut().map(|link| &mut **link)
    }

    /// Those for which there is no reason to stay are kept.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(&Link) -> bool) {
        self.open.retain(|_, link| stays(link));
    }
}
