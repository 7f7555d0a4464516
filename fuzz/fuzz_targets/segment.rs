//! See `sunder_entries::segment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sunder_entries::segment(bytes));
