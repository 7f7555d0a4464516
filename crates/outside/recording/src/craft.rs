//! Makes recordings of any bytes, with right lengths and checksums, so that tests reach what lies
//! behind these. For tests and fuzz targets alone.

use crate::step::Step;
use crate::write::head;
use crate::{MAGIC, VERSION};

/// The steps as they are before they are compressed.
///
/// # Panics
/// If one can't be written.
pub fn unpacked(steps: &[Step]) -> Vec<u8> {
    let add = |all, step| postcard::to_extend(step, all).expect("memory takes everything");
    steps.iter().fold(Vec::new(), add)
}

/// A recording of one block that unpacks to these bytes, which need not be steps.
///
/// # Panics
/// If one can't be written.
pub fn recording(unpacked: &[u8]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    file.extend(VERSION.to_le_bytes());
    let packed = zstd::bulk::compress(unpacked, 1).expect("memory takes everything");
    file.extend(head(unpacked.len(), &packed));
    file.extend(packed);
    file
}
