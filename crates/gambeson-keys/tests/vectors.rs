//! The known-answer vectors under vectors/key_file, which a second implementation wrote (tests/vectors).

use std::fs;
use std::path::{Path, PathBuf};

use gambeson_keys::{
    Entry, JournalKeys, KeyError, KeyRing, Keys, Passphrase, Protection, Ring, Store, WrappedKey, read_export,
};
use serde_json::{Value, json};

#[test]
fn exports() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/key_file");
    let mut cases = 0;
    for file in fs::read_dir(&directory).expect("the vectors are there") {
        let path = file.expect("a directory entry").path();
        let text = fs::read_to_string(&path).expect("a readable vector");
        let case: Value = serde_json::from_str(&text).expect("a vector is JSON");
        assert_eq!(answer(&case), case["expect"], "{}", path.display());
        cases += 1;
    }
    assert_eq!(cases, 17);
}

fn answer(case: &Value) -> Value {
    let given = &case["given"];
    let place = std::env::temp_dir().join(format!("gambeson-key-vectors-{}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).unwrap();
    let file = place.join("export");
    fs::write(&file, bytes(given, "file")).unwrap();
    let passphrase = Passphrase::new(text(given, "passphrase").as_bytes().to_vec().into());
    let answer = match read_export(&file, || Some(passphrase)) {
        Ok(ring) if text(case, "operation") == "open export" => {
            json!({ "labels": ring.labels().iter().map(label).collect::<Vec<_>>() })
        }
        Ok(ring) if text(case, "operation") == "use label" => use_label(&keys(place.join("store"), &ring), given),
        Ok(ring) => open_journal_entry(&keys(place.join("store"), &ring), given),
        Err(error) => refused(&error),
    };
    fs::remove_dir_all(&place).unwrap();
    answer
}

fn keys(place: PathBuf, ring: &Ring) -> KeyRing {
    let mut store = Store::create(&place, Protection::KeyFile("master-key".into())).unwrap();
    store.change(|held| held.adopt(ring, &held.compare(ring))).unwrap();
    store.into_keys()
}

fn version(given: &Value) -> u32 {
    given["version"].as_u64().expect("a number").try_into().unwrap()
}

fn use_label(keys: &KeyRing, given: &Value) -> Value {
    let (label, version) = (text(given, "label"), version(given));
    let context = bytes(given, "context");
    match keys.unwrap(label, version, &context, &bytes(given, "wrapped")) {
        Ok(key) => {
            let signature = keys.sign(label, version, &context).map(|signature| hex(&signature)).ok();
            json!({ "key": hex(key.as_bytes()), "signature": signature })
        }
        Err(error) => refused(&error),
    }
}

fn open_journal_entry(keys: &KeyRing, given: &Value) -> Value {
    let wrapped = WrappedKey { version: version(given), bytes: bytes(given, "wrapped") };
    let id = bytes(given, "id").try_into().expect("16 bytes");
    match JournalKeys::open(keys, text(given, "label"), id, &wrapped) {
        Ok(keys) => {
            let name = keys.name(&bytes(given, "of"));
            let plain = keys.unseal(&name, &bytes(given, "sealed")).map(|plain| hex(&plain));
            json!({ "name": hex(&name), "plain": plain })
        }
        Err(error) => refused(&error),
    }
}

fn label(entry: &Entry) -> Value {
    let versions = entry.versions().iter().map(|version| {
        json!({
            "number": version.number,
            "created": version.created,
            "changed": version.changed,
            "expires": version.expires,
            "verifying_key": hex(&version.verifying_key),
            "may_write": version.may_write(),
        })
    });
    json!({ "name": entry.name, "versions": versions.collect::<Vec<_>>() })
}

fn refused(error: &KeyError) -> Value {
    let reason = match error {
        KeyError::NoExport { .. } => "NoExport",
        KeyError::WrongPassphrase { .. } => "WrongPassphrase",
        KeyError::Altered { .. } => "Altered",
        KeyError::WrongWrapping { .. } => "WrongWrapping",
        KeyError::MayNotWrite { .. } => "MayNotWrite",
        other => panic!("{other}"),
    };
    json!({ "refused": reason })
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} is text"))
}

fn bytes(value: &Value, name: &str) -> Vec<u8> {
    let digits = text(value, name).as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a hexadecimal digit") as u8;
    digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
