//! The known-answer vectors under vectors/master_key, which a second implementation wrote (tests/vectors).

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use gambeson_master::{MasterError, Place, open};
use serde_json::{Value, json};

#[test]
fn vectors_of_master_keys_in_files() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/master_key");
    let file = std::env::temp_dir().join(format!("gambeson-master-vectors-{}", std::process::id()));
    let mut cases = 0;
    for case in fs::read_dir(&directory).expect("the vectors are there") {
        let path = case.expect("a directory entry").path();
        let text = fs::read_to_string(&path).expect("a readable vector");
        let case: Value = serde_json::from_str(&text).expect("a vector is JSON");
        let _ = fs::remove_file(&file);
        let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).unwrap();
        made.write_all(&bytes(&case["given"], "file")).unwrap();
        let answer = match unwrapped(&file, &case["given"]) {
            Ok(key) => json!({ "key": key }),
            Err(MasterError::Refused(_)) => json!({ "refused": "Refused" }),
            Err(MasterError::NotWrappedByIt(_)) => json!({ "refused": "NotWrappedByIt" }),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(answer, case["expect"], "{}", path.display());
        cases += 1;
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(cases, 9);
}

fn unwrapped(file: &Path, given: &Value) -> Result<String, MasterError> {
    let place: Place = format!("file:{}", file.display()).parse()?;
    let key = open(&place, &mut |_| Some(given["passphrase"].as_str().unwrap().as_bytes().to_vec().into()))?;
    let key = key.unwrap(&bytes(given, "context"), &bytes(given, "wrapped"))?;
    Ok(key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn bytes(given: &Value, name: &str) -> Vec<u8> {
    let digits = given[name].as_str().expect("it is text").as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a hexadecimal digit") as u8;
    digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
