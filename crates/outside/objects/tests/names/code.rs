//! Functions, lines and inlined frames.

use crate::build::{BIAS, Program, compile};
use sunder_access::{CodeAddress, Mapping, Mappings, Span};
use sunder_objects::{GeneratedCode, Names};

#[test]
fn function_and_line_of_an_instruction_are_found() {
    for options in [["-g", "-O0"], ["-g", "-O2"], ["-gdwarf-4", "-O2"]] {
        let Some(program) = compile("counters.c", &options) else {
            return;
        };
        let mut names = program.names();
        let frames = names.frames(program.store("bump"));
        assert_eq!(frames.len(), 1, "{frames:?}");
        assert_eq!(frames[0].function, "bump");
        assert_eq!(frames[0].line, Some(program.line("bump")));
        assert!(
            frames[0]
                .file
                .as_deref()
                .is_some_and(|f| f.ends_with("counters.c"))
        );
        assert_eq!(frames[0].module.as_deref(), program.file.to_str());
    }
}

#[test]
fn inlined_functions_come_first() {
    let Some(program) = compile("counters.c", &["-g", "-O2"]) else {
        return;
    };
    let frames = program.names().frames(program.store("inlined"));
    let told: Vec<(&str, bool)> = frames
        .iter()
        .map(|f| (f.function.as_str(), f.inlined))
        .collect();
    assert_eq!(told, [("inlined", true), ("main", false)]);
    assert_eq!(frames[0].line, Some(program.line("inlined")));
}

/// Compilers that write no symbols leave their code behind that of `crtbegin.o`, whose last function
/// has a symbol without a size.
#[test]
fn code_without_symbols_is_not_called_by_what_the_linker_put_before_it() {
    let Some(program) = compile("no_symbols.c", &["-O0"]) else {
        return;
    };
    let mut names = program.names();
    let start = program.address("main").0;
    let before = names.frames(CodeAddress(start - 40));
    assert!(!before[0].function.contains("frame_dummy"), "{before:?}");
    assert_eq!(names.frames(CodeAddress(start))[0].function, "main+0x0");
}

#[test]
fn a_return_address_belongs_to_the_call_before_it() {
    let Some(program) = compile("counters.c", &["-g", "-O2"]) else {
        return;
    };
    let mut names = program.names();
    // The first byte after `bump` is not in `bump`, but it is the return address of a call at its
    // end.
    let start = program.address("bump").0;
    let end = (start..).find(|&a| names.frames(CodeAddress(a))[0].function != "bump");
    let end = end.expect("the function ends");
    assert_eq!(names.frames_of_return(CodeAddress(end))[0].function, "bump");
}

#[test]
fn cpp_and_rust_names_read_like_source() {
    if let Some(program) = compile("stats.cc", &["-g", "-O2"]) {
        let frames = program.names().frames(program.store("own"));
        assert_eq!(
            frames.last().map(|f| f.function.as_str()),
            Some("app::Pool::run")
        );
    }
    if let Some(program) = compile("slots.rs", &["-g", "-C", "opt-level=2"]) {
        let mut names = program.names();
        let frames = names.frames(program.store("boxed"));
        assert_eq!(frames[0].function, "slots::boxed");
        assert_eq!(frames[0].line, Some(program.line("boxed")));
    }
}

#[test]
fn without_debug_information_symbol_and_offset_name_code() {
    let Some(program) = compile("counters.c", &["-O2"]) else {
        return;
    };
    let mut names = program.names();
    let start = program.address("walk");
    let frames = names.frames(CodeAddress(start.0 + 3));
    assert_eq!(frames[0].function, "walk+0x3");
    assert_eq!((frames.len(), frames[0].line), (1, None));
}

#[test]
fn a_stripped_program_has_offsets_in_its_file() {
    let Some(program) = compile("counters.c", &["-O2"]) else {
        return;
    };
    let walk = program.symbol("walk");
    if program.tool("strip", &["program"]).is_none() {
        return;
    }
    let mut names = program.names();
    let frames = names.frames(CodeAddress(BIAS + walk));
    assert_eq!(frames[0].function, format!("program+{walk:#x}"));
    assert!(
        names.limits().iter().any(|l| l.contains("stripped")),
        "{:?}",
        names.limits()
    );
}

