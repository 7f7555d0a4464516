//! Stack variables: running programs print the registers of their stack frames and the addresses of
//! their variables.

use crate::build::{Program, compile, compile_by};
use crate::live::{hex, mapping};
use std::process::Command;
use sunder_access::{Address, CodeAddress, Mappings, Span, ThreadId};
use sunder_objects::{
    NameOptions, Names, ObjectContext, ObjectKind, ObjectName, StackFrame, ThreadStack,
};

const CREATOR: ThreadId = ThreadId(7);
const CREATED: ThreadId = ThreadId(8);

/// The output of a program: each variable in its frames, with its address and the frame and
/// function that hold it.
struct Printed {
    names: Names,
    things: Vec<(String, Address, StackFrame, String)>,
}

fn run(program: &Program) -> Printed {
    let run = Command::new(&program.file).output().expect("it runs");
    assert!(run.status.success());
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let mut mappings = Mappings::new();
    let mut things = Vec::new();
    let mut current = None;
    let number = |word: &str| match word {
        "(nil)" => 0,
        word => hex(word).expect("hexadecimal"),
    };
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["frame", function, ret, sp, bp, cfa] => {
                let frame = StackFrame {
                    thread: CREATOR,
                    created: CREATED,
                    return_address: CodeAddress(number(ret)),
                    stack_pointer: Address(number(sp)),
                    frame_pointer: Address(number(bp)),
                    cfa: Some(Address(number(cfa))).filter(|cfa| cfa.0 != 0),
                };
                current = Some((frame, function.to_owned()));
            }
            ["at", what, address] => {
                let (frame, function) = current.clone().expect("a frame comes first");
                things.push((what.to_owned(), Address(number(address)), frame, function));
            }
            _ => mappings.insert(mapping(line).expect("a mapping")),
        }
    }
    let mut names = Names::new(NameOptions::default());
    names.set_mappings(mappings);
    Printed { names, things }
}

fn context(frames: &[StackFrame]) -> ObjectContext {
    ObjectContext {
        frames: frames.to_vec(),
        stacks: vec![ThreadStack {
            thread: CREATOR,
            span: Span::new(Address(0x7000_0000_0000), 0xfff_ffff_f000),
        }],
        ..ObjectContext::default()
    }
}

impl Printed {
    fn field(&mut self, address: Address, context: &ObjectContext) -> (Option<String>, ObjectName) {
        let object = self.names.object_at(address, context);
        let offset = object.offset_of(address).expect("inside");
        (self.names.field_at(&object, offset), object)
    }

    /// Checks every variable of the program, in its own frame and among all others.
    fn check(&mut self, count: usize, what: &str) {
        assert_eq!(self.things.len(), count, "{what}");
        let things = std::mem::take(&mut self.things);
        for (wanted, address, frame, function) in &things {
            let (field, object) = self.field(*address, &context(&[*frame]));
            assert_eq!(
                field.as_ref(),
                Some(wanted),
                "{what}: {object:?} {frame:x?}"
            );
            assert_eq!(
                (object.kind, object.thread),
                (ObjectKind::Stack, Some(CREATOR))
            );
            let declared = object.declared.expect("declared");
            let site = &object.allocation[0];
            assert!(site.function.ends_with(function.as_str()), "{site:?}");
            assert_eq!(
                (site.file.as_ref(), site.line),
                (Some(&declared.file), declared.line)
            );
            assert_eq!(object.allocation.len(), 1);
        }
        self.things = things;
    }
}

#[test]
fn c_and_cpp_variables_are_found_in_their_frames() {
    for compiler in ["gcc", "clang", "g++"] {
        for options in [
            &["-g", "-O0"][..],
            &["-g", "-O1"],
            &["-g", "-O2"],
            &["-g", "-O2", "-fno-omit-frame-pointer", "-no-pie"],
            &["-gdwarf-4", "-O2"],
        ] {
            let Some(program) = compile_by(compiler, "frames.c", options) else {
                continue;
            };
            run(&program).check(12, &format!("{compiler} {options:?}"));
        }
    }
}

