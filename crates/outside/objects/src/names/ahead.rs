//! Reads debug information before it is asked for.

use super::process::Names;
use crate::ahead::Questions;
use std::collections::BTreeMap;
use sunder_access::{Address, CodeAddress};

impl Names {
    /// Begins to read what questions about these will need, in threads of its own: about the objects that
    /// instructions access, about the calls that return to these addresses, and about static data. Nobody who
    /// asks meanwhile is answered differently, but must wait. Of the C library and the loader nothing is
    /// read, as little is asked of them. Where answers are remembered, nothing is read either.
    pub fn read_ahead(
        &mut self,
        accesses: &[CodeAddress],
        returns: &[CodeAddress],
        data: &[Address],
    ) {
        if self.options.memory.is_some() {
            return;
        }
        let mut of_module: BTreeMap<usize, Questions> = BTreeMap::new();
        for &at in accesses {
            if let Some(placed) = self.place(Address(self.original(at).0)) {
                let questions = of_module.entry(placed.module).or_default();
                questions.accesses.push(placed.link);
            }
        }
        for &at in returns {
            // The call may be the function's last instruction.
            if let Some(placed) = self.place(Address(at.0.wrapping_sub(1))) {
                let questions = of_module.entry(placed.module).or_default();
                questions.calls.push(placed.link);
            }
        }
        for &at in data {
            if let Some(placed) = self.place(at) {
                let questions = of_module.entry(placed.module).or_default();
                questions.data.push(placed.link);
            }
        }
        let program = self.executable();
        for (number, mut questions) in of_module {
            questions.executable = program == Some(number);
            let module = &mut self.modules[number];
            if !super::is_c_library(&module.path) {
                module.read_ahead(&self.options, questions);
            }
        }
    }

    /// Whether debug information is being read ahead.
    pub fn is_reading_ahead(&self) -> bool {
        self.modules.iter().any(|module| module.is_reading_ahead())
    }
}
