//! The functions that stand behind ours: the next ones in the dynamic linker's
//! order. Found at first use; while `malloc` itself is looked up, memory comes
//! from a small arena.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use libc::{
    clockid_t, pthread_attr_t, pthread_barrier_t, pthread_cond_t, pthread_mutex_t, pthread_once_t,
    pthread_rwlock_t, pthread_spinlock_t, pthread_t, sem_t, timespec,
};

/// What a thread runs.
pub type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
/// What a C11 thread runs.
pub type C11Start = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

#[cold]
fn look_up(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    static LOOKING: AtomicBool = AtomicBool::new(false);
    // Only the first look-ups, in a program with one thread, can come back here
    // through malloc.
    let first = !LOOKING.swap(true, Ordering::Relaxed);
    if !first && (name == c"malloc" || name == c"calloc") {
        return core::ptr::null_mut();
    }
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) };
    if first {
        LOOKING.store(false, Ordering::Relaxed);
    }
    slot.store(found, Ordering::Relaxed);
    found
}

macro_rules! real {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {$(
        /// The next function of this name.
        #[inline]
        pub fn $name() -> Option<unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?> {
            static SLOT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
            let mut found = SLOT.load(Ordering::Relaxed);
            if found.is_null() {
                // SAFETY: ends with the zero that was put there.
                let name = unsafe {
                    CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes())
                };
                found = look_up(&SLOT, name);
            }
            // SAFETY: null is `None`; anything else is the function of this name,
            // whose type its manual gives.
            unsafe { core::mem::transmute(found) }
        }
    )*};
}

real! {
    malloc: fn(usize) -> *mut c_void;
    calloc: fn(usize, usize) -> *mut c_void;
    realloc: fn(*mut c_void, usize) -> *mut c_void;
    reallocarray: fn(*mut c_void, usize, usize) -> *mut c_void;
    free: fn(*mut c_void);
    posix_memalign: fn(*mut *mut c_void, usize, usize) -> c_int;
    aligned_alloc: fn(usize, usize) -> *mut c_void;
    memalign: fn(usize, usize) -> *mut c_void;
    valloc: fn(usize) -> *mut c_void;
    pvalloc: fn(usize) -> *mut c_void;
    pthread_create: fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;
    pthread_join: fn(pthread_t, *mut *mut c_void) -> c_int;
    pthread_tryjoin_np: fn(pthread_t, *mut *mut c_void) -> c_int;
    pthread_timedjoin_np: fn(pthread_t, *mut *mut c_void, *const timespec) -> c_int;
    thrd_create: fn(*mut pthread_t, C11Start, *mut c_void) -> c_int;
    thrd_join: fn(pthread_t, *mut c_int) -> c_int;
    pthread_once: fn(*mut pthread_once_t, unsafe extern "C" fn()) -> c_int;
    pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int;
    pthread_mutex_trylock: fn(*mut pthread_mutex_t) -> c_int;
    pthread_mutex_timedlock: fn(*mut pthread_mutex_t, *const timespec) -> c_int;
    pthread_mutex_clocklock: fn(*mut pthread_mutex_t, clockid_t, *const timespec) -> c_int;
    pthread_mutex_unlock: fn(*mut pthread_mutex_t) -> c_int;
    pthread_rwlock_rdlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_tryrdlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_timedrdlock: fn(*mut pthread_rwlock_t, *const timespec) -> c_int;
    pthread_rwlock_wrlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_trywrlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_timedwrlock: fn(*mut pthread_rwlock_t, *const timespec) -> c_int;
    pthread_rwlock_unlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_cond_wait: fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int;
    pthread_cond_timedwait: fn(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec) -> c_int;
    pthread_cond_clockwait: fn(*mut pthread_cond_t, *mut pthread_mutex_t, clockid_t, *const timespec) -> c_int;
    pthread_cond_signal: fn(*mut pthread_cond_t) -> c_int;
    pthread_cond_broadcast: fn(*mut pthread_cond_t) -> c_int;
    pthread_barrier_wait: fn(*mut pthread_barrier_t) -> c_int;
    pthread_spin_lock: fn(*mut pthread_spinlock_t) -> c_int;
    pthread_spin_trylock: fn(*mut pthread_spinlock_t) -> c_int;
    pthread_spin_unlock: fn(*mut pthread_spinlock_t) -> c_int;
    sem_wait: fn(*mut sem_t) -> c_int;
    sem_trywait: fn(*mut sem_t) -> c_int;
    sem_timedwait: fn(*mut sem_t, *const timespec) -> c_int;
    sem_clockwait: fn(*mut sem_t, clockid_t, *const timespec) -> c_int;
    sem_post: fn(*mut sem_t) -> c_int;
    __cxa_guard_acquire: fn(*mut u64) -> c_int;
    __cxa_guard_release: fn(*mut u64);
    dlopen: fn(*const c_char, c_int) -> *mut c_void;
    dlmopen: fn(libc::Lmid_t, *const c_char, c_int) -> *mut c_void;
    dlclose: fn(*mut c_void) -> c_int;
    execve: fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
    execvpe: fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
    fexecve: fn(c_int, *const *const c_char, *const *const c_char) -> c_int;
    execveat: fn(c_int, *const c_char, *const *const c_char, *const *const c_char, c_int) -> c_int;
    _exit: fn(c_int) -> !;
    quick_exit: fn(c_int) -> !;
    abort: fn() -> !;
    __assert_fail: fn(*const c_char, *const c_char, c_uint, *const c_char) -> !;
}

/// Ends the process if not even the C library's own function is found.
pub fn missing() -> ! {
    // SAFETY: ends the process; not by `abort`, which is one of ours.
    unsafe {
        libc::signal(libc::SIGABRT, libc::SIG_DFL);
        libc::raise(libc::SIGABRT);
        loop {
            libc::pause();
        }
    }
}

const ARENA: usize = 64 * 1024;

#[repr(align(64))]
struct Arena(UnsafeCell<[u8; ARENA]>);

// SAFETY: bytes are handed out once each, by the cursor.
unsafe impl Sync for Arena {}

static EARLY: Arena = Arena(UnsafeCell::new([0; ARENA]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// Zeroed memory while the real functions are looked up; never given back.
pub fn early(size: usize) -> *mut c_void {
    let size = size.saturating_add(15) & !15;
    let at = USED.fetch_add(size, Ordering::Relaxed);
    if at.saturating_add(size) > ARENA {
        return core::ptr::null_mut();
    }
    EARLY.0.get().cast::<u8>().wrapping_add(at).cast()
}

/// Whether `block` came from [`early`].
#[inline]
pub fn is_early(block: *const c_void) -> bool {
    (block as usize).wrapping_sub(EARLY.0.get() as usize) < ARENA
}

/// Bytes from `block` to the arena's end, for a copy.
pub fn early_rest(block: *const c_void) -> usize {
    EARLY.0.get() as usize + ARENA - block as usize
}
