//! A process that prints the real addresses of its data: the kernel's mappings, the loader's
//! placement and the thread pointer are compared with the crate's answers.

use crate::build::compile;
use std::process::Command;
use sunder_access::{Address, Mapping, Mappings, Span, ThreadId};
use sunder_objects::{NameOptions, Names, ObjectContext, ThreadPointer};

pub fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// One line of `/proc/PID/maps`.
pub fn mapping(line: &str) -> Option<Mapping> {
    let mut parts = line.split_whitespace();
    let (start, end) = parts.next()?.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let rights = parts.next()?.as_bytes();
    let file_offset = hex(parts.next()?)?;
    let inode = parts.nth(1)?.parse().ok()?;
    Some(Mapping {
        span: Span::new(Address(start), end - start),
        file_offset,
        path: parts.next().unwrap_or("").to_owned(),
        inode,
        read: rights[0] == b'r',
        write: rights[1] == b'w',
        execute: rights[2] == b'x',
        shared: rights[3] == b's',
    })
}

#[test]
fn names_agree_with_addresses_that_a_program_prints() {
    for options in [
        &["-g", "-O0", "-pie", "-fPIE"][..],
        &["-g", "-O2", "-no-pie"],
        &["-g", "-O1", "-static"],
        &["-g", "-Wl,-z,noseparate-code"],
        &["-g", "-Wl,-z,relro,-z,now"],
    ] {
        let Some(program) = compile("live.c", options) else {
            return;
        };
        let run = Command::new(&program.file).output().expect("it runs");
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        let (mut told, mut mappings) = (Vec::new(), Mappings::new());
        for line in text.lines() {
            match (mapping(line), line.rsplit_once(' ')) {
                (Some(mapping), _) => mappings.insert(mapping),
                (None, Some((name, address))) => {
                    told.push((name, Address(hex(address).expect("hex"))))
                }
                _ => {}
            }
        }
        assert_eq!(told.len(), 6, "{text}");
        let context = ObjectContext {
            thread_pointers: vec![ThreadPointer {
                thread: ThreadId(1),
                fs_base: told[0].1,
            }],
            ..ObjectContext::default()
        };
        let mut names = Names::new(NameOptions::default());
        names.set_mappings(mappings);
        for (wanted, address) in &told[1..] {
            let object = names.object_at(*address, &context);
            let offset = object.offset_of(*address).expect("inside");
            let field = names.field_at(&object, offset);
            assert_eq!(
                field.as_deref(),
                Some(*wanted),
                "{options:?} {address}: {object:?}\n{text}"
            );
        }
    }
}
