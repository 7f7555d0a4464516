//! `perf_event_open(2)` as the kernel defines it: the attribute structure, its
//! constants, and an event that closes itself.
//!
//! The probes, the watchpoints and the PMU events open their events here. It must not decide
//! anything: callers choose what to open, and what a refusal means.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// `PERF_TYPE_HARDWARE`.
pub(crate) const TYPE_HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`.
pub(crate) const TYPE_SOFTWARE: u32 = 1;
/// `PERF_TYPE_BREAKPOINT`.
pub(crate) const TYPE_BREAKPOINT: u32 = 5;
/// `PERF_COUNT_HW_CPU_CYCLES`.
pub(crate) const HW_CPU_CYCLES: u64 = 0;
/// `PERF_COUNT_SW_CPU_CLOCK`.
pub(crate) const SW_CPU_CLOCK: u64 = 0;
/// `PERF_COUNT_SW_TASK_CLOCK`: CPU time of the thread.
pub(crate) const SW_TASK_CLOCK: u64 = 1;
/// `PERF_COUNT_SW_DUMMY`: counts nothing, but carries records of mappings,
/// names and threads.
pub(crate) const SW_DUMMY: u64 = 9;

/// `PERF_SAMPLE_*`, in the order of the fields in a record unless noted.
pub(crate) mod sample {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const BRANCH_STACK: u64 = 1 << 11;
    pub const REGS_USER: u64 = 1 << 12;
    pub const STACK_USER: u64 = 1 << 13;
    pub const WEIGHT: u64 = 1 << 14;
    pub const DATA_SRC: u64 = 1 << 15;
    /// The first field of the record, before `IP`.
    pub const IDENTIFIER: u64 = 1 << 16;
    /// Replaces `WEIGHT` by three smaller fields.
    pub const WEIGHT_STRUCT: u64 = 1 << 24;
}

/// Bits of the attribute's `flags`.
pub(crate) mod flag {
    pub const DISABLED: u64 = 1 << 0;
    pub const INHERIT: u64 = 1 << 1;
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub const EXCLUDE_HV: u64 = 1 << 6;
    pub const MMAP: u64 = 1 << 8;
    pub const COMM: u64 = 1 << 9;
    /// The attribute's period is a frequency.
    pub const FREQ: u64 = 1 << 10;
    pub const ENABLE_ON_EXEC: u64 = 1 << 12;
    pub const TASK: u64 = 1 << 13;
    pub const WATERMARK: u64 = 1 << 14;
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub const MMAP2: u64 = 1 << 23;
    pub const COMM_EXEC: u64 = 1 << 24;
    pub const USE_CLOCKID: u64 = 1 << 25;
    /// The lowest bit of `precise_ip`, which has two.
    pub const PRECISE_SHIFT: u32 = 15;
    /// Threads inherit the event, child processes do not (Linux 5.13).
    pub const INHERIT_THREAD: u64 = 1 << 35;
}

/// The general registers and the instruction pointer in the numbering of
/// `asm/perf_regs.h`: AX BX CX DX SI DI BP SP IP are 0 to 8, R8 to R15 are 16 to
/// 23. Segment registers and flags are of no use to a decoder.
pub(crate) const USER_REGISTERS: u64 = 0x1ff | 0xff << 16;

/// `struct perf_event_attr` up to version 5 (Linux 4.1), which every kernel
/// since accepts by its `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attr {
    pub kind: u32,
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub wakeup: u32,
    pub bp_type: u32,
    /// `bp_addr` of a breakpoint.
    pub config1: u64,
    /// `bp_len` of a breakpoint.
    pub config2: u64,
    pub branch_sample_type: u64,
    pub sample_regs_user: u64,
    pub sample_stack_user: u32,
    pub clockid: i32,
    pub sample_regs_intr: u64,
    pub aux_watermark: u32,
    pub sample_max_stack: u16,
    pub reserved: u16,
}

