//! See `sunder_entries::recording`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sunder_entries::recording(bytes));
