//! Debug information that is read before it is needed: the answers are the same.

use crate::build::{Program, compile};
use crate::remembered::asked;
use object::{Object, ObjectSection};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use sunder_objects::{Names, ObjectContext};

fn read_ahead(names: &mut Names, program: &Program) {
    let code = program.instructions("bump").into_iter();
    let code: Vec<_> = code.map(|(code, _)| code).collect();
    names.read_ahead(&code, &[], &[program.address("counters")]);
}

#[test]
fn who_asks_while_debug_information_is_read_is_answered_as_ever() {
    for options in [["-g", "-O0"], ["-g", "-O2"]] {
        let Some(program) = compile("counters.c", &options) else {
            return;
        };
        let plain = asked(&mut program.names(), &program);
        let mut names = program.names();
        read_ahead(&mut names, &program);
        assert_eq!(asked(&mut names, &program), plain);
        assert!(!names.is_reading_ahead());
        // It has been read.
        read_ahead(&mut names, &program);
        assert!(!names.is_reading_ahead());
    }
}

#[test]
fn what_was_read_ahead_is_not_read_again() {
    let Some(program) = compile("counters.c", &["-g", "-O2"]) else {
        return;
    };
    let at_first =
        |names: &mut Names| names.object_at(program.address("counters"), &ObjectContext::default());
    let plain = at_first(&mut program.names());
    let mut names = program.names();
    read_ahead(&mut names, &program);
    while names.is_reading_ahead() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let bytes = std::fs::read(&program.file).expect("readable");
    let parsed = object::File::parse(&*bytes).expect("an ELF file");
    let info = parsed.section_by_name(".debug_info").expect("it has one");
    let (at, len) = info.file_range().expect("in the file");
    let file = OpenOptions::new().write(true).open(&program.file);
    let zeros = vec![0; len as usize];
    file.expect("there")
        .write_all_at(&zeros, at)
        .expect("writable");
    let (now, then) = (at_first(&mut names), at_first(&mut program.names()));
    assert_eq!((now.type_name, now.size), (plain.type_name, plain.size));
    assert_eq!(then.type_name, None, "without it, nothing is known now");
}
