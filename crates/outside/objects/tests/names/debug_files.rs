//! Separate and split debug information: found, or clearly reported as missing.

use crate::build::{Program, compile};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use sunder_objects::{
    DebugPlace, NameOptions, Names, ObjectContext, ObjectKind, OwnFiles, debug_place,
};

fn field_of_tag(
    program: &Program,
    names: &mut Names,
    start: sunder_access::Address,
) -> Option<String> {
    let _ = program;
    let object = names.object_at(start, &ObjectContext::default());
    names.field_at(&object, 33)
}

/// Strips the program and moves its debug information to `program.debug`.
fn split_off(program: &Program) -> Option<()> {
    program.tool(
        "objcopy",
        &["--only-keep-debug", "program", "program.debug"],
    )?;
    program.tool("strip", &["program"])?;
    Some(())
}

#[test]
fn a_debug_link_is_followed_and_its_checksum_checked() {
    let Some(program) = compile("counters.c", &["-g", "-O2", "-Wl,--build-id=none"]) else {
        return;
    };
    let start = program.address("counters");
    let bump = program.store("bump");
    if split_off(&program).is_none() {
        return;
    }
    program.tool("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
    let mut names = program.names();
    assert_eq!(
        field_of_tag(&program, &mut names, start).as_deref(),
        Some("counters[1].tag")
    );
    assert_eq!(names.frames(bump)[0].line, Some(program.line("bump")));

    // In the folder `.debug` beside the program.
    let folder = program.folder.path();
    fs::create_dir(folder.join(".debug")).expect("a folder");
    fs::rename(
        folder.join("program.debug"),
        folder.join(".debug/program.debug"),
    )
    .expect("moved");
    assert!(field_of_tag(&program, &mut program.names(), start).is_some());
    assert_eq!(
        debug_place(&program.file),
        Some(DebugPlace::Separate(folder.join(".debug/program.debug")))
    );

    // Another file of that name is refused.
    let mut bytes = fs::read(folder.join(".debug/program.debug")).expect("readable");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(folder.join(".debug/program.debug"), bytes).expect("written");
    assert_eq!(
        debug_place(&program.file),
        Some(DebugPlace::Missing("program.debug".into()))
    );
    let mut names = program.names();
    assert_eq!(field_of_tag(&program, &mut names, start), None);
    let limits = names.limits();
    assert!(
        limits.iter().any(|l| l.contains("program.debug")),
        "{limits:?}"
    );
}

#[test]
fn debug_file_is_found_by_build_id() {
    let id = "0xabcdef0123456789";
    let option = format!("-Wl,--build-id={id}");
    let Some(program) = compile("counters.c", &["-g", "-O2", &option]) else {
        return;
    };
    let start = program.address("counters");
    if split_off(&program).is_none() {
        return;
    }
    let place = program.folder.path().join("debug/.build-id/ab");
    fs::create_dir_all(&place).expect("folders");
    fs::rename(
        program.folder.path().join("program.debug"),
        place.join("cdef0123456789.debug"),
    )
    .expect("moved");
    let options = NameOptions {
        debug_dirs: vec![program.folder.path().join("debug")],
        files: Arc::new(OwnFiles::default()),
        executable: None,
        debuginfod_cache: None,
        memory: None,
        debug_information: true,
    };
    let mut names = program.names_with(options);
    assert_eq!(
        field_of_tag(&program, &mut names, start).as_deref(),
        Some("counters[1].tag")
    );
    assert!(names.limits().is_empty(), "{:?}", names.limits());
}

#[test]
fn debug_information_that_is_left_is_not_read() {
    let Some(program) = compile("counters.c", &["-g", "-O2"]) else {
        return;
    };
    let start = program.address("counters");
    let mut names = program.names_with(NameOptions::default());
    names.leave_debug_information();
    let object = names.object_at(start, &ObjectContext::default());
    assert_eq!(object.name.as_deref(), Some("counters"));
    assert_eq!(names.field_at(&object, 33), None);
    let limits = names.limits();
    assert_eq!(limits.len(), 1, "{limits:?}");
    assert!(
        limits[0].contains("debug information takes too much time or memory"),
        "{limits:?}"
    );
}

#[test]
fn files_fetched_by_debuginfod_are_read() {
    let id = "abcdef0123456789";
    let option = format!("-Wl,--build-id=0x{id}");
    let Some(program) = compile("counters.c", &["-g", "-O2", &option]) else {
        return;
    };
    let start = program.address("counters");
    if split_off(&program).is_none() {
        return;
    }
    let folder = program.folder.path();
    let cache = folder.join("cache");
    fs::create_dir_all(cache.join(id)).expect("folders");
    fs::rename(
        folder.join("program.debug"),
        cache.join(id).join("debuginfo"),
    )
    .expect("moved");
    let mut names = program.names_with(NameOptions {
        debug_dirs: Vec::new(),
        files: Arc::new(OwnFiles::default()),
        executable: None,
        debuginfod_cache: Some(cache),
        memory: None,
        debug_information: true,
    });
    let field = field_of_tag(&program, &mut names, start);
    assert_eq!(field.as_deref(), Some("counters[1].tag"));
}

/// A folder like the root of a system whose packages have `files`.
fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    let lists = root.path().join("var/lib/dpkg/info");
    fs::create_dir_all(&lists).expect("folders");
    for (package, text) in files {
        fs::write(lists.join(format!("{package}.list")), text).expect("written");
    }
    root
}