/// A function that creates two threads at two calls has two return addresses in one frame.
#[test]
fn frames_of_two_calls_in_one_function_agree_on_its_variables() {
    let Some(program) = compile("frames.c", &["-g", "-O0"]) else {
        return;
    };
    let mut told = run(&program);
    for (wanted, address, frame, _) in told.things.clone() {
        let mut other = frame;
        other.return_address.0 += 1;
        let (field, object) = told.field(address, &context(&[frame, other]));
        assert_eq!(field, Some(wanted), "{object:?}");
    }
}

#[test]
fn rust_variables_are_found_in_their_frames() {
    for options in [
        &["-g", "-C", "opt-level=0"][..],
        &["-g", "-C", "opt-level=2"],
        &["-g", "-C", "opt-level=2", "-C", "force-frame-pointers=yes"],
    ] {
        let Some(program) = compile("frames.rs", options) else {
            return;
        };
        run(&program).check(3, &format!("{options:?}"));
    }
}

#[test]
fn variables_have_the_place_of_their_declaration() {
    let Some(program) = compile("frames.c", &["-g", "-O2"]) else {
        return;
    };
    let mut told = run(&program);
    let (_, address, frame, _) = told.things[2].clone();
    let object = told.names.object_at(address, &context(&[frame]));
    assert_eq!(object.name.as_deref(), Some("pairs"));
    assert_eq!(object.type_name.as_deref(), Some("struct pair[3]"));
    assert_eq!((object.size, object.start), (Some(72), address));
    assert_eq!(object.module.as_deref(), program.file.to_str());
    let declared = object.declared.expect("declared");
    assert!(declared.file.ends_with("frames.c"));
    assert_eq!(
        declared.line,
        Some(program.line_of("struct pair pairs[3];"))
    );
}

#[test]
fn frames_that_contradict_each_other_name_nothing() {
    let Some(program) = compile("frames.c", &["-g", "-O0"]) else {
        return;
    };
    let mut told = run(&program);
    let (wanted, address, frame, _) = told.things[2].clone();
    assert_eq!(wanted, "pairs[0].hits");
    // A frame in which `realigned` seems to have waited with its lines at the address of `pairs`.
    let (_, lines, other, _) = told.things[5].clone();
    let mut other = other;
    let moved = address.0.wrapping_sub(lines.0);
    other.stack_pointer = Address(other.stack_pointer.0.wrapping_add(moved));
    other.created = ThreadId(9);
    let field = |told: &mut Printed, context: &ObjectContext| told.field(address, context).0;
    assert_eq!(
        field(&mut told, &context(&[other])).as_deref(),
        Some("lines[0].hits")
    );
    let mut both = context(&[frame, other]);
    let object = told.names.object_at(address, &both);
    assert_eq!(object.name.as_deref(), Some("stack of thread 7"));
    assert!(object.declared.is_none() && object.allocation.is_empty());
    // The frames of the threads that access the address count more.
    for (thread, wanted) in [(CREATED, "pairs[0].hits"), (ThreadId(9), "lines[0].hits")] {
        both.touched_by = vec![thread];
        assert_eq!(field(&mut told, &both).as_deref(), Some(wanted));
    }
    both.touched_by = vec![CREATED, ThreadId(9)];
    assert_eq!(field(&mut told, &both), None);
    // The same frame twice is no contradiction; a frame that ends below the address does not hold
    // it.
    let twice = context(&[frame, frame]);
    assert_eq!(field(&mut told, &twice).as_deref(), Some("pairs[0].hits"));
    other.cfa = Some(address);
    let outside = context(&[frame, other]);
    assert_eq!(field(&mut told, &outside).as_deref(), Some("pairs[0].hits"));
}
