//! Globals, statics and thread-locals: object, type, element and field.

use crate::build::{BIAS, Program, compile, compile_by};
use sunder_access::{Address, Mapping, Span, ThreadId};
use sunder_objects::{HeapBlock, Names, ObjectContext, ObjectKind, ThreadPointer, ThreadStack};

/// The answer for `address`: name, type, size and path.
fn told(names: &mut Names, address: Address) -> (String, String, u64, String) {
    let object = names.object_at(address, &ObjectContext::default());
    assert_eq!(object.kind, ObjectKind::Global, "{object:?}");
    let offset = object.offset_of(address).expect("inside");
    let field = names.field_at(&object, offset).unwrap_or_default();
    (
        object.name.unwrap_or_default(),
        object.type_name.unwrap_or_default(),
        object.size.unwrap_or(0),
        field,
    )
}

fn check(program: &Program, symbol: &str, table: &[(u64, &str)], ty: &str, size: u64) {
    let mut names = program.names();
    let start = program.address(symbol);
    for &(offset, path) in table {
        let (_, type_name, found, field) = told(&mut names, Address(start.0 + offset));
        assert_eq!(
            (field.as_str(), type_name.as_str(), found),
            (path, ty, size),
            "{symbol}+{offset}"
        );
    }
}

/// struct counter: hits 0-7, bit fields in byte 8, tag 9, a hole at 10 and 11,
/// the union 12-15, inner 16-19, and 4 bytes at the end.
const COUNTERS: [(u64, &str); 8] = [
    (0, "counters[0].hits"),
    (3 * 24 + 7, "counters[3].hits"),
    (24 + 8, "counters[1].{low|high}"),
    (24 + 9, "counters[1].tag"),
    (24 + 10, "counters[1].<padding>"),
    (7 * 24 + 12, "counters[7].either.{f|i}"),
    (24 + 18, "counters[1].inner.b"),
    (24 + 20, "counters[1].<padding>"),
];

#[test]
fn c_globals_are_named_down_to_the_field() {
    for options in [
        ["-g", "-O0"],
        ["-g", "-O2"],
        ["-gdwarf-4", "-O2"],
        ["-gdwarf-3", "-O0"],
    ] {
        let Some(program) = compile("counters.c", &options) else {
            return;
        };
        check(&program, "counters", &COUNTERS, "struct counter[8]", 192);
        check(
            &program,
            "matrix",
            &[(36, "matrix[2][1]"), (0, "matrix[0][0]")],
            "int[3][4]",
            48,
        );
        // Upper bounds of 255 and 65,535, in one byte and in two.
        check(
            &program,
            "bytes",
            &[(255, "bytes[255]")],
            "unsigned char[256]",
            256,
        );
        check(
            &program,
            "longer",
            &[(65535, "longer[65535]")],
            "char[65536]",
            65536,
        );
        check(
            &program,
            "guard",
            &[(0, "guard"), (17, "guard")],
            "pthread_mutex_t",
            40,
        );
        check(
            &program,
            "unnamed",
            &[(0, "unnamed.flag"), (8, "unnamed.counter")],
            "struct {…}",
            16,
        );
        // The array and its elements are both qualified.
        check(&program, "spun", &[(8, "spun[1]")], "volatile long[4]", 32);
        // `_Atomic` has a tag since DWARF 5.
        let atomic = if options[0] == "-g" {
            "_Atomic long"
        } else {
            "long"
        };
        check(&program, "total", &[(0, "total")], atomic, 8);
        check(&program, "calls.0", &[(0, "bump()::calls")], "int", 4);
    }
}

#[test]
fn types_in_their_own_sections_are_found() {
    let Some(program) = compile("counters.c", &["-g", "-O2", "-fdebug-types-section"]) else {
        return;
    };
    check(&program, "counters", &COUNTERS, "struct counter[8]", 192);
    for compiler in ["g++", "clang++"] {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            let options = [version, "-O1", "-fdebug-types-section"];
            let Some(program) = compile_by(compiler, "bases.cc", &options) else {
                continue;
            };
            let mut names = program.names();
            for (symbol, name) in [
                ("5firstE", "app::Table<std::atomic<long>>::first"),
                ("6secondE", "app::Table<std::atomic<long>>::second"),
                ("5thirdE", "app::Table<std::atomic<long>>::Inner::third"),
            ] {
                let (found, ..) = told(&mut names, program.address(symbol));
                assert_eq!(found, name, "{compiler} {version}");
            }
        }
    }
}

