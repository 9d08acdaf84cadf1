//! Messages that are longer than their endpoint takes.

use std::thread::current;

use gambeson_proto::record::end;

use super::*;
use crate::link::RECORD_MAX;

const MOST: usize = 100_000;

fn linked(seed: u64, protection: Protection, modules: &[&str]) -> (Pair, Endpoint, u64) {
    let attributes = modules.iter().fold(Attributes::default().message_max(MOST), |all, name| all.transform(name));
    Pair::linked_to(attributes, seed, protection)
}

/// Sends, puts and packs messages of which many are too long. How many those were.
fn run(seed: u64, protection: Protection, hostile: bool, modules: &[&str]) -> u64 {
    let (mut pair, mut endpoint, link) = linked(seed, protection, modules);
    endpoint.came = Some(Vec::new());
    let (mut taken, mut asked, mut too_long, mut left) = (Vec::new(), VecDeque::new(), 0, 30);
    while left > 0 || !asked.is_empty() || endpoint.requests < taken.len() as u64 || endpoint.too_long < too_long {
        if left > 0 && pair.random.random_bool(0.05) {
            left -= 1;
            let longest = [MOST, MOST + 2, RECORD_MAX, 3 * MOST, 2_000_000][pair.random.random_range(0..5_usize)];
            let mut bytes = vec![left as u8; pair.random.random_range(longest / 2..=longest)];
            if pair.random.random_bool(0.3) {
                pair.random.fill_bytes(&mut bytes);
            }
            let refused = bytes.len() > MOST;
            let number = match pair.random.random_range(0..4) {
                0 => {
                    pair.send(link, request_of(bytes.len(), 0), &bytes);
                    None
                }
                1 => {
                    let size = bytes.len() as u64;
                    let put = Envelope { flags: request::ANSWER, size, ..Envelope::new(Kind::Put) };
                    Some((pair.send(link, put, &bytes), Vec::new()))
                }
                2 if modules.is_empty() => Some((pack(&mut pair, link, &bytes, &mut endpoint, hostile), bytes.clone())),
                _ => Some((pair.send(link, request_of(bytes.len(), request::ANSWER), &bytes), bytes.clone())),
            };
            asked.extend(number.map(|(number, answer)| (number, (!refused).then_some(answer), bytes.len())));
            too_long += u64::from(refused);
            if !refused {
                taken.push((link, bytes));
            }
        }
        pair.turn_disturbed(&mut endpoint, hostile);
        let kept = pair.server.burden() - pair.server.out.retained();
        assert!(kept <= 4 * MOST, "seed {seed}: {kept} bytes are kept");
        if let Some((number, wanted, len)) = asked.front() {
            match (pair.poll(link, *number), wanted) {
                (Answer::None, _) => continue,
                // Puts change what answers are made with.
                (Answer::Some(came), Some(wanted)) => assert_eq!(came.len(), wanted.len(), "seed {seed}"),
                (Answer::Refused(why), None) => {
                    let why = why.to_string();
                    assert!(why.contains(&format!("has {len} bytes")) && why.contains("100000 at most"), "{why}");
                }
                (Answer::Refused(why), _) => panic!("seed {seed}: {why}"),
                (answer, _) => panic!("seed {seed}: {}", matches!(answer, Answer::End)),
            }
            pair.end(link, *number);
            asked.pop_front();
        }
    }
    assert_eq!((endpoint.requests, endpoint.too_long), (taken.len() as u64, too_long), "seed {seed}");
    assert!(endpoint.came == Some(taken), "seed {seed}: what is short enough comes once and in order");
    too_long
}

/// Packs a request in two halves, as there is room; its number.
fn pack(pair: &mut Pair, link: u64, bytes: &[u8], endpoint: &mut Endpoint, hostile: bool) -> u64 {
    let first = request_of(bytes.len(), request::OPEN);
    let (mut gone, half) = (None, bytes.len() / 2);
    while !pair.client.link(link).expect("it is open").0.begin_pack(current().id()) {
        pair.turn_disturbed(endpoint, hostile);
    }
    loop {
        let (opened, out) = pair.client.link(link).expect("it is open");
        let upto = if gone.unwrap_or(0) < half { half } else { bytes.len() };
        let from = gone.unwrap_or(0);
        let went = opened.emit(out, &mut pair.caches[0], first, &bytes[from..upto], gone.map(|_| 0));
        gone = went.map(|went| from + went).or(gone);
        if gone == Some(bytes.len()) {
            return opened.end_pack(out, &mut pair.caches[0], Some(request::ANSWER));
        }
        pair.turn_disturbed(endpoint, hostile);
    }
}

#[test]
fn what_is_too_long_is_refused_and_all_else_goes_on() {
    let one = number("GAMBESON_SEED");
    let seeds = one.map_or(0..number("GAMBESON_SEEDS").unwrap_or(20), |seed| seed..seed + 1);
    let mut too_long = 0;
    for seed in seeds {
        too_long += run(seed, Protection::ALL[seed as usize % 2], seed % 3 == 0, &[]);
        too_long += run(seed, Protection::Privacy, false, &["zstd"]);
    }
    assert!(one.is_some() || too_long > 100, "{too_long} were too long");
}

#[test]
fn a_stream_is_refused_as_a_request_is_and_a_pack_that_is_given_up_is_not() {
    let (mut pair, mut endpoint, link) = linked(1, Protection::Privacy, &[]);
    let number = pair.send(link, request_of(MOST + 1, request::STREAM), &[1; MOST + 1]);
    let answer = pair.answer(link, number, &mut endpoint);
    assert!(matches!(answer, Answer::Refused(why) if why.to_string().contains("100000 at most")));
    pair.send(link, request_of(MOST + 1, request::OPEN), &[1; MOST]);
    pair.send(link, Envelope { flags: end::ABANDONED, ..Envelope::new(Kind::End) }, &[]);
    let number = pair.send(link, request_of(3, request::ANSWER), &[1; 3]);
    assert!(matches!(pair.answer(link, number, &mut endpoint), Answer::Some(_)));
    assert_eq!((endpoint.requests, endpoint.too_long), (1, 1));
}

#[test]
fn a_link_whose_modules_remember_ends_with_what_they_did_not_see_and_says_so() {
    let (mut pair, mut endpoint, link) = linked(1, Protection::Privacy, &["rolling"]);
    for (len, why) in [(2 * MOST, "has 200000 bytes"), (3, "nothing goes over this link any more")] {
        let number = pair.send(link, request_of(len, request::ANSWER), &vec![1; len]);
        let answer = pair.answer(link, number, &mut endpoint);
        assert!(matches!(answer, Answer::Refused(said) if said.to_string().contains(why)), "{why}");
    }
    let other = endpoint.link([5; 16], &mut pair.client, &mut pair.caches[0], Protection::Privacy);
    let number = pair.send(other, request_of(3, request::ANSWER), &[1; 3]);
    assert!(matches!(pair.answer(other, number, &mut endpoint), Answer::Some(_)), "another link goes on");
}