#[test]
fn the_package_and_the_build_id_say_where_debug_information_is() {
    let option = "-Wl,--build-id=0xabcdef0123456789";
    let Some(program) = compile("counters.c", &["-O2", option]) else {
        return;
    };
    // The lists have `/lib`, the kernel `/usr/lib`.
    let root = system(&[
        ("other", "/.\n/lib/libcounters.so.1.2\n"),
        ("libcounters1:amd64", "/.\n/lib\n/lib/libcounters.so.1\n"),
    ]);
    let folder = root.path().join("usr/lib");
    fs::create_dir_all(&folder).expect("folders");
    let place = folder.join("libcounters.so.1");
    fs::copy(&program.file, &place).expect("copied");
    let (file, inode) = (
        "/usr/lib/libcounters.so.1",
        fs::metadata(&place).expect("there").ino(),
    );
    let mut mappings = sunder_access::Mappings::new();
    for mut mapping in program.mappings().iter().cloned() {
        if !mapping.path.is_empty() {
            (mapping.path, mapping.inode) = (file.to_owned(), inode);
        }
        mappings.insert(mapping);
    }
    let told = |lists: &std::path::Path, files: &[String]| {
        let mut names = Names::new(NameOptions {
            debug_dirs: Vec::new(),
            files: Arc::new(OwnFiles {
                root: lists.to_owned(),
            }),
            executable: None,
            debuginfod_cache: None,
            memory: None,
            debug_information: true,
        });
        names.set_mappings(mappings.clone());
        let start = program.address("counters");
        let _ = names.object_at(start, &ObjectContext::default());
        for _ in 0..2 {
            names.add_remedies(files);
        }
        let all = names.limits().into_iter();
        all.filter(|l| l.starts_with("Findings lie in")).collect()
    };
    let files = [file.to_owned(), file.to_owned(), "/none".to_owned()];
    let all: Vec<String> = told(root.path(), &files);
    let [sentence] = &all[..] else {
        panic!("one sentence, not {all:?}")
    };
    for part in [file, "libcounters1-dbgsym", "debuginfo abcdef0123456789"] {
        assert!(sentence.contains(part), "{sentence}");
    }
    // Without the lists only the build ID is known.
    fs::remove_dir_all(root.path().join("var")).expect("removed");
    let all: Vec<String> = told(root.path(), &files);
    assert!(all.concat().contains("debuginfo abcdef"), "{all:?}");
    assert!(!all.concat().contains("dbgsym"), "{all:?}");
    let none: Vec<String> = told(root.path(), &[]);
    assert!(none.is_empty(), "no finding lies there: {none:?}");
}

#[test]
fn split_debug_information_is_read_and_its_absence_reported() {
    for dwarf in ["-gdwarf-5", "-gdwarf-4"] {
        let Some(program) = compile("counters.c", &[dwarf, "-O2", "-gsplit-dwarf"]) else {
            return;
        };
        let start = program.address("counters");
        let store = program.store_in("walk");
        let mut names = program.names();
        assert_eq!(
            field_of_tag(&program, &mut names, start).as_deref(),
            Some("counters[1].tag"),
            "{dwarf}"
        );
        let object = names.object_at(start, &ObjectContext::default());
        assert_eq!(object.declared.and_then(|d| d.line), Some(20));
        let found = names.typed_access(store).expect("typed");
        assert_eq!(
            (found.type_name.as_str(), found.field.as_deref()),
            ("struct node", Some(".values[..]"))
        );
        assert_eq!(names.frames(store)[0].function, "walk");
        assert!(names.limits().is_empty(), "{:?}", names.limits());
        assert_eq!(debug_place(&program.file), Some(DebugPlace::Split));

        for entry in fs::read_dir(program.folder.path())
            .expect("listed")
            .flatten()
        {
            if entry.path().extension().is_some_and(|e| e == "dwo") {
                fs::remove_file(entry.path()).expect("removed");
            }
        }
        assert!(matches!(
            debug_place(&program.file),
            Some(DebugPlace::SplitMissing(_))
        ));
        let mut names = program.names();
        let object = names.object_at(start, &ObjectContext::default());
        assert_eq!(object.name.as_deref(), Some("counters"));
        assert_eq!(object.type_name, None);
        assert_eq!(names.frames(store)[0].line, Some(program.line("index")));
        let limits = names.limits();
        assert!(
            limits.iter().any(|l| l.contains("split debug information")),
            "{limits:?}"
        );
    }
}

