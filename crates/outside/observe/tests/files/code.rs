//! Code of running processes: functions of files, of the vDSO, of deleted files, and code made at
//! run time.

use crate::support::compile;
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use sunder_access::{Address, CodeAddress, Mapping, Mappings, ProcessId, Span, ThreadId, Time};
use sunder_observe::{CodeRange, CodeSource, Event, ProcessCode, proc};

fn own() -> ProcessId {
    ProcessId(std::process::id())
}

fn attached(process: ProcessId) -> ProcessCode {
    let mut code = ProcessCode::new();
    code.attach(process).unwrap();
    code
}

#[test]
fn a_function_of_this_program_is_given_from_its_start() {
    let at = a_function_of_this_program_is_given_from_its_start as *const () as u64;
    let mut code = attached(own());
    for inside in [at, at + 1, at + 9] {
        let range = code.function(own(), CodeAddress(inside)).unwrap();
        assert_eq!(range.start, CodeAddress(at));
        assert!(range.exact_start && range.stable);
        // SAFETY: the bytes of a function of ours, which does not change.
        let truth = unsafe { std::slice::from_raw_parts(at as *const u8, range.bytes.len()) };
        assert_eq!(range.bytes, truth);
    }
}

#[test]
fn the_kernels_page_has_functions_too() {
    let mappings = proc::mappings(own()).unwrap();
    let Some(vdso) = mappings.iter().find(|mapping| mapping.path == "[vdso]") else {
        println!("SKIP: the kernel maps no vdso");
        return;
    };
    // Half of the vDSO is tables; some address in the middle of the code is in a function with a
    // symbol.
    let mut code = attached(own());
    let exact = (0..vdso.span.len).step_by(16).any(|offset| {
        code.function(own(), CodeAddress(vdso.span.start.0 + offset))
            .is_some_and(|range| range.exact_start)
    });
    assert!(exact);
}

/// A remedy tells of its copies of code; where it makes others, the former ones are forgotten.
#[test]
fn code_that_was_put_into_a_process_is_as_it_was_told() {
    let at = 0x7f00_0000_1000;
    let copy = |start, len| {
        let mut range = CodeRange::new(CodeAddress(start), vec![0x90; len], true);
        range.entries = vec![CodeAddress(start + 4)];
        range
    };
    let mut code = ProcessCode::new();
    code.add(own(), copy(at, 32));
    code.add(own(), copy(at + 64, 32));
    let known = code.function(own(), CodeAddress(at + 31)).unwrap();
    assert_eq!((known.start.0, known.bytes.len()), (at, 32));
    assert_eq!(known.entries, [CodeAddress(at + 4)]);
    assert!(code.function(own(), CodeAddress(at + 32)).is_none());
    code.add(own(), copy(at + 16, 16));
    assert!(code.function(own(), CodeAddress(at + 8)).is_none());
    let known = code.function(own(), CodeAddress(at + 31)).unwrap();
    assert_eq!(known.start.0, at + 16);
    let other = code.function(own(), CodeAddress(at + 64)).unwrap();
    assert_eq!(other.start.0, at + 64);
}

/// No mapping at the address, or one of data.
#[test]
fn addresses_without_code_give_no_function() {
    let data = Box::new(0u8);
    let mut code = attached(own());
    for at in [0, 8, u64::MAX, &raw const *data as u64] {
        assert!(code.function(own(), CodeAddress(at)).is_none());
    }
}

/// The record of a mapping can be lost; `/proc` still has it.
#[test]
fn unreported_mappings_are_looked_up_in_proc() {
    let at = unreported_mappings_are_looked_up_in_proc as *const () as u64;
    let range = ProcessCode::new().function(own(), CodeAddress(at)).unwrap();
    assert_eq!(range.start, CodeAddress(at));
}

#[test]
fn code_made_at_run_time_is_read_from_the_process() {
    const PAGE: usize = sunder_access::PAGE as usize;
    // SAFETY: maps a page of our own.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        println!("SKIP: no page may be writable and executable");
        return;
    }
    let write = |byte: u8| {
        // SAFETY: the last two bytes of the page, which only this test knows.
        unsafe { page.cast::<u8>().add(PAGE - 2).write_bytes(byte, 2) };
    };
    let at = CodeAddress(page as u64 + PAGE as u64 - 2);
    let mut code = attached(own());
    for byte in [0x90, 0xcc] {
        write(byte);
        let range = code.function(own(), at).unwrap();
        // The bytes up to the end of the mapping, as they are now.
        assert_eq!((range.start, &range.bytes[..]), (at, &[byte; 2][..]));
        assert!(!range.exact_start && !range.stable);
    }
    // SAFETY: there are no references to the page any more.
    unsafe { libc::munmap(page, PAGE) };
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The program of a running process is deleted, and another file put in its place.
#[test]
fn a_deleted_program_still_has_its_code() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(directory.path(), "spin", &["-O1"]) else {
        return;
    };
    let mut child = Command::new(&program)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Its two threads have printed their numbers, so it is past its start.
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.take(2).filter(Result::is_ok).count(), 2);
    let child = Killed(child);
    let process = ProcessId(child.0.id());
    let before = text_of(process);
    let whole = every_function(&mut attached(process), process, before);
    assert!(!whole.is_empty());

    std::fs::remove_file(&program).unwrap();
    std::fs::copy("/bin/true", &program).unwrap();
    // The file is found by the process's link, so the functions are known as before.
    assert_eq!(
        every_function(&mut attached(process), process, before),
        whole
    );
}

