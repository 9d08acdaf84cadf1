//! What a server is asked, and what its answers say (KMIP 1.4, 4 and 6; KMIP 2.1, 6).

use gambeson_proto::secret::Secret32;

use super::message::{Fields, Version, tag};
use super::ttlv::{Item, Value};

/// How long what a server makes of a key is: nonce 12 | tag 16 | ciphertext 32.
pub(crate) const SEALED: usize = NONCE + TAG + 32;
pub(crate) const NONCE: usize = 12;
const TAG: usize = 16;

/// Of Get Attributes: what a key is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) algorithm: Option<u32>,
    pub(crate) length: Option<i32>,
    pub(crate) usage: Option<i32>,
    pub(crate) state: Option<u32>,
}

impl Attributes {
    /// Whether it is for sealing other keys where it is: AES-256, to encrypt and decrypt.
    pub(crate) fn seals(&self) -> bool {
        let may = self.usage.is_some_and(|usage| usage & (ENCRYPT | DECRYPT) == ENCRYPT | DECRYPT);
        may && self.algorithm == Some(AES) && self.length == Some(256)
    }
}

type Payload<'b> = Vec<Item<'b>>;

pub(crate) fn discover_versions(known: &[Version]) -> Payload<'static> {
    known.iter().map(|version| version.item()).collect()
}

/// The versions that a server speaks, the one it likes best first.
pub(crate) fn read_versions(payload: &[Item<'_>]) -> Vec<Version> {
    let versions = Fields(payload).all(tag::PROTOCOL_VERSION).filter_map(|item| match &item.value {
        Value::Structure(fields) => Version::read(&Fields(fields)),
        _ => None,
    });
    versions.collect()
}

pub(crate) fn query_operations() -> Payload<'static> {
    vec![enumeration(tag::QUERY_FUNCTION, OPERATIONS)]
}

/// The operations that a server says it does.
pub(crate) fn read_operations(payload: &[Item<'_>]) -> Vec<u32> {
    let operations = Fields(payload).all(tag::OPERATION).filter_map(|item| match item.value {
        Value::Enumeration(operation) => Some(operation),
        _ => None,
    });
    operations.collect()
}

/// A key of AES-256, to encrypt and decrypt with.
pub(crate) fn create(version: Version) -> Payload<'static> {
    let length = Item { tag: tag::CRYPTOGRAPHIC_LENGTH, value: Value::Integer(256) };
    let usage = Item { tag: tag::CRYPTOGRAPHIC_USAGE_MASK, value: Value::Integer(ENCRYPT | DECRYPT) };
    let attributes = [enumeration(tag::CRYPTOGRAPHIC_ALGORITHM, AES), length, usage];
    let attributes = match version.is_second() {
        true => Item { tag: tag::ATTRIBUTES, value: Value::Structure(attributes.into()) },
        false => Item {
            tag: tag::TEMPLATE_ATTRIBUTE,
            value: Value::Structure(attributes.into_iter().zip(NAMES).map(named).collect()),
        },
    };
    vec![enumeration(tag::OBJECT_TYPE, SYMMETRIC_KEY), attributes]
}

fn named((item, name): (Item<'static>, (u32, &'static str))) -> Item<'static> {
    assert_eq!(item.tag, name.0);
    let name = Item { tag: tag::ATTRIBUTE_NAME, value: Value::Text(name.1) };
    let value = Item { tag: tag::ATTRIBUTE_VALUE, value: item.value };
    Item { tag: tag::ATTRIBUTE, value: Value::Structure(vec![name, value]) }
}

pub(crate) fn activate(id: &str) -> Payload<'_> {
    vec![identifier(id)]
}

/// What the server calls that which it has done something with.
pub(crate) fn read_identifier<'b>(payload: &[Item<'b>]) -> Option<&'b str> {
    Fields(payload).text(tag::UNIQUE_IDENTIFIER)
}

pub(crate) fn attributes(version: Version, id: &str) -> Payload<'_> {
    let names = NAMES.iter().map(|&(tag, name)| match version.is_second() {
        true => enumeration(tag::ATTRIBUTE_REFERENCE, tag),
        false => Item { tag: tag::ATTRIBUTE_NAME, value: Value::Text(name) },
    });
    [identifier(id)].into_iter().chain(names).collect()
}

pub(crate) fn read_attributes(version: Version, payload: &[Item<'_>]) -> Option<Attributes> {
    if version.is_second() {
        let fields = Fields(payload).structure(tag::ATTRIBUTES)?;
        return Some(Attributes {
            algorithm: fields.enumeration(tag::CRYPTOGRAPHIC_ALGORITHM),
            length: fields.integer(tag::CRYPTOGRAPHIC_LENGTH),
            usage: fields.integer(tag::CRYPTOGRAPHIC_USAGE_MASK),
            state: fields.enumeration(tag::STATE),
        });
    }
    let mut all = Attributes::default();
    for item in Fields(payload).all(tag::ATTRIBUTE) {
        let Value::Structure(attribute) = &item.value else { return None };
        let (attribute, value) = (Fields(attribute), tag::ATTRIBUTE_VALUE);
        let name = attribute.text(tag::ATTRIBUTE_NAME)?;
        match NAMES.iter().find(|known| known.1 == name).map(|known| known.0) {
            Some(tag::CRYPTOGRAPHIC_ALGORITHM) => all.algorithm = attribute.enumeration(value),
            Some(tag::CRYPTOGRAPHIC_LENGTH) => all.length = attribute.integer(value),
            Some(tag::CRYPTOGRAPHIC_USAGE_MASK) => all.usage = attribute.integer(value),
            Some(tag::STATE) => all.state = attribute.enumeration(value),
            _ => {}
        }
    }
    Some(all)
}

pub(crate) fn encrypt<'b>(id: &'b str, nonce: &'b [u8; NONCE], key: &'b Secret32) -> Payload<'b> {
    let data = Item { tag: tag::DATA, value: Value::Bytes(key.as_bytes()) };
    vec![identifier(id), gcm(), data, Item { tag: tag::IV_COUNTER_NONCE, value: Value::Bytes(nonce) }]
}

