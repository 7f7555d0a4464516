//! Whether an instruction is in a loop of the function that a reader sees. Called for the code that
//! advice may tell to keep a sum in a local variable.

use super::placed::Placed;
use super::process::Names;
use sunder_access::{Address, CodeAddress};

/// The most blocks of a loop that are looked at.
const MOST_BLOCKS: usize = 64;

impl Names {
    /// Whether the instruction at `code` is in a loop within `function`, the one of its frames that
    /// is shown; `None` if the code was not analysed. If `function` is inlined into a loop of its
    /// caller, it has no loop itself.
    pub fn in_loop(&mut self, code: CodeAddress, function: &str) -> Option<bool> {
        let placed = self.place(Address(self.original(code).0))?;
        let question = || format!("loop {:x} {function}", placed.link.0);
        self.recalled(placed.module, question, |names| {
            names.is_in_loop(placed, function)
        })
    }

    fn is_in_loop(&mut self, placed: Placed, function: &str) -> Option<bool> {
        let executable = self.executable() == Some(placed.module);
        let (debug, image, limits) = self.debug_and_image(placed.module)?;
        let blocks = debug.loop_around(placed.link, image, executable, limits)?;
        if blocks.is_empty() {
            return Some(false);
        }
        let within = blocks.iter().take(MOST_BLOCKS).all(|block| {
            let at = CodeAddress(block.wrapping_add(placed.bias));
            self.frames(at).iter().any(|f| f.function == function)
        });
        Some(within)
    }
}