impl Attr {
    /// An event that counts nothing yet: disabled, in user mode only, with
    /// times on the monotonic clock.
    pub(crate) const fn new(kind: u32, config: u64) -> Self {
        Self {
            kind,
            size: size_of::<Self>() as u32,
            config,
            sample_period: 0,
            sample_type: 0,
            read_format: 0,
            flags: flag::DISABLED | flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV | flag::USE_CLOCKID,
            wakeup: 0,
            bp_type: 0,
            config1: 0,
            config2: 0,
            branch_sample_type: 0,
            sample_regs_user: 0,
            sample_stack_user: 0,
            clockid: libc::CLOCK_MONOTONIC,
            sample_regs_intr: 0,
            aux_watermark: 0,
            sample_max_stack: 0,
            reserved: 0,
        }
    }
}

/// The thread and the CPU on which an event counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Where {
    /// One thread on whatever CPU; 0 is the calling thread.
    Thread(u32),
    /// A thread (and, with `INHERIT`, those that it starts) on one CPU.
    ThreadOnCpu(u32, u32),
}

/// An open event.
#[derive(Debug)]
pub(crate) struct PerfEvent(OwnedFd);

impl PerfEvent {
    /// Opens an event, closed again on exec and on drop.
    ///
    /// # Errors
    /// The kernel's error, not interpreted.
    pub(crate) fn open(attr: &Attr, place: Where) -> io::Result<Self> {
        const NO_GROUP: RawFd = -1;
        Self::open_in(attr, place, NO_GROUP)
    }

    /// Opens an event in the group of `leader`, which must have the same thread and CPU.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn open_beside(attr: &Attr, place: Where, leader: &Self) -> io::Result<Self> {
        Self::open_in(attr, place, leader.as_raw_fd())
    }

    fn open_in(attr: &Attr, place: Where, group: RawFd) -> io::Result<Self> {
        const FD_CLOEXEC: libc::c_ulong = 1 << 3;
        let (pid, cpu) = match place {
            Where::Thread(thread) => (thread as i32, -1),
            Where::ThreadOnCpu(thread, cpu) => (thread as i32, cpu as i32),
        };
        // SAFETY: the kernel reads `attr.size` bytes of `attr`, which is the
        // structure's size.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                std::ptr::from_ref(attr),
                pid,
                cpu,
                group,
                FD_CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened this descriptor; no other value owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    /// `PERF_EVENT_IOC_ENABLE`.
    pub(crate) fn enable(&self) -> io::Result<()> {
        self.control(0x2400, 0)
    }

    /// `PERF_EVENT_IOC_DISABLE`.
    pub(crate) fn disable(&self) -> io::Result<()> {
        self.control(0x2401, 0)
    }

    /// `PERF_EVENT_IOC_REFRESH`: enables the event for `overflows` more samples,
    /// after which it disables itself.
    pub(crate) fn refresh(&self, overflows: u32) -> io::Result<()> {
        self.control(0x2402, overflows.into())
    }

    /// `PERF_EVENT_IOC_SET_OUTPUT`: records go to the ring of `ring`, which must
    /// be an event of the same thread and CPU.
    pub(crate) fn set_output(&self, ring: &Self) -> io::Result<()> {
        self.control(0x2405, ring.as_raw_fd() as libc::c_ulong)
    }

    /// `PERF_EVENT_IOC_ID`: the number that `PERF_SAMPLE_IDENTIFIER` puts into the
    /// event's records and into those of the events inherited from it.
    pub(crate) fn id(&self) -> io::Result<u64> {
        const GET_ID: libc::c_ulong = 0x8008_2407;
        let mut id = 0u64;
        // SAFETY: this request writes 8 bytes to `id`.
        match unsafe { libc::ioctl(self.as_raw_fd(), GET_ID, &raw mut id) } {
            0 => Ok(id),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The event's count.
    pub(crate) fn count(&self) -> io::Result<u64> {
        let mut count = 0u64;
        // SAFETY: reads at most 8 bytes into `count`; the attribute's read
        // format is 0, so that is all there is.
        let read = unsafe { libc::read(self.as_raw_fd(), (&raw mut count).cast(), 8) };
        match read {
            8 => Ok(count),
            -1 => Err(io::Error::last_os_error()),
            // End of file: the kernel could not count (a pinned event in error).
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn control(&self, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
        // SAFETY: these requests take an integer and touch no memory of ours.
        match unsafe { libc::ioctl(self.as_raw_fd(), request, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsRawFd for PerfEvent {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attribute_has_the_size_of_version_5() {
        // PERF_ATTR_SIZE_VER5 of linux/perf_event.h.
        assert_eq!(size_of::<Attr>(), 112);
    }
}
