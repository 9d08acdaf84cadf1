//! Modules and stacks of them without a link.

use rand::{Rng, RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

/// Adds to each byte what all bytes before it came to, over all messages; and a byte with the end's number.
pub(crate) struct Rolling;

struct Sums {
    end: End,
    sums: [u8; 2],
}

impl Transform for Rolling {
    fn name(&self) -> &str {
        "rolling"
    }

    fn open(&self, end: End) -> Result<Box<dyn Mapping>, String> {
        Ok(Box::new(Sums { end, sums: [1, 2] }))
    }
}

impl Mapping for Sums {
    fn apply(&mut self, message: &mut Vec<u8>) -> Result<(), String> {
        for byte in message.iter_mut() {
            let plain = *byte;
            *byte = plain.wrapping_add(self.sums[OUT]);
            self.sums[OUT] = self.sums[OUT].wrapping_mul(3).wrapping_add(plain);
        }
        message.push(self.end as u8);
        Ok(())
    }

    fn restore(&mut self, message: &mut Vec<u8>, _most: usize) -> Result<(), String> {
        if message.pop().is_none_or(|end| end == self.end as u8) {
            return Err("it is from this very end".into());
        }
        // The directions begin with the same sum, whichever place it has.
        let mut sum = self.sums[IN].wrapping_sub(1);
        for byte in message.iter_mut() {
            *byte = byte.wrapping_sub(sum);
            sum = sum.wrapping_mul(3).wrapping_add(*byte);
        }
        self.sums[IN] = sum.wrapping_add(1);
        Ok(())
    }
}

/// Fails, or panics, on messages that begin with a certain byte.
struct Touchy {
    remembers: bool,
}

impl Transform for Touchy {
    fn name(&self) -> &str {
        "touchy"
    }

    fn open(&self, _: End) -> Result<Box<dyn Mapping>, String> {
        Ok(Box::new(Touchy { remembers: self.remembers }))
    }

    fn remembers(&self) -> bool {
        self.remembers
    }
}

impl Mapping for Touchy {
    fn apply(&mut self, message: &mut Vec<u8>) -> Result<(), String> {
        match message.first() {
            Some(b'e') => Err("it begins with e".into()),
            Some(b'p') => panic!("it begins with p"),
            _ => Ok(()),
        }
    }

    fn restore(&mut self, message: &mut Vec<u8>, _: usize) -> Result<(), String> {
        match message.first() {
            Some(b'l') => message.push(0),
            Some(b's') => return Err("it begins with s".into()),
            _ => {}
        }
        Ok(())
    }
}

/// Both ends of a link with these modules.
fn ends(own: Vec<Arc<dyn Transform>>, names: &[&str]) -> [Box<Stack>; 2] {
    let modules = Modules::new(own).expect("modules");
    let selected = modules.select(&Transforms::new(names.iter().copied()).expect("names")).expect("they are there");
    [End::Startpoint, End::Endpoint].map(|end| Stack::open(&selected, end).expect("they open").expect("some"))
}

#[test]
fn messages_come_back_in_both_directions_whatever_the_stack() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    for names in [&["zstd"][..], &["rolling"], &["zstd", "rolling"], &["rolling", "zstd"], &["zstd", "zstd"]] {
        let mut ends = ends(vec![Arc::new(Rolling)], names);
        for round in 0..300 {
            let mut message = vec![random.random(); random.random_range(0..3000)];
            if round % 3 == 0 {
                random.fill_bytes(&mut message);
            }
            let from = random.random_range(0..2);
            let sent = ends[from].apply(&message[..]).expect("it goes");
            let came = ends[1 - from].restore(sent.clone(), message.len(), 3000).expect("it comes");
            assert_eq!(came, message, "{names:?}, round {round}");
            ends[from].recycle(sent);
        }
    }
}

#[test]
fn zstd_shrinks_what_repeats_itself_and_adds_a_byte_to_what_does_not() {
    let [mut here, mut there] = ends(Vec::new(), &["zstd"]);
    let flat = here.apply(&[7; 100_000][..]).expect("it goes");
    assert!(flat.len() < 100, "{}", flat.len());
    let mut noise = vec![0; 100_000];
    Xoshiro256PlusPlus::seed_from_u64(1).fill_bytes(&mut noise);
    let noisy = here.apply(&noise[..]).expect("it goes");
    assert_eq!((noisy.len(), noisy.last()), (noise.len() + 1, Some(&0)));
    assert_eq!(there.restore(noisy, 100_000, 100_000).as_deref(), Ok(&noise[..]));
    // The same again is as long again: nothing is remembered.
    assert_eq!(here.apply(&[7; 100_000][..]).expect("it goes"), flat);
}

