//! One request and its answer (KMIP 1.4, 7 and KMIP 2.1, 9): messages of one operation each.

use zeroize::Zeroizing;

use super::ttlv::{Item, LENGTH_MAX, Value};

/// Which KMIP a message is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) i32, pub(crate) i32);

impl Version {
    /// Whether attributes have tags of their own, not names.
    pub(crate) fn is_second(self) -> bool {
        self.0 >= 2
    }

    pub(crate) fn item(self) -> Item<'static> {
        let number = |tag, number| Item { tag, value: Value::Integer(number) };
        let both = vec![number(tag::PROTOCOL_VERSION_MAJOR, self.0), number(tag::PROTOCOL_VERSION_MINOR, self.1)];
        Item { tag: tag::PROTOCOL_VERSION, value: Value::Structure(both) }
    }

    pub(crate) fn read(item: &Fields<'_, '_>) -> Option<Self> {
        Some(Version(item.integer(tag::PROTOCOL_VERSION_MAJOR)?, item.integer(tag::PROTOCOL_VERSION_MINOR)?))
    }
}

/// What a server is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Operation {
    Create = 0x01,
    Get = 0x0A,
    GetAttributes = 0x0B,
    Activate = 0x12,
    Query = 0x18,
    DiscoverVersions = 0x1E,
    Encrypt = 0x1F,
    Decrypt = 0x20,
}

/// Why an answer does not say what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// It is no answer to that; what is wrong with it.
    Malformed(&'static str),
    /// The server says why.
    Failed { reason: u32, words: String },
}

/// A request of one operation.
pub(crate) fn request(version: Version, operation: Operation, payload: Vec<Item<'_>>) -> Zeroizing<Vec<u8>> {
    let longest = i32::try_from(LENGTH_MAX).expect("it is short");
    let header = vec![
        version.item(),
        Item { tag: tag::MAXIMUM_RESPONSE_SIZE, value: Value::Integer(longest) },
        Item { tag: tag::BATCH_COUNT, value: Value::Integer(1) },
    ];
    let item = vec![
        Item { tag: tag::OPERATION, value: Value::Enumeration(operation as u32) },
        Item { tag: tag::REQUEST_PAYLOAD, value: Value::Structure(payload) },
    ];
    let message = Item {
        tag: tag::REQUEST_MESSAGE,
        value: Value::Structure(vec![
            Item { tag: tag::REQUEST_HEADER, value: Value::Structure(header) },
            Item { tag: tag::BATCH_ITEM, value: Value::Structure(item) },
        ]),
    };
    // One allocation: a vector that grows leaves copies of what is to be encrypted behind.
    let mut out = Zeroizing::new(Vec::with_capacity(message.length()));
    message.encode(&mut out);
    out
}

/// What the answer to such a request carries.
///
/// # Errors
/// When it is none, or the server did not do it.
pub(crate) fn response<'b>(
    bytes: &'b [u8],
    version: Version,
    operation: Operation,
) -> Result<Vec<Item<'b>>, Unanswered> {
    let malformed = Unanswered::Malformed;
    let message = Item::decode(bytes).map_err(|_| malformed("it is not written as KMIP is"))?;
    let Item { tag: tag::RESPONSE_MESSAGE, value: Value::Structure(items) } = message else {
        return Err(malformed("it is no response"));
    };
    judge(Fields(&items), version, operation)?;
    let payload = take(items, tag::BATCH_ITEM).and_then(|items| take(items, tag::RESPONSE_PAYLOAD));
    payload.ok_or(malformed("it carries nothing"))
}

fn judge(message: Fields<'_, '_>, version: Version, operation: Operation) -> Result<(), Unanswered> {
    let malformed = Unanswered::Malformed;
    let header = message.structure(tag::RESPONSE_HEADER).ok_or(malformed("it has no header"))?;
    let spoken = header.structure(tag::PROTOCOL_VERSION).and_then(|fields| Version::read(&fields));
    let spoken = spoken.ok_or(malformed("it says no version"))?;
    let item = message.structure(tag::BATCH_ITEM).filter(|_| header.integer(tag::BATCH_COUNT) == Some(1));
    let item = item.ok_or(malformed("it answers not exactly one request"))?;
    let done = item.enumeration(tag::OPERATION);
    match item.enumeration(tag::RESULT_STATUS) {
        Some(SUCCESS) if spoken != version => Err(malformed("it is of another version than the request")),
        Some(SUCCESS) if done != Some(operation as u32) => Err(malformed("it answers another request")),
        Some(SUCCESS) => Ok(()),
        Some(FAILED) => {
            let words = item.text(tag::RESULT_MESSAGE).unwrap_or_default();
            let words = words.chars().filter(|char| !char.is_control()).take(WORDS_MAX).collect();
            Err(Unanswered::Failed { reason: item.enumeration(tag::RESULT_REASON).unwrap_or_default(), words })
        }
        _ => Err(malformed("it says neither that this was done nor that it was not")),
    }
}