/// Strips the program and packs the symbols of `kept` into it, as gdb's manual describes.
fn pack_symbols(program: &Program, kept: &str) -> Option<()> {
    std::fs::write(program.folder.path().join("kept"), kept).expect("writable");
    program.tool("objcopy", &["--only-keep-debug", "program", "debug"])?;
    let options = ["-S", "--remove-section", ".comment"];
    let names = ["--keep-symbols=kept", "debug", "mini"];
    program.tool("objcopy", &[&options[..], &names].concat())?;
    program.tool("strip", &["--strip-all", "program"])?;
    program.tool("xz", &["mini"])?;
    program.tool(
        "objcopy",
        &["--add-section", ".gnu_debugdata=mini.xz", "program"],
    )?;
    Some(())
}

#[test]
fn packed_symbols_name_the_functions_of_a_stripped_program() {
    let Some(program) = compile("counters.c", &["-O2"]) else {
        return;
    };
    let (walk, each) = (program.address("walk"), program.symbol("each"));
    if pack_symbols(&program, "walk\nbump\n").is_none() {
        return;
    }
    let mut names = program.names();
    let name = |names: &mut Names, at: u64| names.frames(CodeAddress(at))[0].function.clone();
    assert_eq!(name(&mut names, walk.0 + 3), "walk+0x3");
    assert_eq!(name(&mut names, BIAS + each), format!("program+{each:#x}"));
    let limits = names.limits().concat();
    assert!(limits.contains("but for the names"), "{limits}");

    let whole = std::fs::read(&program.file).expect("readable");
    let magic = [0xfd, b'7', b'z', b'X', b'Z', 0];
    let start = whole.windows(6).position(|w| w == magic);
    let start = start.expect("the section");
    for at in [0, 7, 12, 30, 100] {
        let mut damaged = whole.clone();
        damaged[start + at] ^= 0x20;
        // Written in place, because the mappings identify the file by its inode number.
        std::fs::write(&program.file, damaged).expect("writable");
        let mut names = program.names();
        let bare = format!("program+{:#x}", walk.0 + 3 - BIAS);
        assert_eq!(name(&mut names, walk.0 + 3), bare, "byte {at}");
    }
}

#[test]
fn code_outside_every_mapping_is_an_address() {
    let Some(program) = compile("counters.c", &["-O2"]) else {
        return;
    };
    let frames = program.names().frames(CodeAddress(0x1234));
    assert_eq!(frames[0].function, "0x1234");
    assert_eq!(frames[0].module, None);
}

#[test]
fn names_can_be_made_in_one_thread_and_asked_in_another() {
    fn sent<T: Send>(_: &T) {}
    sent(&sunder_objects::Names::new(
        sunder_objects::NameOptions::default(),
    ));
}

#[test]
fn an_instruction_without_a_line_has_that_of_the_one_before() {
    let Some(program) = compile("no_line.c", &["-g", "-O1"]) else {
        return;
    };
    let frames = program.names().frames(program.store_in("bump"));
    assert_eq!(frames[0].function, "bump");
    assert_eq!(frames[0].line, Some(program.line("asm")), "{frames:?}");
}

/// Node copies its own code beside the code that it makes.
#[test]
fn generated_code_behind_a_file_is_not_the_files() {
    let Some(program) = compile("counters.c", &["-g", "-O1"]) else {
        return;
    };
    let whole = program.mappings();
    let text = program.address("bump");
    let text = whole.at(text).expect("mapped").clone();
    let behind = text.span.end();
    let mut mappings = Mappings::new();
    mappings.insert(text.clone());
    mappings.insert(Mapping {
        span: Span::new(behind, 0x1000),
        path: String::new(),
        inode: 0,
        execute: true,
        ..text
    });
    let mut names = program.names();
    names.set_mappings(mappings);
    let at = CodeAddress(behind.0 + 0x10);
    let unnamed = names.frames(at).remove(0);
    assert_eq!((unnamed.function, unnamed.module), (at.to_string(), None));
    let mut code = GeneratedCode::default();
    code.insert(Span::new(behind, 0x40), "JS:*bump".to_owned());
    names.set_generated(code);
    assert_eq!(names.frames(at).remove(0).function, "JS:*bump");
}

/// What a remedy puts into the program stands for the program's own code, and is told as that.
#[test]
fn an_instruction_of_a_copy_is_told_as_the_original() {
    let Some(program) = compile("counters.c", &["-g", "-O2"]) else {
        return;
    };
    let mut names = program.names();
    let (copy, beside) = (CodeAddress(0x7f00_0000_0010), CodeAddress(0x7f00_0000_0011));
    let original = program.store("bump");
    assert_ne!(names.frames(copy)[0].function, "bump");
    names.add_copies([(copy, original)]);
    assert_eq!(names.frames(copy), names.frames(original));
    assert_eq!(names.typed_access(copy), names.typed_access(original));
    assert!(names.typed_access(copy).is_some());
    assert_ne!(names.frames(beside)[0].function, "bump");
}
