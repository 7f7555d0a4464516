//! The functions that stand behind ours: the next ones in the dynamic linker's order.
//! Looked up once when the program starts, or at the first call if one comes earlier.
//! Contexts: pre-init, normal.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Which thread is looking a function up; 0: nobody.
static LOOKING: AtomicU32 = AtomicU32::new(0);

macro_rules! real {
    ($($(#[$doc:meta])* $name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        $(
            $(#[$doc])*
            #[inline]
            pub fn $name() -> Option<unsafe extern "C-unwind" fn($($argument),*) -> $result> {
                static SLOT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
                let mut found = SLOT.load(Ordering::Relaxed);
                if found.is_null() {
                    // What an old dynamic linker allocates while it looks is not served.
                    let me = crate::system::thread_id();
                    if LOOKING.load(Ordering::Relaxed) == me {
                        return None;
                    }
                    let before = LOOKING.swap(me, Ordering::Relaxed);
                    // SAFETY: the bytes end with the zero that was put there.
                    let name = unsafe {
                        CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes())
                    };
                    // SAFETY: the name is a C string.
                    found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) };
                    LOOKING.store(before, Ordering::Relaxed);
                    SLOT.store(found, Ordering::Relaxed);
                }
                // SAFETY: a null pointer is `None`; anything else is the function of
                // this name, whose type the C standard or the manual gives.
                unsafe { core::mem::transmute(found) }
            }
        )*

        /// Looks all up, so that later calls need not.
        pub fn look_all_up() {
            $($name();)*
        }
    };
}

real! {
    /// See the manual, as all of these.
    fork: fn() -> c_int;
    /// Without handlers.
    #[allow(non_snake_case, reason = "the name of the C library's function")]
    _Fork: fn() -> c_int;
    /// Forks inside the C library.
    daemon: fn(c_int, c_int) -> c_int;
    /// Forks inside the C library.
    forkpty: fn(*mut c_int, *mut c_char, *const c_void, *const c_void) -> c_int;
    /// Any system call.
    syscall: fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    /// A new process or thread; variadic, but for six registers.
    clone: fn(usize, usize, usize, usize, usize, usize) -> c_int;
    /// A new block.
    malloc: fn(usize) -> *mut c_void;
    /// A new block of zeroes.
    calloc: fn(usize, usize) -> *mut c_void;
    /// A new block at a multiple.
    aligned_alloc: fn(usize, usize) -> *mut c_void;
    /// The same in other words.
    posix_memalign: fn(*mut *mut c_void, usize, usize) -> c_int;
    /// Gives a block back.
    free: fn(*mut c_void) -> ();
    /// Grows or shrinks a block.
    realloc: fn(*mut c_void, usize) -> *mut c_void;
}
