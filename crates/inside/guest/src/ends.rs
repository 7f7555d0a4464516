//! Notices the ends of threads, by the destructor of a key for thread-local values. The C library has
//! 1,024 keys: if the program needs the last one, it gets ours, and from then on the ends of new
//! threads are noticed in another way. The ends of threads that were noticed by the key are then
//! missed. [`notices_ends!`](crate::notices_ends) exports the functions by which a program takes
//! keys. This module must not take a lock.
//!
//! Contexts: normal.

use crate::{defined, next};
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

/// The C library keeps the values of so many keys (`PTHREAD_KEY_2NDLEVEL_SIZE`) in the thread itself. For
/// others it allocates, on the program's heap.
const UNALLOCATED: usize = 32;

/// What is called at a thread's end, with the value that the thread was given.
pub type Destructor = unsafe extern "C" fn(*mut c_void);

/// The type of `pthread_key_create` and `tss_create`.
pub type Create = unsafe extern "C-unwind" fn(*mut u32, Option<Destructor>) -> c_int;

unsafe extern "C" {
    /// Calls a function at the end of the calling thread, before the destructors of keys.
    fn __cxa_thread_atexit_impl(
        destructor: Destructor,
        value: *mut c_void,
        library: *const c_void,
    ) -> c_int;
}

/// The ends of threads, of which a library learns by a destructor.
pub struct Ends {
    destructor: Destructor,
    /// The key plus one; 0 is none.
    key: AtomicU32,
    /// Whether the program has the key now.
    given_up: AtomicU32,
}

impl Ends {
    /// Nothing is noticed before [`Self::prepare`].
    #[must_use]
    pub const fn new(destructor: Destructor) -> Self {
        Self {
            destructor,
            key: AtomicU32::new(0),
            given_up: AtomicU32::new(0),
        }
    }

    /// Makes the key. To be called before the first thread is watched.
    ///
    /// The program's own keys have the numbers that they have natively, as long as it takes few: a
    /// program may rely on it that key 0 does not exist before it has made one.
    pub fn prepare(&self) {
        let mut made = [0; UNALLOCATED];
        let mut count = 0;
        for key in &mut made {
            // SAFETY: `key` is a local, and the destructor has the required type.
            if unsafe { libc::pthread_key_create(&raw mut *key, Some(self.destructor)) } != 0 {
                break;
            }
            count += 1;
        }
        let Some((ours, others)) = made.get(..count).and_then(<[u32]>::split_last) else {
            return;
        };
        for &key in others {
            // SAFETY: it was made above, and nobody else knows it.
            unsafe { libc::pthread_key_delete(key) };
        }
        self.key.store(ours + 1, Ordering::Release);
    }

    /// Has the destructor called with `value`, which is not null, at the end of the calling thread.
    /// If it is called again for the same thread, the last value counts. May allocate.
    ///
    /// # Safety
    /// The destructor may be called with the value.
    pub unsafe fn watch(&self, value: *mut c_void) {
        if let Some(key) = self.key.load(Ordering::Acquire).checked_sub(1) {
            // SAFETY: the key exists, or the program has just got it and sets it itself.
            unsafe { libc::pthread_setspecific(key, value) };
        } else if self.given_up.load(Ordering::Acquire) != 0 {
            // SAFETY: the destructor is called in this thread; the address is in the library.
            unsafe {
                __cxa_thread_atexit_impl(self.destructor, value, (&raw const *self).cast());
            }
        }
    }

    /// Makes a key for the program by `real`, which fails with `no_more` if there is none left.
    /// Then the program gets ours.
    ///
    /// # Safety
    /// As `real` demands.
    pub unsafe fn create(
        &self,
        real: Option<Create>,
        no_more: c_int,
        key: *mut u32,
        destructor: Option<Destructor>,
    ) -> c_int {
        let Some(real) = real else {
            return no_more;
        };
        // SAFETY: the caller's arguments, passed on under the same contract.
        let result = unsafe { real(key, destructor) };
        let Some(ours) = self.key.load(Ordering::Acquire).checked_sub(1) else {
            return result;
        };
        let is_last = result == no_more;
        if !is_last || self.key.swap(0, Ordering::AcqRel) == 0 {
            return result;
        }
        self.given_up.store(1, Ordering::Release);
        // SAFETY: the key was ours; the rest as above.
        unsafe {
            libc::pthread_key_delete(ours);
            real(key, destructor)
        }
    }
}

/// The function behind one of ours that takes keys. `look_up` asks the dynamic linker, which comes last: in
/// glibc before 2.34 its first look-up takes a key itself, and would wait for itself. This library does not
/// know of that look-up if another one made it, such as one of ours beside it.
pub fn behind(name: &CStr, look_up: impl FnOnce() -> Option<Create>) -> Option<Create> {
    let found = defined::next(name);
    if found.is_null() && !next::is_looking_up() {
        return look_up();
    }
    // SAFETY: null is `None`, and the C library's functions of these names have this type.
    unsafe { core::mem::transmute(found) }
}

