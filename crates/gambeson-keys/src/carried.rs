//! Rings on their way: between a key service and those who ask it, and to the ranks of a job whose keys come from one.
//!
//! They have the form of a job's key file, in clear: what carries them seals them, and they are in memory alone.

use gambeson_proto::secret::Secret32;
use zeroize::Zeroizing;

use crate::KeyError;
use crate::format::{self, Contents, Header, Kind, Lock};
use crate::ring::Ring;

impl Ring {
    /// The ring with its store's name, in clear.
    pub fn carry(&self) -> Zeroizing<Vec<u8>> {
        let header = Header { kind: Kind::Job, id: [0; 16], serial: 0, lock: Lock::Open };
        let labels = self.labels.clone();
        let contents = Contents { anchor_key: Secret32::from_bytes([0; 32]), home: (&self.store).into(), labels };
        format::lay_open(&header, &contents)
    }

    /// The ring that was carried; sentences call its store so from here on.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn carried(store: &str, bytes: &[u8]) -> Result<Self, KeyError> {
        let contents = Header::decode(bytes).ok().filter(|(header, _)| header.kind == Kind::Job);
        let contents = contents.and_then(|(_, length)| format::look_into(bytes, length).ok());
        let contents = contents.ok_or_else(|| KeyError::altered(store, "a ring of labels"))?;
        Ok(Ring { store: store.to_owned(), labels: contents.labels })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_arrives_as_it_was() {
        let mut ring = Ring::new("keyd://h1".to_owned(), []);
        ring.create("clinical", None).unwrap();
        ring.create("a", Some(7)).unwrap();
        let bytes = ring.carry();
        let arrived = Ring::carried("there", &bytes).unwrap();
        assert_eq!(arrived.labels().len(), 2);
        assert!(arrived.entry("clinical").unwrap().newest().is_same(ring.entry("clinical").unwrap().newest()));
        for bit in (0..bytes.len() * 8).step_by(5) {
            let mut altered = bytes.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            // A length that says more labels than there are is none either.
            assert!(Ring::carried("there", &altered).is_err(), "bit {bit}");
        }
    }
}
