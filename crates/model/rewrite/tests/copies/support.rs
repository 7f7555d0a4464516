//! Shared by the tests of the rewriter: assembles text, and shows machine code as text.

pub mod framed;

use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};
use std::io::Write;
use std::process::{Command, Stdio};
use sunder_access::{Address, CodeAddress, Span};
use sunder_rewrite::{Block, Code, Frame, Memory, MovedPage, Registers, Request, Rule, Seen};

/// The address of the original code.
pub const TEXT: u64 = 0x40_0000;
/// The address of its copy.
pub const CACHE: u64 = 0x50_0000;
/// The page that moves.
pub const PAGE: u64 = 0x60_0000;
/// The new place of the page, except for one group.
pub const UNDERLAY: u64 = 0x70_0000;
/// The group: its place on the page, its length, and its new place.
pub const GROUP: (u64, u64, u64) = (PAGE + 0x40, 0x20, 0x70_1040);

/// The machine code of Intel-syntax text at `TEXT`; `None` without an assembler.
pub fn assemble(text: &str) -> Option<Vec<u8>> {
    assemble_at(TEXT, text)
}

/// The machine code of the text at `start`.
pub fn assemble_at(start: u64, text: &str) -> Option<Vec<u8>> {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let name = format!("{:?}", std::thread::current().id());
    let number: String = name.chars().filter(char::is_ascii_digit).collect();
    let object = folder.join(format!("case-{}-{number}.o", std::process::id()));
    let mut child = Command::new("as")
        .args(["--64", "-o"])
        .arg(&object)
        .stdin(Stdio::piped())
        .spawn()
        .ok()?;
    let source = format!(".intel_syntax noprefix\n.text\n{text}\n");
    child.stdin.take()?.write_all(source.as_bytes()).ok()?;
    assert!(
        child.wait().ok()?.success(),
        "this does not assemble:\n{text}"
    );
    let raw = object.with_extension("bin");
    let status = Command::new("ld")
        .args([format!("-Ttext={start:#x}"), "--entry=0".into()])
        .args(["--oformat", "binary", "-o"])
        .arg(&raw)
        .arg(&object)
        .status()
        .ok()?;
    assert!(status.success());
    let bytes = std::fs::read(&raw).ok()?;
    for file in [object, raw] {
        let _ = std::fs::remove_file(file);
    }
    Some(bytes)
}

/// The moved page of the tests.
pub fn moved() -> MovedPage {
    let (from, len, to) = GROUP;
    let rule = |start: u64, end: u64, to: u64| Rule {
        bytes: Span {
            start: Address(start),
            len: end - start,
        },
        delta: to.wrapping_sub(start) as i64,
    };
    MovedPage {
        page: Span {
            start: Address(PAGE),
            len: 4096,
        },
        rules: vec![
            rule(PAGE, from, UNDERLAY),
            rule(from, from + len, to),
            rule(from + len, PAGE + 4096, UNDERLAY + (from + len - PAGE)),
        ],
    }
}

/// The same page with a table of `count` elements of `size` bytes in place of the group. Two threads use
/// them in turn, and those of the second lie a page further on.
pub fn moved_in_turn(count: u64, size: u64) -> MovedPage {
    let mut page = moved();
    let group = page.rules[1];
    let elements = (0..count).map(|n| Rule {
        bytes: Span::new(Address(group.bytes.start.0 + size * n), size),
        delta: group.delta + 0x1000 * (n % 2) as i64,
    });
    page.rules.splice(1..2, elements);
    page
}

/// Registers with these values, by number, and control at `at` bytes from the start; the others
/// are 0.
pub fn registers_at(at: u64, values: &[(usize, u64)]) -> Registers {
    let mut registers = Registers {
        ip: CodeAddress(TEXT + at),
        ..Registers::default()
    };
    for &(number, value) in values {
        registers.general[number] = value;
    }
    registers
}

/// A request for `code` with these registers.
pub fn ask<'a>(
    code: &'a [u8],
    registers: Registers,
    moved: &'a MovedPage,
    seen: &'a [Seen],
) -> Request<'a> {
    Request {
        frame: Frame {
            code: Code {
                start: CodeAddress(TEXT),
                bytes: code,
            },
            ip: registers.ip,
        },
        callers: &[],
        loops: None,
        callees: &[],
        registers,
        downwards: false,
        whole: false,
        compares_all: false,
        moved,
        seen,
        alone: &[],
        met: &[],
        memory: Memory(&|_, _| None),
        near: CodeAddress(CACHE),
    }
}

/// A block as text: its instructions with their offsets, without the constants.
pub fn text(block: &Block) -> String {
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_hex_prefix("0x");
    formatter.options_mut().set_hex_suffix("");
    formatter.options_mut().set_uppercase_hex(false);
    formatter.options_mut().set_rip_relative_addresses(false);
    formatter.options_mut().set_show_branch_size(false);
    let first = block.resume.first().map_or(0, |r| r.offset) as usize;
    let at = CACHE + first as u64;
    let mut decoder = Decoder::with_ip(64, &block.bytes[first..], at, DecoderOptions::NONE);
    let mut lines = String::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        lines.push_str(&format!("{:x}: {line}\n", instruction.ip() - CACHE));
    }
    lines
}
