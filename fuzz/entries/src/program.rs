//! Executables and their debug information, from which data and code get their names.

use crate::file::holding;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use sunder_access::{Address, CodeAddress, Mapping, Mappings, Span, ThreadId};
use sunder_objects::{
    HeapBlock, NameOptions, Names, ObjectContext, OwnFiles, StackFrame, ThreadPointer, inspect,
};

const START: u64 = 0x5000_0000;
const LENGTH: u64 = 1 << 20;
const THREAD: ThreadId = ThreadId(7);

/// Maps arbitrary bytes as a program, and queries the names of addresses in all of it: code,
/// variables, stacks, thread-local storage, allocations.
pub fn program(bytes: &[u8]) {
    let file = holding(bytes);
    let path = file.path();
    inspect(path);
    let inode = path.metadata().map_or(1, |m| m.ino());
    let mut mappings = Mappings::new();
    mappings.insert(Mapping {
        span: Span::new(Address(START), LENGTH),
        file_offset: 0,
        path: path.to_string_lossy().into_owned(),
        inode,
        read: true,
        write: true,
        execute: true,
        shared: false,
    });
    let mut names = Names::new(NameOptions {
        debug_dirs: Vec::new(),
        files: Arc::new(OwnFiles::default()),
        executable: None,
        debuginfod_cache: None,
        memory: None,
        debug_information: true,
    });
    names.set_mappings(mappings);
    for place in places(bytes.len() as u64) {
        let code = CodeAddress(START + place);
        assert!(!names.frames(code).is_empty());
        names.frames_of_return(code);
        names.typed_access(code);
        let context = context(code);
        for address in [START + place, 0x7000_0000 + place % 4096] {
            let object = names.object_at(Address(address), &context);
            for offset in [0, 8, place] {
                names.field_at(&object, offset);
            }
            if let Some(ty) = object.type_handle {
                names.type_name(ty);
                names.type_size(ty);
                names.field_path(ty, object.size.unwrap_or(64), 8);
            }
        }
    }
    names.limits();
}

/// Addresses: dense at the beginning of the file, then ever farther apart.
fn places(length: u64) -> impl Iterator<Item = u64> {
    let dense = (0..8).map(|i| 0x1000 + i * 7);
    let wide = (0..24).map(move |i| i * length.min(LENGTH) / 24);
    dense.chain(wide)
}

/// A context with everything that could lead from an address into debug information.
fn context(code: CodeAddress) -> ObjectContext {
    ObjectContext {
        heap: Some(HeapBlock {
            span: Span::new(Address(0x7000_0000), 1024),
            allocation: vec![code],
            thread: Some(THREAD),
            freed: false,
        }),
        thread_pointers: vec![ThreadPointer {
            thread: THREAD,
            fs_base: Address(0x7000_0800),
        }],
        frames: vec![StackFrame {
            thread: THREAD,
            created: ThreadId(8),
            return_address: code,
            frame_pointer: Address(0x7000_0500),
            stack_pointer: Address(0x7000_0400),
            cfa: None,
        }],
        touched_by: vec![THREAD],
        ..ObjectContext::default()
    }
}
