//! All variables of a program, for remedies that look for one by its name.

use super::placed::is_backed;
use super::process::Names;
use crate::answer::{ObjectContext, ObjectKind, ObjectName};
use crate::limits::is_system_library;
use std::collections::BTreeSet;
use sunder_access::{Address, Mapping};

impl Names {
    /// The variables with static storage that have a symbol, of all mapped files but the
    /// system's libraries, by address. Reads the debug information of these files.
    pub fn variables(&mut self) -> Vec<ObjectName> {
        let own = |m: &&Mapping| is_backed(m) && !is_system_library(&m.path);
        let files: Vec<Mapping> = self.mappings.iter().filter(own).cloned().collect();
        let mut starts: BTreeSet<Address> = BTreeSet::new();
        for mapping in &files {
            let Some(module) = self.module(mapping) else {
                continue;
            };
            if let Some(bias) = self.bias(module, mapping) {
                let symbols = &self.modules[module].image.symbols;
                let runtime = |link: u64| Address(link.wrapping_add(bias));
                starts.extend(symbols.variables().map(runtime));
            }
        }
        let context = ObjectContext::default();
        let mut found: Vec<ObjectName> = Vec::new();
        for start in starts {
            let object = self.object_at(start, &context);
            let known = found.last().is_some_and(|last| last.start == object.start);
            if object.kind == ObjectKind::Global && object.name.is_some() && !known {
                found.push(object);
            }
        }
        found
    }
}
