//! The thread-local blocks of libraries, as far as they are known.

use crate::answer::ObjectContext;
use crate::tls::Library;
use std::collections::{HashMap, HashSet};
use sunder_access::{Address, Mapping, ThreadId};

/// How many blocks are remembered.
pub(super) const MAX_BLOCKS: usize = 1 << 16;

/// The known thread-local blocks of libraries.
#[derive(Default)]
pub(super) struct ThreadBlocks {
    pub(super) libraries: Vec<KnownLibrary>,
    /// By path and inode; `None` for files without thread-local variables.
    pub(super) numbers: HashMap<(String, u64), Option<usize>>,
    /// Blocks that were read from a thread's table: library, start, thread.
    pub(super) seen: HashSet<(usize, u64, ThreadId)>,
}

/// A library with thread-local variables.
pub(super) struct KnownLibrary {
    pub(super) file: Library,
    /// One of its mappings.
    pub(super) mapping: Mapping,
    /// Runtime address minus link address.
    pub(super) bias: u64,
    /// The distance of its block below the thread pointer, once it is known to be the same in all
    /// threads.
    pub(super) distance: Option<u64>,
    /// It was unloaded and loaded again, so no distance holds for the whole run.
    pub(super) moved: bool,
}

/// A block that holds an address.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    /// `None` for the program itself.
    pub(super) library: Option<usize>,
    pub(super) start: u64,
    pub(super) thread: ThreadId,
}

impl ThreadBlocks {
    pub(super) fn candidates(&self, address: Address, context: &ObjectContext) -> Vec<Candidate> {
        let size = |index: usize| self.libraries[index].file.size;
        let mut found: Vec<Candidate> = self
            .seen
            .iter()
            .filter(|(index, start, _)| address.0.wrapping_sub(*start) < size(*index))
            .map(|&(index, start, thread)| Candidate {
                library: Some(index),
                start,
                thread,
            })
            .collect();
        for (index, known) in self.libraries.iter().enumerate() {
            let Some(distance) = known.distance else {
                continue;
            };
            for thread in &context.thread_pointers {
                let start = thread.fs_base.0.wrapping_sub(distance);
                if address.0.wrapping_sub(start) < known.file.size {
                    found.push(Candidate {
                        library: Some(index),
                        start,
                        thread: thread.thread,
                    });
                }
            }
        }
        found
    }
}
