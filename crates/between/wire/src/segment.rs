//! The tool's side of the segment: creating it, mapping it, and reading what the runtime
//! records about itself, its threads and its samples.

use crate::environment::{Change, changes, descriptor_path};
use crate::error::{Error, Result};
use crate::large::LargeSnapshot;
use crate::layout::{
    MAGIC, MAX_THREADS, OPTION_HEAP, OPTION_KEEP_ENVIRONMENT, PAGE, Refusal, TOTAL, ThreadRecord,
    VERSION, View,
};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use sunder_access::{Address, CodeAddress, ProcessId, Span, ThreadId, Time};

/// What the runtime shall do.
#[derive(Clone, Debug, Default)]
pub struct SegmentOptions {
    /// Register samples per second of a thread's CPU time; `None` for no samples.
    pub timer_hz: Option<u32>,
    /// Record the heap.
    pub heap: bool,
    /// Keep our variables in the target's environment.
    pub keep_environment: bool,
}

/// A segment, mapped in the tool.
pub struct Segment {
    /// `None` once no process needs to find the file any more.
    file: Mutex<Option<File>>,
    /// See [`Segment::inode`].
    inode: u64,
    view: View,
    large: Mutex<LargeSnapshot>,
}

/// One sample of a thread's registers, taken by its timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerSample {
    /// The time of the sample, on the monotonic clock.
    pub time: Time,
    /// The sampled thread.
    pub thread: ThreadId,
    /// The CPU that the thread ran on.
    pub cpu: u32,
    /// CPU time of the thread since its last sample, nanoseconds.
    pub period_ns: u64,
    /// In the order of the x86-64 encoding: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8-r15.
    pub registers: [u64; 16],
    /// The instruction that is executed next.
    pub ip: CodeAddress,
}

/// A thread of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetThread {
    /// Its kernel thread id.
    pub thread: ThreadId,
    /// The address range of its stack.
    pub stack: Span,
    /// Its thread pointer. TLS variables are below it.
    pub fs_base: Address,
    /// The function given to `pthread_create`; `None` for the first thread and for threads that
    /// were created in another way.
    pub start_routine: Option<CodeAddress>,
    /// When the runtime first saw it.
    pub started: Time,
    /// Whether it has ended.
    pub ended: bool,
}

/// What the runtime reports about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// The process that loaded the runtime; `None` if no process did (a statically linked or
    /// setuid program, or one that ended too early).
    pub loaded: Option<ProcessId>,
    /// How many programs loaded it: more than one if the process executed another program. All
    /// addresses and threads are those of the last one.
    pub programs: u32,
    /// Why it is passive although it was loaded.
    pub refusal: Option<Refusal>,
    /// Whether the runtime saw any allocation. A program with a `malloc` in its own executable
    /// has none.
    pub allocations_seen: bool,
    /// Call stacks taken by unwinding.
    pub unwound: u64,
    /// Call stacks cut to the innermost frames because there was no time to unwind them.
    pub shortened: u64,
    /// Threads that got no index of their own.
    pub threads_dropped: u64,
    /// Blocks that no table had room for.
    pub blocks_dropped: u64,
    /// Allocations whose call stack the table had no room for.
    pub stacks_dropped: u64,
    /// Timer samples lost because they were not drained in time.
    pub samples_dropped: u64,
    /// Heap events lost because they were not drained in time.
    pub events_dropped: u64,
    /// Threads whose timer could not be made.
    pub timers_refused: u64,
    /// Whether sampling stopped because the program used the timers' signal itself.
    pub signal_taken: bool,
    /// Whether the program has confined itself (seccomp), since when nothing new is recorded.
    pub confined: bool,
    /// Children that the program has forked, if they are not followed.
    pub forks: u64,
    /// The timers' signal, if samples are taken by timers.
    pub timer_signal: Option<u32>,
}

/// The name of segments' files.
const NAME: &std::ffi::CStr = c"sunder-segment";

impl Segment {
    /// Creates a segment. It takes 11 GB of address space, and memory only for the pages in
    /// use.
    ///
    /// # Errors
    /// If the kernel refuses the memory file or the mapping.
    pub fn create(options: &SegmentOptions) -> Result<Self> {
        forbid_file_limit()?;
        let segment = Self::map(memory_file(NAME, TOTAL)?)?;
        segment.initialize(options);
        Ok(segment)
    }

    /// Maps an existing segment.
    ///
    /// # Errors
    /// If the file cannot be opened, is not a segment, or has another version.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .map_err(Error::Create)?;
        let mut head = [0; 24];
        file.read_exact_at(&mut head, 0)
            .map_err(|_| Error::NotASegment)?;
        let word = |at: usize| head[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        if word(0) != MAGIC {
            return Err(Error::NotASegment);
        }
        let found = word(8) as u32;
        if found != VERSION {
            return Err(Error::Version {
                found,
                expected: VERSION,
            });
        }
        let len = file.metadata().map_err(Error::Create)?.len();
        if word(16) != TOTAL as u64 || len < TOTAL as u64 {
            return Err(Error::NotASegment);
        }
        Self::map(file)
    }

