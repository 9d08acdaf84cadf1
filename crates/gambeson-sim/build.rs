//! Tells the crate what its sources are, so that results of other sources are not taken for its own.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Asks for runs and judges them, and changes none; but the load that it makes is part of runs.
const ASIDE: [&str; 1] = ["src/reproduce"];
const BUT: [&str; 1] = ["src/reproduce/request_reply.rs"];

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo names the folder"));
    let mut files = Vec::new();
    list(&root, Path::new("src"), &mut files)?;
    files.sort();
    let mut digest = Fnv(0xcbf2_9ce4_8422_2325);
    for name in &files {
        let aside = ASIDE.iter().any(|folder| name.starts_with(folder)) && !BUT.contains(&name.as_str());
        if name.ends_with(".rs") && !aside && !name.ends_with("/tests.rs") {
            digest.add(name.as_bytes());
            digest.add(&fs::read(root.join(name))?);
        }
    }
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rustc-env=GAMBESON_SIM_SOURCES={:016x}", digest.0);
    Ok(())
}

/// The files below a folder, by their names from the root on, with `/` on every system.
fn list(root: &Path, folder: &Path, files: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list(root, &name, files)?;
        } else {
            files.push(name.to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(())
}

/// Fowler, Noll and Vo's hash in its 64-bit form 1a, which tells sources apart; nobody makes equal ones on purpose.
struct Fnv(u64);

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        // The length first, so that no two lists of files run together into the same bytes.
        for &byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
