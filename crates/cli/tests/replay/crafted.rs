//! Traces that somebody crafted, with right checksums: every command that reads them ends with a
//! sentence or a result, in bounded time and memory.

use crate::support::sunder;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use sunder_trace::block::{BlockHeader, Kind};
use sunder_trace::craft::{Crafted, columns, events, repeated};
use sunder_trace::slot::{Key, Sync, tag};

/// No command takes longer on a trace of some kilobytes.
const LONGEST: Duration = Duration::from_secs(100);

/// The address space of each command: its own files and stacks take a part of it.
const ADDRESS_SPACE: u64 = 1 << 30;

/// Every command that reads a trace.
const COMMANDS: [&[&str]; 9] = [
    &["trace", "info"],
    &["trace", "dump", "--limit", "2000"],
    &["simulate", "--quiet"],
    &["simulate", "--quiet", "--order", "recorded"],
    &["simulate", "--quiet", "--granule", "4096", "--nodes", "1"],
    &["simulate", "--quiet", "--placement", "hoard"],
    &["simulate", "--quiet", "--pad", "counter", "--align", "x=64"],
    &["simulate", "--quiet", "--heap-only", "--map", "1:65000"],
    &["what-if", "--quiet"],
];

const READ: Key = Key::new(tag::READ, 8, 0x400);
const WRITE: Key = Key::new(tag::WRITE, 64, 0x400);

