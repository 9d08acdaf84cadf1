//! Where keys are in memory: on pages that a fork wipes and a core dump leaves out while they are held, and nowhere after.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use gambeson_keys::{Cost, Keys, Passphrase, Protection, Store, read_export, write_export};
use serde_json::Value;

/// The label's wrapping key and seed in vectors/key_file/label.json, and its data key: runs of bytes from these on.
/// They are compared byte by byte as they come, so that this test holds none of them itself.
const RUNS: [u8; 3] = [0x20, 0x40, 0xB0];

/// Places where such a run of 32 bytes lies in this process's writable memory: whether it is protected there.
fn copies() -> Vec<(u8, bool)> {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut found = Vec::new();
    let mut range = None;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let bounds = [from, to].map(|digits| u64::from_str_radix(digits, 16));
            let is_writable = words.next().is_some_and(|modes| modes.starts_with("rw"));
            range = if let ([Ok(from), Ok(to)], true) = (bounds, is_writable) { Some((from, to)) } else { None };
        } else if let ("VmFlags:", Some((from, to))) = (first, range) {
            let flags: Vec<_> = words.collect();
            let is_protected = flags.contains(&"dd") && flags.contains(&"wf");
            let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
            if memory.read_exact_at(&mut bytes, from).is_ok() {
                found.extend(runs(&bytes).map(|run| (run, is_protected)));
            }
            // What was read is not to be found next time.
            bytes.iter_mut().for_each(|byte| *byte = 0);
            std::hint::black_box(&bytes);
        }
    }
    found
}

fn runs(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let starts = bytes.windows(32).filter(|window| RUNS.contains(&window[0]));
    starts.filter(|window| window.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1))).map(|window| window[0])
}

#[test]
fn keys_are_on_protected_pages_and_then_nowhere() {
    let place = std::env::temp_dir().join(format!("gambeson-key-memory-{}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).unwrap();
    // The vector has its keys inside a sealed file; what else it holds of runs is in hexadecimal.
    let vector = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/key_file/label.json");
    let vector: Value = serde_json::from_str(&fs::read_to_string(vector).unwrap()).unwrap();
    let bytes = |name: &str| -> Vec<u8> {
        let digits = vector["given"][name].as_str().unwrap();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    };
    let passphrase = |text: &str| Passphrase::new(text.as_bytes().to_vec().into());
    fs::write(place.join("export"), bytes("file")).unwrap();
    assert_eq!(copies(), [], "what is sealed is nothing to find");

    let export = read_export(&place.join("export"), || Some(passphrase("correct horse"))).unwrap();
    let mut store = Store::create(&place.join("keys"), Protection::KeyFile("master-key".into())).unwrap();
    store.change(|ring| ring.adopt(&export, &ring.compare(&export))).unwrap();
    write_export(&place.join("again"), &export, &passphrase("something else"), Cost::new(64, 1, 1).unwrap()).unwrap();
    drop(export);
    drop(store.for_job());
    let keys = Store::open(&place.join("keys"), &mut |_| None).unwrap().into_keys();
    drop(store);
    let unwrapped = keys.unwrap("clinical", 1, &bytes("context"), &bytes("wrapped")).unwrap();
    keys.wrap("clinical", 1, b"", &unwrapped).unwrap();
    keys.sign("clinical", 1, b"").unwrap();
    let held = copies();
    assert!(RUNS.iter().all(|run| held.contains(&(*run, true))), "{held:02x?}");
    assert!(held.iter().all(|(_, is_protected)| *is_protected), "{held:02x?}");
    drop((unwrapped, keys));
    assert_eq!(copies(), []);
    fs::remove_dir_all(&place).unwrap();
}
