#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gambeson_fuzz::kmip_response(data));
