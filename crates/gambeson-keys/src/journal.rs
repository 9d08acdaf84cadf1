//! Keys of a journal: a file in which a program keeps what it has computed, so that it goes on from there when it was ended.
//!
//! ```text
//! data key 32, drawn for the journal; a label wraps it in the context
//!     "gambeson journal wrap v1" | id 16 | label's version u32 | label's name
//!   ├─ HKDF-Expand, info {"gambeson journal name", 1, id} ──> naming key:  name = HMAC-SHA-256 of what an entry is of
//!   └─ HKDF-Expand, info {"gambeson journal entry", 1, id} ─> sealing key: AES-256-GCM-SIV, bound to id | name
//! ```
//! Big endian; in `info` each field stands behind its length, u16. So entries tell neither what they hold nor what they are
//! of, and none is taken for another one's, or another journal's.

use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use aws_lc_rs::hmac;
use gambeson_proto::secret::Secret32;
use zeroize::Zeroizing;

use crate::cipher;
use crate::{KeyError, Keys};

/// What names and seals the entries of one journal.
#[derive(Debug)]
pub struct JournalKeys {
    id: [u8; 16],
    naming: Secret32,
    sealing: Secret32,
}

/// A journal's data key, as its file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    /// Which version of the label has wrapped it.
    pub version: u32,
    /// The wrapping.
    pub bytes: Vec<u8>,
}

impl JournalKeys {
    /// Keys for a new journal, under the newest version of a label.
    ///
    /// # Errors
    /// As [`Keys::wrap`], and when the label is not known here.
    pub fn create(keys: &dyn Keys, label: &str, id: [u8; 16]) -> Result<(Self, WrappedKey), KeyError> {
        let version = keys.label(label)?.version;
        let data = cipher::draw().map_err(|cause| KeyError::no_random_numbers("of this process", &cause))?;
        let bytes = keys.wrap(label, version, &context(label, version, &id), &data)?;
        Ok((Self::derived(&data, id), WrappedKey { version, bytes }))
    }

    /// The keys of a journal that is there. Who goes on with it writes under its label.
    ///
    /// # Errors
    /// As [`Keys::unwrap`], and [`KeyError::MayNotWrite`] to who has the label for reading alone.
    pub fn open(keys: &dyn Keys, label: &str, id: [u8; 16], wrapped: &WrappedKey) -> Result<Self, KeyError> {
        let context = context(label, wrapped.version, &id);
        let data = keys.unwrap(label, wrapped.version, &context, &wrapped.bytes)?;
        // Whoever may wrap it may write: the wrapping itself is not needed.
        keys.wrap(label, wrapped.version, &context, &data)?;
        Ok(Self::derived(&data, id))
    }

    fn derived(data: &Secret32, id: [u8; 16]) -> Self {
        let data = Prk::new_less_safe(HKDF_SHA256, data.as_bytes());
        let expand = |label: &[u8]| {
            let info = info(label, &id);
            let info = [info.as_slice()];
            let material = data.expand(&info, HKDF_SHA256).expect("HKDF-Expand gives up to 8160 bytes");
            Secret32::filled(|key| material.fill(key).expect("it has the length of a key"))
        };
        JournalKeys { id, naming: expand(b"gambeson journal name"), sealing: expand(b"gambeson journal entry") }
    }

    /// What an entry is called that is of this.
    pub fn name(&self, of: &[u8]) -> [u8; 32] {
        assert!(!self.naming.is_wiped(), "a forked process has no keys of its parent's journal");
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.naming.as_bytes());
        hmac::sign(&key, of).as_ref().try_into().expect("HMAC-SHA-256 has 32 bytes")
    }

    /// Seals what the entry of this name holds.
    ///
    /// # Errors
    /// When the kernel gives no random numbers.
    pub fn seal(&self, name: &[u8; 32], plain: &[u8]) -> Result<Vec<u8>, KeyError> {
        let sealed = cipher::seal(&self.sealing, &self.bound(name), plain);
        sealed.map_err(|cause| KeyError::no_random_numbers("of this process", &cause))
    }

    /// What was sealed; `None`: it was not, in this journal and under this name.
    pub fn unseal(&self, name: &[u8; 32], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        cipher::open(&self.sealing, &self.bound(name), sealed)
    }

    fn bound(&self, name: &[u8; 32]) -> Vec<u8> {
        [&self.id[..], name].concat()
    }
}

fn context(label: &str, version: u32, id: &[u8; 16]) -> Vec<u8> {
    [WRAP, id, &version.to_be_bytes(), label.as_bytes()].concat()
}

fn info(label: &[u8], id: &[u8; 16]) -> Vec<u8> {
    let fields: [&[u8]; 3] = [label, &[VERSION], id];
    fields.iter().flat_map(|field| [&(field.len() as u16).to_be_bytes()[..], field].concat()).collect()
}

const WRAP: &[u8] = b"gambeson journal wrap v1";
const VERSION: u8 = 1;
