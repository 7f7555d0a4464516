//! The code of whole files, as linkers lay it out.

use crate::support::compile;
use std::process::Command;
use sunder_observe::code::ModuleCode;

/// `mov eax, 0x12345678` and a return.
const FAR: [u8; 6] = [0xb8, 0x78, 0x56, 0x34, 0x12, 0xc3];
const PLACE: u64 = 0x80_0000;

/// Linkers for huge pages and BOLT place functions in several segments, one far after the other. A
/// file without a build ID is read as well.
#[test]
fn code_in_two_segments_is_all_there() {
    let directory = tempfile::tempdir().unwrap();
    let far = format!("-Wl,--section-start=.far={PLACE:#x}");
    let options = ["-O1", "-no-pie", "-Wl,--build-id=none", &far];
    let Some(program) = compile(directory.path(), "two_segments", &options) else {
        return;
    };
    assert!(Command::new(&program).status().unwrap().success());
    let code = ModuleCode::read(&std::fs::File::open(&program).unwrap()).unwrap();
    assert!(code.build_id.is_empty());
    let [near, last] = code.segments[..] else {
        panic!("{:x?}", code.segments);
    };
    assert_eq!(code.address, near.address);
    let at = (PLACE - code.address) as usize;
    assert_eq!(code.bytes[at..at + FAR.len()], FAR);
    assert!(code.functions.contains(&(PLACE, PLACE + FAR.len() as u64)));
    // The bytes between them are not executable code.
    let end = (near.address + near.len - code.address) as usize;
    let start = (last.address - code.address) as usize;
    assert!(end < start && code.bytes[end..start].iter().all(|&b| b == 0xcc));
    // A mapping of the second one begins with its page.
    let page = last.offset & !0xfff;
    assert_eq!(code.address_at(page), Some(last.address & !0xfff));
    assert_eq!(code.address_at(near.offset), Some(near.address));
    assert_eq!(code.address_at(last.offset + last.len), None);
}
