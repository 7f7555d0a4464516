//! The recorded live heap, compared with the lists that the programs print.

use crate::harness::{Waiting, compiled, functions, heap_segment, preload, program};
use std::process::Command;
use sunder_access::{Address, CodeAddress, ThreadId, Time};
use sunder_wire::{HeapBlock, HeapEvent, HeapEventKind, Segment};

/// One line of `heap.c`.
struct Listed<'a> {
    live: bool,
    start: u64,
    size: u64,
    thread: u32,
    stack: Vec<&'a str>,
}

fn listed(line: &str) -> Listed<'_> {
    let words: Vec<&str> = line.split(' ').collect();
    let [state, start, size, thread, stack] = words[..] else {
        panic!("not a block: {line}");
    };
    Listed {
        live: state == "live",
        start: u64::from_str_radix(&start[2..], 16).expect("hexadecimal"),
        size: size.parse().expect("a number"),
        thread: thread.parse().expect("a number"),
        stack: stack.split(',').collect(),
    }
}

/// The names of the innermost functions of a stack; `*` outside the program.
fn names(functions: &[(u64, u64, String)], stack: &[CodeAddress]) -> Vec<String> {
    let name = |address: &CodeAddress| {
        let at = address.0 - 1;
        let found = functions
            .iter()
            .find(|(start, size, _)| at >= *start && at - start < *size);
        found.map_or("*".into(), |(_, _, name)| name.clone())
    };
    stack.iter().map(name).collect()
}

fn block_at(segment: &Segment, address: u64) -> Option<HeapBlock> {
    segment.block_at(Address(address))
}

/// Checks every line that `heap.c MODE` printed; returns their number.
fn check(mode: &str) -> usize {
    check_behind(&[], mode)
}

/// As [`check`], with the program executed by a chain of other programs.
fn check_behind(wrappers: &[&str], mode: &str) -> usize {
    let path = program("heap");
    let functions = functions(&path);
    let segment = heap_segment();
    let mut words: Vec<&std::ffi::OsStr> = wrappers.iter().map(|w| w.as_ref()).collect();
    words.extend([path.as_os_str(), mode.as_ref()]);
    let mut command = Command::new(words[0]);
    let run = Waiting::start(preload(command.args(&words[1..]), &segment));
    let status = segment.status();
    assert_eq!(status.loaded.map(|p| p.0), Some(run.id()));
    assert_eq!((status.blocks_dropped, status.stacks_dropped), (0, 0));
    for line in &run.lines {
        let wanted = listed(line);
        let end = wanted.start + wanted.size;
        for address in [wanted.start, wanted.start + wanted.size / 2, end - 1] {
            let block = block_at(&segment, address).unwrap_or_else(|| {
                panic!("nothing at {address:#x} of {line}");
            });
            assert_eq!(
                (block.span.start.0, block.span.len, block.freed.is_none()),
                (wanted.start, wanted.size, wanted.live),
                "{line}\n{block:?}"
            );
            if wanted.thread != 0 {
                assert_eq!(block.thread, ThreadId(wanted.thread), "{line}");
            }
            let mut found = names(&functions, &block.stack);
            found.truncate(wanted.stack.len());
            assert_eq!(found, wanted.stack, "{line}");
            assert!(block.born.earliest <= block.born.latest);
        }
        // A block that was freed here before may have been larger.
        let after = block_at(&segment, end);
        assert!(
            after.is_none_or(|b| b.span.start.0 != wanted.start || b.freed.is_some()),
            "{line}"
        );
        let before = block_at(&segment, wanted.start - 1);
        assert!(
            before.is_none_or(|b| b.span.start.0 != wanted.start),
            "{line}"
        );
    }
    let count = run.lines.len();
    run.finish();
    count
}

#[test]
fn every_way_of_allocating_is_recorded_with_its_stack() {
    assert!(check("ways") >= 25);
}

#[test]
fn a_program_that_another_executes_is_recorded() {
    assert_eq!(check_behind(&["env", "A=1"], "threads"), 2);
    let shell = ["bash", "-c", "x=$(env); exec nice -n 1 \"$@\"", "bash"];
    assert_eq!(check_behind(&shell, "threads"), 2);
}

#[test]
fn a_hundred_thousand_live_blocks_are_found() {
    assert_eq!(check("many"), 100_000);
}

#[test]
fn blocks_of_threads_are_recorded_and_may_be_freed_elsewhere() {
    assert_eq!(check("threads"), 2);
}

#[test]
fn threads_are_listed_with_stack_and_start_routine() {
    let path = program("threads");
    let functions = functions(&path);
    let segment = heap_segment();
    let run = Waiting::start(preload(&mut Command::new(&path), &segment));
    // Each line: thread, an address on its stack, address of a TLS variable,
    // the function that it was started with.
    let threads = segment.threads();
    assert_eq!(threads.len(), run.lines.len());
    for line in &run.lines {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| u64::from_str_radix(words[i].trim_start_matches("0x"), 16);
        let tid = ThreadId(words[0].parse().expect("a number"));
        let thread = threads.iter().find(|t| t.thread == tid).expect("listed");
        assert!(
            thread.stack.contains(Address(number(1).expect("hex"))),
            "{line} {thread:?}"
        );
        let tls = number(2).expect("hex");
        assert!(tls < thread.fs_base.0 && thread.fs_base.0 - tls < 4096);
        let start = thread.start_routine.map(|a| {
            let found = functions.iter().find(|(start, _, _)| *start == a.0);
            found.map_or("?", |(_, _, name)| name)
        });
        assert_eq!(start.unwrap_or("main"), words[3]);
        assert_eq!(thread.ended, words[4] == "ended", "{line}");
    }
    run.finish();
}

