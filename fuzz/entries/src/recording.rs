//! Recordings of `perf`, as `sunder import` reads them.

use crate::file::holding;
use sunder_observe::{Event, import};

/// Imports arbitrary bytes.
///
/// # Panics
/// If the events of a recording are not those that its summary counts.
pub fn recording(bytes: &[u8]) {
    let file = holding(bytes);
    let (mut samples, mut accesses) = (0, 0);
    let read = import(file.path(), |event| match event {
        Event::Sample(_) => samples += 1,
        Event::Access { .. } => accesses += 1,
        _ => {}
    });
    if let Ok(imported) = read {
        assert_eq!((imported.samples, imported.accesses), (samples, accesses));
        let sum: u64 = imported.processes.values().sum();
        assert_eq!(sum, samples + accesses);
    }
}
