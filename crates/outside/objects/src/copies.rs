//! Copies of the program's code that a remedy has put into its memory. A reader knows the original:
//! queries about an instruction of a copy are answered for the instruction that it stands for.

use std::collections::HashMap;
use sunder_access::CodeAddress;

/// The most instructions of copies that are known; further ones are told by their own address. `repair`
/// makes at most half of that.
const MOST: usize = 1 << 20;

/// The instructions of copies, with those that they stand for.
#[derive(Debug, Default)]
pub struct Copies(HashMap<CodeAddress, CodeAddress>);

impl Copies {
    /// Adds instructions of a copy, each with the one that it stands for.
    pub(crate) fn add(
        &mut self,
        instructions: impl IntoIterator<Item = (CodeAddress, CodeAddress)>,
    ) {
        for (copy, original) in instructions {
            if self.0.len() < MOST {
                self.0.insert(copy, original);
            }
        }
    }

    /// The instruction for which the one at `code` stands: itself, unless it is of a copy.
    pub(crate) fn original(&self, code: CodeAddress) -> CodeAddress {
        self.0.get(&code).copied().unwrap_or(code)
    }
}
