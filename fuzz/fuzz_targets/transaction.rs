//! See `sunder_entries::transaction`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sunder_entries::transaction(bytes));
