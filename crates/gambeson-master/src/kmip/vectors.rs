//! The known answers under vectors/kmip, which PyKMIP wrote (tests/vectors/kmip_messages.py).

use std::fs;
use std::path::Path;

use gambeson_proto::secret::Secret32;
use serde_json::{Value, json};

use super::message::{Operation, Unanswered, Version, request, response};
use super::operations as does;
use super::ttlv::Item;

#[test]
fn vectors_are_those_of_another_implementation() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/kmip");
    let mut cases = 0;
    for file in fs::read_dir(folder).expect("the vectors are there") {
        let path = file.expect("a directory entry").path();
        let text = fs::read_to_string(&path).expect("a readable vector");
        let case: Value = serde_json::from_str(&text).expect("a vector is JSON");
        let answer = match text_of(&case, "operation") {
            "request" => asked(&case["given"]),
            _ => read(&case["given"]),
        };
        assert_eq!(answer, case["expect"], "{}", path.display());
        cases += 1;
    }
    assert_eq!(cases, 46);
}

fn asked(given: &Value) -> Value {
    let (version, operation) = (version(&given["version"]), operation(given));
    let id = given["id"].as_str().unwrap_or_default();
    let bytes = |name| given[name].as_str().map(unhex).unwrap_or_default();
    let (nonce, sealed) = (bytes("nonce"), bytes("sealed"));
    let key = Secret32::from_bytes(bytes("key").try_into().unwrap_or_default());
    let versions: Vec<Version> = given["versions"].as_array().into_iter().flatten().map(self::version).collect();
    let payload = match operation {
        Operation::Create => does::create(version),
        Operation::Get => does::get(id),
        Operation::GetAttributes => does::attributes(version, id),
        Operation::Activate => does::activate(id),
        Operation::Query => does::query_operations(),
        Operation::DiscoverVersions => does::discover_versions(&versions),
        Operation::Encrypt => does::encrypt(id, nonce.as_slice().try_into().unwrap(), &key),
        Operation::Decrypt => does::decrypt(id, sealed.as_slice().try_into().unwrap()),
    };
    json!({ "message": hex(&request(version, operation, payload)) })
}

fn read(given: &Value) -> Value {
    let (version, operation, message) =
        (version(&given["version"]), operation(given), unhex(text_of(given, "message")));
    let mut again = Vec::new();
    Item::decode(&message).expect("it is written as KMIP is").encode(&mut again);
    assert_eq!(again, message);
    let payload = match response(&message, version, operation) {
        Ok(payload) => payload,
        Err(Unanswered::Failed { reason, words }) => return json!({ "refused": { "reason": reason, "words": words } }),
        Err(Unanswered::Malformed(_)) => return json!({ "malformed": true }),
    };
    json!({ "read": match operation {
        Operation::Create | Operation::Activate => json!(does::read_identifier(&payload)),
        Operation::Get => json!(does::read_key(&payload).map(|key| hex(key.as_bytes()))),
        Operation::GetAttributes => {
            let read = does::read_attributes(version, &payload).expect("it has attributes");
            json!({ "algorithm": read.algorithm, "length": read.length, "usage": read.usage, "state": read.state })
        }
        Operation::Query => json!(does::read_operations(&payload)),
        Operation::DiscoverVersions => {
            json!(does::read_versions(&payload).iter().map(|version| [version.0, version.1]).collect::<Vec<_>>())
        }
        Operation::Encrypt => json!(does::read_encrypted(&payload, &[0; does::NONCE]).map(|sealed| hex(&sealed))),
        Operation::Decrypt => json!(does::read_decrypted(&payload).map(|key| hex(key.as_bytes()))),
    }})
}

fn operation(given: &Value) -> Operation {
    match text_of(given, "operation") {
        "Create" => Operation::Create,
        "Get" => Operation::Get,
        "GetAttributes" => Operation::GetAttributes,
        "Activate" => Operation::Activate,
        "Query" => Operation::Query,
        "DiscoverVersions" => Operation::DiscoverVersions,
        "Encrypt" => Operation::Encrypt,
        "Decrypt" => Operation::Decrypt,
        other => panic!("{other}"),
    }
}

fn version(value: &Value) -> Version {
    let number = |at: usize| value[at].as_i64().and_then(|number| number.try_into().ok()).expect("a number");
    Version(number(0), number(1))
}

fn text_of<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} is text"))
}

fn unhex(digits: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a hexadecimal digit") as u8;
    digits.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
