//! Has the debug information read that the names of a line will need, before they are asked for.

use crate::process::Process;
use std::collections::BTreeSet;
use sunder_access::{Address, CodeAddress};
use sunder_sharing::Verdict;

/// Begins to read what the names of the objects on this line and their types will need
/// ([`sunder_objects::Names::read_ahead`]).
pub fn read_ahead(process: &mut Process, line: &Verdict) {
    let mut returns: Vec<CodeAddress> = Vec::new();
    let mut data: Vec<Address> = Vec::new();
    let mut blocks = BTreeSet::new();
    for word in &line.words {
        let at = line.line.offset(i64::from(word.offset));
        let context = process.context_in(at, line.owner, (line.first, line.last));
        match context.heap {
            Some(block) if blocks.insert(block.span.start) => returns.extend(block.allocation),
            Some(_) => {}
            None => data.push(at),
        }
    }
    // The type of a variable is known; that of a block may be told by the code that uses it.
    let accesses = line.sites.iter().filter(|_| !blocks.is_empty());
    let accesses: Vec<CodeAddress> = accesses.map(|site| site.instruction).collect();
    // Code and data are recognised by the present mappings.
    let mappings = process.mappings().clone();
    process.names.set_mappings(mappings);
    process.names.read_ahead(&accesses, &returns, &data);
}