#[test]
fn a_packaged_program_is_read() {
    let Some(program) = compile("counters.c", &["-gdwarf-5", "-O2", "-gsplit-dwarf"]) else {
        return;
    };
    let start = program.address("counters");
    // binutils' dwp reads DWARF 5 only in part, since 2.36; where it can't, there is no test.
    let made = std::process::Command::new("dwp")
        .current_dir(program.folder.path())
        .args(["-e", "program"])
        .output();
    if !made.is_ok_and(|m| m.status.success()) {
        println!("SKIP: dwp is not installed or cannot package DWARF 5");
        return;
    }
    for entry in fs::read_dir(program.folder.path())
        .expect("listed")
        .flatten()
    {
        if entry.path().extension().is_some_and(|e| e == "dwo") {
            fs::remove_file(entry.path()).expect("removed");
        }
    }
    assert_eq!(
        field_of_tag(&program, &mut program.names(), start).as_deref(),
        Some("counters[1].tag")
    );
}

#[test]
fn a_container_s_files_are_read_below_its_root() {
    let Some(program) = compile("counters.c", &["-g", "-O2"]) else {
        return;
    };
    let start = program.address("counters");
    let root = tempfile::tempdir().expect("a folder");
    let inside = root
        .path()
        .join(program.folder.path().strip_prefix("/").expect("absolute"));
    fs::create_dir_all(&inside).expect("folders");
    let mappings = program.mappings();
    fs::rename(&program.file, inside.join("program")).expect("moved");
    let mut names = Names::new(NameOptions {
        debug_dirs: Vec::new(),
        files: Arc::new(OwnFiles {
            root: root.path().to_owned(),
        }),
        executable: None,
        debuginfod_cache: None,
        memory: None,
        debug_information: true,
    });
    names.set_mappings(mappings.clone());
    assert_eq!(
        field_of_tag(&program, &mut names, start).as_deref(),
        Some("counters[1].tag")
    );
    let module = names.object_at(start, &ObjectContext::default()).module;
    assert_eq!(module.as_deref(), program.file.to_str());

    // Without the root the file is missing, and a limit says so.
    let mut names = Names::new(NameOptions::default());
    names.set_mappings(mappings);
    assert_eq!(field_of_tag(&program, &mut names, start), None);
    assert_eq!(names.limits().len(), 1, "{:?}", names.limits());
}

#[test]
fn replaced_program_has_no_names_and_a_limit() {
    let Some(program) = compile("counters.c", &["-g", "-O2"]) else {
        return;
    };
    let start = program.address("counters");
    let mappings = program.mappings();
    // A rebuilt program is a new file of the same name.
    let copy = program.folder.path().join("copy");
    fs::copy(&program.file, &copy).expect("copied");
    fs::rename(&copy, &program.file).expect("moved");
    let device = fs::metadata(&program.file).expect("there").dev();
    if device >> 8 & 0xfff == 0 {
        println!("SKIP: the temporary folder lies on a file system without a device of its own");
        return;
    }
    let mut names = Names::new(NameOptions::default());
    names.set_mappings(mappings);
    let object = names.object_at(start, &ObjectContext::default());
    assert_eq!((object.kind, object.type_name), (ObjectKind::Mapping, None));
    let limits = names.limits();
    assert!(limits.iter().any(|l| l.contains("replaced")), "{limits:?}");
}

