//! The parts of the examples.

use crate::*;
use sunder_access::{Address, CodeAddress};

/// A thread's use of a word: `(thread, reads, writes, updates, atomics)`.
pub type Use = (u32, u64, u64, u64, u64);

/// The name of a thread in the examples: `main` for the lowest number, else `worker`.
pub(super) fn name_of(thread: u32) -> Option<String> {
    Some(if thread == 4700 { "main" } else { "worker" }.to_owned())
}

/// A word at `offset` of its line.
pub fn word(offset: u32, size: u32, field: &str, uses: &[Use]) -> Word {
    Word {
        offset,
        size,
        field: (!field.is_empty()).then(|| field.to_owned()),
        threads: uses
            .iter()
            .map(|&(id, reads, writes, updates, atomics)| ThreadUse {
                id,
                name: name_of(id),
                process: None,
                reads,
                writes,
                updates,
                atomics,
            })
            .collect(),
    }
}

/// A line of an object.
pub fn line(address: u64, object_offset: i64, rate: f64, words: Vec<Word>) -> Line {
    Line {
        address: Address(address),
        object_offset: Some(object_offset),
        interleavings_per_second: rate,
        interleaved_writes: None,
        words,
    }
}

/// A frame of a call stack.
pub fn frame(function: &str, file: &str, line: u32) -> Frame {
    Frame {
        function: function.to_owned(),
        file: (!file.is_empty()).then(|| file.to_owned()),
        line: (line > 0).then_some(line),
        inlined: false,
        module: Some("/home/user/phoenix/linear_regression".to_owned()),
        offset: None,
        wrapper: false,
    }
}

/// A source line that touches `fields`.
pub fn site(
    function: &str,
    at: (&str, u32),
    kind: AccessKind,
    threads: &[u32],
    accesses: u64,
    fields: &[&str],
    source: &str,
) -> Site {
    Site {
        function: function.to_owned(),
        file: (!at.0.is_empty()).then(|| at.0.to_owned()),
        line: (at.1 > 0).then_some(at.1),
        kind,
        threads: threads.to_vec(),
        accesses,
        calls: None,
        in_loop: None,
        address: CodeAddress(0x5555_5555_5000 + u64::from(at.1) * 16),
        module: Some("/home/user/phoenix/linear_regression".to_owned()),
        misses: None,
        fields: fields.iter().map(|&f| f.to_owned()).collect(),
        source: (!source.is_empty()).then(|| source.to_owned()),
        excerpt: excerpt(at.1, source),
    }
}

/// The source line between two others; each line of these examples has such neighbours.
fn excerpt(line: u32, source: &str) -> Vec<SourceLine> {
    if line < 2 || source.is_empty() {
        return Vec::new();
    }
    let texts = [
        "    /* before */",
        &format!("    {source}"),
        "    /* after */",
    ];
    (line - 1..)
        .zip(texts)
        .map(|(line, text)| SourceLine {
            line,
            text: text.to_owned(),
        })
        .collect()
}

pub(super) fn global(
    name: &str,
    of: &str,
    size: u64,
    address: u64,
    declared: (&str, u32),
) -> Object {
    Object {
        kind: ObjectKind::Global,
        name: Some(name.to_owned()),
        type_name: Some(of.to_owned()),
        size: Some(size),
        address: Address(address),
        declared: Some(Location {
            file: declared.0.to_owned(),
            line: Some(declared.1),
        }),
        module: Some("/home/user/app/server".to_owned()),
        ..Object::default()
    }
}

pub(super) fn heap(of: Option<&str>, size: u64, address: u64, allocation: Vec<Frame>) -> Object {
    Object {
        kind: ObjectKind::Heap,
        type_name: of.map(str::to_owned),
        size: Some(size),
        address: Address(address),
        allocation,
        thread: Some(Thread {
            id: 4700,
            name: name_of(4700),
        }),
        ..Object::default()
    }
}
