//! Recordings of `perf`, as `sunder import` reads them. Arbitrary bytes are no compressed data, so a
//! recording from a pipe is read a second time with its records compressed.

use crate::file::holding;
use sunder_observe::{Event, import};

/// Bytes of the header of a recording from a pipe, and of a record.
const PIPE: usize = 16;
const RECORD: usize = 8;

/// Records from this kind on are perf's own, which it does not compress.
const OWN: u32 = 64;
/// Ends a round of records. One stands before the compressed ones, because the reader of the format
/// takes the first record as it is.
const ROUND: u32 = 68;
const COMPRESSED: u32 = 81;

/// Imports arbitrary bytes.
///
/// # Panics
/// If the events of a recording are not those that its summary counts, or are others when it is
/// compressed.
pub fn recording(bytes: &[u8]) {
    let plain = imported(bytes);
    if let Some(packed) = packed(bytes) {
        let packed = imported(&packed);
        if let (Some(plain), Some(packed)) = (plain, packed) {
            assert_eq!(plain, packed);
        }
    }
}

/// How many samples and accesses a recording has; `None` if it is refused.
fn imported(bytes: &[u8]) -> Option<(u64, u64)> {
    let file = holding(bytes);
    let (mut samples, mut accesses) = (0, 0);
    let read = import(file.path(), |event| match event {
        Event::Sample(_) => samples += 1,
        Event::Access { .. } => accesses += 1,
        _ => {}
    });
    let imported = read.ok()?;
    assert_eq!((imported.samples, imported.accesses), (samples, accesses));
    let sum: u64 = imported.processes.values().sum();
    assert_eq!(sum, samples + accesses);
    Some((samples, accesses))
}

/// The recording from a pipe with the kernel's records compressed; `None` if it is none, or if a
/// record is not whole.
fn packed(bytes: &[u8]) -> Option<Vec<u8>> {
    let (header, mut rest) = bytes.split_at_checked(PIPE)?;
    if !header.starts_with(b"PERFILE2") || header[8..] != (PIPE as u64).to_le_bytes() {
        return None;
    }
    let (mut own, mut kernel) = (header.to_vec(), Vec::new());
    while let Some((head, _)) = rest.split_first_chunk::<RECORD>() {
        let [k0, k1, k2, k3, _, _, s0, s1] = *head;
        let size = usize::from(u16::from_le_bytes([s0, s1]));
        if size < RECORD {
            return None;
        }
        let (record, after) = rest.split_at_checked(size)?;
        let of_perf = u32::from_le_bytes([k0, k1, k2, k3]) >= OWN;
        let to = if of_perf { &mut own } else { &mut kernel };
        to.extend(record);
        rest = after;
    }
    own.extend(record(ROUND, &[])?);
    let mut data = vec![0; zstd_safe::compress_bound(kernel.len())];
    let length = zstd_safe::compress(&mut data[..], &kernel, 1).ok()?;
    own.extend(record(COMPRESSED, &data[..length])?);
    Some(own)
}

/// A record with this body; `None` if that is too long for one.
fn record(kind: u32, body: &[u8]) -> Option<Vec<u8>> {
    let size = u16::try_from(RECORD + body.len()).ok()?;
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend([0; 2]);
    bytes.extend(size.to_le_bytes());
    bytes.extend(body);
    Some(bytes)
}