#[test]
fn events_on_a_watched_line_are_logged_with_their_times() {
    let path = program("watched");
    let functions = functions(&path);
    let segment = heap_segment();
    let mut child = preload(&mut Command::new(&path), &segment)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    use std::io::{BufRead, BufReader, Write};
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("an address");
    let address = u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).expect("hex");
    assert!(segment.watch_line(Address(address)));
    let input = child.stdin.as_mut().expect("piped");
    input.write_all(b"\n").expect("the program reads its input");
    assert!(child.wait().expect("the program ends").success());
    let mut events: Vec<HeapEvent> = Vec::new();
    segment.drain_heap_events(&mut |event| events.push(event));
    let seen: Vec<_> = events
        .iter()
        .map(|e| {
            (
                e.kind,
                e.span.start.0,
                e.span.len,
                names(&functions, &e.stack)[0].clone(),
            )
        })
        .collect();
    let (first, second) = ("first_site".to_owned(), "second_site".to_owned());
    assert_eq!(
        seen,
        [
            (HeapEventKind::Freed, address, 48, first),
            (HeapEventKind::Allocated, address, 52, second.clone()),
            (HeapEventKind::Freed, address, 52, second),
        ]
    );
    assert!(events.windows(2).all(|w| w[0].time <= w[1].time));
    assert!(events[0].time > Time(0));
}

#[test]
fn the_records_of_a_killed_program_can_be_read() {
    let segment = heap_segment();
    let run = Waiting::start(preload(&mut Command::new(program("plain")), &segment));
    let address = u64::from_str_radix(&run.lines[0][2..], 16).expect("hex");
    let id = run.id();
    run.kill();
    let block = block_at(&segment, address + 39).expect("the block is still recorded");
    assert_eq!((block.span.len, block.thread), (40, ThreadId(id)));
}

#[test]
fn more_threads_than_the_table_holds_are_counted() {
    let segment = heap_segment();
    let run = Waiting::start(preload(
        &mut Command::new(program("many_threads")),
        &segment,
    ));
    let status = segment.status();
    // 5,000 threads and the first one; 4,095 of them have an index.
    assert_eq!(
        (segment.threads().len(), status.threads_dropped),
        (4095, 906)
    );
    let address = u64::from_str_radix(&run.lines[0][2..], 16).expect("hex");
    let block = block_at(&segment, address).expect("recorded without tables, too");
    assert_eq!((block.span.len, block.thread), (24, ThreadId(0)));
    run.finish();
}

/// For each stack, the innermost line of `source` by `addr2line`; inlined functions count.
fn lines_in(
    program: &std::path::Path,
    source: &str,
    stacks: &[Vec<CodeAddress>],
) -> Vec<Option<u32>> {
    let mut command = Command::new("addr2line");
    command.args(["-a", "-i", "-e"]).arg(program);
    for stack in stacks {
        // A zero marks the beginning of each stack.
        command.arg("0x0");
        command.args(stack.iter().map(|a| format!("{:#x}", a.0 - 1)));
    }
    let output = command.output().expect("addr2line runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut found = Vec::new();
    for line in text.lines() {
        if line
            .strip_prefix("0x")
            .is_some_and(|a| a.trim_matches('0').is_empty())
        {
            found.push(None);
        } else if let Some((file, rest)) = line.rsplit_once(':')
            && file.ends_with(source)
            && let Some(last) = found.last_mut()
            && last.is_none()
        {
            *last = rest
                .split(' ')
                .next()
                .and_then(|number| number.parse().ok());
        }
    }
    found
}

/// Checks that every block of `containers.cc` has its own source line; returns the number of
/// blocks.
fn check_containers(name: &str, optimisation: &str) -> usize {
    let path = compiled("g++", name, "containers.cc", &[optimisation]);
    let segment = heap_segment();
    let run = Waiting::start(preload(&mut Command::new(&path), &segment));
    let (stacks, wanted): (Vec<_>, Vec<u32>) = run
        .lines
        .iter()
        .map(|line| {
            let (address, number) = line.split_once(' ').expect("two words");
            let address = u64::from_str_radix(&address[2..], 16).expect("hex");
            let block = block_at(&segment, address).expect("recorded");
            (block.stack, number.parse::<u32>().expect("a number"))
        })
        .unzip();
    let found = lines_in(&path, "containers.cc", &stacks);
    let wanted: Vec<_> = wanted.into_iter().map(Some).collect();
    assert_eq!(found, wanted);
    run.finish();
    wanted.len()
}

#[test]
fn containers_of_unoptimised_programs_have_their_own_lines() {
    assert_eq!(check_containers("containers-0", "-O0"), 240);
}

#[test]
fn containers_of_optimised_programs_have_their_own_lines() {
    assert_eq!(check_containers("containers-2", "-O2"), 240);
}
