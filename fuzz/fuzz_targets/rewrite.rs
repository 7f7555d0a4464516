//! See `sunder_entries::rewrite`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sunder_entries::rewrite(bytes));
