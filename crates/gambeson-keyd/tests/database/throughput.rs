//! How many gets in a second; printed, and asserted by nobody.

use std::env;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Folder, create, fresh, get, open, person};

#[test]
fn gets_with_a_row_each() {
    let seconds = env::var("GAMBESON_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(0.3);
    let folder = Folder::new();
    let database = fresh(&folder);
    for label in 0..16 {
        create(&database, &format!("label{label}")).unwrap();
    }
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    thread::scope(|scope| {
        for number in 0..64 {
            let (database, stop, done) = (&database, &stop, &done);
            scope.spawn(move || {
                let (label, ann) = (format!("label{}", number % 16), person("ann"));
                while !stop.load(Ordering::Relaxed) {
                    get(database, &label, &ann).unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
    });
    let (gets, elapsed) = (done.load(Ordering::Relaxed), begun.elapsed().as_secs_f64());
    println!("{:.0} logged gets/s with 64 threads", gets as f64 / elapsed);
    drop(database);
    let begun = Instant::now();
    let rows = open(&folder).unwrap().tail().number;
    let elapsed = begun.elapsed().as_secs_f64();
    println!("opened, {rows} rows verified, in {elapsed:.2} s: {:.2} s per million", elapsed / rows as f64 * 1e6);
}
