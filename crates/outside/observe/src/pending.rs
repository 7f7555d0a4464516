//! Which read of another process is going on, and since when. The kernel may never end one: where a page is of
//! a file system whose server does not answer, or somebody holds the lock of the process's memory. A thread
//! can't give up such a read, but its process can be ended by another. This module only notes reads. It must not
//! end anything: the caller decides that.

use crate::monotonic_now;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use sunder_access::ProcessId;

/// A place for what is going on.
#[derive(Debug)]
#[repr(C)]
pub struct Pending {
    /// Nanoseconds of [`monotonic_now`]; 0 for no read.
    since: AtomicU64,
    process: AtomicU32,
}

static OWN: Pending = Pending {
    since: AtomicU64::new(0),
    process: AtomicU32::new(0),
};

/// Where this process notes its reads; null for [`OWN`].
static PLACE: AtomicPtr<Pending> = AtomicPtr::new(std::ptr::null_mut());

impl Pending {
    /// The place in memory of this process alone.
    pub fn own() -> &'static Self {
        &OWN
    }

    /// A place that this process and those that it forks from now on have in common; `None` if the kernel gives
    /// no memory. It lasts as long as they do.
    pub fn shared() -> Option<&'static Self> {
        let (flags, rights) = (
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            libc::PROT_READ | libc::PROT_WRITE,
        );
        let bytes = size_of::<Self>();
        // SAFETY: asks for new memory, which is never unmapped.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the memory is of this size and alignment at least, zeroed, and stays; atomics may have any
        // value.
        Some(unsafe { &*at.cast::<Self>() })
    }

    /// Reads of this process are noted here from now on.
    pub fn note_here(&'static self) {
        PLACE.store(std::ptr::from_ref(self).cast_mut(), Ordering::Relaxed);
    }

    /// Forgets a read that was going on in a process that has been ended.
    pub fn forget(&self) {
        self.since.store(0, Ordering::Release);
    }

    /// The process of which one read has taken longer than this.
    pub fn longer_than(&self, time: Duration) -> Option<ProcessId> {
        let since = self.since.load(Ordering::Acquire);
        let most = time.as_nanos() as u64;
        let is_long = since != 0 && monotonic_now().0.saturating_sub(since) > most;
        is_long.then(|| ProcessId(self.process.load(Ordering::Relaxed)))
    }

    fn current() -> &'static Self {
        let place = PLACE.load(Ordering::Relaxed);
        // SAFETY: what is stored there came from a reference that lasts for ever.
        unsafe { place.as_ref() }.unwrap_or(&OWN)
    }
}

/// A read that is going on until this is dropped. If several threads read at a time, the first read is noted.
pub(crate) struct PendingRead(Option<&'static Pending>);

impl PendingRead {
    /// A read of `process` begins.
    pub(crate) fn begin(process: ProcessId) -> Self {
        let place = Pending::current();
        let now = monotonic_now().0.max(1);
        let since = &place.since;
        let is_noted = since.compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed);
        Self(is_noted.is_ok().then(|| {
            place.process.store(process.0, Ordering::Relaxed);
            place
        }))
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, since all threads of a process share the place.
    #[test]
    fn a_read_is_told_as_long_as_it_takes() {
        let place = Pending::shared().expect("memory");
        place.note_here();
        let no_time = Duration::ZERO;
        let reading = PendingRead::begin(ProcessId(7));
        let inner = PendingRead::begin(ProcessId(8));
        drop(inner);
        while place.longer_than(no_time).is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(place.longer_than(no_time), Some(ProcessId(7)));
        assert_eq!(place.longer_than(Duration::from_secs(3600)), None);
        drop(reading);
        assert_eq!(place.longer_than(no_time), None);
        Pending::own().note_here();
    }
}
