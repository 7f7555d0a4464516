//! Thread-local variables of libraries, linked and loaded later, compared with a running program
//! that prints their addresses.

use crate::live::{hex, mapping};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use sunder_access::{Address, CodeAddress, Mappings, Span, ThreadId};
use sunder_objects::{HeapBlock, NameOptions, Names, ObjectContext, ObjectKind, ThreadPointer};

/// The output of a thread, with the addresses of its variables.
struct Printed {
    pointer: ThreadPointer,
    hidden: Address,
    shown: Address,
    zeroed: Address,
}

/// A program that waits, and its output.
struct Running {
    child: Child,
    memory: File,
    mappings: Mappings,
    threads: Vec<Printed>,
    _folder: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles in `folder`; false if the compiler is not installed.
fn build(folder: &Path, compiler: &str, arguments: &[&str]) -> bool {
    let run = Command::new(compiler)
        .current_dir(folder)
        .args(arguments)
        .output();
    let Ok(run) = run else {
        println!("SKIP: {compiler} is not installed");
        return false;
    };
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{compiler} {arguments:?}: {errors}");
    true
}

/// Runs the program with its library, which is built with `options` and, if `late`, loaded by the
/// program itself.
fn run(compiler: &str, options: &[&str], late: bool) -> Option<Running> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/names/programs");
    let library = folder.path().join("liblocals.so");
    let (source, user) = ("locals_library.c", "locals_user.c");
    for file in [source, user] {
        std::fs::copy(programs.join(file), folder.path().join(file)).expect("it is there");
    }
    let mut arguments = vec!["-shared", "-fPIC", "-O1", "-o", "liblocals.so"];
    arguments.extend(options);
    let language = if compiler.ends_with("++") { "c++" } else { "c" };
    arguments.extend(["-x", language, source]);
    if !build(folder.path(), compiler, &arguments) {
        return None;
    }
    let own = ["-g", "-O1", "-pthread", "-o", "user", user, "-ldl"];
    let linked = [
        "-Wl,--no-as-needed",
        "-L.",
        "-llocals",
        "-Wl,-rpath,$ORIGIN",
    ];
    let all = [&own[..], if late { &[] } else { &linked }].concat();
    if !build(folder.path(), "gcc", &all) {
        return None;
    }
    let mut command = Command::new(folder.path().join("user"));
    if late {
        command.arg(&library);
    }
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Some(listen(streams.spawn().expect("it runs"), folder))
}

fn listen(mut child: Child, folder: tempfile::TempDir) -> Running {
    let (mut threads, mut mappings) = (Vec::new(), Mappings::new());
    let out = child.stdout.take().expect("piped");
    for line in BufReader::new(out).lines() {
        let line = line.expect("text");
        if line == "ready" {
            break;
        }
        if let Some(rest) = line.strip_prefix("thread ") {
            let mut parts = rest.split(' ');
            let thread = ThreadId(parts.next().and_then(|n| n.parse().ok()).expect("number"));
            let mut next = || Address(parts.next().and_then(hex).expect("address"));
            let fs_base = next();
            threads.push(Printed {
                pointer: ThreadPointer { thread, fs_base },
                hidden: next(),
                shown: next(),
                zeroed: next(),
            });
        } else {
            mappings.insert(mapping(&line).unwrap_or_else(|| panic!("{line}")));
        }
    }
    assert_eq!(threads.len(), 2);
    let memory = File::open(format!("/proc/{}/mem", child.id())).expect("a child's memory");
    Running {
        child,
        memory,
        mappings,
        threads,
        _folder: folder,
    }
}

impl Running {
    fn names(&self, threads: &[ThreadPointer]) -> Names {
        let mut names = Names::new(NameOptions::default());
        let mut read =
            |at: Address, bytes: &mut [u8]| self.memory.read_exact_at(bytes, at.0).is_ok();
        names.read_thread_locals(&self.mappings, threads, &mut read);
        names.set_mappings(self.mappings.clone());
        names
    }

    fn pointers(&self) -> Vec<ThreadPointer> {
        self.threads.iter().map(|t| t.pointer).collect()
    }

    fn context(&self) -> ObjectContext {
        ObjectContext {
            thread_pointers: self.pointers(),
            ..ObjectContext::default()
        }
    }

    fn library(&self) -> Option<PathBuf> {
        let mut all = self.mappings.iter().map(|m| PathBuf::from(&m.path));
        all.find(|p| p.ends_with("liblocals.so"))
    }
}

/// Field, kind and thread of the object at `address`.
fn told(names: &mut Names, address: Address, context: &ObjectContext) -> (String, ThreadId) {
    let object = names.object_at(address, context);
    assert_eq!(object.kind, ObjectKind::Tls, "{address}: {object:?}");
    let offset = object.offset_of(address).expect("inside");
    let field = names.field_at(&object, offset);
    let field = field.or(object.name).expect("a name");
    (field, object.thread.expect("a thread"))
}

/// The ways in which compilers access them: by module number, by distance, by descriptor.
const MODELS: [(&str, &[&str]); 5] = [
    ("gcc", &["-g"]),
    ("gcc", &["-g", "-ftls-model=initial-exec"]),
    ("gcc", &["-g", "-mtls-dialect=gnu2"]),
    ("g++", &["-g"]),
    ("clang", &["-g"]),
];

