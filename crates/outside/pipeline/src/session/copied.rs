//! Copies of the program's code that a remedy puts into its memory. The remedy knows where their
//! instructions begin, how control gets to them and what they stand for, so their samples are decoded
//! and named as those of the program's own functions.

use super::Session;
use sunder_access::{CodeAddress, ProcessId};
use sunder_observe::CodeRange;

/// A copy of code, as it lies in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedCode {
    /// The address of its first instruction.
    pub start: CodeAddress,
    /// Its bytes, instructions only.
    pub bytes: Vec<u8>,
    /// The addresses at which control comes from other code.
    pub entries: Vec<CodeAddress>,
    /// The address of each instruction, and of the original one for which it stands.
    pub originals: Vec<(CodeAddress, CodeAddress)>,
}

impl Session {
    /// Takes note of a copy of code before samples in it are taken.
    pub fn copied(&mut self, process: ProcessId, copy: CopiedCode) {
        let mut range = CodeRange::new(copy.start, copy.bytes, true);
        range.entries = copy.entries;
        // Its own jumps through pointers leave it.
        range.tables_known = true;
        self.code.add(process, range);
        self.process(process).names.add_copies(copy.originals);
    }
}
