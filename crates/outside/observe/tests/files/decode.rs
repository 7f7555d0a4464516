//! The decoder: a table of cases, and random programs whose addresses are all known from executing
//! them in an interpreter.

mod interpreter;

use interpreter::{Point, Program, Random};
use std::fmt::Write;
use std::sync::Arc;
use sunder_access::{Address, CodeAddress, Kind, ProcessId, Span, ThreadId, Time};
use sunder_observe::{CodeRange, CodeSource, Decoded, Decoder, NearAccess, RawSample, Registers};

const CODE: u64 = 0x40_0000;

/// A source that has the same code for all addresses and processes.
struct Fixed(Arc<CodeRange>);

impl CodeSource for Fixed {
    fn function(&mut self, _: ProcessId, _: CodeAddress) -> Option<Arc<CodeRange>> {
        Some(Arc::clone(&self.0))
    }
}

fn source(bytes: Vec<u8>) -> Fixed {
    Fixed(Arc::new(CodeRange::new(CodeAddress(CODE), bytes, true)))
}

fn sample(general: [u64; 16], offset: usize) -> RawSample {
    RawSample {
        time: Time(1),
        process: ProcessId(2),
        thread: ThreadId(3),
        cpu: 0,
        period_ns: 250_000,
        registers: Registers {
            general,
            ip: CodeAddress(CODE + offset as u64),
        },
    }
}

const NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

fn registers(given: &str) -> [u64; 16] {
    let mut general: [u64; 16] = std::array::from_fn(|number| 0x10000 * (number as u64 + 1));
    for assignment in given.split_whitespace() {
        let (name, value) = assignment.split_once('=').unwrap();
        let number = NAMES.iter().position(|known| *known == name).unwrap();
        general[number] = u64::from_str_radix(value, 16).unwrap();
    }
    general
}

const fn letter(kind: Kind) -> char {
    match kind {
        Kind::Read => 'R',
        Kind::Write => 'W',
        Kind::Update => 'U',
        Kind::Atomic => 'A',
    }
}

/// The decoded accesses, in the notation of the table.
fn shown(found: &Decoded) -> Vec<String> {
    assert_eq!(found.accesses.len(), found.distances.len());
    let exact = found
        .accesses
        .iter()
        .zip(&found.distances)
        .map(|(access, distance)| {
            let (kind, address) = (letter(access.kind), access.address.0);
            format!("{distance} {kind} {address:x}/{}", access.width)
        });
    let near = found.near.iter().map(|near| {
        let (distance, kind, width) = (near.distance, letter(near.kind), near.width);
        let unknown = if near.avoidable { "~" } else { "?" };
        let unknown = near.within.map_or_else(
            || unknown.into(),
            |address| format!("{:x}+{unknown}", address.0),
        );
        let place = near.through.map_or_else(
            || unknown,
            |slot| {
                let sign = if slot.add < 0 { "-" } else { "" };
                format!("[{:x}]+{sign}{:x}", slot.address.0, slot.add.unsigned_abs())
            },
        );
        format!("{distance} {kind} {place}/{width}")
    });
    let mut all: Vec<String> = exact.chain(near).collect();
    if found.segment_relative > 0 {
        all.push(format!("fs {}", found.segment_relative));
    }
    all.sort();
    all
}

#[test]
fn the_table_of_cases_holds() {
    let mut failures = String::new();
    let mut cases = 0;
    for line in include_str!("decode/cases.txt").lines() {
        if line.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, assembly, code, given, rest @ ..] = fields.as_slice() else {
            panic!("not a case: {line}");
        };
        let (mut bytes, mut offset) = (Vec::new(), None);
        for group in code.split_whitespace() {
            if group.starts_with('>') {
                offset = Some(bytes.len());
            }
            let digits = group.trim_start_matches('>').as_bytes();
            bytes.extend(
                digits.chunks(2).map(|pair| {
                    u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()
                }),
            );
        }
        let wanted = rest.first().copied().unwrap_or("");
        let mut wanted: Vec<&str> = wanted.split(", ").filter(|one| !one.is_empty()).collect();
        wanted.sort_unstable();
        let mut found = Decoded::default();
        Decoder::new().decode(
            &sample(registers(given), offset.unwrap()),
            &mut source(bytes),
            &mut found,
        );
        cases += 1;
        let shown = shown(&found);
        if shown != wanted {
            writeln!(
                failures,
                "{name}: {assembly}\n  wanted {wanted:?}\n  found  {shown:?}"
            )
            .unwrap();
        }
    }
    assert!(cases > 100, "the table was not read");
    assert!(failures.is_empty(), "\n{failures}");
}

