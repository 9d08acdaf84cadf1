//! Staged code and messages of several buffers.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use gambeson_proto::frame::{Frame, PAD, header, padding};
use gambeson_proto::staging::Staged;
use gambeson_proto::startpoint::{Voucher, key_hash};
use serde_json::{Value, json};

use super::{array, bytes, hex, number, refused, text};

fn code(given: &Value) -> Staged<'_> {
    let version = number(given, "version");
    Staged { job: array(given, "job"), stage: text(given, "stage"), version, hash: array(given, "hash") }
}

pub(super) fn stage(given: &Value) -> Value {
    let key = Ed25519KeyPair::from_seed_unchecked(&array::<32>(given, "owner_seed")).expect("32 bytes");
    let public: [u8; 32] = key.public_key().as_ref().try_into().expect("32 bytes");
    let signature = key.sign(&code(given).message());
    json!({ "owner": hex(&key_hash(&public)), "key": hex(&public), "signature": hex(signature.as_ref()) })
}

pub(super) fn staged(given: &Value) -> Value {
    let voucher = Voucher { key: array(given, "key"), signature: array(given, "signature") };
    match code(given).is_signed(&array(given, "owner"), &voucher) {
        true => json!({}),
        false => refused("Unsigned"),
    }
}

pub(super) fn write(given: &Value) -> Value {
    let buffers: Vec<Vec<u8>> = given["buffers"].as_array().expect("a list").iter().map(of_hex).collect();
    let lengths: Vec<usize> = buffers.iter().map(Vec::len).collect();
    let word = u32::try_from(number(given, "word")).expect("32 bits");
    let mut frame = header(number(given, "number"), word, &lengths);
    for (at, buffer) in buffers.iter().enumerate() {
        frame.extend(buffer);
        if at + 1 < buffers.len() {
            frame.extend(&PAD[..padding(buffer.len())]);
        }
    }
    json!({ "frame": hex(&frame) })
}

pub(super) fn read(given: &Value) -> Value {
    let data = bytes(given, "frame");
    let Some(frame) = Frame::parse(&data) else { return refused("Garbled") };
    let buffers: Vec<String> = frame.buffers.iter().map(|&(from, to)| hex(&data[from..to])).collect();
    json!({ "number": frame.number, "word": frame.word, "buffers": buffers })
}

fn of_hex(value: &Value) -> Vec<u8> {
    let digits = value.as_str().expect("digits");
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits")).collect()
}
