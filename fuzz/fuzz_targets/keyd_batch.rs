#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gambeson_fuzz::keyd_batch(data));
