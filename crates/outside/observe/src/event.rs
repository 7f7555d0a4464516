//! What all observers deliver, in the order of time as far as they know it.

use sunder_access::{Access, CodeAddress, Mapping, ProcessId, ThreadId, Time};

/// The user registers of a thread at an instruction boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The general registers by their x86-64 encoding number: rax, rcx, rdx,
    /// rbx, rsp, rbp, rsi, rdi, r8 to r15.
    pub general: [u64; 16],
    /// The instruction that is executed next.
    pub ip: CodeAddress,
}

/// One sample taken in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSample {
    /// When, on the monotonic clock.
    pub time: Time,
    /// Whose.
    pub process: ProcessId,
    /// Whose.
    pub thread: ThreadId,
    /// The CPU that it ran on.
    pub cpu: u32,
    /// Nanoseconds of the thread's CPU time that this sample stands for.
    pub period_ns: u64,
    /// Its registers.
    pub registers: Registers,
}

/// What an observer saw.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Registers, to be decoded.
    Sample(RawSample),
    /// An access whose address the hardware told.
    Access {
        /// In which process.
        process: ProcessId,
        /// The access itself.
        access: Access,
        /// Whether the line came modified from another core's cache (HITM).
        hitm: bool,
    },
    /// Memory was mapped.
    Map {
        /// Where.
        process: ProcessId,
        /// When.
        time: Time,
        /// What.
        mapping: Mapping,
    },
    /// A thread began; a process if the two numbers are new.
    ThreadStart {
        /// Its process.
        process: ProcessId,
        /// The process that created it.
        parent: ProcessId,
        /// Its number.
        thread: ThreadId,
        /// When.
        time: Time,
    },
    /// A thread took a name; with `exec`, its process became another program.
    ThreadName {
        /// Its process.
        process: ProcessId,
        /// Its number.
        thread: ThreadId,
        /// When.
        time: Time,
        /// The new name, at most 15 bytes.
        name: String,
        /// Whether an `exec` set it.
        exec: bool,
    },
    /// A thread ended.
    ThreadEnd {
        /// Its process.
        process: ProcessId,
        /// Its number.
        thread: ThreadId,
        /// When.
        time: Time,
    },
    /// The kernel dropped this many records.
    Lost(u64),
}