#[test]
fn fixed_executables_are_named_too() {
    let Some(program) = compile("counters.c", &["-g", "-O2", "-no-pie"]) else {
        return;
    };
    check(&program, "counters", &COUNTERS, "struct counter[8]", 192);
}

#[test]
fn declarations_have_file_and_line() {
    let Some(program) = compile("counters.c", &["-g", "-O2"]) else {
        return;
    };
    let mut names = program.names();
    let object = names.object_at(program.address("counters"), &ObjectContext::default());
    let declared = object.declared.expect("declared");
    assert!(declared.file.ends_with("/counters.c"), "{declared:?}");
    assert_eq!(declared.line, Some(20));
    assert_eq!(object.start, program.address("counters"));
    assert_eq!(object.module.as_deref(), program.file.to_str());
    assert!(names.limits().is_empty(), "{:?}", names.limits());
}

/// A virtual base is where the whole object's class has it: its room is no padding.
#[test]
fn bytes_of_virtual_bases_are_no_padding() {
    for compiler in ["g++", "clang++"] {
        let Some(program) = compile_by(compiler, "bases.cc", &["-g", "-O1"]) else {
            continue;
        };
        // Left's part 0-15, small 16, joined 24-31, the virtual base 32-47.
        let table = [
            (8, "joined.left"),
            (16, "joined.small"),
            (24, "joined.joined"),
            (32, "joined.<unknown>"),
            (40, "joined.<unknown>"),
        ];
        check(&program, "joined", &table, "Joined", 48);
        // The part with its virtual base 0-31, tag 32, last 40-47.
        let table = [
            (8, "holder.part.left"),
            (24, "holder.part.<unknown>"),
            (32, "holder.tag"),
            (33, "holder.<padding>"),
            (40, "holder.last"),
        ];
        check(&program, "holder", &table, "Holder", 48);
    }
}

#[test]
fn cpp_names_omit_internals_of_the_library() {
    for level in ["-O0", "-O2"] {
        let Some(program) = compile("stats.cc", &["-g", level]) else {
            return;
        };
        // Base 0, hits 8, guard 16-55, bins 56-71.
        let table = [
            (72, "app::table[1].id"),
            (8, "app::table[0].hits"),
            (3 * 72 + 16, "app::table[3].guard"),
            (3 * 72 + 50, "app::table[3].guard"),
            (2 * 72 + 56 + 8, "app::table[2].bins[2]"),
        ];
        check(&program, "_ZN3app5tableE", &table, "app::Stats[4]", 288);
        check(
            &program,
            "_ZN3app8countersE",
            &[(16, "app::counters[2]")],
            "std::atomic<long>[4]",
            32,
        );
        check(
            &program,
            "_ZN3app5Stats4madeE",
            &[(0, "app::Stats::made")],
            "long",
            8,
        );
        check(
            &program,
            "_ZN3app5ownerE",
            &[(0, "app::owner")],
            "std::unique_ptr<app::Stats>",
            8,
        );
        check(
            &program,
            "5wordsB5cxx11E",
            &[(8, "app::words")],
            "std::vector<std::string>",
            24,
        );
        check(
            &program,
            "5picks",
            &[(0, "pick<app::Stats>()::picks")],
            "long",
            8,
        );
    }
}

#[test]
fn rust_statics_are_named_as_in_the_source() {
    for level in ["opt-level=0", "opt-level=2"] {
        let Some(program) = compile("slots.rs", &["-g", "-C", level]) else {
            return;
        };
        check(
            &program,
            "COUNTERS",
            &[(0, "COUNTERS[0]"), (17, "COUNTERS[2]")],
            "[AtomicU64; 4]",
            32,
        );
        // The lock word, the poison flag and the value of a Mutex<u64>.
        let locks = [
            (16, "LOCKS[1] (lock)"),
            (16 + 4, "LOCKS[1] (poison flag)"),
            (16 + 8, "LOCKS[1]"),
        ];
        check(&program, "LOCKS", &locks, "[Mutex<u64>; 4]", 64);
        let mut names = program.names();
        let slots = program.address("inner::SLOTS");
        // Rust chooses the order of the fields; both of 8 bytes must be there.
        let mut fields: Vec<String> = [16, 24]
            .iter()
            .map(|o| told(&mut names, Address(slots.0 + o)).3)
            .collect();
        fields.sort();
        assert_eq!(fields, ["inner::SLOTS[1].hits", "inner::SLOTS[1].name"]);
    }
}

