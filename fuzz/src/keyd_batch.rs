//! Batches: what a standby of the key service follows its primary by.

pub fn keyd_batch(data: &[u8]) {
    gambeson_keyd::database::fuzzing::batch(data);
}
