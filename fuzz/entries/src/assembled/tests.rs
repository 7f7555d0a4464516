//! What is put together is what the readers take for an executable with debug information: otherwise
//! the target would try nothing.

use super::debug::ATTRIBUTES;
use super::*;
use gimli::{DwAt, constants as is};
use std::sync::Arc;
use sunder_access::{Address, CodeAddress, Mapping, Mappings, Span};
use sunder_objects::{NameOptions, Names, ObjectContext, OwnFiles};

const START: u64 = 0x5000_0000;

/// An input for a function `main` at 0x1000 of 0x80 bytes, in lines 7 and 8, and a variable `v` at
/// 0x2010 of a structure type with itself as a member.
fn sound(flags: u8, version: u8) -> Vec<u8> {
    let mut input = vec![flags];
    // No symbols of its own; one name and one symbol `f` at 0x1100 where they are packed.
    input.extend([0, 0]);
    if flags & flag::PACKED_SYMBOLS != 0 {
        // Global function, in section 1.
        input.extend([1, b'f', 1, 1, 0x12, 1, 0x00, 0x11, 0x10]);
    }
    if flags & flag::LINK != 0 {
        input.extend([4, b'a', b'.', b'd', 0, 1, 2, 3, 4]);
    }
    input.push(version - 2);
    // Lines: from 0x1000, two rows, 0x80 bytes.
    input.extend([0, 0x00, 0x10, 2, 0, 7, 0x10, 8, 0x70]);
    // C; four entries: subprogram, variable, structure and member below it.
    input.extend([0, 4, 64, 3, 64, 2, 64, 0, 0, 1]);
    let attribute = |name: DwAt| ATTRIBUTES.iter().position(|a| *a == name).expect("known") as u8;
    // The unit has no more attributes.
    input.push(0);
    input.extend([3, attribute(is::DW_AT_name), 32, 4]);
    input.extend(b"main");
    input.extend([attribute(is::DW_AT_low_pc), 32, 0x00, 0x10]);
    input.extend([attribute(is::DW_AT_high_pc), 32, 0x80]);
    input.extend([3, attribute(is::DW_AT_name), 32, 1, b'v']);
    input.extend([attribute(is::DW_AT_type), 32, 3]);
    input.extend([attribute(is::DW_AT_location), 32, 0, 0, 0x10, 0x20]);
    input.extend([2, attribute(is::DW_AT_name), 32, 1, b's']);
    input.extend([attribute(is::DW_AT_byte_size), 32, 8]);
    input.extend([2, attribute(is::DW_AT_name), 32, 1, b'm']);
    input.extend([attribute(is::DW_AT_type), 32, 3]);
    input
}

fn names(executable: &[u8]) -> (Names, tempfile::NamedTempFile) {
    let file = crate::file::holding(executable);
    let mut mappings = Mappings::new();
    mappings.insert(Mapping {
        span: Span::new(Address(START), 1 << 20),
        file_offset: 0,
        path: file.path().to_string_lossy().into_owned(),
        inode: 1,
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
    (names, file)
}

#[test]
fn what_is_put_together_has_the_names_that_were_put_in() {
    for version in 2..=5 {
        for flags in [0, flag::COMPRESSED, flag::LINK] {
            let (mut names, _file) = names(&executable(&sound(flags, version)));
            let frames = names.frames(CodeAddress(START + 0x1018));
            assert_eq!(frames[0].function, "main", "{version} {flags}");
            assert_eq!(frames[0].line, Some(8), "{version} {flags}");
            let variable = names.object_at(Address(START + 0x2012), &ObjectContext::default());
            assert_eq!(variable.name.as_deref(), Some("v"), "{version} {flags}");
            assert_eq!(variable.size, Some(8), "{version} {flags}");
        }
    }
    let (mut names, _file) = names(&executable(&sound(flag::PACKED_SYMBOLS, 5)));
    let frames = names.frames(CodeAddress(START + 0x1104));
    assert_eq!(frames[0].function, "f+0x4");
}
