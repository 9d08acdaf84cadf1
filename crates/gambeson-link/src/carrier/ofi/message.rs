//! What two ends say to each other over libfabric. Nothing here is authenticated: whoever finds an endpoint's address can
//! send to it. A token, chosen at random by the one it is to go to, keeps out who does not see the wire.
//!
//! ```text
//!  connecting ── Hello: token, window, size, address ──> listener
//!             <── Welcome: token, token, window, size, address ── a new endpoint for this one carrier
//!             <── Data, Credit, Bye ──>
//!
//!  0 kind   1 version   2 zero   4 sequence   8 released   12 zero   16 token of the one it goes to   32 the rest
//! ```

use super::library::ADDRESS_MAX;

/// Bytes of a message before its own.
pub(super) const HEADER: usize = 32;
/// The longest greeting.
pub(super) const GREETING_MAX: usize = HEADER + 16 + 8 + ADDRESS_MAX;
const VERSION: u8 = 1;
/// What a window may be in buffers, and a buffer in bytes.
const WINDOWS: std::ops::RangeInclusive<u16> = 2..=256;
const SIZES: std::ops::RangeInclusive<u32> = 256..=1 << 20;

pub(super) type Token = [u8; 16];

/// How many buffers stand ready for what the other end sends, and how large they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) window: u16,
    pub(super) size: u32,
}

/// What both ends begin with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// What must stand in messages to its sender.
    pub(super) token: Token,
    pub(super) shape: Shape,
    /// Where its sender is to be found.
    pub(super) address: Vec<u8>,
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Data,
    Credit,
    Bye,
}

/// A message's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) word: Word,
    /// Which it is of those that take place in the stream; of credit, none.
    pub(super) sequence: u32,
    /// How many of the other end's messages have made room so far.
    pub(super) released: u32,
}

/// What stands at the beginning of a greeting: of the first, and of its answer.
const HELLO: u8 = 1;
const WELCOME: u8 = 2;

fn begin(kind: u8, token: &Token) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    (header[0], header[1]) = (kind, VERSION);
    header[16..].copy_from_slice(token);
    header
}

impl Header {
    pub(super) fn encode(&self, token: &Token) -> [u8; HEADER] {
        let kind = match self.word {
            Word::Data => 3,
            Word::Credit => 4,
            Word::Bye => 5,
        };
        let mut header = begin(kind, token);
        header[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        header[8..12].copy_from_slice(&self.released.to_le_bytes());
        header
    }

    /// `None`: it is none of ours.
    pub(super) fn decode(message: &[u8]) -> Option<Header> {
        let header: &[u8; HEADER] = message.first_chunk()?;
        let word = match header[0] {
            3 if message.len() > HEADER => Word::Data,
            4 if message.len() == HEADER => Word::Credit,
            5 if message.len() == HEADER => Word::Bye,
            _ => return None,
        };
        let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let plain = header[1] == VERSION && header[2..4] == [0; 2] && header[12..16] == [0; 4];
        plain.then(|| Header { word, sequence: number(4), released: number(8) })
    }
}

/// Whom a message is for.
pub(super) fn token(message: &[u8]) -> Option<Token> {
    message.get(16..HEADER)?.try_into().ok()
}

impl Greeting {
    /// The first, to a listener; or, to somebody who gave a token with it, the answer.
    pub(super) fn encode(&self, answers: Option<&Token>) -> Vec<u8> {
        let (kind, to) = answers.map_or((HELLO, [0; 16]), |token| (WELCOME, *token));
        let mut message = begin(kind, &to).to_vec();
        message.extend_from_slice(&self.token);
        message.extend_from_slice(&self.shape.window.to_le_bytes());
        message.extend_from_slice(&self.shape.size.to_le_bytes());
        message.extend_from_slice(&(self.address.len() as u16).to_le_bytes());
        message.extend_from_slice(&self.address);
        message
    }

    pub(super) fn hello(message: &[u8]) -> Option<Greeting> {
        Self::decode(HELLO, message)
    }

    pub(super) fn welcome(message: &[u8]) -> Option<Greeting> {
        Self::decode(WELCOME, message)
    }

