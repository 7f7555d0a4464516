//! Kept runs that are made by hand: what is found in them with lines of several sizes, and that
//! damage behind the checksum gives an error or a result, and never a crash.

use proptest::prelude::*;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use sunder_findings::{Findings, Machine, ObjectKind, Program, Run, Sharing};
use sunder_pipeline::rejudge;
use sunder_recording::{
    Access, Begin, Block, Burst, Claim, Code, End, Executed, Kind, Mapping, OwnerChange,
    Provenance, Resolved, Sample, Step, ThreadLocals, craft,
};

const PROCESS: u32 = 4242;
/// Memory that two threads write 64 bytes apart: on one line of 128 bytes, on two of 64.
const DATA: u64 = 0x7000_0000_0080;
/// `lock add [rax], 1` in a loop.
const LOOP: [u8; 6] = [0xf0, 0x83, 0x00, 0x01, 0xeb, 0xfa];
const CODE: u64 = 0x40_1000;

fn mapping(start: u64, execute: bool) -> Mapping {
    Mapping {
        start,
        len: 0x1000,
        file_offset: 0,
        path: String::new(),
        inode: 0,
        rights: [true, !execute, execute, false],
    }
}

fn sample(time: u64, thread: u32, address: u64) -> Sample {
    let mut registers = [0; 16];
    registers[0] = address;
    Sample {
        time,
        process: PROCESS,
        thread,
        cpu: thread - PROCESS,
        period_ns: 100_000,
        registers,
        ip: CODE,
        code: 1,
    }
}

fn trapped(time: u64, thread: u32, address: u64) -> Access {
    Access {
        time,
        thread,
        instruction: CODE,
        address,
        width: 4,
        kind: Kind::Atomic,
        provenance: Provenance::Watched,
        weight: 1.0,
    }
}

/// A run in which two threads write all the time, with a step of every kind.
fn run() -> Vec<Step> {
    run_of(400)
}

/// The same with so many samples of each thread.
fn run_of(turns: u64) -> Vec<Step> {
    let other = PROCESS + 1;
    let mut steps = vec![
        Step::Begin(Begin {
            only: Some(PROCESS),
            line: 64,
            transfer_ns: 90.0,
        }),
        Step::Claim(Claim {
            image: 1,
            process: PROCESS,
            parent: None,
            time: 10,
            forked: None,
            is_only_report: false,
        }),
        Step::Mappings {
            process: PROCESS,
            mappings: vec![mapping(CODE, true), mapping(DATA & !0xfff, false)],
        },
        Step::ThreadStart {
            process: PROCESS,
            parent: PROCESS,
            thread: other,
            time: 20,
        },
        Step::Thread {
            process: PROCESS,
            thread: other,
            name: Some("worker".into()),
        },
        Step::ThreadLocals(ThreadLocals {
            process: PROCESS,
            found: vec![(other, 0x7000_1000)],
            threads: vec![(other, 0x7000_1000)],
            memory: vec![(0x7000_1000, vec![0; 16])],
        }),
        Step::Code(Code {
            start: CODE,
            bytes: LOOP.to_vec(),
            exact_start: true,
            entries: Vec::new(),
            tables_known: true,
            stable: true,
        }),
    ];
    for turn in 0..turns {
        let time = 1_000_000 + turn * 100_000;
        steps.push(Step::Sample(sample(time, PROCESS, DATA)));
        steps.push(Step::Sample(sample(time + 10, other, DATA + 64)));
        if turn % 40 == 39 {
            steps.push(Step::Resolved(Vec::new()));
        }
    }
    let hits = |thread, address| {
        (0..50).map(move |turn| {
            trapped(
                50_000_000 + turn * 200 + u64::from(thread % 2) * 100,
                thread,
                address,
            )
        })
    };
    let mut accesses: Vec<Access> = hits(PROCESS, DATA).chain(hits(other, DATA + 64)).collect();
    accesses.sort_by_key(|access| access.time);
    steps.extend([
        Step::Watched(Burst {
            process: PROCESS,
            words: vec![DATA, DATA + 64],
            started: 49_999_000,
            ended: 50_020_000,
            accesses,
        }),
        Step::Executed(Executed {
            process: PROCESS,
            at: CODE,
            suspects: vec![CODE],
            threads: vec![other],
            now: 60_000_000,
            burst: Some((
                vec![CODE],
                vec![(other, vec![sample(60_000_000, other, DATA)])],
            )),
        }),
        Step::Owners {
            process: PROCESS,
            changes: vec![OwnerChange {
                start: 0x9000,
                len: 32,
                time: 61_000_000,
                freed: Some(Block {
                    start: 0x9000,
                    len: 32,
                    stack: vec![CODE],
                    thread: Some(other),
                }),
            }],
        },
        Step::PassOn,
        Step::Segment {
            image: 1,
            offset: 0x1000,
            bytes: vec![0; 4096],
        },
        Step::Generated {
            process: PROCESS,
            began: 0,
            functions: vec![(CODE, 6, "made".into())],
        },
        Step::End(end()),
    ]);
    steps
}

