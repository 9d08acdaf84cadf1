//! Key files: what a store, an export and a job's directory hold.

pub fn key_file(data: &[u8]) {
    gambeson_keys::fuzzing::key_file(data);
}
