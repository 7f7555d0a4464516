//! See `sunder_entries::code`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sunder_entries::code(bytes));
