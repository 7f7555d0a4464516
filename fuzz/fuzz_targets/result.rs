//! See `sunder_entries::result`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sunder_entries::result(bytes));
