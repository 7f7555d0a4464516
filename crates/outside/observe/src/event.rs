//! The events that all observers deliver, in the order of time as far as they know it.

use sunder_access::{Access, CodeAddress, Mapping, ProcessId, ThreadId, Time};

/// The user registers of a thread at an instruction boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The general registers by their x86-64 encoding number: rax, rcx, rdx,
    /// rbx, rsp, rbp, rsi, rdi, r8 to r15.
    pub general: [u64; 16],
    /// The address of the instruction that is executed next.
    pub ip: CodeAddress,
}

/// One sample taken in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSample {
    /// The time, on the monotonic clock.
    pub time: Time,
    /// The sampled process.
    pub process: ProcessId,
    /// The sampled thread.
    pub thread: ThreadId,
    /// The CPU that it ran on, or [`RawSample::NO_CPU`].
    pub cpu: u32,
    /// Nanoseconds of the thread's CPU time that this sample stands for.
    pub period_ns: u64,
    /// The thread's registers.
    pub registers: Registers,
}

impl RawSample {
    /// The CPU of a sample that does not tell it.
    pub const NO_CPU: u32 = u32::MAX;

    /// Its CPU as the judge needs it: all samples that do not tell it are taken to be of one, because
    /// threads that share a CPU do not contend.
    pub const fn judged_cpu(&self) -> u32 {
        if self.cpu == Self::NO_CPU {
            0
        } else {
            self.cpu
        }
    }
}

/// One observation.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Registers, which the decoder turns into accesses.
    Sample(RawSample),
    /// An access whose address the hardware recorded.
    Access {
        /// The process of the access.
        process: ProcessId,
        /// The access itself.
        access: Access,
        /// Whether the line came modified from another core's cache (HITM).
        hitm: bool,
    },
    /// Memory was mapped.
    Map {
        /// The process that mapped it.
        process: ProcessId,
        /// The time of the mapping.
        time: Time,
        /// The new mapping.
        mapping: Mapping,
    },
    /// A thread began; also a process, if both numbers are new.
    ThreadStart {
        /// Its process.
        process: ProcessId,
        /// The process that created it.
        parent: ProcessId,
        /// The thread's number.
        thread: ThreadId,
        /// The time of its start.
        time: Time,
    },
    /// A thread got a name; with `exec`, its process began to execute another program.
    ThreadName {
        /// Its process.
        process: ProcessId,
        /// The thread's number.
        thread: ThreadId,
        /// The time of the change.
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
        /// The thread's number.
        thread: ThreadId,
        /// The time of its end.
        time: Time,
    },
    /// The kernel dropped this many records.
    Lost(u64),
}

impl Event {
    /// Its time; `None` of a loss.
    pub(crate) const fn time(&self) -> Option<Time> {
        match self {
            Self::Sample(sample) => Some(sample.time),
            Self::Access { access, .. } => Some(access.time),
            Self::Map { time, .. }
            | Self::ThreadStart { time, .. }
            | Self::ThreadName { time, .. }
            | Self::ThreadEnd { time, .. } => Some(*time),
            Self::Lost(_) => None,
        }
    }

    /// Its process; `None` of a loss.
    pub(crate) const fn process(&self) -> Option<ProcessId> {
        match self {
            Self::Sample(sample) => Some(sample.process),
            Self::Access { process, .. }
            | Self::Map { process, .. }
            | Self::ThreadStart { process, .. }
            | Self::ThreadName { process, .. }
            | Self::ThreadEnd { process, .. } => Some(*process),
            Self::Lost(_) => None,
        }
    }
}
