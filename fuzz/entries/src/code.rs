//! The decoder of samples, for arbitrary code and registers.

use crate::input::Input;
use std::sync::Arc;
use sunder_access::{CodeAddress, ProcessId, ThreadId, Time};
use sunder_observe::decode::WINDOW;
use sunder_observe::{CodeRange, CodeSource, Decoded, Decoder, RawSample, Registers};

struct Fixed(Arc<CodeRange>);

impl CodeSource for Fixed {
    fn function(&mut self, _: ProcessId, _: CodeAddress) -> Option<Arc<CodeRange>> {
        Some(Arc::clone(&self.0))
    }
}

/// Decodes a sample somewhere in or beside arbitrary code, at an arbitrary address, twice.
///
/// # Panics
/// If the parts of the answer contradict each other, or the second answer differs.
pub fn code(bytes: &[u8]) {
    let mut input = Input(bytes);
    let flags = input.byte();
    let start = match flags >> 4 {
        0 => u64::MAX - input.number(2),
        1 => input.number(8),
        _ => 0x40_0000,
    };
    let ip = CodeAddress(start.wrapping_add(input.number(2) % 4096));
    let mut general = [0; 16];
    for register in &mut general {
        *register = input.number(3).wrapping_sub(1 << 20);
    }
    let entries = (0..input.byte() % 4).map(|_| CodeAddress(start.wrapping_add(input.number(2))));
    let entries = entries.collect();
    let mut range = CodeRange::new(CodeAddress(start), input.0.to_vec(), flags & 1 != 0);
    range.stable = flags & 2 != 0;
    range.tables_known = flags & 4 != 0;
    range.entries = entries;
    let sample = RawSample {
        time: Time(1),
        process: ProcessId(2),
        thread: ThreadId(3),
        cpu: 0,
        period_ns: 250_000,
        registers: Registers { general, ip },
    };
    let mut source = Fixed(Arc::new(range));
    let mut decoder = Decoder::new();
    let (mut first, mut second) = (Decoded::default(), Decoded::default());
    decoder.decode(&sample, &mut source, &mut first);
    decoder.decode(&sample, &mut source, &mut second);
    assert_eq!(first, second, "one answer from the cache, one not");
    assert_eq!(first.accesses.len(), first.distances.len());
    let near = first.near.iter().map(|n| n.distance);
    for distance in first.distances.iter().copied().chain(near) {
        assert!(distance.unsigned_abs() as usize <= WINDOW, "{distance}");
    }
    for access in &first.accesses {
        assert!((1..=64).contains(&access.width), "{access:?}");
        assert_eq!(access.thread, sample.thread);
    }
}
