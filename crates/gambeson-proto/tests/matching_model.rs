//! The matching engine against the plainest model there is: two vectors, searched from the front.

use gambeson_proto::matching::Matcher;

struct Model {
    posted: Vec<(u64, Option<u32>, u64, u64)>,
    unexpected: Vec<(u64, u32, u64)>,
}

impl Model {
    fn find_posted(&self, source: u32, tag: u64) -> Option<u64> {
        let fits = |entry: &&(u64, Option<u32>, u64, u64)| {
            entry.1.is_none_or(|named| named == source) && (entry.2 ^ tag) & !entry.3 == 0
        };
        self.posted.iter().find(fits).map(|entry| entry.0)
    }

    fn find_unexpected(&self, source: Option<u32>, tag: u64, ignore: u64) -> Option<u64> {
        let fits =
            |entry: &&(u64, u32, u64)| source.is_none_or(|named| named == entry.1) && (entry.2 ^ tag) & !ignore == 0;
        self.unexpected.iter().find(fits).map(|entry| entry.0)
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

#[test]
fn it_agrees_with_the_naive_model() {
    // Miri takes a second for what else takes a millisecond.
    for seed in 0..if cfg!(miri) { 4 } else { 200 } {
        let mut state = seed;
        let mut matcher: Matcher<u64, u64> = Matcher::default();
        let mut model = Model { posted: Vec::new(), unexpected: Vec::new() };
        let mut keys = Vec::new();
        for step in 0..400_u64 {
            let source = (random(&mut state) % 4) as u32;
            let named = random(&mut state).is_multiple_of(2).then_some(source);
            let tag = random(&mut state) % 5;
            let ignore = [0, u64::MAX, 1][random(&mut state) as usize % 3];
            match random(&mut state) % 4 {
                0 | 1 => {
                    let found = matcher.find_unexpected(named, tag, ignore);
                    let value = found.and_then(|key| matcher.take_unexpected(key));
                    assert_eq!(value, model.find_unexpected(named, tag, ignore), "seed {seed}, step {step}");
                    match value {
                        Some(value) => model.unexpected.retain(|entry| entry.0 != value),
                        None => {
                            keys.push((matcher.post(named, tag, ignore, step), step));
                            model.posted.push((step, named, tag, ignore));
                        }
                    }
                }
                2 => {
                    let found = matcher.find_posted(source, tag);
                    let value = found.and_then(|key| matcher.take_posted(key));
                    assert_eq!(value, model.find_posted(source, tag), "seed {seed}, step {step}");
                    match value {
                        Some(value) => model.posted.retain(|entry| entry.0 != value),
                        None => {
                            matcher.hold(source, tag, step);
                            model.unexpected.push((step, source, tag));
                        }
                    }
                }
                _ if !keys.is_empty() => {
                    let at = random(&mut state) as usize % keys.len();
                    let (key, value) = keys.swap_remove(at);
                    let there = model.posted.iter().any(|entry| entry.0 == value);
                    assert_eq!(matcher.take_posted(key), there.then_some(value), "seed {seed}, step {step}");
                    model.posted.retain(|entry| entry.0 != value);
                }
                _ => {}
            }
            assert_eq!(matcher.posted_len(), model.posted.len());
            assert_eq!(matcher.unexpected_len(), model.unexpected.len());
        }
    }
}
