//! The functions that stand behind ours: the next ones in the dynamic linker's
//! order, be they the C library's or those of a preloaded allocator. Contexts:
//! pre-init, normal.

use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// What a thread runs.
pub type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// See [`libc::sigaction`].
type Action = libc::sigaction;
/// A handler as `signal` takes and returns it.
type Handler = libc::sighandler_t;

/// The threads that are looking functions up: allocations that a look-up itself
/// makes are served by [`crate::bootstrap`]. 0: nobody. One place would not do:
/// what several threads put there and take back in any order tells nobody's state.
static LOOKING: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];

/// Whether the calling thread is in the middle of a look-up.
pub fn is_looking() -> bool {
    let own = crate::system::thread_id();
    LOOKING.iter().any(|l| l.load(Ordering::Relaxed) == own)
}

/// In a forked child: whoever was looking something up is not here.
pub fn forget_looking() {
    for looking in &LOOKING {
        looking.store(0, Ordering::Relaxed);
    }
}

/// A place of our own among those that look; waits for one if there is none, which
/// is never for long.
fn begin(own: u32) -> &'static AtomicU32 {
    let claim = |l: &&AtomicU32| {
        l.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    };
    loop {
        if let Some(place) = LOOKING.iter().find(claim) {
            return place;
        }
        core::hint::spin_loop();
    }
}

#[cold]
fn look_up(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    if is_looking() {
        return core::ptr::null_mut();
    }
    let place = begin(crate::system::thread_id());
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) };
    place.store(0, Ordering::Relaxed);
    slot.store(found, Ordering::Relaxed);
    found
}

macro_rules! real {
    ($($(#[$doc:meta])* $name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $name() -> Option<unsafe extern "C-unwind" fn($($argument),*) -> $result> {
            static SLOT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
            let mut found = SLOT.load(Ordering::Relaxed);
            if found.is_null() {
                // SAFETY: the bytes end with the zero that was put there.
                let name = unsafe {
                    CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes())
                };
                found = look_up(&SLOT, name);
            }
            // SAFETY: a null pointer is `None`; anything else is the function
            // of this name, whose type the C standard or the manual gives.
            unsafe { core::mem::transmute(found) }
        }
    )*};
}

real! {
    /// The next `malloc`; none while it is being looked up.
    malloc: fn(usize) -> *mut c_void;
    /// See [`malloc`].
    calloc: fn(usize, usize) -> *mut c_void;
    /// See [`malloc`].
    realloc: fn(*mut c_void, usize) -> *mut c_void;
    /// See [`malloc`].
    reallocarray: fn(*mut c_void, usize, usize) -> *mut c_void;
    /// See [`malloc`].
    free: fn(*mut c_void) -> ();
    /// See [`malloc`].
    posix_memalign: fn(*mut *mut c_void, usize, usize) -> c_int;
    /// See [`malloc`].
    aligned_alloc: fn(usize, usize) -> *mut c_void;
    /// See [`malloc`].
    memalign: fn(usize, usize) -> *mut c_void;
    /// See [`malloc`].
    valloc: fn(usize) -> *mut c_void;
    /// See [`malloc`].
    pvalloc: fn(usize) -> *mut c_void;
    /// See [`malloc`].
    pthread_create: fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;
    /// See [`malloc`].
    sigaction: fn(c_int, *const Action, *mut Action) -> c_int;
    /// See [`malloc`].
    signal: fn(c_int, Handler) -> Handler;
    /// See [`malloc`].
    pthread_sigmask: fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;
    /// See [`malloc`].
    sigprocmask: fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;
    /// See [`malloc`].
    sigwait: fn(*const libc::sigset_t, *mut c_int) -> c_int;
    /// See [`malloc`].
    sigwaitinfo: fn(*const libc::sigset_t, *mut libc::siginfo_t) -> c_int;
    /// See [`malloc`].
    sigtimedwait: fn(*const libc::sigset_t, *mut libc::siginfo_t, *const libc::timespec) -> c_int;
    /// See [`malloc`].
    signalfd: fn(c_int, *const libc::sigset_t, c_int) -> c_int;
    /// See [`malloc`].
    dlclose: fn(*mut c_void) -> c_int;
    /// See [`malloc`].
    mlockall: fn(c_int) -> c_int;
    /// See [`malloc`].
    execve: fn(*const c_char, *const *mut c_char, *const *mut c_char) -> c_int;
    /// See [`malloc`].
    execvpe: fn(*const c_char, *const *mut c_char, *const *mut c_char) -> c_int;
    /// See [`malloc`].
    fexecve: fn(c_int, *const *mut c_char, *const *mut c_char) -> c_int;
    /// See [`malloc`]. None before glibc 2.34.
    execveat: fn(c_int, *const c_char, *const *mut c_char, *const *mut c_char, c_int) -> c_int;
    /// See [`malloc`].
    posix_spawn: fn(*mut libc::pid_t, *const c_char, *const c_void, *const c_void, *const *mut c_char, *const *mut c_char) -> c_int;
    /// See [`malloc`].
    posix_spawnp: fn(*mut libc::pid_t, *const c_char, *const c_void, *const c_void, *const *mut c_char, *const *mut c_char) -> c_int;
    /// See [`malloc`]. As if all arguments were there; it reads what it needs.
    syscall: fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    /// See [`malloc`]. As `syscall`.
    prctl: fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
    /// Not interposed: finds the object that holds an instruction, without a
    /// lock. None before glibc 2.35.
    _dl_find_object: fn(*mut c_void, *mut c_void) -> c_int;
    /// Not interposed: a thread's stack.
    pthread_getattr_np: fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the order in which one place for all would keep the first thread's mark.
    #[test]
    fn look_ups_that_overlap_leave_nobody_looking() {
        let (first, second) = (begin(1001), begin(1002));
        assert!(!core::ptr::eq(first, second));
        first.store(0, Ordering::Relaxed);
        second.store(0, Ordering::Relaxed);
        let marks = [1001, 1002];
        let left = |l: &AtomicU32| marks.contains(&l.load(Ordering::Relaxed));
        assert!(!LOOKING.iter().any(left));
    }
}
