//! The mappings of a recorded program, from the modules that its trace lists.

use sunder_access::{Address, Mapping, Mappings, PAGE, Span};
use sunder_trace::meta::Module;
use sunder_trace::read::Trace;

/// The loaded files as the target had mapped them; later mappings cover earlier ones.
pub fn mappings(trace: &Trace) -> Mappings {
    mappings_of(trace.modules().iter().flat_map(|(_, list)| list))
}

/// The same of modules in the order in which a trace lists them.
pub fn mappings_of<'a>(modules: impl Iterator<Item = &'a Module>) -> Mappings {
    let mut all = Mappings::new();
    for module in modules {
        for segment in &module.segments {
            // A segment may begin anywhere in a page; a mapping begins at a page.
            let into = segment.start % PAGE;
            all.insert(Mapping {
                span: Span::new(Address(segment.start - into), segment.bytes + into),
                file_offset: segment.file_offset.saturating_sub(into),
                path: module.path.clone(),
                inode: 0,
                read: segment.flags & 4 != 0,
                write: segment.flags & 2 != 0,
                execute: segment.flags & 1 != 0,
                shared: false,
            });
        }
    }
    all
}
