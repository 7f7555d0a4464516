//! The code of a kept run: each sample says which piece the decoder read for it. Used by the session
//! in place of the code of processes.

use std::sync::Arc;
use sunder_access::{CodeAddress, ProcessId};
use sunder_observe::decode::{CodeRange, CodeSource};
use sunder_recording as recording;

/// The pieces of code that have come so far.
#[derive(Debug, Default)]
pub struct KeptCode {
    all: Vec<Arc<CodeRange>>,
    /// The pieces for the samples that are being decoded, by instruction.
    places: Vec<(u64, u32)>,
}

impl KeptCode {
    /// The next piece.
    pub fn add(&mut self, code: recording::Code) {
        let mut range = CodeRange::new(CodeAddress(code.start), code.bytes, code.exact_start);
        range.entries = code.entries.into_iter().map(CodeAddress).collect();
        range.tables_known = code.tables_known;
        range.stable = code.stable;
        self.all.push(Arc::new(range));
    }

    /// No instruction has code until its piece is told.
    pub fn clear_places(&mut self) {
        self.places.clear();
    }

    /// Around the instruction `at` lies the code `number`, and no other instruction is asked for.
    /// Returns whether there is such a piece; 0 stands for none.
    pub fn now_at(&mut self, at: u64, number: u32) -> bool {
        self.clear_places();
        self.also_at(at, number)
    }

    /// Around the instruction `at` lies the code `number`, too.
    pub fn also_at(&mut self, at: u64, number: u32) -> bool {
        if number as usize > self.all.len() {
            return false;
        }
        if number > 0 {
            self.places.push((at, number));
        }
        true
    }
}

impl CodeSource for KeptCode {
    fn function(&mut self, _process: ProcessId, at: CodeAddress) -> Option<Arc<CodeRange>> {
        let (_, number) = self.places.iter().find(|(place, _)| *place == at.0)?;
        self.all.get(*number as usize - 1).cloned()
    }
}
