//! The code that takes the lock at an offset of an object.

use crate::build::{Program, compile, compile_by};
use sunder_access::Address;
use sunder_objects::{Names, ObjectContext, ObjectKind, ObjectName};

/// The lines that call lock functions on the byte at `offset` of `object`.
fn lines(names: &mut Names, object: &ObjectName, offset: u64) -> Vec<u32> {
    let calls = names.lock_calls_on(object, None, offset);
    let mut lines: Vec<u32> = calls
        .into_iter()
        .filter_map(|call| {
            let frames = names.frames(call.code);
            let user = |f: &&sunder_objects::CodeFrame| !f.function.starts_with("std::");
            let own = |f: &&sunder_objects::CodeFrame| {
                f.file.as_deref().is_some_and(|f| !f.starts_with("/usr/"))
            };
            frames.iter().find(|f| user(f) && own(f))?.line
        })
        .collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

fn marked(program: &Program, marks: &[&str]) -> Vec<u32> {
    let mut lines: Vec<u32> = marks.iter().map(|m| program.line(m)).collect();
    lines.sort_unstable();
    lines
}

fn global(program: &Program, names: &mut Names, symbol: &str) -> ObjectName {
    let address = program.address(symbol);
    let object = names.object_at(Address(address.0), &ObjectContext::default());
    assert_eq!(object.kind, ObjectKind::Global, "{symbol}: {object:?}");
    object
}

#[test]
fn calls_of_c_lock_functions_are_found_by_their_lock() {
    for compiler in ["gcc", "clang"] {
        for options in [["-g", "-O0"], ["-g", "-O2"], ["-g", "-fno-plt"]] {
            let Some(program) = compile_by(compiler, "locks.c", &options) else {
                continue;
            };
            let mut names = program.names();
            let whole = global(&program, &mut names, "whole");
            let here = marked(&program, &["whole_lock", "whole_unlock"]);
            // The lock word, and the mutex's kind after it, which threads read.
            assert_eq!(lines(&mut names, &whole, 0), here, "{compiler} {options:?}");
            assert_eq!(lines(&mut names, &whole, 16), here);
            let other = global(&program, &mut names, "other");
            assert_eq!(lines(&mut names, &other, 0), [0_u32; 0]);
            // Records of 56 bytes: number, lock from 8 on, balance at 48.
            let bank = global(&program, &mut names, "bank");
            let by_field = marked(&program, &["field_lock", "field_unlock"]);
            let by_both = marked(&program, &["field_lock", "field_unlock", "element_lock"]);
            assert_eq!(
                lines(&mut names, &bank, 8),
                by_field,
                "{compiler} {options:?}"
            );
            assert_eq!(
                lines(&mut names, &bank, 2 * 56 + 8),
                by_both,
                "{compiler} {options:?}"
            );
            assert_eq!(lines(&mut names, &bank, 48), [0_u32; 0]);
            assert_eq!(lines(&mut names, &bank, 0), [0_u32; 0]);
            let spins = global(&program, &mut names, "spins");
            let here = marked(&program, &["spin_lock", "spin_unlock"]);
            assert_eq!(
                lines(&mut names, &spins, 20),
                here,
                "{compiler} {options:?}"
            );
        }
    }
}

#[test]
fn callers_count_for_a_function_that_passes_its_lock_on() {
    for compiler in ["gcc", "clang"] {
        for options in [["-g", "-O0"], ["-g", "-O2"]] {
            let Some(program) = compile_by(compiler, "locks.c", &options) else {
                continue;
            };
            let what = format!("{compiler} {options:?}");
            let mut names = program.names();
            let fourth = global(&program, &mut names, "fourth");
            // In unoptimised code, second arguments are not searched.
            let marks = match options[1] {
                "-O0" => &["taken"][..],
                _ => &["taken", "given"],
            };
            let wanted = marked(&program, marks);
            assert_eq!(lines(&mut names, &fourth, 0), wanted, "{what}");
            let calls = names.lock_calls_on(&fourth, None, 0);
            assert_eq!(calls[0].callee, "take", "{what}");
            let bank = global(&program, &mut names, "bank");
            let taken = program.line("element_taken");
            assert!(lines(&mut names, &bank, 56 + 8).contains(&taken), "{what}");
            assert!(!lines(&mut names, &bank, 8).contains(&taken), "{what}");
            let third = global(&program, &mut names, "third");
            assert_eq!(lines(&mut names, &third, 0), [0_u32; 0], "{what}");
        }
    }
}

#[test]
fn calls_of_cpp_locks_have_the_users_line() {
    for options in [["-g", "-O0"], ["-g", "-O2"]] {
        let Some(program) = compile("guards.cc", &options) else {
            return;
        };
        let mut names = program.names();
        let whole = global(&program, &mut names, "whole");
        let here = marked(&program, &["lock", "unlock"]);
        assert_eq!(lines(&mut names, &whole, 0), here, "{options:?}");
        // Number, mutex from 8 to 48, balance, shared mutex from 56 on.
        let bank = global(&program, &mut names, "bank");
        let guard = lines(&mut names, &bank, 8);
        assert!(
            guard.contains(&program.line("guard")),
            "{options:?} {guard:?}"
        );
        let here = marked(&program, &["shared", "unshared"]);
        assert_eq!(lines(&mut names, &bank, 56), here, "{options:?}");
        assert_eq!(lines(&mut names, &bank, 48), [0_u32; 0]);
    }
}
