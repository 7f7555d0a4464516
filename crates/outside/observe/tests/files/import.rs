//! The import of recordings: those written by hand, and some that `perf` itself made.

mod by_perf;
mod recording;

use recording::*;
use std::path::Path;
use sunder_access::{CodeAddress, Kind, ProcessId, ThreadId, Time};
use sunder_observe::{Event, ImportError};

#[test]
fn memory_events_become_accesses_by_time() {
    for bytes in [memory_recording().file(), memory_recording().pipe()] {
        let (imported, events) = read(&bytes).unwrap();
        assert_eq!(events, expected_accesses());
        assert_eq!((imported.accesses, imported.skipped), (2, 1));
        assert_eq!(imported.duration_ns, 100);
        assert_eq!(imported.processes[&ProcessId(7)], 2);
    }
}

#[test]
fn divided_weights_and_numbered_levels_are_understood() {
    let sample_type = MEMORY & !WEIGHT | WEIGHT_STRUCT;
    let mut recording = Recording {
        events: vec![(attr(4, sample_type, 1000, 0), vec![])],
        ..Recording::default()
    };
    let weight = 0x0003_0002_0000_0063;
    recording.add(
        SAMPLE,
        MISC_USER,
        &words(&[0x40_1000, TASK, 200, 0x7f00_0000, 70, weight, LOAD_NUMBERED]),
    );
    let (_, events) = read(&recording.file()).unwrap();
    let [Event::Access { access, hitm, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    // The lock bits are set, so the load is half of an atomic update.
    assert_eq!((access.kind, *hitm), (Kind::Atomic, true));
}

#[test]
fn samples_of_another_event_with_the_fields_of_a_memory_event() {
    // `perf record -d` and call graphs by DWARF request addresses, which a clock does not have; its
    // data source is "not available" throughout.
    const NOTHING: u64 = 0x01 | 0x01 << 5 | 0x01 << 19 | 0x01 << 24 | 0x01 << 26;
    let fields = IP | TID | TIME | ADDR | DATA_SRC;
    let mut recording = Recording {
        events: vec![(attr(1, fields | REGS_USER, 250_000, 0xff01ff), vec![])],
        ..Recording::default()
    };
    let mut body = vec![0x40_1000, TASK, 15, 0, 2];
    body.extend(100..117);
    body.push(NOTHING);
    recording.add(SAMPLE, MISC_USER, &words(&body));
    let (imported, events) = read(&recording.file()).unwrap();
    assert_eq!((imported.samples, imported.accesses), (1, 0));
    assert!(matches!(events[..], [Event::Sample(_)]));

    recording = Recording {
        events: vec![(attr(1, fields, 250_000, 0), vec![])],
        ..Recording::default()
    };
    let body = words(&[0x40_1000, TASK, 15, 0, NOTHING]);
    recording.add(SAMPLE, MISC_USER, &body);
    let error = read(&recording.file()).unwrap_err();
    assert!(error.to_string().contains("no memory event"), "{error}");
}

#[test]
fn the_retired_load_that_means_hitm_is_known_by_its_number() {
    let mut event = attr(4, MEMORY, 1000, 0);
    event[8..16].copy_from_slice(&0x04d2u64.to_le_bytes());
    let mut recording = Recording {
        events: vec![(event, vec![])],
        ..Recording::default()
    };
    // A load with an unknown snoop.
    let load = 0x02 | 0x01 << 19;
    let body = words(&[0x40_1000, TASK, 200, 0x7f00_0000, 70, 99, load]);
    recording.add(SAMPLE, MISC_USER, &body);
    let (_, events) = read(&recording.file()).unwrap();
    assert!(matches!(events[..], [Event::Access { hitm: true, .. }]));
}

#[test]
fn samples_find_their_event_by_its_id() {
    // Two events, as `perf mem record` has for loads and stores, and a dummy
    // without registers or addresses in between.
    let base = IDENTIFIER | IP | TID | TIME;
    let mut recording = Recording {
        events: vec![
            (attr(4, base | ADDR | DATA_SRC, 1000, 0), vec![100, 101]),
            (attr(1, base, 1, 0), vec![200]),
            (attr(4, base | ADDR | DATA_SRC | PERIOD, 500, 0), vec![300]),
        ],
        ..Recording::default()
    };
    let ip = 0x40_1000;
    recording.add(
        SAMPLE,
        MISC_USER,
        &words(&[101, ip, TASK, 10, 0x8000, STORE]),
    );
    recording.add(SAMPLE, MISC_USER, &words(&[200, ip, TASK, 20]));
    recording.add(
        SAMPLE,
        MISC_USER,
        &words(&[300, ip, TASK, 30, 0x8008, 5, STORE]),
    );
    for bytes in [recording.file(), recording.pipe()] {
        let (imported, events) = read(&bytes).unwrap();
        assert_eq!((imported.accesses, imported.unusable), (2, 1));
        let seen: Vec<_> = events
            .iter()
            .map(|event| match event {
                Event::Access { access, .. } => (access.address.0, access.weight),
                other => panic!("{other:?}"),
            })
            .collect();
        // The first event's samples have no period of their own.
        assert_eq!(seen, [(0x8000, 1000.0), (0x8008, 5.0)]);
    }
}

#[test]
fn mappings_names_threads_and_losses_become_events() {
    let sample_type = IP | TID | TIME | REGS_USER;
    let registers = 0xff01ff;
    let mut recording = Recording {
        events: vec![(attr(1, sample_type, 250_000, registers), vec![])],
        ..Recording::default()
    };
    // pid, tid, addr, len, pgoff, device, inode, generation, prot, flags, name
    let mut mapping = words(&[TASK, 0x40_0000, 0x2000, 0x1000, 0, 99, 0]);
    mapping.extend(words(&[5 | 2 << 32]));
    mapping.extend(b"/bin/made-up\0\0\0\0");
    mapping.extend(trailer(10));
    recording.add(MMAP2, MISC_USER, &mapping);
    // With a build ID in the place of the inode; no file has this path.
    let mut mapping = words(&[TASK, 0x50_0000, 0x2000, 0, 20, 1, 2]);
    mapping.extend(words(&[5 | 2 << 32]));
    mapping.extend(b"/made/up\0\0\0\0\0\0\0\0");
    mapping.extend(trailer(11));
    recording.add(MMAP2, MISC_USER | 1 << 14, &mapping);
    // The kernel, as perf synthesizes it.
    let mut kernel = words(&[u64::from(u32::MAX), u64::MAX - 0xffff, 0x1000, 0]);
    kernel.extend(b"[kernel]\0\0\0\0\0\0\0\0");
    kernel.extend(trailer(0));
    recording.add(MMAP, MISC_KERNEL, &kernel);
    let mut name = words(&[TASK]);
    name.extend(b"worker\0\0");
    name.extend(trailer(12));
    recording.add(COMM, 1 << 13, &name);
    // pid, ppid, tid, ptid, time
    let fork = [words(&[7 | 6 << 32, 9 | 8 << 32, 13]), trailer(13)].concat();
    recording.add(FORK, 0, &fork);
    recording.add(LOST, 0, &[words(&[1, 5]), trailer(14)].concat());
    let mut sample = vec![0x40_1000, TASK, 15, 2];
    sample.extend(100..117);
    recording.add(SAMPLE, MISC_USER, &words(&sample));
    let exit = [words(&[7 | 6 << 32, 9 | 8 << 32, 16]), trailer(16)].concat();
    recording.add(EXIT, 0, &exit);

    let (imported, events) = read(&recording.file()).unwrap();
    assert_eq!((imported.samples, imported.lost), (1, 5));
    assert_eq!(events.len(), 7, "{events:#?}");
    let Event::Map { mapping, time, .. } = &events[0] else {
        panic!("{events:?}");
    };
    assert_eq!(
        (mapping.path.as_str(), mapping.inode, time.0),
        ("/bin/made-up", 99, 10)
    );
    assert_eq!(
        (mapping.span.start.0, mapping.file_offset),
        (0x40_0000, 0x1000)
    );
    assert!(mapping.read && mapping.execute && !mapping.write && !mapping.shared);
    let Event::Map { mapping, .. } = &events[1] else {
        panic!("{events:?}");
    };
    assert_eq!((mapping.path.as_str(), mapping.inode), ("/made/up", 0));
    assert_eq!(
        events[2],
        Event::ThreadName {
            process: ProcessId(7),
            thread: ThreadId(8),
            time: Time(12),
            name: "worker".into(),
            exec: true,
        }
    );
    assert_eq!(
        events[3],
        Event::ThreadStart {
            process: ProcessId(7),
            parent: ProcessId(6),
            thread: ThreadId(9),
            time: Time(13),
        }
    );
    assert_eq!(events[4], Event::Lost(5));
    let Event::Sample(sample) = events[5] else {
        panic!("{events:?}");
    };
    // Numbered AX BX CX DX SI DI BP SP IP from 100 on.
    assert_eq!(sample.registers.general[..3], [100, 102, 103]);
    assert_eq!(sample.registers.ip, CodeAddress(108));
    assert_eq!((sample.period_ns, sample.thread), (250_000, ThreadId(8)));
    assert!(matches!(
        events[6],
        Event::ThreadEnd {
            thread: ThreadId(9),
            ..
        }
    ));
}

#[test]
fn a_recording_without_the_needed_fields_names_the_command() {
    for (sample_type, registers, missing) in [
        (IP | TID | TIME, 0, "user registers"),
        (IP | TID | TIME | REGS_USER, 0x1, "complete set"),
        (IP | TID | TIME | ADDR, 0, "data source"),
        (IP | TID | REGS_USER, 0xff01ff, "times"),
    ] {
        let mut recording = Recording {
            events: vec![(attr(1, sample_type, 1, registers), vec![])],
            ..Recording::default()
        };
        recording.add(SAMPLE, MISC_USER, &words(&[0x40_1000, TASK, 1, 1, 1]));
        let error = read(&recording.file()).unwrap_err();
        assert!(
            matches!(error, ImportError::MissingFields { .. }),
            "{error}"
        );
        let text = error.to_string();
        assert!(
            text.contains(missing) && text.contains("--user-regs="),
            "{text}"
        );
    }
}

#[test]
fn each_kind_of_wrong_file_has_its_own_error() {
    let good = memory_recording().file();
    let with = |at: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        read(&bytes).unwrap_err()
    };
    assert!(matches!(read(b"").unwrap_err(), ImportError::Foreign(_)));
    assert!(matches!(
        read(b"\x7fELF\x02\x01\x01\0 and so on").unwrap_err(),
        ImportError::Foreign(_)
    ));
    assert!(matches!(
        read(b"PERFILE2").unwrap_err(),
        ImportError::Truncated { .. }
    ));
    let newer = with(0, u64::from_le_bytes(*b"PERFILE3"));
    assert!(matches!(&newer, ImportError::Version { magic, .. } if magic == "PERFILE3"));
    let oldest = with(0, u64::from_le_bytes(*b"PERFFILE"));
    assert!(matches!(oldest, ImportError::Version { .. }));
    let swapped = with(0, u64::from_le_bytes(*b"2ELIFREP"));
    assert!(matches!(swapped, ImportError::Machine { .. }));
    // The size of the data is written when perf ends.
    assert!(matches!(with(48, 0), ImportError::Unfinished(_)));
    assert!(matches!(with(48, 1 << 40), ImportError::Truncated { .. }));
    assert!(matches!(with(48, u64::MAX), ImportError::Damaged { .. }));
    // Attributes of size zero, and larger than any kernel's.
    assert!(matches!(with(16, 0), ImportError::Damaged { .. }));
    assert!(matches!(with(16, u64::MAX), ImportError::Damaged { .. }));

    let mut arm = memory_recording();
    arm.arch = Some("aarch64");
    for bytes in [arm.file(), arm.pipe()] {
        let error = read(&bytes).unwrap_err();
        assert!(matches!(&error, ImportError::Machine { machine, .. } if machine == "aarch64"));
    }
    let mut silent = memory_recording();
    silent.records = record(LOST, 0, &[words(&[1, 5]), trailer(14)].concat());
    assert!(matches!(
        read(&silent.file()).unwrap_err(),
        ImportError::NoSamples(_)
    ));

    let missing = read_file(Path::new("/nonexistent/perf.data")).unwrap_err();
    assert!(matches!(missing, ImportError::Read { .. }));
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        read_file(folder.path()).unwrap_err(),
        ImportError::Folder(_)
    ));
}

