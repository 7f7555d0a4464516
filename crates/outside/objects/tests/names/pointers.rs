//! Typed accesses: the object of an instruction, from debug information alone.

use crate::build::{BIAS, Program, compile};
use sunder_access::CodeAddress;
use sunder_objects::{Storage, TypedAccess};

fn access(program: &Program, mark: &str) -> TypedAccess {
    let at = program.store(mark);
    let found = program.names().typed_access(at);
    found.unwrap_or_else(|| {
        panic!(
            "nothing known at {mark}, {:#x}: {:?}",
            at.0 - BIAS,
            program.instructions(mark)
        )
    })
}

fn check(program: &Program, mark: &str, type_name: &str, field: &str, exact: bool) {
    let found = access(program, mark);
    assert_eq!(
        (
            found.type_name.as_str(),
            found.field.as_deref().unwrap_or(""),
            found.exact
        ),
        (type_name, field, exact),
        "{mark}: {found:?}"
    );
}

#[test]
fn c_pointers_give_type_and_field() {
    for options in [
        ["-g", "-O0"],
        ["-g", "-O1"],
        ["-g", "-O2"],
        ["-gdwarf-4", "-O2"],
    ] {
        let Some(program) = compile("counters.c", &options) else {
            return;
        };
        check(&program, "bump", "struct counter", ".inner.b", true);
        check(&program, "chain", "struct counter", ".hits", true);
        check(&program, "index", "struct node", ".values[..]", false);
        check(&program, "each", "struct counter", ".either.{f|i}", false);
        let bump = access(&program, "bump");
        assert_eq!(bump.storage, Storage::Pointer);
        assert_eq!(bump.variable.as_deref(), Some("c"));
        assert_eq!((bump.type_size, bump.element_stride), (24, 24));
        assert_eq!(bump.offset_in_type, Some(18));
        assert!(bump.own_record);
    }
}

#[test]
fn an_indexed_global_is_named_by_its_field() {
    for options in [
        ["-g", "-O0", "-pie"],
        ["-g", "-O2", "-pie"],
        ["-g", "-O0", "-no-pie"],
        ["-g", "-O2", "-no-pie"],
    ] {
        let Some(program) = compile("counters.c", &options) else {
            return;
        };
        let found = access(&program, "all");
        assert_eq!(found.storage, Storage::Global, "{options:?}");
        assert_eq!(found.variable.as_deref(), Some("counters"));
        assert_eq!(found.type_name, "struct counter[8]");
        assert_eq!(found.field.as_deref(), Some("[..].tag"));
        assert_eq!((found.offset_in_type, found.element_stride), (Some(9), 24));
    }
}

#[test]
fn a_thread_local_is_named() {
    let Some(program) = compile("counters.c", &["-g", "-O2"]) else {
        return;
    };
    check(&program, "own", "long[4]", "[2]", true);
    assert_eq!(access(&program, "own").variable.as_deref(), Some("mine"));
}

#[test]
fn raw_memory_has_no_record() {
    for level in ["-O0", "-O2"] {
        let Some(program) = compile("counters.c", &["-g", level]) else {
            return;
        };
        // A byte through a pointer without a type: no answer, or a type of one byte.
        let found = program.names().typed_access(program.store("raw"));
        assert!(found.is_none_or(|f| !f.own_record), "{level}");
    }
}

#[test]
fn cpp_references_and_this_give_type_and_field() {
    for level in ["-O0", "-O2"] {
        let Some(program) = compile("stats.cc", &["-g", level]) else {
            return;
        };
        check(&program, "member", "app::Stats", ".id", true);
        check(&program, "own", "app::Pool", ".own[..].id", false);
        check(&program, "reference", "app::Stats", ".id", true);
        assert_eq!(access(&program, "own").variable.as_deref(), Some("this"));
    }
    let Some(program) = compile("stats.cc", &["-g", "-O2"]) else {
        return;
    };
    check(&program, "owner", "app::Stats", ".bins[..]", false);
}

#[test]
fn rust_references_boxes_and_slices_give_type_and_field() {
    // Unoptimised, the checks before the store end in panics that never return.
    let Some(program) = compile("slots.rs", &["-g", "-C", "opt-level=0"]) else {
        return;
    };
    check(&program, "boxed", "slots::Slot", ".name", true);
    let Some(program) = compile("slots.rs", &["-g", "-C", "opt-level=2"]) else {
        return;
    };
    check(&program, "boxed", "slots::Slot", ".name", true);
}

#[test]
fn no_debug_information_no_type() {
    let Some(program) = compile("counters.c", &["-O2"]) else {
        return;
    };
    let mut names = program.names();
    let walk = program.address("walk");
    assert!((0..64).all(|i| names.typed_access(CodeAddress(walk.0 + i)).is_none()));
}

#[test]
fn allocation_has_the_type_of_the_pointer_that_receives_it() {
    for level in ["-O0", "-O1", "-O2"] {
        let Some(program) = compile("counters.c", &["-g", level]) else {
            return;
        };
        let mut names = program.names();
        let mut told = |stack: &[CodeAddress], size| {
            let ty = names.allocated_type(stack, size)?;
            names.type_name(ty)
        };
        let direct = program.return_of("main", "calloc");
        assert_eq!(
            told(&[direct], 3 * 48).as_deref(),
            Some("struct node"),
            "{level}"
        );
        // 50 bytes are no array of that type.
        assert_eq!(told(&[direct], 50), None);
        // One of them, up to the end of its line; not up to the end of the next.
        assert_eq!(told(&[direct], 64).as_deref(), Some("struct node"));
        assert_eq!(told(&[direct], 128), None);
        let wrapped = [
            program.return_of("wrapped", "malloc"),
            program.return_of("reserve", "wrapped"),
        ];
        assert_eq!(
            told(&wrapped, 48).as_deref(),
            Some("struct counter"),
            "{level}"
        );
        assert_eq!(told(&wrapped[..1], 48), None);
    }
}

#[test]
fn allocator_of_a_container_gives_the_element_type() {
    let Some(program) = compile("stats.cc", &["-g", "-O0"]) else {
        return;
    };
    let mut names = program.names();
    let allocate = "_ZNSt15__new_allocatorIN3app5StatsEE8allocateEmPKv";
    let after = program.return_of(allocate, "_Znwm");
    let ty = names.allocated_type(&[after], 3 * 72).expect("typed");
    assert_eq!(names.type_name(ty).as_deref(), Some("app::Stats"));
    assert_eq!(
        names.field_path(ty, 3 * 72, 72 + 60).as_deref(),
        Some("[1].bins[1]")
    );
}

#[test]
fn a_shared_pointer_s_counts_are_called_so() {
    let Some(program) = compile("stats.cc", &["-g", "-O0"]) else {
        return;
    };
    let mut names = program.names();
    let parts = [
        "__new_allocatorISt23_Sp_counted_ptr_inplaceIN3app4BaseE",
        "8allocateEmPKv",
    ];
    let after = program.return_of(&program.function_with(&parts), "_Znwm");
    // A table of functions (8), two counts of 4 bytes, the value.
    let ty = names.allocated_type(&[after], 24).expect("typed");
    assert_eq!(
        names.type_name(ty).as_deref(),
        Some("std::make_shared<app::Base>")
    );
    assert_eq!(names.field_path(ty, 24, 8).as_deref(), Some("(use count)"));
    assert_eq!(
        names.field_path(ty, 24, 12).as_deref(),
        Some("(weak count)")
    );
    assert_eq!(names.field_path(ty, 24, 16).as_deref(), Some(""));
}
