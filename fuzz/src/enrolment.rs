//! What enrolment takes from others: tokens, requests for certificates, and what answers those; what guests say
//! of themselves; and names of keys.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use data_encoding::BASE64;
use gambeson_launch::authority::{Certified, Request, Token};
use gambeson_launch::identities::Identification;
use gambeson_pkcs11::Uri;
use serde_json::json;

pub fn enrolment(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(token) = Token::parse(text)
    {
        assert_eq!(*token.encode(), text.trim(), "a token is written in one way");
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(uri) = text.parse::<Uri>()
    {
        assert_eq!(uri.to_string(), text, "a URI is kept as it was written");
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "a URI is one line of a file");
        assert!(uri.module().is_absolute() && text.starts_with(uri.name()));
    }
    if let Ok(request) = Request::decode(data) {
        again(&request);
    }
    if let Ok(certified) = Certified::decode(data) {
        let line = certified.encode();
        assert!(!line.contains('\n'), "an answer is one line");
        assert_eq!(Certified::decode(line.as_bytes()).expect("it was decoded before").encode(), line);
    }
    if let Ok(said) = Identification::decode(data) {
        let line = said.encode();
        assert!(!line.contains('\n'), "who a guest says that he is, is one line");
        assert_eq!(Identification::decode(line.as_bytes()).expect("it was decoded before").encode(), line);
    }
    // Nobody who fuzzes can sign, so what he says is signed for him.
    let (time, host) = data.split_at(data.len().min(8));
    let time = time.iter().fold(0, |time, &byte| time << 8 | u64::from(byte));
    let Ok(host) = std::str::from_utf8(host) else { return };
    let legal = host.len() <= 255 && !host.chars().any(char::is_control);
    match Request::decode(request(host, time).as_bytes()) {
        Ok(request) => {
            assert!(legal && (&*request.host, request.time) == (host, time));
            again(&request);
        }
        Err(cause) => assert!(!legal && !cause.to_string().contains('\n'), "{cause}"),
    }
}

fn again(request: &Request) {
    let line = request.encode();
    assert!(!line.contains('\n'), "a request is one line");
    assert_eq!(Request::decode(line.as_bytes()).expect("it was decoded before").encode(), line);
}

/// A request by a key that everybody knows.
pub(crate) fn request(host: &str, time: u64) -> String {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[6; 32]).expect("a seed has 32 bytes");
    let key = pair.public_key().as_ref();
    let message = [b"gambeson enrolment request 1\0", key, &time.to_be_bytes(), host.as_bytes()].concat();
    let signature = BASE64.encode(pair.sign(&message).as_ref());
    json!({ "host": host, "time": time, "key": BASE64.encode(key), "signature": signature }).to_string()
}
