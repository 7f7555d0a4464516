//! What is done for the objects of a saved result before anything is suspected: they will most likely be
//! moved, so the preparations need not wait. Called by `repairer`. It must not move anything.

use super::Repairer;
use sunder_access::Mapping;
use sunder_gain::gauge::Bytes;
use sunder_live::Live;
use sunder_objects::is_c_library;
use sunder_observe::proc;

impl Repairer {
    /// As soon as the program has loaded its C library, the library's way in is planned; while it has one
    /// thread, that takes a CPU from nobody. Once it has several, these are measured, once.
    pub(super) fn expect_known(&mut self, live: &mut Live) {
        let may_come = !self.chooser.known.is_empty() && !self.dry_run && self.chaos.is_none();
        if !may_come || self.expected || live.first_suspect.is_some() {
            return;
        }
        let process = live.session.process(self.process);
        let is_loaded = |m: &Mapping| m.execute && is_c_library(&m.path);
        if !process.mappings().iter().any(is_loaded) {
            return;
        }
        self.entry.foresee(self.process);
        self.entry.plan(self.process);
        if !self.entry.is_planned() || process.threads.count() < 2 {
            return;
        }
        self.expected = true;
        let Ok(threads) = proc::listed_threads(self.process) else {
            return;
        };
        // Which bytes are theirs is not known yet.
        let only_measured = |thread| Bytes {
            thread,
            original: 0,
            at: 0,
            len: 0,
        };
        let bytes = threads.into_iter().map(only_measured).collect();
        self.gauge.measure(self.process, bytes, self.dry_run);
    }
}