#[test]
fn a_bomb_is_stopped_at_the_size_that_was_said_and_what_is_no_frame_is_refused() {
    let [mut here, mut there] = ends(Vec::new(), &["zstd"]);
    let bomb = here.apply(&vec![0; 10 << 20][..]).expect("it goes");
    assert!(bomb.len() < 2000);
    let mut stopped =
        |message: &[u8], size: usize| there.restore(message.to_vec(), size, 1 << 20).expect_err("refused");
    let said = stopped(&bomb, 100);
    assert!(said.contains("unpacks to 10485760 bytes, and 100 are the most"), "{said}");
    // A frame that says less than it holds, and two in a row.
    let twice = [&bomb[..bomb.len() - 1], &bomb].concat();
    stopped(&twice, 1 << 20);
    let small = here.apply(&[0; 1000][..]).expect("it goes");
    let said = stopped(&small, 999);
    assert!(said.contains("999 are the most"), "{said}");
    assert!(stopped(&small, 1001).contains("1000 bytes came of a message that had 1001"));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    for _ in 0..3000 {
        let mut altered = small.clone();
        let at = random.random_range(0..altered.len());
        altered[at] ^= 1 << random.random_range(0..8);
        altered.truncate(random.random_range(0..=altered.len()));
        if let Ok(came) = there.restore(altered, 1000, 1 << 20) {
            assert_eq!(came.len(), 1000);
        }
    }
    // None of it did the link any harm.
    assert_eq!(there.restore(small, 1000, 1 << 20), Ok(vec![0; 1000]));
}

#[test]
fn what_fails_ends_a_link_that_remembers_in_that_direction_and_no_other_link() {
    for remembers in [true, false] {
        let [mut here, mut there] = ends(vec![Arc::new(Touchy { remembers })], &["touchy"]);
        assert_eq!(here.apply(&b"e"[..]), Err("the transform module \"touchy\" failed: it begins with e".into()));
        let after = here.apply(&b"a"[..]);
        assert_eq!(after.is_err(), remembers, "{after:?}");
        assert!(after.err().is_none_or(|why| why.contains("bind the startpoint again")));
        assert_eq!(here.restore(b"a".to_vec(), 1, 9), Ok(b"a".to_vec()), "the other direction goes on");
        assert!(there.restore(b"s".to_vec(), 1, 9).is_err_and(|why| why.contains("begins with s")));
        assert_eq!(there.restore(b"a".to_vec(), 1, 9).is_err(), remembers);
    }
    let [mut here, mut there] = ends(vec![Arc::new(Touchy { remembers: false })], &["touchy"]);
    assert!(there.restore(b"l".to_vec(), 1, 9).is_err_and(|why| why.contains("2 bytes came of a message that had 1")));
    assert!(here.apply(&b"p"[..]).is_err_and(|why| why.contains("it panicked")));
    assert!(
        here.apply(&b"a"[..]).is_err_and(|why| why.contains("bind the startpoint again")),
        "who knows what is left"
    );
}

#[test]
fn modules_have_names_of_their_own() {
    struct Called(&'static str);
    impl Transform for Called {
        fn name(&self) -> &str {
            self.0
        }
        fn open(&self, _: End) -> Result<Box<dyn Mapping>, String> {
            Err("never today".into())
        }
    }
    for (name, why) in [("zstd", "two transform modules"), ("a,b", "no name"), ("", "no name"), ("a b", "no name")] {
        let refused = Modules::new(vec![Arc::new(Called(name))]).err().expect("refused").to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let modules = Modules::new(vec![Arc::new(Called("mine"))]).expect("a name");
    let missing = modules.select(&Transforms::new(["yours"]).expect("a name")).err().expect("missing").to_string();
    assert!(missing.contains("\"yours\"") && missing.contains("Config::transform"), "{missing}");
    let selected = modules.select(&Transforms::new(["mine"]).expect("a name")).expect("it is there");
    let closed = Stack::open(&selected, End::Startpoint).err().expect("it does not open").to_string();
    assert!(closed.contains("\"mine\" failed: never today"), "{closed}");
}