#[test]
fn thread_locals_of_the_executable_are_found_below_the_thread_pointer() {
    let Some(program) = compile("counters.c", &["-g", "-O2"]) else {
        return;
    };
    let mut names = program.names();
    // `mine` (32 bytes) and `other` (4) make a block of 40, aligned to 8, whose end is at the
    // thread pointer.
    let fs_base = Address(0x7f00_0000_1740);
    let block = fs_base.0 - 40;
    let address = Address(block + program.symbol("mine") + 16);
    let context = ObjectContext {
        thread_pointers: vec![ThreadPointer {
            thread: ThreadId(7),
            fs_base,
        }],
        ..ObjectContext::default()
    };
    let object = names.object_at(address, &context);
    assert_eq!(object.kind, ObjectKind::Tls);
    assert_eq!(object.name.as_deref(), Some("mine"));
    assert_eq!(object.type_name.as_deref(), Some("long[4]"));
    assert_eq!(object.thread, Some(ThreadId(7)));
    let field = names.field_at(&object, 16);
    assert_eq!(field.as_deref(), Some("mine[2]"));
    // Without the thread pointer there is no name.
    let unknown = names.object_at(address, &ObjectContext::default());
    assert_eq!(unknown.kind, ObjectKind::Unknown);
}

/// Programs of Go have a section for their build, and stacks on their heap.
#[test]
fn the_heap_of_go_is_no_threads_stack() {
    let Some(program) = compile("counters.c", &["-g"]) else {
        return;
    };
    let stack = |at| ThreadStack {
        thread: ThreadId(4),
        span: Span::new(Address(at), 0x1000),
    };
    let (heap, kernels) = (0x7000_0000_0000, 0x7fff_0000_0000);
    let context = ObjectContext {
        stacks: vec![stack(heap), stack(kernels)],
        ..ObjectContext::default()
    };
    let kinds = || {
        let mut mappings = program.mappings();
        for (at, path) in [(heap, ""), (kernels, "[stack]")] {
            mappings.insert(Mapping {
                span: stack(at).span,
                file_offset: 0,
                path: path.to_owned(),
                inode: 0,
                read: true,
                write: true,
                execute: false,
                shared: false,
            });
        }
        let mut names = program.names();
        names.set_mappings(mappings);
        [heap, kernels].map(|at| names.object_at(Address(at + 64), &context).kind)
    };
    assert_eq!(kinds(), [ObjectKind::Stack; 2]);
    let add = ["--add-section", ".go.buildinfo=counters.c", "program"];
    if program.tool("objcopy", &add).is_some() {
        assert_eq!(kinds(), [ObjectKind::Mapping, ObjectKind::Stack]);
    }
}

/// Of a program that has become another, observers may have learned the mappings of code alone.
#[test]
fn a_global_is_named_where_only_mappings_of_code_are_known() {
    let Some(program) = compile("counters.c", &["-g"]) else {
        return;
    };
    let global = program.address("counters");
    let whole = program.names().object_at(global, &ObjectContext::default());
    let mut names = program.names();
    names.set_mappings(
        program
            .mappings()
            .iter()
            .filter(|m| m.execute)
            .cloned()
            .collect(),
    );
    let by_code = names.object_at(global, &ObjectContext::default());
    assert_eq!(by_code.kind, ObjectKind::Global);
    assert_eq!((&by_code.name, by_code.start), (&whole.name, whole.start));
    // Beyond the file's last segment nothing is its own.
    let beyond = names.object_at(Address(global.0 + (1 << 30)), &ObjectContext::default());
    assert_eq!(beyond.kind, ObjectKind::Unknown);
}

