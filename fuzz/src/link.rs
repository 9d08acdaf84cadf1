//! What comes to a domain of links: from strangers, and from whoever sits between two that know each other.

use gambeson_link::Protection;
use gambeson_link::fuzzing::{self, Handshakes, Pair};
use gambeson_proto::record::{Envelope, Kind};

use super::input::Input;

/// Greetings, and what goes on with a session: bytes as they are.
pub fn link_greeting(data: &[u8]) {
    fuzzing::greeting(data);
    fuzzing::resumption(data);
}

/// Messages of libfabric's carrier, which proves nothing.
pub fn link_fabric(data: &[u8]) {
    fuzzing::fabric(data);
}

/// Pieces from somebody who may talk to nobody here: bytes, and flights of a genuine handshake.
pub fn link_stranger(data: &[u8]) {
    let mut input = Input(data);
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    while !input.is_empty() && pieces.len() < 24 {
        let piece = match input.byte() % 4 {
            0 => {
                let len = usize::from(input.short());
                input.bytes(len).to_vec()
            }
            1 => {
                // An offer to go on with the session that is there, or with a part of its name.
                let mut offer = [&b"R"[..], &fuzzing::session_name(), &[3; 16]].concat();
                offer.truncate(usize::from(input.byte()) % 40);
                offer
            }
            2 => pieces.last().cloned().unwrap_or_default(),
            _ => {
                let kind = 20 + input.byte() % 5;
                let len = usize::from(input.byte());
                let how = input.byte() % 4;
                let said = if how < 2 { input.short() } else { len as u16 };
                let mut record = [&[kind, 3, 3][..], &said.to_be_bytes(), input.bytes(len)].concat();
                if how == 1 {
                    // As long as it says, however long that is.
                    record.resize(5 + usize::from(said), 0);
                }
                record
            }
        };
        pieces.push(piece);
    }
    fuzzing::stranger(pieces.iter().map(Vec::as_slice));
}

/// Two handshakes whose flights are cut, doubled, swapped, altered and mixed with others.
pub fn link_handshake(data: &[u8]) {
    let mut input = Input(data);
    let known = input.byte() % 4 != 0;
    let mut handshakes = Handshakes::new(known);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let mut touched = false;
    for _ in 0..32 {
        let what = input.byte();
        let wire = &mut handshakes.wires[usize::from(what >> 7)];
        let at = usize::from(input.short()) % (wire.len() + 1);
        let end = wire.len().min(at + usize::from(input.short()));
        match what % 8 {
            // As it is.
            0..=2 => {}
            3 if at < wire.len() => {
                touched = true;
                wire[at] ^= 1 << (input.byte() % 8);
            }
            4 => {
                touched |= at < end;
                drop(wire.drain(at..end));
            }
            5 => {
                touched |= at < end;
                let again = wire[at..end].to_vec();
                wire.splice(at..at, again);
            }
            6 => {
                let garbage = input.bytes(end - at + 5);
                touched |= !garbage.is_empty();
                wire.splice(at..at, garbage.iter().copied());
            }
            7 => {
                // What was seen before, in any direction.
                let old = seen.get(at % (seen.len() + 1)).cloned().unwrap_or_default();
                touched |= !old.is_empty();
                wire.extend(old);
            }
            _ => {}
        }
        seen.extend(handshakes.wires.iter().filter(|wire| !wire.is_empty()).cloned());
        handshakes.advance();
    }
    assert!(touched || !known || handshakes.is_done(), "nobody disturbed them, and they did not agree");
}

/// What a liar says.
const KINDS: [Kind; 11] = [
    Kind::Control,
    Kind::Request,
    Kind::More,
    Kind::Answer,
    Kind::Credit,
    Kind::Cancel,
    Kind::Message,
    Kind::Grant,
    Kind::Final,
    Kind::Put,
    Kind::Get,
];

/// Two sessions, somebody between them, and perhaps a liar at one end.
pub fn link_session(data: &[u8]) {
    let mut input = Input(data);
    let mut pair = Pair::new(Protection::ALL[usize::from(input.byte() % 3)]);
    for _ in 0..200 {
        if input.is_empty() {
            break;
        }
        let what = input.byte();
        let to_server = what & 128 != 0;
        match what % 16 {
            0..=2 => {
                let (link, len, answered) = (input.byte(), usize::from(input.short()), input.byte() % 4 != 0);
                // Now and then in several records, the payload under a tag of its own.
                let len = if link >= 240 { 3 * len } else { len % 5000 };
                pair.request(usize::from(link), &vec![link; len], answered);
            }
            3..=5 => {
                for _ in 0..=input.byte() % 8 {
                    pair.progress();
                }
            }
            6 => pair.reconnect(),
            7 => match input.byte() {
                link @ 0..128 => pair.release(usize::from(link)),
                len => pair.name(usize::from(len)),
            },
            8 => {
                let kind = KINDS[usize::from(input.byte()) % KINDS.len()];
                let (link, flags) = (usize::from(input.byte()), input.byte());
                let (tag, size, data, id) = (input.number(), input.number(), input.number(), input.number());
                let len = usize::from(input.byte());
                let envelope = Envelope { kind, flags, tag, size, data, id };
                pair.lie(to_server, link, envelope, input.bytes(len));
            }
            _ => disturb(&mut pair, what, to_server, &mut input),
        }
    }
    pair.finish();
}

/// What somebody on the wire does.
fn disturb(pair: &mut Pair, what: u8, to_server: bool, input: &mut Input<'_>) {
    let mut wire = pair.wire(to_server);
    let at = usize::from(input.short()) % (wire.len() + 1);
    let end = wire.len().min(at + usize::from(input.short()));
    match what % 16 {
        9 | 10 if at < wire.len() => wire[at] ^= 1 << (input.byte() % 8),
        11 => drop(wire.drain(at..end)),
        12 => {
            let again: Vec<u8> = wire.range(at..end).copied().collect();
            let rest = wire.split_off(at);
            wire.extend(again);
            wire.extend(rest);
        }
        13 => {
            let mut first = wire.split_off(at);
            let second = first.split_off(end - at);
            wire.extend(second);
            wire.extend(first);
        }
        14 => wire.extend(input.bytes(end - at + 5)),
        _ => wire.range_mut(at..end).zip(input.bytes(end - at)).for_each(|(old, new)| *old = *new),
    }
}
