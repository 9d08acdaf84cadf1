//! What a key server answers, and what a master key has wrapped.

use gambeson_master::Place;
use gambeson_master::fuzzing::{answers, is_wrapping, rewritten};

pub fn kmip_response(data: &[u8]) {
    match rewritten(data) {
        Some(again) => assert_eq!(again, data, "an item is written in one way"),
        None => assert_eq!(answers(data), 0, "what is no item answers nothing"),
    }
    assert!(answers(data) <= 1, "an answer is to one request, of one version");
    assert!(!is_wrapping(data) || data.len() >= 64);
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(place) = text.parse::<Place>()
    {
        assert_eq!(place.to_string().parse::<Place>().expect("it was read before"), place);
    }
}

/// Messages that another implementation wrote, and places.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut all: Vec<_> = MESSAGES.iter().map(|&(name, case)| (name, message(case))).collect();
    all.push(("place", b"kmip://[::1]:9000/a%20key?certificate=/c.pem&key=/k.pem&authority=/a%25.pem".to_vec()));
    all.push(("wrapping", [&[1, 1, 0, 32][..], &[7; 32], &[8; 60]].concat()));
    all
}

fn message(case: &str) -> Vec<u8> {
    let case: serde_json::Value = serde_json::from_str(case).expect("a vector is JSON");
    let digits = case["given"]["message"].as_str().expect("it is an answer").as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a hexadecimal digit") as u8;
    digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

const MESSAGES: [(&str, &str); 10] = [
    ("attributes-1.4", include_str!("../../vectors/kmip/attributes-1.4.json")),
    ("attributes-2.0", include_str!("../../vectors/kmip/attributes-2.0.json")),
    ("created", include_str!("../../vectors/kmip/created-2.0.json")),
    ("decrypted", include_str!("../../vectors/kmip/decrypted-1.4.json")),
    ("encrypted", include_str!("../../vectors/kmip/encrypted-its-nonce-2.0.json")),
    ("failed", include_str!("../../vectors/kmip/failed-1.4.json")),
    ("key", include_str!("../../vectors/kmip/key-2.0.json")),
    ("key-wrapped", include_str!("../../vectors/kmip/key-wrapped-1.4.json")),
    ("operations", include_str!("../../vectors/kmip/operations-2.0.json")),
    ("versions", include_str!("../../vectors/kmip/versions-1.4.json")),
];
