//! See `sunder_entries::trace`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sunder_entries::trace(bytes));