fn end() -> End {
    End {
        start: 0,
        end: 70_000_000,
        observed: serde_json::json!({
            "program": Program::default(),
            "machine": Machine { line_size: 64, cpus: 2, ..Machine::default() },
            "run": Run { seconds: 0.07, observer: "perf".into(), ..Run::default() },
            "limits": ["A limit."],
        })
        .to_string(),
        measured: Some("kept".into()),
    }
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a folder for temporary files");
    file.write_all(bytes).expect("space");
    file
}

fn judged(steps: &[Step], line: Option<u32>) -> anyhow::Result<Findings> {
    let bytes = craft::recording(&craft::unpacked(steps));
    let done = rejudge(&file(&bytes), line, Some(1.0))?;
    assert_eq!(done.measured.as_deref(), Some("kept"));
    Ok(done.findings)
}

#[test]
fn another_line_size_finds_what_shares_such_lines() {
    let small = judged(&run(), None).expect("whole");
    assert_eq!((small.machine.line_size, small.run.samples), (64, 800));
    let found = |f: &&sunder_findings::Finding| !f.latent;
    assert_eq!(small.findings.iter().filter(found).count(), 0, "{small:#?}");
    let large = judged(&run(), Some(128)).expect("whole");
    assert_eq!(large.machine.line_size, 128);
    let finding = large
        .findings
        .iter()
        .find(found)
        .expect("one line for both");
    assert_eq!(finding.sharing, Sharing::False);
    assert!(finding.confirmed, "{finding:#?}");
    assert_eq!(large.run.threshold_percent, 1.0);
    let told = |limits: &[sunder_findings::Limit]| {
        limits.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(told(&small.limits).contains(&"A limit.".to_owned()));
    let with_other = |l: &String| l.contains("recorded with lines of 64 bytes");
    assert!(told(&large.limits).iter().any(with_other));
    assert!(!told(&small.limits).iter().any(with_other));
}

/// The fuzz target begins with it, in the present version of the format.
#[test]
fn the_corpus_has_this_run() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/run/two-threads");
    let wanted = craft::unpacked(&run_of(12));
    if std::env::var_os("SUNDER_PUBLISH").is_some() {
        std::fs::write(&file, &wanted).expect("it can be written");
    }
    let kept = std::fs::read(&file).unwrap_or_default();
    assert!(
        kept == wanted,
        "SUNDER_PUBLISH=1 cargo test -p sunder-pipeline --test kept writes it"
    );
}

#[test]
fn a_run_is_judged_in_one_way_each_time() {
    let once = judged(&run(), Some(128)).expect("whole");
    let again = judged(&run(), Some(128)).expect("whole");
    assert_eq!(once, again);
}

#[test]
fn what_refers_to_nothing_is_refused() {
    let with = |step: Step| {
        let mut steps = run();
        steps.insert(7, step);
        judged(&steps, None).expect_err("it is damaged").to_string()
    };
    let unknown = Sample {
        code: 9,
        ..sample(1, PROCESS, DATA)
    };
    assert!(with(Step::Sample(unknown)).contains("damaged"));
    let pointer = Resolved {
        sample: 3,
        near: 0,
        address: DATA,
    };
    assert!(with(Step::Resolved(vec![pointer])).contains("damaged"));
    let outside = Step::Segment {
        image: 1,
        offset: u64::MAX - 7,
        bytes: vec![1; 8],
    };
    assert!(with(outside).contains("damaged"));
}

#[test]
fn processes_and_their_mappings_are_bounded() {
    let mut steps = run();
    let all = (0..60_000).map(|number| mapping(0x10_0000 + number * 0x1000, false));
    steps.insert(
        1,
        Step::Mappings {
            process: 1,
            mappings: all.collect(),
        },
    );
    for child in 0..1000 {
        steps.insert(
            2,
            Step::ThreadStart {
                process: 100_000 + child,
                parent: 1,
                thread: 100_000 + child,
                time: 5,
            },
        );
    }
    let error = judged(&steps, None).expect_err("too much").to_string();
    assert!(error.contains("than can be kept"), "{error}");
}