/// The access that was really executed last before a point is known there or is a suspect, however
/// control came; and if the point's registers leave some choices, it is one of them; unless it lies too far back, or is one that the decoder does not claim.
#[test]
fn the_last_access_before_a_sample_is_never_missed() {
    const FARTHEST: usize = 12;
    let (mut known, mut suspected, mut chosen) = (0, 0, 0);
    for seed in 0..1500 {
        let mut random = Random::new(seed);
        let program = Program::random(&mut random, CODE);
        let mut code = source(program.bytes.clone());
        let mut decoder = Decoder::new();
        let mut found = Decoded::default();
        let trace = program.execute(&mut random, 60);
        for (now, point) in trace.points.iter().enumerate() {
            let before = &trace.points[now.saturating_sub(FARTHEST)..now];
            let Some(last) = before.iter().rposition(|point| point.touched.is_some()) else {
                continue;
            };
            let distance = last as i32 - before.len() as i32;
            let last = &before[last];
            let mut sample = sample(point.registers, 0);
            sample.registers.ip = CodeAddress(point.address);
            decoder.decode(&sample, &mut code, &mut found);
            let at = |instruction: CodeAddress, of: i32| instruction.0 == last.address && of < 0;
            let mut accesses = found.accesses.iter().zip(&found.distances);
            if accesses.any(|(access, &of)| at(access.instruction, of) && of == distance) {
                known += 1;
                continue;
            }
            let suspect = |near: &NearAccess| near.suspect && at(near.instruction, near.distance);
            assert!(
                found.blind && found.near.iter().any(suspect),
                "seed {seed} at {now}: {distance} {last:x?} of {found:x?}"
            );
            suspected += 1;
            if !found.choices.is_empty() {
                let (address, width, _) = last.touched.unwrap();
                let truth = Span::new(Address(address), width.into());
                assert!(
                    found.choices.contains(&truth),
                    "seed {seed} at {now}: {truth:x?} of {found:x?}"
                );
                chosen += 1;
            }
        }
    }
    assert!(
        known > 1000 && suspected > 1000 && chosen > 10,
        "{known}, {suspected}, {chosen}"
    );
}

/// No exact address may ever be wrong. Random programs with branches are executed. Whatever the
/// decoder derives from the registers at any point must have been executed there; a slot that it
/// names must have held the pointer at the time of the access.
#[test]
fn every_claimed_address_is_the_one_that_was_touched() {
    let (mut claimed, mut touched, mut backward, mut through) = (0, 0, 0, 0);
    let mut over_jumps = 0;
    for seed in 0..1500 {
        let mut random = Random::new(seed);
        let program = Program::random(&mut random, CODE);
        let mut code = source(program.bytes.clone());
        let mut decoder = Decoder::new();
        let mut found = Decoded::default();
        let trace = program.execute(&mut random, 60);
        for (now, point) in trace.points.iter().enumerate() {
            let mut sample = sample(point.registers, 0);
            sample.registers.ip = CodeAddress(point.address);
            decoder.decode(&sample, &mut code, &mut found);
            assert!(found.code_found);
            touched += usize::from(point.touched.is_some());
            for (access, distance) in found.accesses.iter().zip(&found.distances) {
                let Some(then) = now.checked_add_signed(*distance as isize) else {
                    panic!("seed {seed}: {access:x?} before the beginning");
                };
                // The interpreter did not execute any further.
                let Some(truth) = trace.points.get(then) else {
                    continue;
                };
                let claim = (access.address.0, access.width, access.kind);
                assert_eq!(
                    access.instruction.0, truth.address,
                    "seed {seed} at {now}{distance:+}"
                );
                assert_eq!(
                    Some(claim),
                    truth.touched,
                    "seed {seed} at {now}{distance:+}"
                );
                claimed += 1;
                backward += usize::from(*distance < 0);
                // An instruction has at most 15 bytes.
                let jumps =
                    |two: &[Point]| !(1..16).contains(&two[1].address.wrapping_sub(two[0].address));
                let way = trace.points.get(then..=now).unwrap_or_default();
                over_jumps += usize::from(way.windows(2).any(jumps));
            }
            for near in &found.near {
                let Some(slot) = near.through else {
                    continue;
                };
                let then = now.checked_add_signed(near.distance as isize).unwrap();
                let Some(truth) = trace.points.get(then) else {
                    continue;
                };
                let content = trace.content(then, slot.address.0);
                let claim = content.wrapping_add_signed(slot.add);
                assert_eq!(
                    Some((claim, near.width, near.kind)),
                    truth.touched,
                    "seed {seed} at {now}{:+}, through {slot:x?}",
                    near.distance
                );
                through += 1;
            }
        }
    }
    // The test would be empty if nothing were decoded. At each point there are the point's own
    // accesses, and more before and after it.
    assert!(
        claimed > touched * 3 / 2,
        "{claimed} claimed at {touched} points"
    );
    assert!(
        backward > touched / 4,
        "{backward} backward at {touched} points"
    );
    assert!(
        over_jumps > touched / 200,
        "{over_jumps} behind jumps at {touched} points"
    );
    assert!(
        through > touched / 50,
        "{through} through slots at {touched} points"
    );
}