/// Runs each command on the trace. Panics unless each ends by itself, with one of its own statuses;
/// what it wrote to standard error, for each command.
fn ends(folder: &Path, crafted: &Crafted, commands: &[&[&str]]) -> Vec<String> {
    let file = folder.join("crafted.trace");
    std::fs::write(&file, crafted.bytes()).expect("space");
    let one = |command: &&[&str]| {
        let mut limited = Command::new(sunder().get_program());
        // SAFETY: one system call.
        unsafe {
            limited.pre_exec(|| {
                let limit = libc::rlimit {
                    rlim_cur: ADDRESS_SPACE,
                    rlim_max: ADDRESS_SPACE,
                };
                match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        limited.current_dir(folder).args(*command).arg(&file);
        let started = std::time::Instant::now();
        let out = assert_cmd::Command::from_std(limited)
            .timeout(LONGEST)
            .output()
            .expect("it can be run");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        println!(
            "{command:?}: {:?} in {:.1?}: {said}",
            out.status.code(),
            started.elapsed()
        );
        assert!(
            matches!(out.status.code(), Some(0 | 1 | 2 | 125)),
            "{command:?}: {:?}: {said}",
            out.status
        );
        assert!(!said.contains("panicked"), "{command:?}: {said}");
        said
    };
    commands.iter().map(one).collect()
}

fn with(build: impl FnOnce(&mut Crafted)) -> Vec<String> {
    under(&COMMANDS, build)
}

fn under(commands: &[&[&str]], build: impl FnOnce(&mut Crafted)) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut crafted = Crafted::new();
    build(&mut crafted);
    ends(folder.path(), &crafted, commands)
}

/// Adds a block of `count` equal events but for the values, of `thread`.
fn many(crafted: &mut Crafted, thread: u32, count: u32, key: Key, first: u64, stride: u64) {
    let payload = repeated(key, first, stride);
    crafted.block(events(thread, count, payload.len(), (10, 20)), &payload);
}

/// Adds a block of these events of `thread`, one after another.
fn block(crafted: &mut Crafted, thread: u32, slots: &[(u64, Key)]) {
    let zigzag = |value: u64| value << 1 ^ (value as i64 >> 63) as u64;
    let (mut keys, mut order, mut hits, mut deltas) = (vec![], vec![], vec![], vec![]);
    let (mut low, mut last) = (0, 0u64);
    for &(value, key) in slots {
        keys.extend([zigzag(key.payload().wrapping_sub(low)), key.0 >> 48]);
        low = key.payload();
        order.extend([0, 0]);
        hits.push(0);
        deltas.push(zigzag(value.wrapping_sub(last)));
        last = value;
    }
    let payload = columns([&[], &keys, &order, &hits, &deltas]);
    let header = events(thread, slots.len() as u32, payload.len(), (10, 20));
    crafted.block(header, &payload);
}

#[test]
fn absurd_counts_are_refused() {
    for said in with(|crafted| many(crafted, 1, 0x7fff_ffff, READ, 64, 64)) {
        assert!(said.contains("2147483647 events"), "{said}");
    }
    for said in with(|crafted| {
        crafted.packed(Kind::Modules, 1_000_000_000, &vec![0; 4 << 20]);
    }) {
        assert!(said.contains("1000000000 loaded files"), "{said}");
    }
}

#[test]
fn any_number_of_a_thread_is_only_a_number() {
    with(|crafted| {
        many(crafted, 0xffff_fff0, 100, WRITE, 64, 64);
        many(crafted, 7, 100, WRITE, 64, 64);
    });
}

#[test]
fn columns_that_expand_to_gigabytes_are_not_expanded() {
    for said in with(|crafted| {
        let payload = vec![0; 4 << 20];
        for thread in 1..1000 {
            let header = events(thread, 1, payload.len(), (10, 20));
            crafted.packed_as(header, &payload);
        }
    }) {
        assert!(said.contains("bytes of memory to read"), "{said}");
    }
}

#[test]
fn events_at_the_ends_of_the_address_space_are_taken_as_they_are() {
    let key = |tag, code, payload| Key::new(tag, code, payload);
    let far = u64::MAX;
    let slots = [
        (far, key(tag::THREAD_START, 0, far)),
        (far, key(tag::STACK, 0, far)),
        (0, key(tag::STACK, 0, 0)),
        (far, key(tag::FRAME, 0, far)),
        (0, key(tag::FRAME, 0, 0)),
        (far, key(tag::SIZE, 64, far)),
        (far, key(tag::ALLOCATE, 0, 1)),
        (far, key(tag::SIZE, 60, 1)),
        (1, key(tag::ALLOCATE, 1, 0)),
        (0, key(tag::SIZE, 1, 2)),
        (0x40, key(tag::ALLOCATE, 2, 0)),
        (1 << 40, key(tag::SIZE, 1, 3)),
        (0x1000, key(tag::ALLOCATE, 3, 0)),
        (far, key(tag::WRITE, 64, far)),
        (far - 63, key(tag::WRITE, 64, 1)),
        (far - 8, key(tag::UPDATE, 255, 2)),
        (0, key(tag::ATOMIC, 0, 3)),
        (far, key(tag::FREE, 0, 0)),
        (0x1000, key(tag::FREE, 1, 0)),
        (far, key(tag::SYNC, Sync::BarrierLeft as u8, 0)),
        (far, key(tag::SYNC, Sync::BarrierReached as u8, 0)),
        (far, key(tag::SYNC, Sync::ThreadJoin as u8, 0)),
        (far, key(tag::SYNC, Sync::ConditionWoken as u8, 0)),
        (far, key(tag::SYNC, 255, 0)),
        (far, key(tag::MARK, 0, 0)),
        (far, key(tag::THREAD_END, 0, 0)),
        (far, key(255, 0, 0)),
    ];
    with(|crafted| {
        block(crafted, 1, &slots);
        block(crafted, 2, &slots);
    });
    // Without the accesses that are in no address space.
    with(|crafted| {
        let inside: Vec<_> = slots
            .iter()
            .copied()
            .filter(|(value, _)| *value < far - 80)
            .collect();
        for thread in 1..4 {
            block(crafted, thread, &inside);
            many(crafted, thread + 5, 2000, WRITE, 0x1000, 8);
        }
    });
}

/// The payload of a block of loaded files, each with a path and segments: start, bytes, and offset in
/// the file.
fn modules(files: &[(&str, &[[u64; 3]])]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (path, segments) in files {
        payload.extend(u64::MAX.to_le_bytes());
        payload.extend((path.len() as u32).to_le_bytes());
        payload.extend(path.as_bytes());
        payload.extend(0u32.to_le_bytes());
        payload.extend((segments.len() as u32).to_le_bytes());
        for segment in *segments {
            payload.extend(segment.iter().flat_map(|n| n.to_le_bytes()));
            payload.extend(7u32.to_le_bytes());
        }
    }
    payload
}

#[test]
fn loaded_files_may_be_anywhere() {
    let far = u64::MAX;
    let impossible = modules(&[
        (
            "/dev/zero",
            &[[far, far, far], [far - 5, 3, 0], [0, far, far]],
        ),
        (
            "/bin/true",
            &[[0x1003, far - 0x1003, far - 1], [0x2000, 0x100, far]],
        ),
    ]);
    let payload = modules(&[
        (
            "/bin/true",
            &[[0x2000, 0x100, 1 << 62], [0x1003, 1 << 62, 3]],
        ),
        ("/proc/self/mem", &[[0x3000, 0x1000, 0]]),
        ("relative\u{1b}[2J", &[[far - (1 << 17), 1 << 15, 1]]),
    ]);
    with(|crafted| {
        crafted.plain(Kind::Modules, 2, &impossible);
        crafted.plain(Kind::Modules, 3, &payload);
        for thread in 1..3 {
            many(
                crafted,
                thread,
                1000,
                WRITE,
                0x1000 + u64::from(thread) * 8,
                64,
            );
        }
    });
}

/// Some kilobytes of events that touch more lines, and allocate more blocks, than there is memory
/// for. The readings end with the sentence about memory.
#[test]
fn what_events_stand_for_is_bounded_by_the_memory() {
    let said = under(&[COMMANDS[2], COMMANDS[8]], |crafted| {
        for number in 0..2000u64 {
            let payload = repeated(WRITE, number << 32, 64);
            let header = BlockHeader {
                sequence: number as u32,
                ..events(1, 32_768, payload.len(), (10, 20))
            };
            crafted.block(header, &payload);
        }
    });
    for said in &said {
        assert!(said.contains("takes more memory than there is"), "{said}");
    }
    under(&[COMMANDS[5]], |crafted| {
        let zeroes = [0; 64];
        crafted.packed(Kind::Stacks, 8, &zeroes);
        for number in 0..1000u64 {
            let size = Key::new(tag::SIZE, 1, 1);
            let payload = columns([
                &[],
                &[2, size.0 >> 48, 0, u64::from(tag::ALLOCATE) << 8],
                &[0, 0, 0, 0, 0, 1],
                &[0, 0, 0, 0, 0, 0],
                &[32, (0x1000 + (number << 32)) << 1, 0, 128, 0, 128],
            ]);
            let header = BlockHeader {
                sequence: number as u32,
                ..events(1, 32_768, payload.len(), (10, 20))
            };
            crafted.block(header, &payload);
        }
        many(crafted, 2, 100, WRITE, 0x1000, 8);
    });
}

/// Threads that all wait for each other. (The parallel order takes time that grows with the square
/// of their number, so there are not more of them here.)
#[test]
fn thousands_of_threads_that_wait_come_to_an_end() {
    with(|crafted| {
        for thread in 1..=2_000u32 {
            let kind = match thread % 3 {
                0 => Sync::MutexLock,
                1 => Sync::MutexUnlock,
                _ => Sync::ConditionWoken,
            };
            let sync = Key::new(tag::SYNC, kind as u8, 0);
            let times = (u64::from(thread), u64::from(thread) + 50);
            let payload = repeated(sync, 0x1000, 0);
            crafted.block(events(thread, 20, payload.len(), times), &payload);
        }
        many(crafted, 30_000, 5, WRITE, 64, 0);
    });
}
