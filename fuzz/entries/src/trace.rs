//! Traces. Their blocks have checksums, which arbitrary bytes do not match. So there is a second
//! entry, whose input is the contents of the blocks.

use crate::file::holding;
use crate::input::Input;
use sunder_trace::block::{BlockHeader, Kind};
use sunder_trace::craft::Crafted;
use sunder_trace::read::{Kinds, Piece, Pieces};
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

/// Makes a trace of blocks with arbitrary headers and payloads and valid checksums, and reads it, also
/// in the orders of replays. It begins with a sound header, without which no trace is opened.
///
/// # Panics
/// As [`trace`], and if the orders differ in how many events they have.
pub fn blocks(bytes: &[u8]) {
    let written = written(bytes);
    trace(&written);
    let file = holding(&written);
    let Ok(trace) = Trace::open(file.path()) else {
        return;
    };
    let all = trace.events(Filter::default()).take(MOST).count();
    let in_pieces = count(trace.pieces(Kinds::ALL));
    let in_parallel = count(trace.pieces_in_parallel(Kinds::ALL));
    let canonical = count(trace.pieces_in_canonical_order(Kinds::ALL));
    assert_eq!((in_pieces, in_parallel, canonical), (all, all, all));
}

/// The number of events, up to [`MOST`].
fn count(mut pieces: Pieces<'_>) -> usize {
    let mut found = 0;
    while found < MOST
        && let Some(piece) = pieces.next()
    {
        found += match piece {
            Piece::Accesses(turns) => turns.lanes() * turns.rounds(),
            Piece::Event(_) => 1,
        };
    }
    found.min(MOST)
}

/// The bits of a block's first byte that say that its payload is compressed, as it should be or as it
/// is in the input, with any size.
const COMPRESSED: u8 = 0x80;
const AS_IT_IS: u8 = 0x40;

fn written(bytes: &[u8]) -> Vec<u8> {
    let mut input = Input(bytes);
    let mut file = Crafted::new();
    while !input.is_empty() {
        let kind = input.byte();
        let length = input.number(2) as usize;
        let numbers = [(); 4].map(|()| input.extended(1, 4) as u32);
        let times = [(); 3].map(|()| input.extended(2, 8));
        let unpacked = input.number(2) as u32;
        let payload = input.take(length);
        let as_it_is = kind & COMPRESSED != 0 && kind & AS_IT_IS != 0;
        let header = BlockHeader {
            kind: KINDS.get(usize::from(kind & 7)).copied(),
            compressed: as_it_is,
            stored: payload.len() as u32,
            unpacked: if as_it_is {
                unpacked
            } else {
                payload.len() as u32
            },
            thread: numbers[0],
            sequence: numbers[1],
            count: numbers[2],
            tid: numbers[3],
            first: times[0],
            last: times[0].saturating_add(times[1]),
            clock: times[2],
        };
        if kind & COMPRESSED != 0 && !as_it_is {
            file.packed_as(header, payload);
        } else {
            file.block(header, payload);
        }
    }
    file.bytes().to_vec()
}