#[test]
fn every_truncation_is_an_error_and_never_half_a_result() {
    let recording = memory_recording();
    for bytes in [recording.file(), recording.pipe()] {
        for length in 0..bytes.len() {
            let outcome = read(&bytes[..length]);
            // A recording that was written to a pipe may be cut between two records; it is
            // then whole and shorter.
            match outcome {
                Err(_) => {}
                Ok((imported, _)) => {
                    assert!(
                        bytes == recording.pipe() && imported.accesses > 0,
                        "{length}"
                    );
                }
            }
        }
    }
}

#[test]
fn no_allocation_follows_from_a_size_in_the_file() {
    // The list of event descriptions (feature 12) claims four thousand million
    // events; the reader would reserve room for all of them.
    let mut bytes = memory_recording().file();
    let features = 1u64 << 6 | 1 << 12;
    bytes[72..80].copy_from_slice(&features.to_le_bytes());
    let arch_section = bytes.len() - 68 - 16;
    let mut tail = bytes.split_off(arch_section);
    let string = tail.split_off(16);
    let string_at = bytes.len() as u64 + 32;
    bytes.extend(words(&[string_at, 68, string_at + 68, 8]));
    bytes.extend(string);
    bytes.extend([0xff; 8]);
    let (imported, _) = read(&bytes).unwrap();
    assert_eq!(imported.accesses, 2);
}

