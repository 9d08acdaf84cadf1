//! Tag, type, length, value: how KMIP messages are written (KMIP 2.1, section 10; the same since 1.0).
//!
//! ```text
//! item: tag 3 | type 1 | length u32 | value, filled up with zeros to a multiple of 8
//! ```
//! Big endian. Read strictly: whatever is taken is the one encoding of what it says.

/// What a message, and each part of it, is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item<'b> {
    pub(crate) tag: u32,
    pub(crate) value: Value<'b>,
}

/// What is in an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value<'b> {
    Structure(Vec<Item<'b>>),
    Integer(i32),
    LongInteger(i64),
    /// Two's complement, in 8 bytes or a multiple of that.
    BigInteger(&'b [u8]),
    Enumeration(u32),
    Boolean(bool),
    Text(&'b str),
    Bytes(&'b [u8]),
    /// Seconds since 1970.
    DateTime(i64),
    /// Seconds.
    Interval(u32),
    /// Microseconds since 1970.
    DateTimeExtended(i64),
}

/// The bytes are no item, or not as they have to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl<'b> Item<'b> {
    /// Reads one item, and nothing behind it.
    pub(crate) fn decode(bytes: &'b [u8]) -> Result<Self, Malformed> {
        match item(bytes, DEPTH_MAX)? {
            (item, []) => Ok(item),
            _ => Err(Malformed),
        }
    }

    /// How many bytes it is written in.
    pub(crate) fn length(&self) -> usize {
        HEAD + filled_up(self.value.length())
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.tag.to_be_bytes()[1..]);
        out.push(self.value.kind());
        let length = self.value.length();
        out.extend_from_slice(&u32::try_from(length).expect("messages are short").to_be_bytes());
        match &self.value {
            Value::Structure(items) => items.iter().for_each(|item| item.encode(out)),
            Value::Integer(number) => out.extend_from_slice(&number.to_be_bytes()),
            Value::LongInteger(number) | Value::DateTime(number) | Value::DateTimeExtended(number) => {
                out.extend_from_slice(&number.to_be_bytes());
            }
            Value::Enumeration(number) | Value::Interval(number) => out.extend_from_slice(&number.to_be_bytes()),
            Value::Boolean(is) => out.extend_from_slice(&u64::from(*is).to_be_bytes()),
            Value::Text(text) => out.extend_from_slice(text.as_bytes()),
            Value::BigInteger(bytes) | Value::Bytes(bytes) => out.extend_from_slice(bytes),
        }
        out.extend(std::iter::repeat_n(0, filled_up(length) - length));
    }
}

impl Value<'_> {
    fn kind(&self) -> u8 {
        match self {
            Value::Structure(_) => STRUCTURE,
            Value::Integer(_) => 2,
            Value::LongInteger(_) => 3,
            Value::BigInteger(_) => 4,
            Value::Enumeration(_) => 5,
            Value::Boolean(_) => 6,
            Value::Text(_) => 7,
            Value::Bytes(_) => 8,
            Value::DateTime(_) => 9,
            Value::Interval(_) => 10,
            Value::DateTimeExtended(_) => 11,
        }
    }

    fn length(&self) -> usize {
        match self {
            Value::Structure(items) => items.iter().map(Item::length).sum(),
            Value::Integer(_) | Value::Enumeration(_) | Value::Interval(_) => 4,
            Value::LongInteger(_) | Value::Boolean(_) | Value::DateTime(_) | Value::DateTimeExtended(_) => 8,
            Value::Text(text) => text.len(),
            Value::BigInteger(bytes) | Value::Bytes(bytes) => bytes.len(),
        }
    }
}

/// How long the whole item is that begins so; what is too long for a message is none.
pub(crate) fn length_of(head: &[u8; HEAD]) -> Result<usize, Malformed> {
    let [_, _, _, kind, length @ ..] = *head;
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(|_| Malformed)?;
    match kind == STRUCTURE && length <= LENGTH_MAX && length.is_multiple_of(8) {
        true => Ok(HEAD + length),
        false => Err(Malformed),
    }
}

