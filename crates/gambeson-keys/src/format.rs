//! Key files: the store's own, exports, and what a job's ranks get.
//!
//! ```text
//! magic "GMBSNKEY" | version u16 | kind u8 | id 16 | serial u64 | lock | contents
//! kind: 1 store | 2 export | 3 a job's
//! lock: 0 (a job's alone)
//!     | 1 memory in KiB u32, passes u32, lanes u32, salt 16, wrapped master key 60     a passphrase
//!     | 2 path u16 length, bytes                                                       a file with the master key
//! contents: nonce 12 | sealed: body | tag 16                                           with lock 1 and 2
//!         | body | SHA-256 of all before                                               with lock 0
//! body: anchor key 32 | home u16 length, bytes | labels u16 x { name u8 length, bytes, versions u16 x { version } }
//! version: number u32 | created u64 | changed u64 | expires u64 | verifying key 32 | wrapping key 32 | u8 0, or 1 and seed 32
//! ```
//! Big endian; decoding accepts exactly what encoding produces. What is sealed is sealed by AES-256-GCM-SIV. The contents
//! are bound to all that stands before them, so nothing of a key file can be changed, taken out or put in without its
//! master key. The master key is sealed in the same way under Argon2id (RFC 9106) of passphrase and salt, bound to
//! "gambeson key file master v1" | kind | id | memory | passes | lanes | salt. Times are seconds since 1970; a lifetime of 0
//! has no end.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use gambeson_proto::policy::is_label;
use gambeson_proto::secret::Secret32;
use zeroize::Zeroizing;

use crate::cipher::{self, OVERHEAD};
use crate::passphrase::{Cost, SALT};
use crate::ring::{Entry, Ring, Version};

/// What stands in front of the contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) id: [u8; 16],
    /// How often it was written.
    pub(crate) serial: u64,
    pub(crate) lock: Lock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Store = 1,
    Export = 2,
    Job = 3,
}

/// What opens the contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Nothing does: the file is on tmpfs, and its owner's alone.
    Open,
    Passphrase {
        cost: Cost,
        salt: [u8; SALT],
        wrapped: [u8; WRAPPED],
    },
    /// The master key is in a file, beside the store or anywhere.
    KeyFile(PathBuf),
}

/// What is behind the lock.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Authenticates anchors; all zero in an export.
    pub(crate) anchor_key: Secret32,
    /// Where the store of a job is; empty otherwise.
    pub(crate) home: PathBuf,
    pub(crate) labels: Vec<Entry>,
}

/// The bytes are no key file, label or ring, or not as they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Header {
    /// What the master key is bound to.
    pub(crate) fn master_ad(kind: Kind, id: &[u8; 16], cost: &Cost, salt: &[u8; SALT]) -> Vec<u8> {
        let mut out = MASTER.to_vec();
        out.push(kind as u8);
        out.extend(id);
        passphrase(&mut out, cost, salt);
        out
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_be_bytes());
        out.push(self.kind as u8);
        out.extend(self.id);
        out.extend(self.serial.to_be_bytes());
        match &self.lock {
            Lock::Open => out.push(OPEN),
            Lock::Passphrase { cost, salt, wrapped } => {
                out.push(PASSPHRASE);
                passphrase(&mut out, cost, salt);
                out.extend(wrapped);
            }
            Lock::KeyFile(file) => {
                out.push(KEY_FILE);
                path(&mut out, file);
            }
        }
        out
    }

    /// Reads what a key file begins with, and says how long that is.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let mut reader = Reader(bytes);
        if reader.array()? != MAGIC || u16::from_be_bytes(reader.array()?) != VERSION {
            return Err(Malformed);
        }
        let kind = match reader.byte()? {
            1 => Kind::Store,
            2 => Kind::Export,
            3 => Kind::Job,
            _ => return Err(Malformed),
        };
        let (id, serial) = (reader.array()?, reader.number()?);
        let lock = match (reader.byte()?, kind) {
            (OPEN, Kind::Job) => Lock::Open,
            (PASSPHRASE, Kind::Store | Kind::Export) => Lock::Passphrase {
                cost: Cost::decode(&reader.array()?).ok_or(Malformed)?,
                salt: reader.array()?,
                wrapped: reader.array()?,
            },
            (KEY_FILE, Kind::Store) => Lock::KeyFile(reader.path()?),
            _ => return Err(Malformed),
        };
        Ok((Header { kind, id, serial, lock }, bytes.len() - reader.0.len()))
    }
}