/// 12,000 bytes that unpack to 64 MiB of the smallest records of the kernel: a gigabyte of lists.
#[test]
fn compressed_records_do_not_unpack_to_more_than_a_multiple_of_the_file() {
    let name = record(COMM, MISC_USER, &words(&[TASK]));
    let compressed = |count: usize| {
        let mut recording = memory_recording();
        recording.records.extend(packed(&name.repeat(count)));
        recording
    };
    let small = compressed(1000);
    for bytes in [small.file(), small.pipe()] {
        let (imported, events) = read(&bytes).unwrap();
        assert_eq!((imported.accesses, events.len()), (2, 1002));
    }
    let large = compressed(4 << 20);
    for bytes in [large.file(), large.pipe()] {
        let said = read(&bytes).err().unwrap().to_string();
        assert!(said.contains("/perf.data is damaged: at byte"), "{said}");
        assert!(
            said.contains("its compressed records take more than"),
            "{said}"
        );
        assert!(!said.contains('\n'), "{said}");
    }
}

#[test]
fn damaged_compressed_records_are_refused_where_they_are() {
    let name = record(COMM, MISC_USER, &words(&[TASK]));
    let short = [name.clone(), vec![0; 16]].concat();
    let cases = [
        (record(81, 0, b"no such frame"), "cannot be unpacked"),
        (
            record(83, 0, &words(&[1 << 40, 0])),
            "shorter than its data",
        ),
        (record(83, 0, &[1; 4]), "shorter than its data"),
        (packed(&short), "shorter than its header"),
    ];
    for (bytes, words) in cases {
        let mut recording = memory_recording();
        recording.records.extend(bytes);
        for bytes in [recording.file(), recording.pipe()] {
            let said = read(&bytes).err().unwrap().to_string();
            assert!(said.contains("at byte") && said.contains(words), "{said}");
        }
    }
}

