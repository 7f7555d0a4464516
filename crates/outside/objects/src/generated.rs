//! Functions whose code is in no file, because a runtime made it while the program ran. The caller
//! of [`crate::Names`] says which there are; this only finds the one at an address.

use std::collections::BTreeMap;
use sunder_access::{CodeAddress, Span};

/// The functions by their first address, which do not overlap.
#[derive(Debug, Default)]
pub struct GeneratedCode {
    functions: BTreeMap<u64, (u64, String)>,
}

impl GeneratedCode {
    /// Adds a function, in whose place others may have been.
    pub fn insert(&mut self, span: Span, name: String) {
        let (start, end) = (span.start.0, span.end().0);
        let before = self.functions.range(..start).next_back();
        let before = before
            .filter(|(_, (old, _))| *old > start)
            .map(|(&at, _)| at);
        let over = self.functions.range(start..end).map(|(&at, _)| at);
        for old in over.chain(before).collect::<Vec<_>>() {
            self.functions.remove(&old);
        }
        self.functions.insert(start, (end, name));
    }

    /// The function at `code`.
    pub(crate) fn at(&self, code: CodeAddress) -> Option<&str> {
        let (_, (end, name)) = self.functions.range(..=code.0).next_back()?;
        (code.0 < *end).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Address;

    #[test]
    fn the_latest_function_at_a_place_counts() {
        let mut code = GeneratedCode::default();
        let mut add = |start, len, name: &str| {
            code.insert(Span::new(Address(start), len), name.to_owned());
        };
        add(0x100, 0x20, "old");
        add(0x140, 0x10, "kept");
        add(0x110, 0x20, "new");
        let at = |address| code.at(CodeAddress(address));
        assert_eq!(
            (at(0x110), at(0x12f), at(0x130)),
            (Some("new"), Some("new"), None)
        );
        // Half of it was written over, so nothing is known of the rest.
        assert_eq!(at(0x100), None);
        assert_eq!((at(0x140), at(0x150)), (Some("kept"), None));
    }
}
