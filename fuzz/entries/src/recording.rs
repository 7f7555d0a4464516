//! Recordings of `perf`, as `sunder import` reads them.

use crate::file::holding;
use sunder_observe::{Event, import};

/// Imports arbitrary bytes.
///
/// # Panics
/// If a recording that was read has other events than it says.
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