    fn map(file: File) -> Result<Self> {
        let base = map(&file, TOTAL)?;
        // The segment need not be in a core file of ours. If the call fails, no harm is done.
        // SAFETY: the range was just mapped.
        unsafe { libc::madvise(base.as_ptr().cast(), TOTAL, libc::MADV_DONTDUMP) };
        Ok(Self {
            inode: file.metadata().map_err(Error::Create)?.ino(),
            file: Mutex::new(Some(file)),
            // SAFETY: mapped above; unmapped only when the segment is dropped.
            view: unsafe { View::new(base) },
            large: Mutex::default(),
        })
    }

    /// A segment that this process alone has, at `base`.
    pub(crate) fn at(base: NonNull<u8>) -> Self {
        Self {
            inode: 0,
            file: Mutex::new(None),
            // SAFETY: the caller has mapped it; unmapped only when the segment is dropped.
            view: unsafe { View::new(base) },
            large: Mutex::default(),
        }
    }

    fn initialize(&self, options: &SegmentOptions) {
        let now = monotonic_now();
        if let Some(first) = self.view.epochs().first() {
            first.store(now.0, Ordering::Relaxed);
        }
        let control = self.view.control();
        let hz = options.timer_hz.unwrap_or(0);
        control.timer_hz.store(hz, Ordering::Relaxed);
        let header = self.view.header();
        let bits = if options.heap { OPTION_HEAP } else { 0 }
            | if options.keep_environment {
                OPTION_KEEP_ENVIRONMENT
            } else {
                0
            };
        header.options.store(bits, Ordering::Relaxed);
        header.tool.store(std::process::id(), Ordering::Relaxed);
        header.total.store(TOTAL as u64, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
    }

    /// The mapped segment, for tests and the runtime's own tools. The tool uses the functions
    /// of [`Segment`].
    pub const fn view(&self) -> &View {
        &self.view
    }

    pub(crate) fn large_snapshot(&self) -> MutexGuard<'_, LargeSnapshot> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path at which another process of the same user finds the segment while this process
    /// lives.
    pub fn fd_path(&self) -> PathBuf {
        let fd = self.descriptor().unwrap_or(u32::MAX);
        descriptor_path(std::process::id(), fd)
    }

    /// The changes to the target's environment. `runtime` is the library's path, which must
    /// contain neither a colon nor a space (the dynamic linker has no escape for them).
    /// `user_preload` is the user's value of `LD_PRELOAD`.
    pub fn environment(&self, runtime: &Path, user_preload: Option<&OsStr>) -> Vec<Change> {
        changes(runtime, user_preload, self.fd_path())
    }

    /// Our descriptor of its file, if it is still open.
    pub(crate) fn descriptor(&self) -> Option<u32> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        u32::try_from(file.as_ref()?.as_raw_fd()).ok()
    }

    /// The inode number of its file, as a process that has mapped it shows in its list of mappings.
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// Closes the file. To be called when every process that needs the segment has mapped it.
    pub(crate) fn close_file(&self) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Changes the sampling frequency of the timers; 0 stops them. Each thread applies it at
    /// its next sample, so a stopped timer does not start again.
    pub fn set_timer_hz(&self, hz: u32) {
        self.view.control().timer_hz.store(hz, Ordering::Relaxed);
    }

    /// Passes the register samples taken since the last call to `each`.
    pub fn drain_samples(&self, each: &mut dyn FnMut(TimerSample)) {
        let ring = self.view.samples();
        for [time, who, period_ns, ip, registers @ ..] in ring.drain() {
            each(TimerSample {
                time: Time(time),
                thread: ThreadId(who as u32),
                cpu: (who >> 32) as u32,
                period_ns,
                registers,
                ip: CodeAddress(ip),
            });
        }
    }

    /// The threads that the runtime saw, in the order in which it saw them.
    pub fn threads(&self) -> Vec<TargetThread> {
        let seen = self.view.status().threads.load(Ordering::Acquire);
        let all = self.view.threads().iter();
        all.take(seen.min(MAX_THREADS) as usize + 1)
            .skip(1)
            .filter_map(target_thread)
            .collect()
    }