/// The range of the program's own code.
fn text_of(process: ProcessId) -> Span {
    let program = proc::executable(process).unwrap();
    let mappings = proc::mappings(process).unwrap();
    let text = |mapping: &&Mapping| {
        mapping.execute && mapping.path.trim_end_matches(" (deleted)") == program.to_str().unwrap()
    };
    mappings.iter().find(text).unwrap().span
}

fn every_function(code: &mut ProcessCode, process: ProcessId, text: Span) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    for at in text.start.0..text.end().0 {
        if let Some(range) = code.function(process, CodeAddress(at))
            && range.exact_start
            && range.start.0 == at
        {
            all.push((at, range.bytes.clone()));
        }
    }
    all
}

/// A switch that falls through from case to case: decoding backward must stop at each case, because
/// control may have come through the jump table.
#[test]
fn the_targets_of_jump_tables_are_entries() {
    let directory = tempfile::tempdir().unwrap();
    for options in [
        &["-O1", "-fPIE", "-pie"][..],
        &["-O1", "-fno-pie", "-no-pie"],
    ] {
        let Some(program) = compile(directory.path(), "cases", options) else {
            return;
        };
        let output = Command::new(&program).output().unwrap();
        let symbols = String::from_utf8(output.stdout).unwrap();
        let mut labels: Vec<u64> = symbols
            .split_whitespace()
            .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap())
            .collect();
        // The function, its offset in the file's code, the cases.
        let function = labels.remove(0);
        let text = labels.remove(0);
        let file_offset = labels.remove(0);

        let mut code = ProcessCode::of_recording();
        let process = ProcessId(1 << 23);
        let path = program.to_str().unwrap().to_owned();
        let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&program).unwrap());
        code.observe(&Event::Map {
            process,
            time: Time(0),
            mapping: Mapping {
                span: Span::new(Address(text), 0x1000),
                file_offset,
                path,
                inode,
                read: true,
                write: false,
                execute: true,
                shared: false,
            },
        });
        let range = code.function(process, CodeAddress(function)).unwrap();
        assert!(range.exact_start && range.tables_known, "{options:?}");
        let indirect = Decoder::with_ip(64, &range.bytes, function, DecoderOptions::NONE)
            .into_iter()
            .filter(|instruction| instruction.flow_control() == FlowControl::IndirectBranch);
        assert_eq!(indirect.count(), 1, "the compiler made no jump table");
        let mut entries: Vec<u64> = range.entries.iter().map(|entry| entry.0).collect();
        entries.sort_unstable();
        entries.dedup();
        // Seven cases; the default may be one more.
        assert!(entries.len() >= 7, "{entries:x?}");
    }
}

/// Address spaces follow the events of fork and exec.
#[test]
fn address_spaces_follow_fork_and_exec() {
    // Above the largest number of a real process.
    let (parent, child) = (ProcessId(1 << 23), ProcessId(1 << 23 | 1));
    let at = address_spaces_follow_fork_and_exec as *const () as u64;
    let own_code: Mappings = proc::mappings(own()).unwrap();
    let mut code = ProcessCode::of_recording();
    let mapping = own_code.at(Address(at)).unwrap().clone();
    code.observe(&Event::Map {
        process: parent,
        time: Time(1),
        mapping,
    });
    assert!(code.function(parent, CodeAddress(at)).is_some());
    assert!(code.function(child, CodeAddress(at)).is_none());
    code.observe(&Event::ThreadStart {
        process: child,
        parent,
        thread: ThreadId(child.0),
        time: Time(2),
    });
    assert!(code.function(child, CodeAddress(at)).is_some());
    code.observe(&Event::ThreadName {
        process: child,
        thread: ThreadId(child.0),
        time: Time(3),
        name: "other".into(),
        exec: true,
    });
    assert!(code.function(child, CodeAddress(at)).is_none());
    assert!(code.function(parent, CodeAddress(at)).is_some());
}

/// Another file's mapping over an old one: the old code is forgotten.
#[test]
fn a_new_mapping_replaces_the_code_of_the_old_one() {
    let at = a_new_mapping_replaces_the_code_of_the_old_one as *const () as u64;
    let mapping = proc::mappings(own())
        .unwrap()
        .at(Address(at))
        .unwrap()
        .clone();
    let process = ProcessId(1 << 23);
    let mut code = ProcessCode::of_recording();
    code.observe(&Event::Map {
        process,
        time: Time(0),
        mapping,
    });
    assert!(code.function(process, CodeAddress(at)).is_some());
    let span = Span::new(Address(at & !0xfff), 0x1000);
    let data = Mapping {
        span,
        file_offset: 0,
        path: String::new(),
        inode: 0,
        read: true,
        write: true,
        execute: false,
        shared: false,
    };
    code.observe(&Event::Map {
        process,
        time: Time(1),
        mapping: data,
    });
    assert!(code.function(process, CodeAddress(at)).is_none());
}