#[test]
fn broken_files_are_an_answer_and_no_panic() {
    let Some(program) = compile("counters.c", &["-g", "-O2"]) else {
        return;
    };
    let start = program.address("counters");
    let bump = program.store("bump");
    let mappings = program.mappings();
    let whole = fs::read(&program.file).expect("readable");
    for length in [0, 3, 64, 100, 1000, whole.len() / 2, whole.len() - 100] {
        fs::write(&program.file, &whole[..length]).expect("written");
        let mut names = Names::new(NameOptions {
            debug_dirs: Vec::new(),
            files: Arc::new(OwnFiles::default()),
            executable: None,
            debuginfod_cache: None,
            memory: None,
            debug_information: true,
        });
        names.set_mappings(mappings.clone());
        assert!(!names.frames(bump).is_empty());
        let _ = names.object_at(start, &ObjectContext::default());
        let _ = names.typed_access(bump);
    }
    // Damage inside: every answer may be poorer, but no query may panic.
    for step in 1..60 {
        let mut bytes = whole.clone();
        for at in (step * 7..bytes.len()).step_by(97 + step) {
            bytes[at] = bytes[at].wrapping_add(step as u8);
        }
        bytes[..64].copy_from_slice(&whole[..64]);
        fs::write(&program.file, bytes).expect("written");
        let mut names = Names::new(NameOptions {
            debug_dirs: Vec::new(),
            files: Arc::new(OwnFiles::default()),
            executable: None,
            debuginfod_cache: None,
            memory: None,
            debug_information: true,
        });
        names.set_mappings(mappings.clone());
        assert!(!names.frames(bump).is_empty());
        let _ = names.object_at(start, &ObjectContext::default());
        let _ = names.typed_access(bump);
    }
}

#[test]
fn deleted_program_is_read_through_the_running_process() {
    let Some(program) = compile("counters.c", &["-g", "-O0"]) else {
        return;
    };
    let address = program.address("counters");
    let mut mappings = sunder_access::Mappings::new();
    for mut mapping in program.mappings().iter().cloned() {
        if !mapping.path.is_empty() {
            mapping.path.push_str(" (deleted)");
        }
        mappings.insert(mapping);
    }
    // An open file keeps its contents when its name is removed.
    let kept = std::fs::File::open(&program.file).expect("readable");
    std::fs::remove_file(&program.file).expect("removable");
    let told = |executable| {
        let mut names = Names::new(NameOptions {
            debug_dirs: Vec::new(),
            files: Arc::new(OwnFiles::default()),
            executable,
            debuginfod_cache: None,
            memory: None,
            debug_information: true,
        });
        names.set_mappings(mappings.clone());
        let object = names.object_at(address, &ObjectContext::default());
        (object.name, names.limits().concat())
    };
    let (name, limits) = told(None);
    assert_eq!(name.as_deref().filter(|n| *n == "counters"), None);
    assert!(limits.contains("replaced or deleted"), "{limits}");
    assert!(!limits.contains("-g"), "{limits}");
    let (name, limits) = told(Some(Arc::new(kept)));
    assert_eq!((name.as_deref(), limits.as_str()), (Some("counters"), ""));
}

#[test]
fn deleted_library_is_read_through_the_given_path() {
    let Some(program) = compile("counters.c", &["-g", "-O0"]) else {
        return;
    };
    let address = program.address("counters");
    let kept = program.folder.path().join("kept");
    // The same file under another name.
    fs::hard_link(&program.file, &kept).expect("linked");
    let mappings = program.mappings();
    fs::remove_file(&program.file).expect("removable");
    let told = |held: Option<Option<fs::File>>| {
        let mut names = Names::new(NameOptions {
            debug_dirs: Vec::new(),
            files: Arc::new(OwnFiles::default()),
            executable: None,
            debuginfod_cache: None,
            memory: None,
            debug_information: true,
        });
        let mut all = sunder_access::Mappings::new();
        for mut mapping in mappings.iter().cloned() {
            if let Some(file) = &held {
                // Called before the file is deleted.
                let file = file.as_ref().map(|f| f.try_clone().expect("a descriptor"));
                names.set_file(&mapping, file.map(Arc::new));
            }
            if !mapping.path.is_empty() {
                mapping.path.push_str(" (deleted)");
            }
            all.insert(mapping);
        }
        names.set_mappings(all);
        let object = names.object_at(address, &ObjectContext::default());
        (object.name, names.limits().concat())
    };
    let (name, limits) = told(Some(Some(fs::File::open(kept).expect("readable"))));
    assert_eq!((name.as_deref(), limits.as_str()), (Some("counters"), ""));
    let (name, limits) = told(Some(None));
    assert_ne!(name.as_deref(), Some("counters"));
    assert!(limits.contains("CAP_CHECKPOINT_RESTORE"), "{limits}");
    let (_, limits) = told(None);
    assert!(limits.contains("replaced or deleted"), "{limits}");
    assert!(!limits.contains("CAP_"), "{limits}");
}
