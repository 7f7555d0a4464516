//! An event of `perf_event_open(2)` that closes itself, and its attribute.
//!
//! The structures and numbers are those of `linux/perf_event.h`, from `perf-event-open-sys`. This
//! module must not decide anything: callers choose what to open, and what a refusal means.

use perf_event_open_sys::{bindings as kernel, ioctls, perf_event_open};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The general registers and the instruction pointer. Segment registers and flags are of no use to
/// a decoder.
pub(crate) const USER_REGISTERS: u64 = ((2 << kernel::PERF_REG_X86_IP) - 1)
    & !(1 << kernel::PERF_REG_X86_FLAGS)
    | 0xff << kernel::PERF_REG_X86_R8;

/// `struct perf_event_attr`.
#[derive(Clone, Copy)]
pub(crate) struct Attr(kernel::perf_event_attr);

impl Attr {
    /// An event that counts nothing yet: disabled, in user mode only, with
    /// times on the monotonic clock.
    pub(crate) fn new(kind: u32, config: u64) -> Self {
        let mut attr = kernel::perf_event_attr {
            type_: kind,
            // That of Linux 4.1. The fields after it are zero, and older kernels do not know them.
            size: kernel::PERF_ATTR_SIZE_VER5,
            config,
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        attr.set_disabled(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        attr.set_use_clockid(1);
        Self(attr)
    }

    /// A software event: `PERF_COUNT_SW_*`.
    pub(crate) fn software(config: u32) -> Self {
        Self::new(kernel::PERF_TYPE_SOFTWARE, config.into())
    }

    /// A counting breakpoint on reads and writes of the 8 bytes at `address`; x86 cannot trap on
    /// reads alone.
    pub(crate) fn breakpoint(address: u64) -> Self {
        let mut attr = Self::new(kernel::PERF_TYPE_BREAKPOINT, 0);
        attr.bp_type = kernel::HW_BREAKPOINT_RW;
        attr.bp_addr = address;
        attr.bp_len = kernel::HW_BREAKPOINT_LEN_8.into();
        attr.sample_period = 1;
        attr
    }

    /// A counting breakpoint on the execution of the instruction at `address`. It reports before
    /// the instruction is executed (Intel SDM volume 3B, 18.3.1.1), so registers are those that it
    /// uses.
    pub(crate) fn execution(address: u64) -> Self {
        let mut attr = Self::breakpoint(address);
        attr.bp_type = kernel::HW_BREAKPOINT_X;
        attr.bp_len = size_of::<libc::c_long>() as u64;
        attr
    }

    /// Reports mappings, names, starts and ends of threads, too.
    pub(crate) fn report_tasks(&mut self) {
        self.set_mmap(1);
        self.set_mmap2(1);
        self.set_comm(1);
        self.set_comm_exec(1);
        self.set_task(1);
    }
}

impl Deref for Attr {
    type Target = kernel::perf_event_attr;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Attr {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl fmt::Debug for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attr")
            .field("type", &self.type_)
            .field("config", &self.config)
            .field("sample_type", &self.sample_type)
            .finish_non_exhaustive()
    }
}

/// The thread and the CPU on which an event counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EventTarget {
    /// One thread on whatever CPU; 0 is the calling thread.
    Thread(u32),
    /// A thread (and, if the event is inherited, those that it starts) on one CPU.
    ThreadOnCpu(u32, u32),
    /// All threads on one CPU.
    Cpu(u32),
}

/// An open event.
#[derive(Debug)]
pub(crate) struct PerfEvent(OwnedFd);

impl PerfEvent {
    /// Opens an event, closed again on exec and on drop.
    ///
    /// # Errors
    /// The kernel's error, not interpreted.
    pub(crate) fn open(attr: &Attr, place: EventTarget) -> io::Result<Self> {
        const NO_GROUP: RawFd = -1;
        Self::open_in(attr, place, NO_GROUP)
    }

