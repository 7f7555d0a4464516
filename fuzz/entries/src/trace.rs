//! Traces. Their blocks have checksums, which arbitrary bytes do not match. So there is a second
//! entry, whose input is the contents of the blocks.

use crate::file::holding;
use crate::input::Input;
use sunder_trace::block::{BlockHeader, Kind};
use sunder_trace::meta::Progress;
use sunder_trace::{Filter, Trace};

/// How many events of a trace are read: a few bytes may stand for a great many equal ones.
const MOST: usize = 1 << 16;

const KINDS: [Kind; 5] = [
    Kind::Header,
    Kind::Events,
    Kind::Stacks,
    Kind::Modules,
    Kind::End,
];

/// Reads arbitrary bytes as a trace.
///
/// # Panics
/// If events are not in order, or are more than the trace says.
pub fn trace(bytes: &[u8]) {
    let file = holding(bytes);
    let Ok(trace) = Trace::open(file.path()) else {
        return;
    };
    let mut ticks = 0;
    let mut count = 0;
    for event in trace.events(Filter::default()).take(MOST) {
        assert!(ticks <= event.ticks, "{ticks} before {event:?}");
        ticks = event.ticks;
        count += 1;
        assert!(trace.threads().iter().any(|t| t.index == event.thread));
    }
    let said: u64 = trace.threads().iter().map(|t| t.events).sum();
    assert!(count <= said, "{count} events of {said}");
    trace.verify();
    assert!(trace.stacks().all(|(id, _)| trace.stack(id).is_some()));
    trace.modules();
}

/// Makes a trace of blocks with arbitrary headers and payloads and valid checksums, and reads it.
pub fn blocks(bytes: &[u8]) {
    trace(&written(bytes));
}

fn written(bytes: &[u8]) -> Vec<u8> {
    let mut input = Input(bytes);
    let mut file = Progress::default().prefix().to_vec();
    while !input.is_empty() {
        let kind = input.byte();
        let length = input.number(2) as usize;
        let numbers = [(); 4].map(|()| input.byte());
        let times = [(); 3].map(|()| input.number(2));
        let unpacked = input.number(2) as u32;
        let payload = input.take(length);
        let compressed = kind & 0x80 != 0;
        let header = BlockHeader {
            kind: KINDS.get(usize::from(kind & 7)).copied(),
            compressed,
            stored: payload.len() as u32,
            unpacked: if compressed {
                unpacked
            } else {
                payload.len() as u32
            },
            thread: numbers[0].into(),
            sequence: numbers[1].into(),
            count: numbers[2].into(),
            tid: numbers[3].into(),
            first: times[0],
            last: times[0] + times[1],
            clock: times[2],
        };
        file.extend(header.encoded(payload));
        file.extend(payload);
    }
    file
}
