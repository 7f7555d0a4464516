//! See `sunder_entries::program`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sunder_entries::program(bytes));