    /// Opens an event in the group of `leader`, which must have the same thread and CPU.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn open_beside(attr: &Attr, place: EventTarget, leader: &Self) -> io::Result<Self> {
        Self::open_in(attr, place, leader.as_raw_fd())
    }

    fn open_in(attr: &Attr, place: EventTarget, group: RawFd) -> io::Result<Self> {
        let (pid, cpu) = match place {
            EventTarget::Thread(thread) => (thread as i32, -1),
            EventTarget::ThreadOnCpu(thread, cpu) => (thread as i32, cpu as i32),
            EventTarget::Cpu(cpu) => (-1, cpu as i32),
        };
        // The kernel writes the size that it expects into an attribute that it refuses.
        let mut attr = attr.0;
        let flags = kernel::PERF_FLAG_FD_CLOEXEC.into();
        // SAFETY: the kernel reads `attr.size` bytes of `attr`, which is at least as large.
        let fd = unsafe { perf_event_open(&raw mut attr, pid, cpu, group, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened this descriptor; no other value owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Starts counting and sampling.
    pub(crate) fn enable(&self) -> io::Result<()> {
        // SAFETY: takes an integer and touches no memory of ours.
        done(unsafe { ioctls::ENABLE(self.as_raw_fd(), 0) })
    }

    /// Stops counting and sampling.
    pub(crate) fn disable(&self) -> io::Result<()> {
        // SAFETY: takes an integer and touches no memory of ours.
        done(unsafe { ioctls::DISABLE(self.as_raw_fd(), 0) })
    }

    /// Enables the event for `overflows` more samples, after which it disables itself.
    pub(crate) fn refresh(&self, overflows: u32) -> io::Result<()> {
        // SAFETY: takes an integer and touches no memory of ours.
        done(unsafe { ioctls::REFRESH(self.as_raw_fd(), overflows as i32) })
    }

    /// Sets the period of the samples that come from now on. It does not reach the events of threads
    /// that have inherited this one.
    pub(crate) fn set_period(&self, period: u64) -> io::Result<()> {
        // The library declares a number, but the kernel takes its address (`_perf_ioctl`).
        let at = &raw const period as u64;
        // SAFETY: the kernel reads 8 bytes from `period`, which lives until the call returns.
        done(unsafe { ioctls::PERIOD(self.as_raw_fd(), at) })
    }

    /// Sends the records to the ring of `ring`, which must be an event of the same thread and CPU.
    pub(crate) fn set_output(&self, ring: &Self) -> io::Result<()> {
        // SAFETY: takes a descriptor and touches no memory of ours.
        done(unsafe { ioctls::SET_OUTPUT(self.as_raw_fd(), ring.as_raw_fd()) })
    }

    /// The number that `PERF_SAMPLE_IDENTIFIER` puts into the event's records and into those of
    /// the events inherited from it.
    pub(crate) fn id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: writes 8 bytes to `id`.
        done(unsafe { ioctls::ID(self.as_raw_fd(), &raw mut id) })?;
        Ok(id)
    }

    /// The event's count.
    pub(crate) fn count(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        // The attribute's read format is 0, so the count is all there is.
        match rustix::io::read(&self.0, &mut count)? {
            8 => Ok(u64::from_ne_bytes(count)),
            // End of file: the kernel could not count (a pinned event in error).
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The result of an ioctl.
fn done(returned: i32) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
    fn registers_are_the_sixteen_general_ones_and_the_instruction_pointer() {
        // AX BX CX DX SI DI BP SP IP are 0 to 8, R8 to R15 are 16 to 23 (`asm/perf_regs.h`).
        assert_eq!(USER_REGISTERS, 0x1ff | 0xff << 16);
    }

    #[test]
    fn attribute_has_the_size_of_version_5() {
        assert_eq!(Attr::software(0).size, 112);
        assert!(size_of::<kernel::perf_event_attr>() >= 112);
    }
}