/// What a server has made of a key. A server that takes its own nonce says which.
pub(crate) fn read_encrypted(payload: &[Item<'_>], nonce: &[u8; NONCE]) -> Option<[u8; SEALED]> {
    let fields = Fields(payload);
    let nonce = match fields.has(tag::IV_COUNTER_NONCE) {
        true => fields.bytes(tag::IV_COUNTER_NONCE)?,
        false => nonce,
    };
    let (tag, data) = (fields.bytes(tag::AUTHENTICATED_ENCRYPTION_TAG)?, fields.bytes(tag::DATA)?);
    let fits = nonce.len() == NONCE && tag.len() == TAG && data.len() == 32;
    fits.then(|| [nonce, tag, data].concat().try_into().expect("it has the length"))
}

pub(crate) fn decrypt<'b>(id: &'b str, sealed: &'b [u8; SEALED]) -> Payload<'b> {
    let (nonce, rest) = sealed.split_at(NONCE);
    let (tag, data) = rest.split_at(TAG);
    let bytes = |tag, bytes| Item { tag, value: Value::Bytes(bytes) };
    let data =
        [bytes(tag::DATA, data), bytes(tag::IV_COUNTER_NONCE, nonce), bytes(tag::AUTHENTICATED_ENCRYPTION_TAG, tag)];
    [identifier(id), gcm()].into_iter().chain(data).collect()
}

/// The key that a server has decrypted.
pub(crate) fn read_decrypted(payload: &[Item<'_>]) -> Option<Secret32> {
    secret(Fields(payload).bytes(tag::DATA)?)
}

pub(crate) fn get(id: &str) -> Payload<'_> {
    vec![identifier(id), enumeration(tag::KEY_FORMAT_TYPE, RAW)]
}

/// The key that a server gives away: 32 bytes, as they are.
pub(crate) fn read_key(payload: &[Item<'_>]) -> Option<Secret32> {
    let fields = Fields(payload);
    let block = fields.structure(tag::SYMMETRIC_KEY)?.structure(tag::KEY_BLOCK)?;
    let raw = fields.enumeration(tag::OBJECT_TYPE) == Some(SYMMETRIC_KEY)
        && block.enumeration(tag::KEY_FORMAT_TYPE) == Some(RAW)
        && !block.has(tag::KEY_WRAPPING_DATA);
    secret(block.structure(tag::KEY_VALUE).filter(|_| raw)?.bytes(tag::KEY_MATERIAL)?)
}

fn secret(bytes: &[u8]) -> Option<Secret32> {
    (bytes.len() == 32).then(|| Secret32::filled(|secret| secret.copy_from_slice(bytes)))
}

/// AES-256-GCM with a whole tag.
fn gcm() -> Item<'static> {
    let parameters = vec![
        enumeration(tag::BLOCK_CIPHER_MODE, GCM),
        enumeration(tag::CRYPTOGRAPHIC_ALGORITHM, AES),
        Item { tag: tag::TAG_LENGTH, value: Value::Integer(TAG as i32) },
    ];
    Item { tag: tag::CRYPTOGRAPHIC_PARAMETERS, value: Value::Structure(parameters) }
}

fn identifier(id: &str) -> Item<'_> {
    Item { tag: tag::UNIQUE_IDENTIFIER, value: Value::Text(id) }
}

fn enumeration(tag: u32, value: u32) -> Item<'static> {
    Item { tag, value: Value::Enumeration(value) }
}

/// Attributes by their tags, and by the names that they have before version 2.
const NAMES: [(u32, &str); 4] = [
    (tag::CRYPTOGRAPHIC_ALGORITHM, "Cryptographic Algorithm"),
    (tag::CRYPTOGRAPHIC_LENGTH, "Cryptographic Length"),
    (tag::CRYPTOGRAPHIC_USAGE_MASK, "Cryptographic Usage Mask"),
    (tag::STATE, "State"),
];

// Values (KMIP 1.4, 9.1.3.2; KMIP 2.1, 11).
const AES: u32 = 3;
const GCM: u32 = 9;
const OPERATIONS: u32 = 1;
const RAW: u32 = 1;
const SYMMETRIC_KEY: u32 = 2;
const ENCRYPT: i32 = 4;
const DECRYPT: i32 = 8;
pub(crate) const PRE_ACTIVE: u32 = 1;
pub(crate) const ACTIVE: u32 = 2;
/// Reasons that a key is not there: Item Not Found, Object Archived, Object Destroyed, Object Not Found.
pub(crate) const GONE: [u32; 4] = [0x01, 0x0D, 0x36, 0x37];
/// Reasons that a request is not understood: Invalid Message, Unsupported Protocol Version.
pub(crate) const NOT_UNDERSTOOD: [u32; 2] = [0x04, 0x3F];
