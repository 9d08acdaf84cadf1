//! How long sealing and opening one share takes, beside AES-256-GCM under a key that stays expanded:
//! `cargo run --release -p gambeson-proto --example share_speed`.
//!
//! The figures are the least of many rounds, of all ways in turn, on one core and from its caches.

use std::hint::black_box;
use std::time::Instant;

use gambeson_proto::aead::Context;
use gambeson_proto::file::entry::Entry;
use gambeson_proto::file::share::Write;
use gambeson_proto::file::{DataKey, FileSuite, KeyId};
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const ROUNDS: usize = 200;

fn main() {
    let key = KeyId { file: [1; 16], region: 0, epoch: 0 };
    let keys = FileSuite::ALL.map(|suite| DataKey::new(suite, &Secret32::from_bytes([2; 32]), key));
    let plain = Context::new(Suite::Aes256Gcm, &[2; 32], [3; 12]);
    println!("{:>9}  {:>28} {:>12} {:>9}", "bytes", "suite", "seal us", "open us");
    for len in [4 << 10, 16 << 10, 64 << 10, 1 << 20] {
        let (from, mut to) = (vec![0x5a; len], vec![0; len]);
        let mut least = [[f64::INFINITY; 2]; 4];
        // Enough of each for the clock, and all in turn, so that no way has the better moments.
        let times = ((4 << 20) / len).clamp(1, 100);
        for round in 0..ROUNDS as u64 {
            let tag = plain.seal(0, &[0; 60], &from, &mut to);
            let sealed = to.clone();
            time(&mut least[0][0], times, || black_box(plain.seal(round, &[0; 60], &from, &mut to)[0]));
            time(&mut least[0][1], times, || plain.open(0, &[0; 60], &sealed, &tag, &mut to).is_ok() as u8);
            for (least, key) in least[1..].iter_mut().zip(&keys) {
                let write = Write { nonce: [round as u8; 24], block: round, generation: 1 };
                let entry: Entry = key.seal(&write, &from, &mut to);
                let sealed = to.clone();
                time(&mut least[0], times, || key.seal(&write, &from, &mut to).tag[0]);
                time(&mut least[1], times, || key.open(&entry, round, &sealed, &mut to).is_ok() as u8);
            }
        }
        let names =
            ["aes-256-gcm, one key".to_owned()].into_iter().chain(FileSuite::ALL.map(|suite| suite.to_string()));
        for (name, [seal, open]) in names.zip(least) {
            let percent = (seal / least[0][0] - 1.0) * 100.0;
            println!("{len:>9}  {name:>28} {seal:>12.2} {open:>9.2}  {percent:>+6.1} %");
        }
    }
}

fn time(least: &mut f64, times: usize, mut work: impl FnMut() -> u8) {
    let start = Instant::now();
    for _ in 0..times {
        black_box(work());
    }
    *least = least.min(start.elapsed().as_secs_f64() * 1e6 / times as f64);
}
