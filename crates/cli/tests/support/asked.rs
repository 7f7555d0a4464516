//! The allocations that `tests/programs/aligned.cpp` requests, for both ways of recording it.

use sunder_trace::{Event, What};

/// Sizes and alignments, in the order of the program. `memalign` rounds 48 up to a power of two; 1
/// stands for no request beyond the ABI's 16 bytes.
const ASKED: [(u64, u64); 10] = [
    (1001, 64),
    (1024, 256),
    (1003, 64),
    (1004, 4096),
    (1005, 4096),
    (1006, 1),
    (1007, 1),
    (1008, 1),
    (1009, 1),
    (128 * 9, 128),
];

/// Compares the recorded allocations with them.
pub fn check(events: &[Event]) {
    let mut found = Vec::new();
    for event in events {
        if let What::Allocate {
            address,
            size,
            align,
            ..
        } = event.what
            && ASKED.iter().any(|&(asked, _)| asked == size)
        {
            let align = align.expect("the recorder knows the alignment");
            assert_eq!(address.0 % align, 0, "{event:?}");
            found.push((size, align));
        }
    }
    assert_eq!(found, ASKED);
}
