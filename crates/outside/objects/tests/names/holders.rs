//! The holders of heap blocks: programs print the call stacks of their allocations and the names of
//! the holders in their source.

use crate::build::{Program, compile_by};
use crate::live::{hex, mapping};
use std::process::Command;
use sunder_access::{Address, CodeAddress, Mappings, Span};
use sunder_objects::{HeapBlock, NameOptions, Names, ObjectContext};

/// A compiled program, what it calls its blocks with their call stacks, and its names.
struct Allocating {
    blocks: Vec<(String, Vec<CodeAddress>)>,
    names: Names,
    _program: Program,
}

fn blocks_of(compiler: &str, source: &str, options: &[&str]) -> Option<Allocating> {
    let include = format!("-I{}/tests/names/programs", env!("CARGO_MANIFEST_DIR"));
    let mut all = options.to_vec();
    if compiler != "rustc" {
        all.extend(["-g", "-fno-builtin-malloc", include.as_str()]);
    }
    let program = compile_by(compiler, source, &all)?;
    let run = Command::new(&program.file).output().expect("it runs");
    assert!(run.status.success());
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let (mut blocks, mut mappings) = (Vec::new(), Mappings::new());
    for line in text.lines() {
        let Some(told) = line.strip_prefix("block ") else {
            mappings.insert(mapping(line).expect("a mapping"));
            continue;
        };
        let mut words = told.split(' ');
        let called = words.next().expect("a name").to_owned();
        let stack = words.map(|w| CodeAddress(hex(w).expect("an address")));
        blocks.push((called, stack.collect::<Vec<_>>()));
    }
    let mut names = Names::new(NameOptions::default());
    names.set_mappings(mappings);
    Some(Allocating {
        blocks,
        names,
        _program: program,
    })
}

/// The holders according to the program and according to the crate; `-` for none.
fn holders(compiler: &str, source: &str, options: &[&str]) -> Vec<(String, String)> {
    let Some(mut told) = blocks_of(compiler, source, options) else {
        return Vec::new();
    };
    let names = &mut told.names;
    let mut found = |stack: &[CodeAddress]| names.holder(stack).map_or("-".to_owned(), |h| h.name);
    told.blocks
        .into_iter()
        .map(|(wanted, stack)| (wanted, found(&stack)))
        .collect()
}

/// Checks that all holders are found except those of `unknown`, for which there must be no answer.
fn check(compiler: &str, source: &str, options: &[&str], unknown: &[&str]) {
    let wrong: Vec<_> = holders(compiler, source, options)
        .into_iter()
        .map(|(wanted, found)| match unknown.contains(&wanted.as_str()) {
            true => ("-".to_owned(), found),
            false => (wanted, found),
        })
        .filter(|(wanted, found)| wanted != found)
        .collect();
    assert!(wrong.is_empty(), "{compiler} {options:?}: {wrong:?}");
}

#[test]
fn heap_block_is_named_by_the_variable_or_field_that_holds_it() {
    for compiler in ["gcc", "clang"] {
        for level in ["-O0", "-O2"] {
            check(compiler, "holders.c", &[level], &[]);
        }
    }
}

#[test]
fn a_block_of_a_container_or_smart_pointer_is_called_by_that() {
    for compiler in ["g++", "clang++"] {
        for level in ["-O0", "-O2"] {
            // A tree's node is linked by functions that do not know the tree's type.
            let unknown = match (compiler, level) {
                ("g++", "-O2") => &["nodes"][..],
                _ => &[],
            };
            check(compiler, "holders.cc", &[level], unknown);
        }
    }
}

#[test]
fn a_box_vector_or_counted_reference_names_its_block() {
    check("rustc", "holders.rs", &["-g", "-C", "opt-level=0"], &[]);
    // Optimised, a vector lies in three registers from its first element on.
    let optimised = ["-g", "-C", "opt-level=2"];
    check("rustc", "holders.rs", &optimised, &["filled", "gathered"]);
}

/// The vector's own pointer is one to bytes; the elements' type is a parameter of the vector's.
#[test]
fn a_vectors_block_is_of_the_type_of_its_elements() {
    let Some(mut told) = blocks_of("rustc", "holders.rs", &["-g", "-C", "opt-level=2"]) else {
        return;
    };
    let found: Vec<_> = told
        .blocks
        .iter()
        .map(|(holder, stack)| {
            // Four elements, and no multiple of one.
            let of = |names: &mut Names, size| {
                let ty = names.allocated_type(stack, size)?;
                names.type_name(ty)
            };
            let sizes = [128, 100].map(|size| of(&mut told.names, size));
            (holder.as_str(), sizes)
        })
        .filter(|(holder, _)| *holder == "gathered")
        .collect();
    let slot = Some("holders::Slot".to_owned());
    assert_eq!(found, [("gathered", [slot, None])]);
}

/// A constructor's type says nothing of the raw memory that it allocates for a field.
#[test]
fn a_part_of_what_a_constructor_returns_has_not_its_type() {
    for (compiler, level) in [("gcc", "-O0"), ("gcc", "-O2"), ("clang", "-O2")] {
        let Some(mut told) = blocks_of(compiler, "constructors.c", &[level]) else {
            return;
        };
        let mut found = Vec::new();
        for (holder, stack) in std::mem::take(&mut told.blocks) {
            // As many bytes as a table of any of the types has.
            let ty = told.names.allocated_type(&stack, 4096);
            found.push((holder, ty.and_then(|ty| told.names.type_name(ty))));
        }
        let wanted = [("made", Some("struct connection")), ("made->buffer", None)];
        let wanted = wanted.map(|(holder, ty)| (holder.to_owned(), ty.map(str::to_owned)));
        assert_eq!(found, wanted, "{compiler} {level}");
    }
}

/// The innermost function of the program that is no wrapper of the allocator.
fn place_of(names: &mut Names, stack: Vec<CodeAddress>) -> Option<String> {
    let block = HeapBlock {
        span: Span::new(Address(0x10_0000), 16),
        allocation: stack,
        thread: None,
        freed: false,
    };
    let context = ObjectContext {
        heap: Some(block),
        ..ObjectContext::default()
    };
    let object = names.object_at(Address(0x10_0000), &context);
    let mut frames = object.allocation.into_iter();
    frames
        .find(|f| !f.wrapper && f.function != "malloc")
        .map(|f| f.function)
}

#[test]
fn a_function_that_hands_raw_memory_on_is_a_wrapper_and_a_factory_is_not() {
    for compiler in ["gcc", "clang"] {
        for level in ["-O0", "-O1", "-O2"] {
            let Some(mut told) = blocks_of(compiler, "wrappers.c", &[level]) else {
                continue;
            };
            assert_eq!(told.blocks.len(), 6);
            for (wanted, stack) in told.blocks {
                let found = place_of(&mut told.names, stack);
                assert_eq!(found, Some(wanted), "{compiler} {level}");
            }
        }
    }
}