    fn decode(kind: u8, message: &[u8]) -> Option<Greeting> {
        let (header, rest) = message.split_first_chunk::<HEADER>()?;
        if *header != begin(kind, header[16..].try_into().expect("16 bytes")) {
            return None;
        }
        let (token, rest) = rest.split_first_chunk()?;
        let (window, rest) = rest.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (length, address) = rest.split_first_chunk()?;
        let shape = Shape { window: u16::from_le_bytes(*window), size: u32::from_le_bytes(*size) };
        let whole = usize::from(u16::from_le_bytes(*length)) == address.len();
        let fits = !address.is_empty() && address.len() <= ADDRESS_MAX;
        let legal = whole && fits && WINDOWS.contains(&shape.window) && SIZES.contains(&shape.size);
        legal.then(|| Greeting { token: *token, shape, address: address.to_vec() })
    }
}

/// What the fuzz target in fuzz/ drives: what is understood says the same again, and is one thing only.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check(message: &[u8]) {
    let (hello, welcome, header) = (Greeting::hello(message), Greeting::welcome(message), Header::decode(message));
    assert!([hello.is_some(), welcome.is_some(), header.is_some()].into_iter().filter(|is| *is).count() < 2);
    let to = token(message);
    if let Some(header) = header {
        let again = header.encode(&to.expect("a header has one"));
        assert!(message.starts_with(&again) && (header.word == Word::Data) == (message.len() > again.len()));
    }
    // Which token a first greeting names does not matter: its listener gave none.
    for (greeting, answers) in [(hello, None), (welcome, to)] {
        let Some(greeting) = greeting else { continue };
        let again = greeting.encode(answers.as_ref());
        assert!(again.len() == message.len() && again.len() <= GREETING_MAX && again[HEADER..] == message[HEADER..]);
        assert_eq!(again[..16], message[..16]);
    }
}

/// One of each: seeds.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn seeds() -> [(&'static str, Vec<u8>); 6] {
    let (mine, other) = ([7; 16], [9; 16]);
    let greeting = |window, len| Greeting { token: mine, shape: Shape { window, size: 65_536 }, address: vec![2; len] };
    let header = |word| Header { word, sequence: 3, released: 2 }.encode(&other).to_vec();
    [
        ("hello", greeting(16, 16).encode(None)),
        ("welcome", greeting(16, ADDRESS_MAX).encode(Some(&other))),
        ("shapeless", greeting(0, 16).encode(None)),
        ("data", [&header(Word::Data)[..], b"bytes"].concat()),
        ("credit", header(Word::Credit)),
        ("bye", header(Word::Bye)),
    ]
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn greeting() -> Greeting {
        Greeting { token: [7; 16], shape: Shape { window: 16, size: 65_536 }, address: vec![2, 0, 1, 2] }
    }

    #[test]
    fn what_is_said_is_understood_and_nothing_else() {
        let header = Header { word: Word::Data, sequence: u32::MAX, released: 5 };
        let message = [&header.encode(&[9; 16])[..], b"bytes"].concat();
        assert_eq!((Header::decode(&message), token(&message)), (Some(header), Some([9; 16])));
        let (hello, welcome) = (greeting().encode(None), greeting().encode(Some(&[9; 16])));
        assert_eq!((Greeting::hello(&hello), Greeting::welcome(&hello)), (Some(greeting()), None));
        assert_eq!((Greeting::hello(&welcome), Greeting::welcome(&welcome)), (None, Some(greeting())));
        assert!(hello.len() <= GREETING_MAX);
        for whole in [hello, welcome] {
            for len in 0..whole.len() {
                assert!(
                    Greeting::hello(&whole[..len]).is_none() && Greeting::welcome(&whole[..len]).is_none(),
                    "{len}"
                );
            }
        }
        for word in [Word::Credit, Word::Bye] {
            let message = Header { word, sequence: 1, released: 2 }.encode(&[0; 16]);
            assert_eq!(Header::decode(&message).map(|header| header.word), Some(word));
            assert_eq!(Header::decode(&[&message[..], b"more"].concat()), None);
            assert_eq!(Header::decode(&message[..HEADER - 1]), None);
        }
    }

    #[test]
    fn whatever_comes_is_understood_in_one_way_or_not_at_all() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for (_, seed) in seeds() {
            check(&seed);
            for _ in 0..20_000 {
                let mut message = seed.clone();
                for _ in 0..random.random_range(1..4) {
                    let at = random.random_range(0..message.len());
                    message[at] = random.random();
                }
                if random.random_bool(0.2) {
                    message.resize(random.random_range(0..2 * message.len()), random.random());
                }
                check(&message);
            }
        }
    }

    #[test]
    fn shapes_without_bounds_are_refused() {
        for (window, size) in [(0, 65_536), (1, 65_536), (u16::MAX, 65_536), (16, 0), (16, u32::MAX)] {
            let mut message = greeting();
            message.shape = Shape { window, size };
            assert_eq!(Greeting::hello(&message.encode(None)), None, "{window} of {size}");
        }
        for length in [0, ADDRESS_MAX + 1] {
            let mut message = greeting();
            message.address = vec![0; length];
            assert_eq!(Greeting::hello(&message.encode(None)), None, "an address of {length} bytes");
        }
    }
}
