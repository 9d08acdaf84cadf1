//! Matches arriving messages to posted receives, by source and tag, in order (MPI 4.1 section 3.5,
//! fi_tagged(3)).
//!
//! A receive names a source or accepts any, and matches a tag when `(tag ^ its tag) & !ignore` is
//! zero. Of the receives that fit, the one posted first wins; of the messages that fit, the one
//! that arrived first wins. Entries hang in a list per source, so that a receive that names its
//! source never walks over the messages of others; only the wild card walks the list of all.

use slotmap::{Key, SlotMap, new_key_type};

new_key_type! {
    /// A posted receive.
    pub struct PostedKey;
    /// A message that arrived before its receive.
    pub struct UnexpectedKey;
}

/// The two queues of one lane: receives waiting for messages (`P`) and messages waiting for
/// receives (`U`).
pub struct Matcher<P, U> {
    posted: SlotMap<PostedKey, Posted<P>>,
    posted_any: Ends<PostedKey>,
    posted_from: Vec<Ends<PostedKey>>,
    posted_count: u64,
    unexpected: SlotMap<UnexpectedKey, Unexpected<U>>,
    unexpected_all: Ends<UnexpectedKey>,
    unexpected_from: Vec<Ends<UnexpectedKey>>,
}

struct Posted<P> {
    value: P,
    source: Option<u32>,
    tag: u64,
    ignore: u64,
    /// Position in the order of posting, which decides between a named source and the wild card.
    order: u64,
    link: Link<PostedKey>,
}

struct Unexpected<U> {
    value: U,
    source: u32,
    tag: u64,
    in_all: Link<UnexpectedKey>,
    in_source: Link<UnexpectedKey>,
}

#[derive(Clone, Copy)]
struct Ends<K> {
    first: Option<K>,
    last: Option<K>,
}

#[derive(Clone, Copy)]
struct Link<K> {
    before: Option<K>,
    after: Option<K>,
}

impl<K> Default for Ends<K> {
    fn default() -> Self {
        Ends { first: None, last: None }
    }
}

impl<K> Default for Link<K> {
    fn default() -> Self {
        Link { before: None, after: None }
    }
}

impl<P, U> Default for Matcher<P, U> {
    fn default() -> Self {
        Matcher {
            posted: SlotMap::with_key(),
            posted_any: Ends::default(),
            posted_from: Vec::new(),
            posted_count: 0,
            unexpected: SlotMap::with_key(),
            unexpected_all: Ends::default(),
            unexpected_from: Vec::new(),
        }
    }
}

impl<P, U> Matcher<P, U> {
    /// Appends a receive to the posted queue.
    pub fn post(&mut self, source: Option<u32>, tag: u64, ignore: u64, value: P) -> PostedKey {
        let order = self.posted_count;
        self.posted_count += 1;
        let link = Link::default();
        let key = self.posted.insert(Posted { value, source, tag, ignore, order, link });
        let ends = match source {
            None => &mut self.posted_any,
            Some(source) => ends_of(&mut self.posted_from, source),
        };
        append(&mut self.posted, ends, key, |entry| &mut entry.link);
        key
    }

    /// The receive that a message from `source` with `tag` belongs to: of those that fit, the one
    /// posted first.
    pub fn find_posted(&self, source: u32, tag: u64) -> Option<PostedKey> {
        let named = self.posted_from.get(source as usize).copied().unwrap_or_default();
        let named = self.first_fit(named, tag, u64::MAX);
        let limit = named.map_or(u64::MAX, |(order, _)| order);
        let any = self.first_fit(self.posted_any, tag, limit);
        any.or(named).map(|(_, key)| key)
    }

    fn first_fit(&self, ends: Ends<PostedKey>, tag: u64, limit: u64) -> Option<(u64, PostedKey)> {
        let mut at = ends.first;
        while let Some(key) = at {
            let entry = &self.posted[key];
            if entry.order >= limit {
                return None;
            }
            if (entry.tag ^ tag) & !entry.ignore == 0 {
                return Some((entry.order, key));
            }
            at = entry.link.after;
        }
        None
    }