/// A run in which two threads add to two words of a line all the time, by the instruction at `code`, which has
/// the address of a word less `displacement` in `rdi`.
fn two_writers(
    words: [u64; 2],
    displacement: u64,
    code: &Code,
    mappings: Vec<Mapping>,
) -> Findings {
    let threads = [PROCESS, PROCESS + 1];
    let mut steps = run_of(0);
    steps.truncate(5);
    steps[2] = Step::Mappings {
        process: PROCESS,
        mappings,
    };
    steps.push(Step::Code(code.clone()));
    let both = || threads.into_iter().zip(words);
    for turn in 0..400 {
        for (thread, word) in both() {
            let mut taken = sample(1_000_000 + turn * 100_000 + u64::from(thread), thread, 0);
            taken.registers[7] = word - displacement;
            taken.ip = code.start;
            steps.push(Step::Sample(taken));
        }
        if turn % 40 == 39 {
            steps.push(Step::Resolved(Vec::new()));
        }
    }
    let accesses = (0..100).flat_map(|turn| {
        both().map(move |(thread, word)| Access {
            instruction: code.start,
            width: 8,
            ..trapped(
                50_000_000 + turn * 200 + u64::from(thread % 2) * 100,
                thread,
                word,
            )
        })
    });
    steps.push(Step::Watched(Burst {
        process: PROCESS,
        words: words.to_vec(),
        started: 49_999_000,
        ended: 50_020_000,
        accesses: accesses.collect(),
    }));
    steps.push(Step::End(end()));
    judged(&steps, None).expect("whole")
}

fn loop_at(start: u64, bytes: &[u8]) -> Code {
    Code {
        start,
        bytes: bytes.to_vec(),
        exact_start: true,
        entries: Vec::new(),
        tables_known: true,
        stable: true,
    }
}

/// As of an array that was moved by `mremap` before its lines were named.
#[test]
fn words_in_no_mapping_are_no_two_objects() {
    // `lock add qword [rdi], 1` in a loop.
    let code = loop_at(CODE, &[0xf0, 0x48, 0x83, 0x07, 0x01, 0xeb, 0xf9]);
    let words = [DATA, DATA + 32];
    let found = two_writers(words, 0, &code, vec![mapping(CODE, true)]);
    let finding = found.findings.first().expect("false sharing");
    assert_eq!(finding.object.kind, ObjectKind::Unknown, "{finding:#?}");
    assert_eq!(finding.neighbour, None);
    assert_eq!(finding.lines[0].object_offset, Some(0));
}

/// Two objects of 24 bytes, in chunks of 32 bytes that an allocator of the program's own took from a mapping.
#[test]
fn objects_in_chunks_have_their_own_members() {
    const SOURCE: &str = r#"
        struct worker { void *next; unsigned long done; int id, spare; };
        void work(struct worker *w) { for (;;) asm volatile("lock addq $1, %0" : "+m"(w->done)); }
    "#;
    // `lock add qword [rdi+8], 1` in a loop.
    const WORK: [u8; 8] = [0xf0, 0x48, 0x83, 0x47, 0x08, 0x01, 0xeb, 0xf8];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, program) = (folder.path().join("work.c"), folder.path().join("work"));
    std::fs::write(&source, SOURCE).expect("space");
    let options = [
        "-g",
        "-O2",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,-e,work",
    ];
    let mut gcc = Command::new("gcc");
    let Ok(built) = gcc
        .args(options)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
    else {
        println!("SKIP: gcc is not installed");
        return;
    };
    assert!(built.status.success(), "{built:?}");
    let file = std::fs::read(&program).expect("readable");
    let at = file.windows(WORK.len()).position(|bytes| bytes == WORK);
    let at = at.expect("the loop") as u64;
    // The segment with the code is mapped where the linker put it, with the file's distance within pages.
    let mapped = Mapping {
        file_offset: at & !0xfff,
        path: program.to_str().expect("a plain name").to_owned(),
        inode: std::fs::metadata(&program).expect("it is there").ino(),
        ..mapping(CODE & !0xfff, true)
    };
    let code = loop_at(mapped.start + at % 0x1000, &WORK);
    let start = DATA & !0xfff;
    let mappings = vec![mapped, mapping(start, false)];
    let found = two_writers([start + 24, start + 56], 8, &code, mappings);
    let finding = found.findings.first().expect("false sharing");
    assert_eq!(
        finding.object.type_name.as_deref(),
        Some("struct worker"),
        "{finding:#?}"
    );
    let fields = finding.lines[0]
        .words
        .iter()
        .map(|word| word.field.as_deref());
    assert_eq!(fields.collect::<Vec<_>>(), [Some(".done"), Some(".done")]);
    let advice = &finding.advice[0].text;
    assert!(
        advice.contains("neighbouring objects of type `struct worker`"),
        "{advice}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn damage_behind_the_checksum_never_ends_the_reader(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        line in prop::sample::select(vec![None, Some(32_u32), Some(4096)]),
    ) {
        let mut bytes = craft::unpacked(&run_of(40));
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        let done = rejudge(&file(&craft::recording(&bytes)), line, None);
        if let Err(error) = done {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn lost_and_doubled_steps_never_end_the_reader(
        moved in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..20),
    ) {
        let mut steps = run_of(40);
        for (from, to) in moved {
            let step = steps[from.index(steps.len())].clone();
            let to = to.index(steps.len());
            steps[to] = step;
        }
        let _ = rejudge(&file(&craft::recording(&craft::unpacked(&steps))), None, None);
    }
}
