//! Which mappings are threads' stacks, where nobody reports stacks: those with the threads' stack
//! pointers. Called by `Process`.

use sunder_access::{Address, Mapping, Mappings, ThreadId};
use sunder_objects::ThreadStack;

/// Mappings larger than this hold more than one thread's stack: eight times
/// glibc's default of 8 MiB.
const LARGEST_STACK: u64 = 64 << 20;

/// The stacks of threads whose stack pointers are known. A mapping with those of several threads is none:
/// runtimes with threads of their own keep stacks on their heaps.
pub fn stacks_of(
    pointers: impl Iterator<Item = (ThreadId, u64)>,
    mappings: &Mappings,
) -> Vec<ThreadStack> {
    let stack = |(thread, pointer)| {
        let mapping = mappings.at(Address(pointer))?;
        may_be_a_stack(mapping).then_some(ThreadStack {
            thread,
            span: mapping.span,
        })
    };
    let found: Vec<ThreadStack> = pointers.filter_map(stack).collect();
    let is_ones = |one: &&ThreadStack| {
        let mut others = found.iter().filter(|other| other.span == one.span);
        others.all(|other| other.thread == one.thread)
    };
    found.iter().filter(is_ones).copied().collect()
}

/// Whether the mapping as a whole may be one thread's stack. Green threads and coroutines run on
/// parts of large mappings, and on heaps. Who gives memory a name says what it is.
fn may_be_a_stack(mapping: &Mapping) -> bool {
    let is_named = mapping.path.starts_with("[anon:") && !mapping.path.contains("stack");
    let is_heap = mapping.path == "[heap]";
    mapping.path.starts_with("[stack")
        || (mapping.span.len <= LARGEST_STACK && !is_named && !is_heap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Span;

    fn writable(span: Span, path: &str) -> Mapping {
        Mapping {
            span,
            file_offset: 0,
            path: path.to_owned(),
            inode: 0,
            read: true,
            write: true,
            execute: false,
            shared: false,
        }
    }

    #[test]
    fn heaps_on_which_threads_run_are_no_stacks() {
        let named = [
            ("", 8 << 20, true),
            ("", LARGEST_STACK + 4096, false),
            ("[stack]", 1 << 30, true),
            ("[heap]", 1 << 20, false),
            ("[anon: Go: heap]", 4 << 20, false),
            ("[anon:stack_and_tls:417]", 1 << 20, true),
        ];
        for (path, len, is_stack) in named {
            let span = Span {
                start: Address(1 << 40),
                len,
            };
            let mapping = writable(span, path);
            let mappings: Mappings = [mapping].into_iter().collect();
            let thread = ThreadId(7);
            let found = stacks_of([(thread, span.start.0 + 64)].into_iter(), &mappings);
            let wanted = ThreadStack { thread, span };
            assert_eq!(found.contains(&wanted), is_stack, "{path}");
            assert!(stacks_of([(thread, 64)].into_iter(), &mappings).is_empty());
        }
    }

    #[test]
    fn where_several_threads_stand_is_no_ones_stack() {
        let mapping = |start: u64| writable(Span::new(Address(start), 4 << 20), "");
        let (heap, own) = (0x1000_0000, 0x2000_0000);
        let mappings: Mappings = [mapping(heap), mapping(own)].into_iter().collect();
        let pointers = [(1, heap + 64), (2, heap + (1 << 20)), (3, own + 64)];
        let pointers = pointers.map(|(thread, at)| (ThreadId(thread), at));
        let found = stacks_of(pointers.into_iter(), &mappings);
        let threads: Vec<u32> = found.iter().map(|stack| stack.thread.0).collect();
        assert_eq!(threads, [3]);
    }
}