    /// The value of a posted receive, if it is still posted.
    pub fn posted_mut(&mut self, key: PostedKey) -> Option<&mut P> {
        self.posted.get_mut(key).map(|entry| &mut entry.value)
    }

    /// Takes a receive off the posted queue; `None` when it is no longer there.
    pub fn take_posted(&mut self, key: PostedKey) -> Option<P> {
        let entry = self.posted.remove(key)?;
        let ends = match entry.source {
            None => &mut self.posted_any,
            Some(source) => ends_of(&mut self.posted_from, source),
        };
        unlink(&mut self.posted, ends, entry.link, |entry| &mut entry.link);
        Some(entry.value)
    }

    /// Appends a message to the unexpected queue.
    pub fn hold(&mut self, source: u32, tag: u64, value: U) -> UnexpectedKey {
        let (in_all, in_source) = (Link::default(), Link::default());
        let key = self.unexpected.insert(Unexpected { value, source, tag, in_all, in_source });
        let ends = ends_of(&mut self.unexpected_from, source);
        append(&mut self.unexpected, &mut self.unexpected_all, key, |entry| &mut entry.in_all);
        append(&mut self.unexpected, ends, key, |entry| &mut entry.in_source);
        key
    }

    /// The message that a receive would get now: of those that fit, the one that arrived first.
    pub fn find_unexpected(&self, source: Option<u32>, tag: u64, ignore: u64) -> Option<UnexpectedKey> {
        let mut at = match source {
            None => self.unexpected_all.first,
            Some(source) => self.unexpected_from.get(source as usize).and_then(|ends| ends.first),
        };
        while let Some(key) = at {
            let entry = &self.unexpected[key];
            if (entry.tag ^ tag) & !ignore == 0 {
                return Some(key);
            }
            at = if source.is_none() { entry.in_all.after } else { entry.in_source.after };
        }
        None
    }

    /// The value of a message on the unexpected queue.
    pub fn unexpected(&self, key: UnexpectedKey) -> Option<&U> {
        self.unexpected.get(key).map(|entry| &entry.value)
    }

    /// Takes a message off the unexpected queue; `None` when it is no longer there.
    pub fn take_unexpected(&mut self, key: UnexpectedKey) -> Option<U> {
        let entry = self.unexpected.remove(key)?;
        let ends = ends_of(&mut self.unexpected_from, entry.source);
        unlink(&mut self.unexpected, &mut self.unexpected_all, entry.in_all, |entry| &mut entry.in_all);
        unlink(&mut self.unexpected, ends, entry.in_source, |entry| &mut entry.in_source);
        Some(entry.value)
    }

    /// How many receives are posted.
    pub fn posted_len(&self) -> usize {
        self.posted.len()
    }

    /// How many messages wait for their receive.
    pub fn unexpected_len(&self) -> usize {
        self.unexpected.len()
    }
}

fn ends_of<K>(lists: &mut Vec<Ends<K>>, source: u32) -> &mut Ends<K> {
    let index = source as usize;
    if lists.len() <= index {
        lists.resize_with(index + 1, Ends::default);
    }
    &mut lists[index]
}

fn append<K: Key, E>(entries: &mut SlotMap<K, E>, ends: &mut Ends<K>, key: K, link: fn(&mut E) -> &mut Link<K>) {
    match ends.last {
        Some(last) => link(&mut entries[last]).after = Some(key),
        None => ends.first = Some(key),
    }
    link(&mut entries[key]).before = ends.last;
    ends.last = Some(key);
}

fn unlink<K: Key, E>(
    entries: &mut SlotMap<K, E>,
    ends: &mut Ends<K>,
    removed: Link<K>,
    link: fn(&mut E) -> &mut Link<K>,
) {
    match removed.before {
        Some(before) => link(&mut entries[before]).after = removed.after,
        None => ends.first = removed.after,
    }
    match removed.after {
        Some(after) => link(&mut entries[after]).before = removed.before,
        None => ends.last = removed.before,
    }
}
