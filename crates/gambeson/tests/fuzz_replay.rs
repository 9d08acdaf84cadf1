//! The fuzz targets on any toolchain: the seeds in fuzz/corpus/ and a few thousand mutations of
//! them. A failure names the seed file and the number of its mutation; `GAMBESON_SEED=n` starts
//! the mutations elsewhere.

#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;

use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;

const MUTATIONS: u64 = 200;

fn corpus() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus"))
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }

    /// A few changes of the kinds that libFuzzer makes.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(6) {
                0 => bytes.insert(at, self.below(256) as u8),
                1 => bytes.truncate(at),
                2 => bytes.extend((0..self.below(20)).map(|_| self.below(256) as u8).collect::<Vec<_>>()),
                3 => bytes.extend_from_within(at..),
                _ if at < bytes.len() => {
                    bytes[at] = [bytes[at] ^ (1 << self.below(8)), self.below(256) as u8][self.below(2)]
                }
                _ => {}
            }
            bytes.truncate(16 << 10);
        }
    }
}

fn replay(name: &str) {
    let (_, target) = *fuzz::TARGETS.iter().find(|target| target.0 == name).expect("the target exists");
    let start = std::env::var("GAMBESON_SEED").map_or(0, |seed| seed.parse().expect("GAMBESON_SEED is a number"));
    let mut files: Vec<PathBuf> =
        fs::read_dir(corpus().join(name)).expect("every target has seeds").map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 4, "a handful of seeds");
    for file in files {
        let seed = fs::read(&file).unwrap();
        for mutation in 0..=MUTATIONS {
            let mut bytes = seed.clone();
            if mutation > 0 {
                Random(start + mutation).mutate(&mut bytes);
            }
            if let Err(cause) = catch_unwind(|| target(&bytes)) {
                eprintln!("{} failed, mutation {mutation}: {bytes:02x?}", file.display());
                std::panic::resume_unwind(cause);
            }
        }
    }
}

macro_rules! replays {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            replay(stringify!($name));
        }
    )*};
}

replays!(
    activation,
    card,
    credential,
    directory,
    endpoint,
    enrolment,
    file_entry,
    file_header,
    file_regions,
    frame,
    key_file,
    keyd_batch,
    kmip_response,
    keyd_wire,
    link_fabric,
    link_greeting,
    link_handshake,
    link_session,
    link_stranger,
    matching,
    order,
    policy,
    record,
    startpoint,
    trace
);

#[test]
#[ignore = "writes the seeds"]
fn write_seeds() {
    for (target, name, bytes) in fuzz::seeds::seeds() {
        let directory = corpus().join(target);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(name), bytes).unwrap();
    }
}