fn item(bytes: &[u8], depth: usize) -> Result<(Item<'_>, &[u8]), Malformed> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(Malformed)?;
    let tag = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let length = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    let length = usize::try_from(length).ok().filter(|&length| length <= LENGTH_MAX).ok_or(Malformed)?;
    let (value, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
    let (zeros, rest) = rest.split_at_checked(filled_up(length) - length).ok_or(Malformed)?;
    if zeros.iter().any(|&byte| byte != 0) {
        return Err(Malformed);
    }
    let four = || value.try_into().map_err(|_| Malformed);
    let eight = || value.try_into().map(i64::from_be_bytes).map_err(|_| Malformed);
    let value = match head[3] {
        STRUCTURE => Value::Structure(items(value, depth.checked_sub(1).ok_or(Malformed)?)?),
        2 => Value::Integer(four().map(i32::from_be_bytes)?),
        3 => Value::LongInteger(eight()?),
        4 if !value.is_empty() && length.is_multiple_of(8) => Value::BigInteger(value),
        5 => Value::Enumeration(four().map(u32::from_be_bytes)?),
        6 => match eight()? {
            0 => Value::Boolean(false),
            1 => Value::Boolean(true),
            _ => return Err(Malformed),
        },
        7 => Value::Text(str::from_utf8(value).map_err(|_| Malformed)?),
        8 => Value::Bytes(value),
        9 => Value::DateTime(eight()?),
        10 => Value::Interval(four().map(u32::from_be_bytes)?),
        11 => Value::DateTimeExtended(eight()?),
        _ => return Err(Malformed),
    };
    Ok((Item { tag, value }, rest))
}

fn items(mut bytes: &[u8], depth: usize) -> Result<Vec<Item<'_>>, Malformed> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (one, rest) = item(bytes, depth)?;
        all.push(one);
        bytes = rest;
    }
    Ok(all)
}

fn filled_up(length: usize) -> usize {
    length.next_multiple_of(8)
}

const STRUCTURE: u8 = 1;
/// How long what stands before a value is.
pub(crate) const HEAD: usize = 8;
/// Longer than any message that is waited for.
pub(crate) const LENGTH_MAX: usize = 1 << 16;
/// Structures in structures; messages that are waited for have seven.
const DEPTH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digits: &str) -> Vec<u8> {
        let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b' ').collect();
        let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
        digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }

    /// The examples of the specification (KMIP 1.4, 9.1.2).
    #[test]
    fn items_are_written_as_the_specification_shows() {
        let big = hex("00000000 03FD35EB 6BC2DF46 18080000");
        for (value, expected) in [
            (Value::Integer(8), "42 00 20 02 00000004 00000008 00000000"),
            (Value::LongInteger(123456789000000000), "420020 03 00000008 01B69B4BA5749200"),
            (Value::BigInteger(&big), "420020 04 00000010 0000000003FD35EB6BC2DF4618080000"),
            (Value::Enumeration(255), "420020 05 00000004 000000FF00000000"),
            (Value::Boolean(true), "420020 06 00000008 0000000000000001"),
            (Value::Text("Hello World"), "420020 07 0000000B 48656C6C6F20576F726C640000000000"),
            (Value::Bytes(&[1, 2, 3]), "420020 08 00000003 0102030000000000"),
            (Value::DateTime(0x47DA67F8), "420020 09 00000008 0000000047DA67F8"),
            (Value::Interval(864000), "420020 0A 00000004 000D2F0000000000"),
            (
                Value::Structure(vec![
                    Item { tag: 0x420004, value: Value::Enumeration(254) },
                    Item { tag: 0x420005, value: Value::Integer(255) },
                ]),
                "420020 01 00000020 420004 05 00000004 000000FE00000000 420005 02 00000004 000000FF00000000",
            ),
        ] {
            let item = Item { tag: 0x420020, value };
            let mut written = Vec::new();
            item.encode(&mut written);
            assert_eq!(written, hex(expected));
            assert_eq!(written.len(), item.length());
            assert_eq!(Item::decode(&written), Ok(item));
        }
    }

    #[test]
    fn what_is_written_otherwise_is_none() {
        for written in [
            "420020 02 00000004 00000008 00000001",
            "420020 02 00000008 0000000800000000",
            "420020 02 00000004 00000008",
            "420020 04 00000000",
            "420020 04 00000004 0000000100000000",
            "420020 06 00000008 0000000000000002",
            "420020 07 00000001 FF00000000000000",
            "420020 0C 00000004 0000000800000000",
            "420020 00 00000000",
            "420020 01 00000008 4200040500000004",
            "420020 08 00000000 00",
            "420020 08 FFFFFFFF 00",
            "420020",
            "",
        ] {
            assert_eq!(Item::decode(&hex(written)), Err(Malformed), "{written}");
        }
        let nested = |depth: usize| {
            let mut item = Item { tag: 0x420020, value: Value::Structure(Vec::new()) };
            for _ in 1..depth {
                item = Item { tag: 0x420020, value: Value::Structure(vec![item]) };
            }
            let mut written = Vec::new();
            item.encode(&mut written);
            Item::decode(&written).is_ok()
        };
        assert!(nested(DEPTH_MAX) && !nested(DEPTH_MAX + 1));
    }
}
