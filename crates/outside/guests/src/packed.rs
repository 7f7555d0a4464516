//! The libraries as the program carries them: compressed together, since they have much in common, or as they
//! are, where a program's start waits for them. Used by `lib.rs` alone; it must not keep what it unpacks.

use std::ops::Range;
use zstd_safe::{DCtx, InBuffer, OutBuffer};

include!(concat!(env!("OUT_DIR"), "/places.rs"));

/// The other libraries, one after another, as one frame of Zstandard.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guests.zst"));

/// The bytes of the library at one of the places above. A frame can only be unpacked from its
/// start, so what lies behind the library is left packed.
///
/// # Panics
/// If the program's own bytes are damaged.
pub fn unpack(place: Range<usize>) -> Vec<u8> {
    let mut bytes = vec![0; place.end];
    let mut to = OutBuffer::around(&mut bytes[..]);
    let mut from = InBuffer::around(PACKED);
    let mut context = DCtx::create();
    while to.pos() < to.capacity() {
        let before = (to.pos(), from.pos());
        if let Err(code) = context.decompress_stream(&mut to, &mut from) {
            let why = zstd_safe::get_error_name(code);
            panic!("a library that this program carries is damaged: {why}");
        }
        assert!(
            before != (to.pos(), from.pos()),
            "a library that this program carries is cut off"
        );
    }
    bytes.drain(..place.start);
    bytes
}
