//! The matching engine against the plainest model there is: two vectors, searched from the front.

use gambeson_proto::matching::{Matcher, PostedKey};

use super::input::Input;

struct Posted {
    key: PostedKey,
    value: u64,
    source: Option<u32>,
    tag: u64,
    ignore: u64,
}

struct Held {
    value: u64,
    source: u32,
    tag: u64,
}

pub fn matching(data: &[u8]) {
    let mut input = Input(data);
    let mut matcher: Matcher<u64, u64> = Matcher::default();
    let mut posted: Vec<Posted> = Vec::new();
    let mut held: Vec<Held> = Vec::new();
    let mut gone: Vec<PostedKey> = Vec::new();
    let mut value = 0;
    while !input.is_empty() {
        value += 1;
        let (what, who) = (input.byte(), input.byte());
        let source = u32::from(who % 4);
        let named = (who & 0x80 == 0).then_some(source);
        let tag = u64::from(what >> 4) % 5;
        let ignore = [0, u64::MAX, 1, 6][usize::from(what >> 2) % 4];
        match what % 4 {
            0 | 1 => {
                let found = matcher.find_unexpected(named, tag, ignore);
                let fits =
                    |entry: &Held| named.is_none_or(|named| named == entry.source) && (entry.tag ^ tag) & !ignore == 0;
                let at = held.iter().position(fits);
                let peeked = found.and_then(|key| matcher.unexpected(key).copied());
                assert_eq!(peeked, at.map(|at| held[at].value));
                assert_eq!(found.and_then(|key| matcher.take_unexpected(key)), peeked);
                match at {
                    Some(at) => drop(held.remove(at)),
                    None => {
                        let key = matcher.post(named, tag, ignore, value);
                        posted.push(Posted { key, value, source: named, tag, ignore });
                    }
                }
            }
            2 => {
                let found = matcher.find_posted(source, tag);
                let fits = |entry: &Posted| {
                    entry.source.is_none_or(|named| named == source) && (entry.tag ^ tag) & !entry.ignore == 0
                };
                let at = posted.iter().position(fits);
                assert_eq!(found.and_then(|key| matcher.take_posted(key)), at.map(|at| posted[at].value));
                match at {
                    Some(at) => gone.push(posted.remove(at).key),
                    None => {
                        matcher.hold(source, tag, value);
                        held.push(Held { value, source, tag });
                    }
                }
            }
            // Cancel: what is posted, or what is no longer.
            _ if who & 0x80 == 0 && !posted.is_empty() => {
                let entry = posted.remove(usize::from(who) % posted.len());
                assert_eq!(matcher.posted_mut(entry.key).copied(), Some(entry.value));
                assert_eq!(matcher.take_posted(entry.key), Some(entry.value));
                gone.push(entry.key);
            }
            _ if !gone.is_empty() => {
                let key = gone[usize::from(who) % gone.len()];
                assert_eq!(matcher.posted_mut(key), None);
                assert_eq!(matcher.take_posted(key), None);
            }
            _ => {}
        }
        assert_eq!(matcher.posted_len(), posted.len());
        assert_eq!(matcher.unexpected_len(), held.len());
    }
}
