//! The functions that stand behind ours: the next ones in the dynamic linker's
//! order. Found at first use; while they are looked up, memory comes from a
//! small arena.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use libc::{
    clockid_t, pthread_barrier_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t,
    pthread_spinlock_t, pthread_t, sem_t, timespec,
};

/// The thread that looks a function up now; 0: none.
static LOOKING: AtomicU32 = AtomicU32::new(0);

#[cold]
fn look_up(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // SAFETY: takes nothing.
    let own = unsafe { libc::gettid() }.unsigned_abs();
    if LOOKING.load(Ordering::Relaxed) == own {
        return core::ptr::null_mut();
    }
    LOOKING.store(own, Ordering::Relaxed);
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    LOOKING.store(0, Ordering::Relaxed);
    slot.store(found, Ordering::Relaxed);
    found
}

macro_rules! real {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {$(
        /// The next function of this name; `None` while this thread looks one up.
        #[inline]
        pub fn $name() -> Option<unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?> {
            static SLOT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
            let mut found = SLOT.load(Ordering::Relaxed);
            if found.is_null() {
                const NAME: &str = concat!(stringify!($name), "\0");
                found = match CStr::from_bytes_with_nul(NAME.as_bytes()) {
                    Ok(name) => look_up(&SLOT, name),
                    Err(_) => found,
                };
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
    pthread_join: fn(pthread_t, *mut *mut c_void) -> c_int;
    pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int;
    pthread_mutex_trylock: fn(*mut pthread_mutex_t) -> c_int;
    pthread_mutex_timedlock: fn(*mut pthread_mutex_t, *const timespec) -> c_int;
    pthread_mutex_clocklock: fn(*mut pthread_mutex_t, clockid_t, *const timespec) -> c_int;
    pthread_mutex_unlock: fn(*mut pthread_mutex_t) -> c_int;
    pthread_rwlock_rdlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_tryrdlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_wrlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_trywrlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_unlock: fn(*mut pthread_rwlock_t) -> c_int;
    pthread_cond_signal: fn(*mut pthread_cond_t) -> c_int;
    pthread_cond_broadcast: fn(*mut pthread_cond_t) -> c_int;
    pthread_cond_wait: fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int;
    pthread_cond_timedwait: fn(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec) -> c_int;
    pthread_barrier_wait: fn(*mut pthread_barrier_t) -> c_int;
    pthread_spin_lock: fn(*mut pthread_spinlock_t) -> c_int;
    pthread_spin_trylock: fn(*mut pthread_spinlock_t) -> c_int;
    pthread_spin_unlock: fn(*mut pthread_spinlock_t) -> c_int;
    sem_wait: fn(*mut sem_t) -> c_int;
    sem_trywait: fn(*mut sem_t) -> c_int;
    sem_post: fn(*mut sem_t) -> c_int;
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
    early_rest(block) != 0
}

/// Bytes from `block` to the arena's end; 0 if it is not in the arena.
#[inline]
pub fn early_rest(block: *const c_void) -> usize {
    let at = block.addr().wrapping_sub(EARLY.0.get().addr());
    ARENA.saturating_sub(at)
}
