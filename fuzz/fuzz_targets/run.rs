//! See `sunder_entries::run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sunder_entries::run(bytes));
