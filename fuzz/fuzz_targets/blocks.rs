//! See `sunder_entries::blocks`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sunder_entries::blocks(bytes));