/// Makes a static [`Ends`], and exports the functions by which the program takes keys.
#[macro_export]
macro_rules! notices_ends {
    ($(#[$attribute:meta])* static $name:ident by $destructor:path;) => {
        $(#[$attribute])*
        static $name: $crate::ends::Ends = $crate::ends::Ends::new($destructor);

        #[cfg(not(test))]
        mod keys {
            use core::ffi::c_int;
            use $crate::ends::{Destructor, behind};

            mod real {
                use $crate::ends::Destructor;

                $crate::functions! {
                    pthread_key_create: fn(*mut u32, Option<Destructor>) -> core::ffi::c_int;
                    __pthread_key_create: fn(*mut u32, Option<Destructor>) -> core::ffi::c_int;
                    tss_create: fn(*mut u32, Option<Destructor>) -> core::ffi::c_int;
                }
            }

            /// Interposed; see the C library's manual.
            ///
            /// # Safety
            /// As the C library demands.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn pthread_key_create(
                key: *mut u32,
                destructor: Option<Destructor>,
            ) -> c_int {
                let real = behind(c"pthread_key_create", real::pthread_key_create);
                // SAFETY: the caller's arguments.
                unsafe { super::$name.create(real, libc::EAGAIN, key, destructor) }
            }

            /// The same under the name by which C++'s library calls it.
            ///
            /// # Safety
            /// As the C library demands.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn __pthread_key_create(
                key: *mut u32,
                destructor: Option<Destructor>,
            ) -> c_int {
                let real = behind(c"__pthread_key_create", || {
                    real::__pthread_key_create().or_else(real::pthread_key_create)
                });
                // SAFETY: the caller's arguments.
                unsafe { super::$name.create(real, libc::EAGAIN, key, destructor) }
            }

            /// Interposed; see the C library's manual.
            ///
            /// # Safety
            /// As the C library demands.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn tss_create(
                key: *mut u32,
                destructor: Option<Destructor>,
            ) -> c_int {
                /// `thrd_error`.
                const ERROR: c_int = 2;
                // SAFETY: the caller's arguments.
                unsafe { super::$name.create(real::tss_create(), ERROR, key, destructor) }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Mutex, PoisonError};

    static ENDED: AtomicUsize = AtomicUsize::new(0);
    /// One of the tests takes all keys.
    static KEYS: Mutex<()> = Mutex::new(());

    unsafe extern "C" fn ended(value: *mut c_void) {
        ENDED.fetch_add(value.addr(), Ordering::Relaxed);
    }

    /// Another library's look-up may be what takes the key.
    #[test]
    fn the_dynamic_linker_is_asked_only_for_what_no_module_defines() {
        let found = behind(c"pthread_key_create", || panic!("it was asked"));
        assert!(found.is_some());
        let missing = behind(c"no_such_function", || Some(real));
        assert!(missing.is_some());
    }

    unsafe extern "C-unwind" fn real(key: *mut u32, destructor: Option<Destructor>) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe { libc::pthread_key_create(key, destructor) }
    }

    fn watched(ends: &Ends) -> usize {
        let before = ENDED.load(Ordering::Relaxed);
        std::thread::scope(|threads| {
            // SAFETY: the destructor adds the value as a number.
            threads.spawn(|| unsafe { ends.watch(core::ptr::without_provenance_mut(1)) });
        });
        // The scope waits for the closure only, not for what runs after it.
        for _ in 0..10_000 {
            if ENDED.load(Ordering::Relaxed) != before {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        ENDED.load(Ordering::Relaxed) - before
    }

    #[test]
    fn keys_of_the_program_have_their_native_numbers() {
        let _alone = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let mut key = 0;
            // SAFETY: `key` is a local.
            assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, None) }, 0);
            key
        };
        let first = make();
        let ends = Ends::new(ended);
        ends.prepare();
        let ours = ends.key.load(Ordering::Relaxed) - 1;
        let second = make();
        for key in [first, second, ours] {
            // SAFETY: they were made above.
            unsafe { libc::pthread_key_delete(key) };
        }
        assert!(second < ours, "{first} {second} {ours}");
    }

    #[test]
    fn the_program_gets_the_last_key_and_ends_are_noticed() {
        let _alone = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = Ends::new(ended);
        ends.prepare();
        assert_eq!(watched(&ends), 1);
        let mut taken = Vec::new();
        loop {
            let mut key = 0;
            // SAFETY: `key` is a local.
            match unsafe { ends.create(Some(real), libc::EAGAIN, &raw mut key, None) } {
                0 => taken.push(key),
                error => break assert_eq!(error, libc::EAGAIN),
            }
        }
        assert_ne!(ends.given_up.load(Ordering::Relaxed), 0);
        assert_eq!(watched(&ends), 1);
        for key in taken {
            // SAFETY: it was made above.
            unsafe { libc::pthread_key_delete(key) };
        }
    }
}