/// A whole key file whose contents a master key seals.
pub(crate) fn seal(header: &Header, master: &Secret32, contents: &Contents) -> Result<Vec<u8>, getrandom::Error> {
    let mut file = header.encode();
    let sealed = cipher::seal(master, &file, &contents.encode())?;
    file.extend(sealed);
    Ok(file)
}

/// The contents of a key file whose header has this length.
pub(crate) fn open(file: &[u8], header: usize, master: &Secret32) -> Result<Contents, Malformed> {
    let (header, sealed) = file.split_at_checked(header).ok_or(Malformed)?;
    Contents::decode(&cipher::open(master, header, sealed).ok_or(Malformed)?)
}

/// A whole key file in clear, for a directory in memory that is its owner's alone.
pub(crate) fn lay_open(header: &Header, contents: &Contents) -> Zeroizing<Vec<u8>> {
    let (start, body) = (header.encode(), contents.encode());
    // One allocation: a vector that grows leaves copies behind.
    let mut file = Zeroizing::new(Vec::with_capacity(start.len() + body.len() + DIGEST));
    file.extend_from_slice(&start);
    file.extend_from_slice(&body);
    let sum = digest(&SHA256, &file);
    file.extend_from_slice(sum.as_ref());
    file
}

/// The contents of such a file.
pub(crate) fn look_into(file: &[u8], header: usize) -> Result<Contents, Malformed> {
    let (body, sum) = file.split_last_chunk::<DIGEST>().ok_or(Malformed)?;
    if digest(&SHA256, body).as_ref() != sum {
        return Err(Malformed);
    }
    Contents::decode(body.get(header..).ok_or(Malformed)?)
}

impl Contents {
    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let room = 32 + 2 + self.home.as_os_str().len() + room(&self.labels);
        let mut out = Zeroizing::new(Vec::with_capacity(room));
        out.extend_from_slice(self.anchor_key.as_bytes());
        path(&mut out, &self.home);
        labels(&mut out, &self.labels);
        debug_assert!(out.len() <= room);
        out
    }

    fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(body);
        let contents = Contents { anchor_key: reader.secret()?, home: reader.path()?, labels: reader.labels()? };
        if reader.0.is_empty() { Ok(contents) } else { Err(Malformed) }
    }
}

impl Ring {
    /// Its labels as they stand in a key file, in clear: for an encrypted connection to who may have them.
    ///
    /// # Panics
    /// With more than [`COUNT_MAX`] labels, or versions of one.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(room(&self.labels)));
        labels(&mut out, &self.labels);
        out
    }

    /// The labels in such bytes. `store` is what sentences call where they are from.
    ///
    /// # Errors
    /// When they are none.
    pub fn decode(store: String, bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let labels = reader.labels()?;
        if reader.0.is_empty() { Ok(Ring { store, labels }) } else { Err(Malformed) }
    }
}

impl Entry {
    /// A label as it stands in a key file, in clear: to be sealed.
    ///
    /// # Panics
    /// With more than [`COUNT_MAX`] versions.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(room(std::slice::from_ref(self))));
        self.encode_to(&mut out);
        out
    }

    /// The label in such bytes.
    ///
    /// # Errors
    /// When they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let entry = reader.entry()?;
        if reader.0.is_empty() { Ok(entry) } else { Err(Malformed) }
    }

    fn encode_to(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.name.len()).expect("a label's name is short"));
        out.extend_from_slice(self.name.as_bytes());
        count(out, self.versions.len());
        for version in &self.versions {
            version.encode(out);
        }
    }
}