    /// What the runtime reports about itself.
    pub fn status(&self) -> RuntimeStatus {
        let status = self.view.status();
        let process = status.process.load(Ordering::Acquire);
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        RuntimeStatus {
            loaded: (process != 0).then_some(ProcessId(process)),
            programs: status.programs.load(Ordering::Acquire),
            refusal: match status.refusal.load(Ordering::Relaxed) {
                0 => None,
                1 => Some(Refusal::Version),
                2 => Some(Refusal::AddressSpace),
                4 => Some(Refusal::Valgrind),
                _ => Some(Refusal::WipeOnFork),
            },
            allocations_seen: status.chunks.load(Ordering::Relaxed) != 0
                || status.large_pages.iter().any(|word| count(word) != 0),
            unwound: count(&status.unwound),
            shortened: count(&status.shortened),
            threads_dropped: count(&status.threads_dropped),
            blocks_dropped: count(&status.blocks_dropped),
            stacks_dropped: count(&status.stacks_dropped),
            samples_dropped: count(&status.samples_dropped),
            events_dropped: count(&status.events_dropped),
            timers_refused: count(&status.timers_refused),
            signal_taken: count(&status.signal_taken) != 0,
            confined: count(&status.confined) != 0,
            forks: count(&status.forks),
            timer_signal: Some(status.timer_signal.load(Ordering::Relaxed)).filter(|s| *s != 0),
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `map`; views of it are only lent
        // out by reference.
        unsafe { libc::munmap(self.view.base().as_ptr().cast(), TOTAL) };
    }
}

fn target_thread(record: &ThreadRecord) -> Option<TargetThread> {
    let tid = record.tid.load(Ordering::Acquire);
    let low = record.stack_low.load(Ordering::Relaxed);
    let high = record.stack_high.load(Ordering::Relaxed);
    let start = record.start_routine.load(Ordering::Relaxed);
    (tid != 0).then(|| TargetThread {
        thread: ThreadId(tid),
        stack: Span::new(Address(low), high.saturating_sub(low)),
        fs_base: Address(record.fs_base.load(Ordering::Relaxed)),
        start_routine: (start != 0).then_some(CodeAddress(start)),
        started: Time(record.started.load(Ordering::Relaxed)),
        ended: record.ended.load(Ordering::Relaxed) != 0,
    })
}

/// The present time on the monotonic clock.
fn monotonic_now() -> Time {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// A sparse file of `bytes` bytes that has no path in the file system, and keeps its length.
pub(crate) fn memory_file(name: &std::ffi::CStr, bytes: usize) -> Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a valid C string; the call has no other argument in
    // memory.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(Error::Create(io::Error::last_os_error()));
    }
    // SAFETY: the descriptor is new and ours.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes as u64).map_err(Error::Create)?;
    // The target may open the file, and access to a mapping beyond its end would end the tool.
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is open, and the call has no argument in memory.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
        return Err(Error::Create(io::Error::last_os_error()));
    }
    Ok(file)
}

/// Maps the first `bytes` bytes of `file`, shared.
pub(crate) fn map(file: &File, bytes: usize) -> Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            file.as_raw_fd(),
            0,
        )
    };
    (base != libc::MAP_FAILED)
        .then(|| NonNull::new(base.cast::<u8>()))
        .flatten()
        .ok_or_else(|| Error::Create(io::Error::last_os_error()))
}

/// Fails if the process has a limit on file sizes below the segment's (sparse) size. Setting
/// the file's size would then end the process by SIGXFSZ.
pub(crate) fn forbid_file_limit() -> Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the result.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if asked == 0 && limit.rlim_cur < TOTAL.next_multiple_of(PAGE) as u64 {
        return Err(Error::Create(io::Error::from_raw_os_error(libc::EFBIG)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_opens_by_its_path() {
        let segment = Segment::create(&SegmentOptions {
            timer_hz: Some(250),
            ..SegmentOptions::default()
        })
        .expect("memory file");
        let other = Segment::open(&segment.fd_path()).expect("valid");
        assert_eq!(other.view.control().timer_hz.load(Ordering::Relaxed), 250);
        assert_eq!(segment.status(), RuntimeStatus::default());
        assert!(segment.threads().is_empty());
    }

    #[test]
    fn foreign_short_and_newer_files_are_told_apart() {
        let dir = std::env::temp_dir().join(format!("sunder-wire-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("folder");
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.join(name);
            std::fs::write(&path, bytes).expect("file");
            Segment::open(&path).err()
        };
        assert!(matches!(file("empty", b""), Some(Error::NotASegment)));
        assert!(matches!(
            file("foreign", &[7; 64]),
            Some(Error::NotASegment)
        ));
        let mut head = MAGIC.to_le_bytes().to_vec();
        head.extend((VERSION + 1).to_le_bytes());
        head.extend([0; 64]);
        assert!(matches!(
            file("newer", &head),
            Some(Error::Version { found, .. }) if found == VERSION + 1
        ));
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[16..24].copy_from_slice(&(TOTAL as u64).to_le_bytes());
        assert!(matches!(file("cut off", &head), Some(Error::NotASegment)));
        std::fs::remove_dir_all(&dir).expect("folder");
    }
}
