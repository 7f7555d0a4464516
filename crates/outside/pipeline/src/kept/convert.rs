//! Between the types of a recording and those of the observers. Pure.

use crate::blocks::{FreedBlock, OwnerChange};
use sunder_access::{
    Access, Address, CodeAddress, Kind, Mapping, ProcessId, Provenance, Span, ThreadId, Time,
};
use sunder_objects::HeapBlock;
use sunder_observe::decode::CodeRange;
use sunder_observe::{RawSample, Registers};
use sunder_recording as recording;

/// A sample, to be recorded; its code has this number.
pub fn kept_sample(sample: &RawSample, code: u32) -> recording::Sample {
    recording::Sample {
        time: sample.time.0,
        process: sample.process.0,
        thread: sample.thread.0,
        cpu: sample.cpu,
        period_ns: sample.period_ns,
        registers: sample.registers.general,
        ip: sample.registers.ip.0,
        code,
    }
}

/// The sample that was recorded.
pub fn raw(kept: &recording::Sample) -> RawSample {
    RawSample {
        time: Time(kept.time),
        process: ProcessId(kept.process),
        thread: ThreadId(kept.thread),
        cpu: kept.cpu,
        period_ns: kept.period_ns,
        registers: Registers {
            general: kept.registers,
            ip: CodeAddress(kept.ip),
        },
    }
}

/// The access that was recorded.
pub fn access(kept: recording::Access) -> Access {
    Access {
        time: Time(kept.time),
        thread: ThreadId(kept.thread),
        instruction: CodeAddress(kept.instruction),
        address: Address(kept.address),
        width: kept.width,
        kind: match kept.kind {
            recording::Kind::Read => Kind::Read,
            recording::Kind::Write => Kind::Write,
            recording::Kind::Update => Kind::Update,
            recording::Kind::Atomic => Kind::Atomic,
        },
        provenance: match kept.provenance {
            recording::Provenance::Sampled => Provenance::Sampled,
            recording::Provenance::Counted => Provenance::Counted,
            recording::Provenance::Watched => Provenance::Watched,
            recording::Provenance::Diffed => Provenance::Diffed,
            recording::Provenance::Traced => Provenance::Traced,
        },
        weight: kept.weight,
    }
}

/// An access, to be recorded.
pub fn kept_access(access: &Access) -> recording::Access {
    recording::Access {
        time: access.time.0,
        thread: access.thread.0,
        instruction: access.instruction.0,
        address: access.address.0,
        width: access.width,
        kind: match access.kind {
            Kind::Read => recording::Kind::Read,
            Kind::Write => recording::Kind::Write,
            Kind::Update => recording::Kind::Update,
            Kind::Atomic => recording::Kind::Atomic,
        },
        provenance: match access.provenance {
            Provenance::Sampled => recording::Provenance::Sampled,
            Provenance::Counted => recording::Provenance::Counted,
            Provenance::Watched => recording::Provenance::Watched,
            Provenance::Diffed => recording::Provenance::Diffed,
            Provenance::Traced => recording::Provenance::Traced,
        },
        weight: access.weight,
    }
}

/// The mapping that was recorded.
pub fn mapping(kept: recording::Mapping) -> Mapping {
    let [read, write, execute, shared] = kept.rights;
    Mapping {
        span: Span::new(Address(kept.start), kept.len),
        file_offset: kept.file_offset,
        path: kept.path,
        inode: kept.inode,
        read,
        write,
        execute,
        shared,
    }
}

/// A mapping, to be recorded.
pub fn kept_mapping(mapping: &Mapping) -> recording::Mapping {
    recording::Mapping {
        start: mapping.span.start.0,
        len: mapping.span.len,
        file_offset: mapping.file_offset,
        path: mapping.path.clone(),
        inode: mapping.inode,
        rights: [mapping.read, mapping.write, mapping.execute, mapping.shared],
    }
}

/// The change of an owner that was recorded.
pub fn owner_change(kept: recording::OwnerChange) -> OwnerChange {
    let freed = |block: recording::Block| FreedBlock {
        block: HeapBlock {
            span: Span::new(Address(block.start), block.len),
            allocation: block.stack.into_iter().map(CodeAddress).collect(),
            thread: block.thread.map(ThreadId),
            freed: true,
        },
        moved: None,
    };
    OwnerChange {
        span: Span::new(Address(kept.start), kept.len),
        time: Time(kept.time),
        freed: kept.freed.map(freed),
    }
}

/// The change of an owner, to be recorded.
pub fn kept_owner_change(change: &OwnerChange) -> recording::OwnerChange {
    recording::OwnerChange {
        start: change.span.start.0,
        len: change.span.len,
        time: change.time.0,
        freed: change.freed.as_ref().map(|freed| recording::Block {
            start: freed.block.span.start.0,
            len: freed.block.span.len,
            stack: freed.block.allocation.iter().map(|at| at.0).collect(),
            thread: freed.block.thread.map(|thread| thread.0),
        }),
    }
}

/// A piece of code, to be recorded.
pub fn kept_code(range: &CodeRange) -> recording::Code {
    recording::Code {
        start: range.start.0,
        bytes: range.bytes.clone(),
        exact_start: range.exact_start,
        entries: range.entries.iter().map(|at| at.0).collect(),
        tables_known: range.tables_known,
        stable: range.stable,
    }
}