#[test]
fn thread_locals_of_libraries_are_found_in_each_thread() {
    for (compiler, options) in MODELS {
        for late in [false, true] {
            let Some(running) = run(compiler, options, late) else {
                continue;
            };
            let mut names = running.names(&running.pointers());
            let context = running.context();
            for thread in &running.threads {
                let at = |base: Address, offset: u64| Address(base.0 + offset);
                for (address, wanted) in [
                    (at(thread.hidden, 0), "hidden.mine"),
                    (at(thread.hidden, 8), "hidden.theirs"),
                    (at(thread.shown, 16), "shown[1].mine"),
                    (at(thread.zeroed, 50), "zeroed[50]"),
                ] {
                    let what = format!("{compiler} {options:?} late {late}");
                    let found = told(&mut names, address, &context);
                    assert_eq!(found, (wanted.into(), thread.pointer.thread), "{what}");
                }
            }
            assert_eq!(names.limits(), Vec::<String>::new());
        }
    }
}

#[test]
fn unread_thread_local_blocks_have_no_name() {
    for late in [false, true] {
        let Some(running) = run("gcc", &["-g"], late) else {
            return;
        };
        let mut names = Names::new(NameOptions::default());
        names.set_mappings(running.mappings.clone());
        for thread in &running.threads {
            let object = names.object_at(thread.hidden, &running.context());
            assert_ne!(object.kind, ObjectKind::Tls, "{object:?}");
        }
    }
}

#[test]
fn a_linked_library_is_at_one_distance_in_threads_that_were_not_asked() {
    let Some(running) = run("gcc", &["-g"], false) else {
        return;
    };
    let mut names = running.names(&running.pointers());
    // A thread that began and ended between two readings.
    let shift = 0x100_0000;
    let gone = ThreadPointer {
        thread: ThreadId(7),
        fs_base: Address(running.threads[1].pointer.fs_base.0 + shift),
    };
    let mut context = running.context();
    context.thread_pointers.push(gone);
    let address = Address(running.threads[1].hidden.0 + shift + 8);
    let found = told(&mut names, address, &context);
    assert_eq!(found, ("hidden.theirs".into(), ThreadId(7)));
}

#[test]
fn blocks_of_one_thread_are_not_assumed_for_others() {
    let Some(running) = run("gcc", &["-g"], false) else {
        return;
    };
    let [first, second] = &running.threads[..] else {
        panic!("two threads")
    };
    let mut names = running.names(&[first.pointer]);
    let context = running.context();
    told(&mut names, first.hidden, &context);
    let object = names.object_at(second.hidden, &context);
    assert_ne!(object.kind, ObjectKind::Tls, "{object:?}");
}

#[test]
fn exported_variables_of_stripped_libraries_have_their_symbols() {
    for late in [false, true] {
        let Some(running) = run("gcc", &["-s"], late) else {
            return;
        };
        let mut names = running.names(&running.pointers());
        let context = running.context();
        let thread = &running.threads[0];
        let object = names.object_at(thread.shown, &context);
        assert_eq!(object.name.as_deref(), Some("shown"));
        assert_eq!((object.kind, object.size), (ObjectKind::Tls, Some(32)));
        assert_eq!(object.start, thread.shown);
        let library = running.library().expect("mapped");
        assert_eq!(object.module, Some(library.display().to_string()));
        // The private variable has no symbol.
        let object = names.object_at(thread.hidden, &context);
        assert_ne!(object.kind, ObjectKind::Tls, "{object:?}");
    }
}

#[test]
fn of_heap_blocks_only_the_loaders_hold_thread_locals() {
    let Some(running) = run("gcc", &["-g"], true) else {
        return;
    };
    let mut names = running.names(&running.pointers());
    let hidden = running.threads[1].hidden;
    let code = |file: &str| {
        let mut all = running.mappings.iter();
        let found = all.find(|m| m.execute && m.path.contains(file));
        CodeAddress(found.expect("mapped").span.start.0 + 16)
    };
    let mut context = running.context();
    let block = |caller| HeapBlock {
        span: Span::new(Address(hidden.0 - 64), 4096),
        allocation: vec![caller],
        thread: None,
        freed: false,
    };
    context.heap = Some(block(code("/ld-")));
    told(&mut names, hidden, &context);
    // Another block lies where the thread's block was before the thread ended.
    context.heap = Some(block(code("/user")));
    let object = names.object_at(hidden, &context);
    assert_eq!(object.kind, ObjectKind::Heap);
}

#[test]
fn nonsense_in_the_memory_names_nothing() {
    for late in [false, true] {
        let Some(running) = run("gcc", &["-g", "-mtls-dialect=gnu2"], late) else {
            return;
        };
        for filler in [0, 1, 2, 0x7f, 0x80, 0xff] {
            let mut names = Names::new(NameOptions::default());
            let mut asked = 0;
            let mut read = |_, bytes: &mut [u8]| {
                asked += 1;
                bytes.fill(filler);
                true
            };
            names.read_thread_locals(&running.mappings, &running.pointers(), &mut read);
            assert!(asked > 0);
            names.set_mappings(running.mappings.clone());
            for thread in &running.threads {
                let object = names.object_at(thread.hidden, &running.context());
                assert_ne!(object.kind, ObjectKind::Tls, "{filler}: {object:?}");
            }
        }
    }
}