#[test]
fn heap_blocks_and_stacks_come_from_the_context() {
    let Some(program) = compile("counters.c", &["-g", "-O2"]) else {
        return;
    };
    let mut names = program.names();
    let block = Span::new(Address(0x7000_0000), 72);
    let context = ObjectContext {
        heap: Some(HeapBlock {
            span: block,
            allocation: vec![sunder_access::CodeAddress(program.address("walk").0 + 1)],
            thread: Some(ThreadId(3)),
            freed: true,
        }),
        stacks: vec![ThreadStack {
            thread: ThreadId(4),
            span: Span::new(Address(0x8000_0000), 0x1000),
        }],
        ..ObjectContext::default()
    };
    let object = names.object_at(Address(0x7000_0010), &context);
    assert_eq!(
        (object.kind, object.start, object.size),
        (ObjectKind::Heap, block.start, Some(72))
    );
    assert!(object.freed && object.thread == Some(ThreadId(3)));
    assert_eq!(object.allocation[0].function, "walk");
    let stack = names.object_at(Address(0x8000_0ff0), &context);
    assert_eq!(
        (stack.kind, stack.thread),
        (ObjectKind::Stack, Some(ThreadId(4)))
    );
    // With the type of an access, the block has fields.
    let counters = names.object_at(program.address("counters"), &ObjectContext::default());
    let array = counters.type_handle.expect("typed");
    assert_eq!(names.field_path(array, 192, 33).as_deref(), Some("[1].tag"));
}

#[test]
fn without_debug_information_symbols_remain() {
    let Some(program) = compile("counters.c", &["-O2"]) else {
        return;
    };
    let mut names = program.names();
    let start = program.address("counters");
    let object = names.object_at(Address(start.0 + 30), &ObjectContext::default());
    assert_eq!(object.name.as_deref(), Some("counters"));
    assert_eq!((object.size, object.start), (Some(192), start));
    assert_eq!(names.field_at(&object, 30), None);
    let limits = names.limits();
    assert!(
        limits
            .iter()
            .any(|l| l.contains("no debug information") && l.contains("-g")),
        "{limits:?}"
    );
}

#[test]
fn memory_that_no_module_has_is_a_mapping_or_unknown() {
    let Some(program) = compile("counters.c", &["-g"]) else {
        return;
    };
    let mut names = program.names();
    let nowhere = names.object_at(Address(0x10), &ObjectContext::default());
    assert_eq!(nowhere.kind, ObjectKind::Unknown);
    let header = names.object_at(Address(BIAS), &ObjectContext::default());
    assert_eq!(header.kind, ObjectKind::Mapping);
}

#[test]
fn arrays_have_the_size_of_their_elements() {
    let Some(program) = compile("counters.c", &["-g", "-O0"]) else {
        return;
    };
    let mut names = program.names();
    let mut element = |name| {
        let object = names.object_at(program.address(name), &ObjectContext::default());
        object.element_size
    };
    // struct counter has 24 bytes; a matrix has rows and elements; a long has no elements.
    assert_eq!(element("counters"), Some(24));
    assert_eq!(element("matrix"), None);
    assert_eq!(element("total"), None);
}

#[test]
fn arrays_of_fortran_have_its_indices_and_sizes() {
    let Some(program) = compile("arrays.f90", &["-g", "-O1"]) else {
        return;
    };
    let check = |name: &str, table: &[(u64, &str)], ty: &str, size: u64| {
        let symbol = format!("__data_MOD_{name}");
        check(&program, &symbol, table, ty, size);
    };
    let first = [(0, "first[1]"), (56, "first[8]")];
    check("first", &first, "volatile integer(kind=8)[8]", 64);
    let hundred = [(0, "hundred[100]"), (63, "hundred[107]")];
    check("hundred", &hundred, "volatile integer(kind=8)[8]", 64);
    let below = [(0, "below[-2]"), (40, "below[3]")];
    check("below", &below, "volatile integer(kind=8)[6]", 48);
    let matrix = [(0, "matrix[1,5]"), (4, "matrix[2,5]"), (36, "matrix[2,9]")];
    check("matrix", &matrix, "volatile integer(kind=4)[2,5]", 40);
}
