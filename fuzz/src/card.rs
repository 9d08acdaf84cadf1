//! Cards: bytes as they are, and the same content under a right MAC.

use aws_lc_rs::{hkdf, hmac};
use gambeson_proto::identity::{CARD_LEN, Card, CardError};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const MAC_AT: usize = 56;

pub(crate) fn keys() -> JobKeys {
    JobKeys {
        job_id: [7; 16],
        job_secret: Secret32::from_bytes([1; 32]),
        policy_hash: [2; 32],
        suite: Suite::Aes256Gcm,
    }
}

/// The admission key, derived a second time as crate::key_schedule has it; the library gives it to nobody.
fn admission_bytes(keys: &JobKeys) -> [u8; 32] {
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(keys.job_secret.as_bytes());
    let mut info = Vec::new();
    for field in [&b"gambeson admission"[..], &[1], &keys.job_id] {
        info.extend(u16::try_from(field.len()).expect("a field is short").to_be_bytes());
        info.extend(field);
    }
    let info = [&info[..]];
    let okm = prk.expand(&info, hkdf::HKDF_SHA256).expect("one block of output");
    let mut key = [0; 32];
    okm.fill(&mut key).expect("32 bytes");
    key
}

pub fn card(data: &[u8]) {
    let keys = keys();
    let admission = keys.admission_key();
    match Card::decode(data, &admission) {
        // Whatever is taken is the one encoding of what it says.
        Ok(card) => assert_eq!(card.encode(&admission)[..], *data),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let mut vouched = [0; CARD_LEN];
    let len = data.len().min(MAC_AT);
    vouched[..len].copy_from_slice(&data[..len]);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &admission_bytes(&keys));
    let mac = hmac::sign(&key, &vouched[..MAC_AT]);
    vouched[MAC_AT..].copy_from_slice(&mac.as_ref()[..8]);
    match Card::decode(&vouched, &admission) {
        Ok(card) => {
            assert_eq!(card.encode(&admission), vouched);
            // Every bit is vouched for.
            let at = usize::from(data.first().copied().unwrap_or(0)) % CARD_LEN;
            vouched[at] ^= 1 << (data.len() % 8);
            assert_eq!(Card::decode(&vouched, &admission), Err(CardError::NotOfThisJob));
        }
        Err(error) => assert_eq!(error, CardError::Malformed),
    }
}
