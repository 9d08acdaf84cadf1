//! Transform modules over a network that loses connections, and what they make a session keep.

use super::*;
use crate::link::WINDOW;

#[test]
fn modules_see_each_message_once_whatever_the_network_does() {
    let (mut with, mut without) = (0, 0);
    let seeds = number("GAMBESON_SEED").map_or(0..number("GAMBESON_SEEDS").unwrap_or(15), |seed| seed..seed + 1);
    for seed in seeds {
        let stack = [&["rolling"][..], &["zstd", "rolling"], &["rolling", "zstd"]][seed as usize % 3];
        run(seed, Protection::ALL[seed as usize % 2], true, stack);
        run(seed, Protection::None, false, stack);
        with += run(seed, Protection::Privacy, false, &["zstd"]);
        without += run(seed, Protection::Privacy, false, &[]);
    }
    // Three in ten messages are random bytes, and a few are longer than all others.
    assert!(with * 4 < without * 3, "{with} of {without} bytes");
}

#[test]
fn what_grows_when_it_is_restored_takes_no_more_memory_than_what_does_not() {
    for (modules, len) in [(&[][..], 2 << 20), (&["zstd"], 2 << 20), (&["zstd"], 200_000)] {
        let (mut pair, mut endpoint, link) = Pair::linked(1, Protection::Privacy, modules);
        endpoint.holds = true;
        for _ in 0..50 {
            pair.send(link, request_of(len, 0), &vec![0; len]);
        }
        for _ in 0..5000 {
            pair.turn(&mut endpoint);
        }
        let unhandled = endpoint.requests as usize;
        assert!(unhandled > 0 && unhandled <= (WINDOW / len).max(2), "{unhandled} of {len} bytes, {modules:?}");
    }
}