/// What is in the one structure of this tag.
fn take(items: Vec<Item<'_>>, tag: u32) -> Option<Vec<Item<'_>>> {
    let mut found = items.into_iter().filter(|item| item.tag == tag);
    match (found.next()?.value, found.next()) {
        (Value::Structure(items), None) => Some(items),
        _ => None,
    }
}

/// The parts of a structure by their tags. What is not asked for is passed over, as later versions add to structures; what
/// is there twice is not there.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'i, 'b>(pub(crate) &'i [Item<'b>]);

impl<'i, 'b> Fields<'i, 'b> {
    fn one(&self, tag: u32) -> Option<&'i Value<'b>> {
        let mut found = self.0.iter().filter(|item| item.tag == tag);
        let first = found.next()?;
        found.next().is_none().then_some(&first.value)
    }

    /// All of a tag.
    pub(crate) fn all(self, tag: u32) -> impl Iterator<Item = &'i Item<'b>> {
        self.0.iter().filter(move |item| item.tag == tag)
    }

    pub(crate) fn has(&self, tag: u32) -> bool {
        self.0.iter().any(|item| item.tag == tag)
    }

    pub(crate) fn structure(&self, tag: u32) -> Option<Fields<'i, 'b>> {
        match self.one(tag)? {
            Value::Structure(items) => Some(Fields(items)),
            _ => None,
        }
    }

    pub(crate) fn integer(&self, tag: u32) -> Option<i32> {
        match self.one(tag)? {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn enumeration(&self, tag: u32) -> Option<u32> {
        match self.one(tag)? {
            Value::Enumeration(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn text(&self, tag: u32) -> Option<&'b str> {
        match self.one(tag)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn bytes(&self, tag: u32) -> Option<&'b [u8]> {
        match self.one(tag)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

const SUCCESS: u32 = 0;
const FAILED: u32 = 1;
const WORDS_MAX: usize = 300;

/// Tags (KMIP 1.4, 9.1.3.1; KMIP 2.1, 11.56).
pub(crate) mod tag {
    pub(crate) const ATTRIBUTE: u32 = 0x420008;
    pub(crate) const ATTRIBUTE_NAME: u32 = 0x42000A;
    pub(crate) const ATTRIBUTE_VALUE: u32 = 0x42000B;
    pub(crate) const BATCH_COUNT: u32 = 0x42000D;
    pub(crate) const BATCH_ITEM: u32 = 0x42000F;
    pub(crate) const BLOCK_CIPHER_MODE: u32 = 0x420011;
    pub(crate) const CRYPTOGRAPHIC_ALGORITHM: u32 = 0x420028;
    pub(crate) const CRYPTOGRAPHIC_LENGTH: u32 = 0x42002A;
    pub(crate) const CRYPTOGRAPHIC_PARAMETERS: u32 = 0x42002B;
    pub(crate) const CRYPTOGRAPHIC_USAGE_MASK: u32 = 0x42002C;
    pub(crate) const IV_COUNTER_NONCE: u32 = 0x42003D;
    pub(crate) const KEY_BLOCK: u32 = 0x420040;
    pub(crate) const KEY_FORMAT_TYPE: u32 = 0x420042;
    pub(crate) const KEY_MATERIAL: u32 = 0x420043;
    pub(crate) const KEY_VALUE: u32 = 0x420045;
    pub(crate) const KEY_WRAPPING_DATA: u32 = 0x420046;
    pub(crate) const MAXIMUM_RESPONSE_SIZE: u32 = 0x420050;
    pub(crate) const OBJECT_TYPE: u32 = 0x420057;
    pub(crate) const OPERATION: u32 = 0x42005C;
    pub(crate) const PROTOCOL_VERSION: u32 = 0x420069;
    pub(crate) const PROTOCOL_VERSION_MAJOR: u32 = 0x42006A;
    pub(crate) const PROTOCOL_VERSION_MINOR: u32 = 0x42006B;
    pub(crate) const QUERY_FUNCTION: u32 = 0x420074;
    pub(crate) const REQUEST_HEADER: u32 = 0x420077;
    pub(crate) const REQUEST_MESSAGE: u32 = 0x420078;
    pub(crate) const REQUEST_PAYLOAD: u32 = 0x420079;
    pub(crate) const RESPONSE_HEADER: u32 = 0x42007A;
    pub(crate) const RESPONSE_MESSAGE: u32 = 0x42007B;
    pub(crate) const RESPONSE_PAYLOAD: u32 = 0x42007C;
    pub(crate) const RESULT_MESSAGE: u32 = 0x42007D;
    pub(crate) const RESULT_REASON: u32 = 0x42007E;
    pub(crate) const RESULT_STATUS: u32 = 0x42007F;
    pub(crate) const STATE: u32 = 0x42008D;
    pub(crate) const SYMMETRIC_KEY: u32 = 0x42008F;
    pub(crate) const TEMPLATE_ATTRIBUTE: u32 = 0x420091;
    pub(crate) const UNIQUE_IDENTIFIER: u32 = 0x420094;
    pub(crate) const DATA: u32 = 0x4200C2;
    pub(crate) const TAG_LENGTH: u32 = 0x4200CE;
    pub(crate) const AUTHENTICATED_ENCRYPTION_TAG: u32 = 0x4200FF;
    pub(crate) const ATTRIBUTES: u32 = 0x420125;
    pub(crate) const ATTRIBUTE_REFERENCE: u32 = 0x42013B;
}
