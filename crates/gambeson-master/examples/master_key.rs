//! Wraps and unwraps keys by a master key: `master_key make|wrap|unwrap PLACE PASSPHRASE-FILE [FILE]`.

use std::env;
use std::fs;

use gambeson_master::{Made, MasterError, Place, make, open};
use gambeson_proto::secret::Secret32;
use zeroize::Zeroizing;

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    if let Err(error) = run(&words) {
        eprintln!("gambeson: {error}");
        std::process::exit(match error {
            MasterError::Place(_) => 64,
            MasterError::Unavailable(_) => 69,
            _ => 70,
        });
    }
}

fn run(words: &[String]) -> Result<(), MasterError> {
    let place: Place = words[1].parse()?;
    let mut ask = |_: &str| {
        let mut passphrase = Zeroizing::new(fs::read(&words[2]).ok()?);
        let length = passphrase.trim_ascii_end().len();
        passphrase.truncate(length);
        Some(passphrase)
    };
    if words[0] == "make" {
        let (key, made) = make(&place, &mut ask)?;
        println!("{}\n{}", key.name(), if made == Made::Now { "made" } else { "was there" });
        return Ok(());
    }
    let key = open(&place, &mut ask)?;
    if words[0] == "wrap" {
        fs::write(&words[3], key.wrap(b"test", &Secret32::from_bytes([7; 32]))?).unwrap();
    } else {
        assert_eq!(key.unwrap(b"test", &fs::read(&words[3]).unwrap())?, Secret32::from_bytes([7; 32]));
        println!("unwrapped");
    }
    Ok(())
}