#[test]
fn without_code_nothing_is_claimed() {
    struct Nothing;
    impl CodeSource for Nothing {
        fn function(&mut self, _: ProcessId, _: CodeAddress) -> Option<Arc<CodeRange>> {
            None
        }
    }
    let mut found = Decoded::default();
    let sample = sample([0; 16], 0);
    Decoder::new().decode(&sample, &mut source(vec![0xff, 0x07]), &mut found);
    assert_eq!(found.accesses.len(), 1);
    // The previous result must not remain.
    Decoder::new().decode(&sample, &mut Nothing, &mut found);
    assert_eq!(found, Decoded::default());
}

/// If the boundaries of instructions are unknown, or the code may change, only the instructions
/// from the sampled one on are certain.
#[test]
fn code_without_known_boundaries_is_decoded_forward_only() {
    // incl (%rdi); incl (%rsi); incl (%rdx)
    let bytes = vec![0xff, 0x07, 0xff, 0x06, 0xff, 0x02];
    for (exact, stable, wanted) in [(true, true, 3), (false, true, 2), (false, false, 2)] {
        let mut range = CodeRange::new(CodeAddress(CODE), bytes.clone(), exact);
        range.stable = stable;
        let mut found = Decoded::default();
        let sample = sample(registers(""), 2);
        Decoder::new().decode(&sample, &mut Fixed(Arc::new(range)), &mut found);
        assert_eq!(found.accesses.len(), wanted);
    }
}

/// The access that held up the sample lies before it, and what lies before it is not known there.
#[test]
fn code_without_known_boundaries_in_which_nothing_follows_is_blind() {
    // incl (%rdi); ret
    let bytes = vec![0xff, 0x07, 0xc3];
    for (exact, stable, at, is_blind) in [
        (true, true, 2, false),
        (false, true, 2, true),
        (false, false, 2, true),
        (false, true, 0, false),
    ] {
        let mut range = CodeRange::new(CodeAddress(CODE), bytes.clone(), exact);
        range.stable = stable;
        let mut found = Decoded::default();
        let sample = sample(registers(""), at);
        Decoder::new().decode(&sample, &mut Fixed(Arc::new(range)), &mut found);
        assert_eq!(found.blind, is_blind, "{exact} {stable} {at}");
    }
}

/// Entries that only other code knows, such as jump tables and jumps of other functions, stop
/// decoding backward.
#[test]
fn backward_walk_stops_at_an_entry_from_another_function() {
    // incl (%rdi); incl (%rsi); incl (%rdx); jmp *%rax
    let bytes = vec![0xff, 0x07, 0xff, 0x06, 0xff, 0x02, 0xff, 0xe0];
    let mut range = CodeRange::new(CodeAddress(CODE), bytes, true);
    range.tables_known = true;
    range.entries = vec![CodeAddress(CODE + 2)];
    let mut found = Decoded::default();
    let sample = sample(registers(""), 4);
    Decoder::new().decode(&sample, &mut Fixed(Arc::new(range)), &mut found);
    assert_eq!(shown(&found), ["-1 U 70000/4", "0 U 30000/4"]);
}
