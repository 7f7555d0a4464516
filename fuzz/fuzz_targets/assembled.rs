//! See `sunder_entries::assembled`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sunder_entries::assembled(bytes));