impl Version {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_be_bytes());
        for time in [self.created, self.changed, self.expires.unwrap_or(0)] {
            out.extend_from_slice(&time.to_be_bytes());
        }
        out.extend_from_slice(&self.verifying_key);
        out.extend_from_slice(self.wrapping.as_bytes());
        out.push(u8::from(self.signing.is_some()));
        if let Some(seed) = &self.signing {
            out.extend_from_slice(seed.as_bytes());
        }
    }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn labels(&mut self) -> Result<Vec<Entry>, Malformed> {
        let labels = self.list(Reader::entry)?;
        let ascending = labels.is_sorted_by(|one, next| one.name < next.name);
        ascending.then_some(labels).ok_or(Malformed)
    }

    fn entry(&mut self) -> Result<Entry, Malformed> {
        let length = usize::from(self.byte()?);
        let name = String::from_utf8(self.bytes(length)?.to_vec()).map_err(|_| Malformed)?;
        let versions = self.list(Reader::version)?;
        let ascending = versions.is_sorted_by(|one, next| one.number < next.number);
        let is_legal = is_label(&name) && ascending && versions.first().is_some_and(|first| first.number > 0);
        is_legal.then_some(Entry { name, versions }).ok_or(Malformed)
    }

    fn version(&mut self) -> Result<Version, Malformed> {
        Ok(Version {
            number: self.count()?,
            created: self.number()?,
            changed: self.number()?,
            expires: Some(self.number()?).filter(|&time| time > 0),
            verifying_key: self.array()?,
            wrapping: self.secret()?,
            signing: match self.byte()? {
                0 => None,
                1 => Some(self.secret()?),
                _ => return Err(Malformed),
            },
        })
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        let count = u16::from_be_bytes(self.array()?);
        // No capacity is reserved from a count that nothing has vouched for.
        (0..count).map(|_| item(self)).collect()
    }

    fn path(&mut self) -> Result<PathBuf, Malformed> {
        let length = usize::from(u16::from_be_bytes(self.array()?));
        Ok(OsString::from_vec(self.bytes(length)?.to_vec()).into())
    }

    fn secret(&mut self) -> Result<Secret32, Malformed> {
        let bytes = self.bytes(32)?;
        Ok(Secret32::filled(|secret| secret.copy_from_slice(bytes)))
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    fn count(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    fn bytes(&mut self, length: usize) -> Result<&'b [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*array)
    }
}

fn passphrase(out: &mut Vec<u8>, cost: &Cost, salt: &[u8; SALT]) {
    out.extend(cost.encode());
    out.extend(salt);
}

fn path(out: &mut Vec<u8>, path: &Path) {
    count(out, path.as_os_str().len());
    out.extend_from_slice(path.as_os_str().as_bytes());
}

fn labels(out: &mut Vec<u8>, labels: &[Entry]) {
    count(out, labels.len());
    for entry in labels {
        entry.encode_to(out);
    }
}

/// What labels take at most, so that what holds them never grows and leaves copies behind.
fn room(labels: &[Entry]) -> usize {
    let versions = labels.iter().map(|entry| entry.versions.len()).sum::<usize>();
    2 + labels.len() * (1 + 0xFF + 2) + versions * VERSION_MAX
}

fn count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&u16::try_from(count).expect("labels, versions and paths are bounded before").to_be_bytes());
}

const MAGIC: [u8; 8] = *b"GMBSNKEY";
const VERSION: u16 = 1;
const MASTER: &[u8] = b"gambeson key file master v1";
const OPEN: u8 = 0;
const PASSPHRASE: u8 = 1;
const KEY_FILE: u8 = 2;
const DIGEST: usize = 32;
pub(crate) const WRAPPED: usize = 32 + OVERHEAD;
const VERSION_MAX: usize = 4 + 3 * 8 + 32 + 32 + 1 + 32;
/// Labels, and versions of one, that fit.
pub const COUNT_MAX: usize = 0xFFFF;
