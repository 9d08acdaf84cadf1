//! What the key service does with its master key, until there is one: `master_key begin|open PLACE PASSPHRASE-FILE FILE`.

use std::env;
use std::fs;

use gambeson_master::{Made, MasterError, Place, make, open};
use gambeson_proto::secret::Secret32;
use zeroize::Zeroizing;

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    if let Err((status, error)) = run(&words) {
        eprintln!("gambeson: {error}");
        std::process::exit(status);
    }
}

fn run(words: &[String]) -> Result<(), (i32, MasterError)> {
    let place: Place = words[1].parse().map_err(|error| (64, error))?;
    let mut ask = |_: &str| {
        let mut passphrase = Zeroizing::new(fs::read(&words[2]).ok()?);
        let length = passphrase.trim_ascii_end().len();
        passphrase.truncate(length);
        Some(passphrase)
    };
    let held = |error| match error {
        MasterError::Place(_) => (64, error),
        MasterError::Unavailable(_) => (69, error),
        _ => (77, error),
    };
    let used = |error| (70, error);
    let secret = Secret32::from_bytes([7; 32]);
    if words[0] == "begin" {
        let (key, made) = make(&place, &mut ask).map_err(held)?;
        fs::write(&words[3], key.wrap(b"test", &secret).map_err(used)?).unwrap();
        let when = if made == Made::Now { "made now" } else { "which was there" };
        println!("master key  {}, {when}", key.name());
        return Ok(());
    }
    let key = open(&place, &mut ask).map_err(held)?;
    assert_eq!(key.unwrap(b"test", &fs::read(&words[3]).unwrap()).map_err(used)?, secret);
    Ok(())
}