/// A record of 24 bytes makes a process, of which some kilobytes are kept; a fork copies the mappings
/// of its parent.
#[test]
fn processes_and_mappings_take_no_more_than_a_multiple_of_the_file() {
    let mut many = memory_recording();
    for id in 1..100_000 {
        let name = [words(&[id | id << 32, 0x78]), trailer(0)].concat();
        many.add(COMM, MISC_USER, &name);
    }
    let said = read(&many.file()).err().unwrap().to_string();
    assert!(said.contains("its processes take more than"), "{said}");

    let mut forks = memory_recording();
    for at in 1..2000 {
        let body = [words(&[TASK, at << 12, 1 << 12, 0, 0x66]), trailer(0)].concat();
        forks.add(MMAP, MISC_USER, &body);
    }
    for id in 10..1000u64 {
        let body = [words(&[id | 7 << 32, id | 7 << 32, 0]), trailer(0)].concat();
        forks.add(FORK, 0, &body);
    }
    let said = read(&forks.pipe()).err().unwrap().to_string();
    assert!(said.contains("the mappings of its processes"), "{said}");
}

/// As a shell does that starts a thousand programs: each process begins with its parent's mappings
/// and leaves them behind.
#[test]
fn processes_that_execute_programs_do_not_add_up() {
    let mut recording = memory_recording();
    for at in 1..500 {
        let body = [words(&[TASK, at << 12, 1 << 12, 0, 0x66]), trailer(0)].concat();
        recording.add(MMAP, MISC_USER, &body);
    }
    for id in 10..3000u64 {
        let body = [words(&[id | 7 << 32, id | 7 << 32, 0]), trailer(0)].concat();
        recording.add(FORK, 0, &body);
        let name = [words(&[id | id << 32, 0x78]), trailer(0)].concat();
        recording.add(COMM, MISC_USER | MISC_COMM_EXEC, &name);
    }
    assert_eq!(read(&recording.file()).unwrap().0.accesses, 2);
}

#[test]
fn what_is_no_regular_file_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    for path in [&pipe, Path::new("/dev/zero")] {
        let error = read_file(path).err().unwrap();
        assert!(matches!(error, ImportError::NotAFile(_)), "{error}");
    }
}

/// A compressed record of these bytes.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut to = vec![0; zstd_safe::compress_bound(bytes.len())];
    let length = zstd_safe::compress(&mut to[..], bytes, 3).unwrap();
    record(81, 0, &to[..length])
}

mod damage {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn flipped_bytes_never_panic(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            pipe in any::<bool>(),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let recording = memory_recording();
            let mut bytes = if pipe { recording.pipe() } else { recording.file() };
            for (at, value) in &flips {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            // Any result is right; the reader must not panic.
            let _ = read(&bytes);
        }
    }
}
