//! Messages that are packed over a network that loses connections.

use std::thread::current;

use gambeson_proto::record::end;

use super::*;

/// A message that is being packed.
struct Packing {
    bytes: Vec<u8>,
    gone: Option<usize>,
    /// Whether it will be given up, and after how many bytes.
    given_up: Option<usize>,
}

fn message(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let longest = if random.random_bool(0.2) { 2_000_000 } else { 30_000 };
    let mut bytes = vec![0; random.random_range(1..longest)];
    random.fill_bytes(&mut bytes);
    bytes
}

/// Packs and sends, and gives up some, while connections are lost and altered. How many were given up.
fn run_packs(seed: u64, protection: Protection, hostile: bool) -> u64 {
    let (mut pair, mut endpoint, number) = Pair::linked(seed, protection, &[]);
    endpoint.came = Some(Vec::new());
    let wanted = pair.random.random_range(2..20_usize);
    let (mut sent, mut behind): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    let mut packing: Option<Packing> = None;
    let mut given_up = 0;
    while sent.len() < wanted || packing.is_some() || endpoint.requests < sent.len() as u64 {
        let Pair { random, client, caches, .. } = &mut pair;
        let (link, out) = client.link(number).expect("it is open");
        match &mut packing {
            None if sent.len() < wanted && random.random_bool(0.3) && link.begin_pack(current().id()) => {
                let bytes = message(random);
                let given_up = random.random_bool(0.3).then(|| random.random_range(0..=bytes.len()));
                packing = Some(Packing { bytes, gone: None, given_up });
            }
            Some(pack) if random.random_bool(0.5) => {
                let until = pack.given_up.unwrap_or(pack.bytes.len());
                let from = pack.gone.unwrap_or(0);
                let to = if from == until { from } else { random.random_range(from + 1..=until) };
                let first =
                    Envelope { flags: request::OPEN, size: pack.bytes.len() as u64, ..Envelope::new(Kind::Request) };
                if to > from {
                    let begun = pack.gone.map(|_| 0);
                    let went = link.emit(out, &mut caches[0], first, &pack.bytes[from..to], begun);
                    pack.gone = went.map(|went| from + went);
                }
                if pack.gone.unwrap_or(0) == until {
                    let pack = packing.take().expect("it is there");
                    match (pack.given_up, pack.gone) {
                        (Some(_), None) => link.leave_pack(out, &mut caches[0]),
                        (Some(_), _) => drop(link.end_pack(out, &mut caches[0], None)),
                        (None, _) => {
                            assert_eq!(link.end_pack(out, &mut caches[0], Some(0)), 0);
                            sent.push(pack.bytes);
                        }
                    }
                    given_up += u64::from(pack.given_up.is_some());
                    sent.append(&mut behind);
                }
            }
            _ if random.random_bool(0.02) => {
                let bytes = message(random);
                let envelope = Envelope { size: bytes.len() as u64, ..Envelope::new(Kind::Request) };
                link.send(out, &mut caches[0], envelope, &bytes[..]);
                if packing.is_some() { behind.push(bytes) } else { sent.push(bytes) }
            }
            _ => {}
        }
        pair.turn_disturbed(&mut endpoint, hostile);
    }
    let came: Vec<Vec<u8>> = endpoint.came.expect("it was wanted").into_iter().map(|(_, bytes)| bytes).collect();
    assert!(came == sent, "seed {seed}: what was packed and what was sent come once and in order, and nothing else");
    given_up
}

#[test]
fn packed_messages_come_once_and_those_given_up_never() {
    let one = number("GAMBESON_SEED");
    let seeds = one.map_or(0..number("GAMBESON_SEEDS").unwrap_or(40), |seed| seed..seed + 1);
    let given_up: u64 = seeds.map(|seed| run_packs(seed, Protection::ALL[seed as usize % 2], seed % 3 == 0)).sum();
    assert!(one.is_some() || given_up > 10, "{given_up} were given up");
}

#[test]
fn an_end_that_is_none_is_not_taken() {
    let open = |size: u64| Envelope { flags: request::OPEN, size, ..Envelope::new(Kind::Request) };
    let ended = |flags| Envelope { flags, ..Envelope::new(Kind::End) };
    let request = |size| request_of(size, 0);
    // What an endpoint gets, and whether it is taken.
    let cases: [(&[(Envelope, usize)], bool); 7] = [
        (&[(open(9), 9), (ended(0), 0)], true),
        (&[(open(9), 4), (ended(end::ABANDONED), 0), (request(3), 3)], true),
        (&[(ended(0), 0)], false),
        (&[(open(9), 4), (ended(0), 0)], false),
        (&[(request(9), 4), (ended(end::ABANDONED), 0)], false),
        (&[(open(9), 9), (ended(0), 1)], false),
        (&[(open(9), 9), (request(3), 3)], false),
    ];
    for (at, (messages, taken)) in cases.into_iter().enumerate() {
        let (mut pair, mut endpoint, link) = Pair::linked(1, Protection::Privacy, &[]);
        for (envelope, len) in messages {
            pair.send(link, *envelope, &vec![7; *len]);
        }
        for _ in 0..200 {
            pair.turn(&mut endpoint);
        }
        let server = &pair.server;
        assert_eq!((server.lost().is_none(), endpoint.requests == 1), (taken, taken), "case {at}: {:?}", server.lost());
    }
}
