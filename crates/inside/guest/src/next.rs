//! Finds the functions that ours interpose: the next definitions in the dynamic linker's order,
//! from the C library or a preloaded allocator. Used by every library that interposes functions.
//! Each is looked up at its first call. The dynamic linker may itself call an interposed function
//! during the look-up; memory that it allocates then comes from [`early`](crate::early). This
//! module must not allocate, panic, or wait for a thread that is not in a look-up.
//!
//! Contexts: pre-init, normal; in a handler only functions that were looked up before.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The address of a function that was found; null before.
pub type Slot = AtomicPtr<c_void>;

/// A look-up in progress.
struct LookUp {
    /// The thread that looks up; 0 if the entry is free.
    thread: AtomicU32,
    /// The slot for which it looks up; only that thread writes and uses it.
    slot: AtomicPtr<Slot>,
}

/// How many look-ups can be in progress at once before further threads wait. With a single shared
/// entry, threads that set and clear it in any order would leave it in a state that belongs to none
/// of them.
const MOST_LOOK_UPS: usize = 16;

static LOOK_UPS: [LookUp; MOST_LOOK_UPS] = [const {
    LookUp {
        thread: AtomicU32::new(0),
        slot: AtomicPtr::new(null_mut()),
    }
}; MOST_LOOK_UPS];

/// Frees all entries in a forked child: the threads that were in a look-up do not exist there.
pub fn forget_look_ups() {
    for entry in &LOOK_UPS {
        entry.release();
    }
}

impl LookUp {
    /// The slot is cleared first: a handler that interrupts this finds no slot of another look-up.
    fn release(&self) {
        self.slot.store(null_mut(), Ordering::Relaxed);
        self.thread.store(0, Ordering::Relaxed);
    }

    fn claim(&self, own: u32) -> bool {
        let holder = self.thread.load(Ordering::Relaxed);
        if holder != 0 && !is_gone(holder) {
            return false;
        }
        self.thread
            .compare_exchange(holder, own, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

/// Whether no thread has this id: it belonged to a process that forked during the look-up.
fn is_gone(thread: u32) -> bool {
    // SAFETY: signal 0 is not delivered to any thread.
    let result = unsafe { crate::system::call(libc::SYS_tkill, [thread as usize, 0, 0, 0, 0, 0]) };
    result == -(libc::ESRCH as isize)
}

/// Claims an entry for this thread. Waits if none is free, which is never for long.
fn begin(own: u32, slot: &Slot) -> &'static LookUp {
    let unused = |p: &&LookUp| p.thread.load(Ordering::Relaxed) == 0 && p.claim(own);
    loop {
        let entry = LOOK_UPS.iter().find(unused);
        if let Some(entry) = entry.or_else(|| LOOK_UPS.iter().find(|p| p.claim(own))) {
            entry.slot.store(as_key(slot), Ordering::Relaxed);
            return entry;
        }
        crate::system::give_way();
    }
}

fn as_key(slot: &Slot) -> *mut Slot {
    core::ptr::from_ref(slot).cast_mut()
}

/// Whether this thread is in the middle of a look-up for this slot.
fn is_looking_for(own: u32, slot: &Slot) -> bool {
    LOOK_UPS.iter().any(|entry| {
        entry.thread.load(Ordering::Relaxed) == own
            && entry.slot.load(Ordering::Relaxed) == as_key(slot)
    })
}

/// Whether this thread is in the middle of any look-up, and so within the dynamic linker.
#[must_use]
pub fn is_looking_up() -> bool {
    let own = crate::system::thread_id();
    let its = |entry: &LookUp| entry.thread.load(Ordering::Relaxed) == own;
    LOOK_UPS.iter().any(its)
}

fn look_up_by(own: u32, slot: &Slot, find: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if is_looking_for(own, slot) {
        return null_mut();
    }
    let entry = begin(own, slot);
    let found = find();
    entry.release();
    slot.store(found, Ordering::Relaxed);
    found
}

/// Finds the next function of this name and stores it in `slot`. Null if there is none, or if this
/// thread is already in the look-up of this slot. For [`functions`].
#[doc(hidden)]
#[cold]
#[must_use]
pub fn look_up(slot: &Slot, name: &CStr) -> *mut c_void {
    look_up_by(crate::system::thread_id(), slot, || {
        // SAFETY: the name is a C string. The dynamic linker finds the "next" library by this
        // code's address, which is in the library that the code is linked into.
        unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
    })
}

/// The result of a function of ours whose real one is missing: sets `errno` and returns -1.
pub fn fails() -> core::ffi::c_int {
    // SAFETY: the C library returns the valid address of this thread's `errno`.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// For [`functions`]: the name as a C string.
#[doc(hidden)]
#[must_use]
pub const fn name(bytes: &'static [u8]) -> &'static CStr {
    match CStr::from_bytes_with_nul(bytes) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// Makes a function of each name, which returns the next function of that name in the dynamic
/// linker's order. It returns `None` if there is none, and while the calling thread is in the
/// look-up of this name. With `all NAME;` in front, `NAME()` looks all of them up, so that later
/// calls need not. The types are those of the manual.
#[macro_export]
macro_rules! functions {
    (all $all:ident; $($(#[$attribute:meta])* $name:ident: fn($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// Looks up all of them, so that later calls need not.
        pub fn $all() {
            $(let _ = $name();)*
        }
        $crate::functions! { $($(#[$attribute])* $name: fn($($argument),*) $(-> $result)?;)* }
    };
    ($($(#[$attribute:meta])* $name:ident: fn($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {$(
        /// The next function of this name; `None` if there is none, and while this thread looks it
        /// up.
        ///
        $(#[$attribute])*
        #[inline]
        #[allow(non_snake_case, reason = "the name of the C library's function")]
        pub fn $name() -> Option<unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?> {
            static SLOT: $crate::next::Slot = $crate::next::Slot::new(::core::ptr::null_mut());
            let mut found = SLOT.load(::core::sync::atomic::Ordering::Relaxed);
            if found.is_null() {
                const NAME: &::core::ffi::CStr =
                    $crate::next::name(concat!(stringify!($name), "\0").as_bytes());
                found = $crate::next::look_up(&SLOT, NAME);
            }
            // SAFETY: null is `None`; any other value is the function of this name, whose type the
            // C standard or its manual gives.
            unsafe { ::core::mem::transmute(found) }
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: usize) -> *mut c_void {
        core::ptr::without_provenance_mut(number)
    }

    fn marks(own: &[u32]) -> usize {
        let of_ours = |p: &&LookUp| own.contains(&p.thread.load(Ordering::Relaxed));
        LOOK_UPS.iter().filter(of_ours).count()
    }

    // Thread ids that the kernel does not know would count as gone, so tests use these existing
    // ones; one test at a time.
    static SPEAKING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    const FIRST: u32 = 1;
    fn second() -> u32 {
        crate::system::process_id()
    }

    /// In every order in which a single shared entry would keep a mark or lose one.
    #[test]
    fn overlapping_look_ups_free_their_entries() {
        let _alone = SPEAKING.lock();
        let slots = [const { Slot::new(null_mut()) }; 2];
        let first = begin(FIRST, &slots[0]);
        let second_entry = begin(second(), &slots[1]);
        assert!(!core::ptr::eq(first, second_entry));
        first.release();
        assert!(
            is_looking_for(second(), &slots[1]),
            "the second look-up is still in progress"
        );
        assert!(!is_looking_for(FIRST, &slots[0]));
        second_entry.release();
        assert_eq!(marks(&[FIRST, second()]), 0);
    }

    #[test]
    fn a_nested_look_up_works_but_for_the_same_name() {
        let own = crate::system::thread_id();
        let (outer, inner) = (Slot::new(null_mut()), Slot::new(null_mut()));
        let found = look_up_by(own, &outer, || {
            let same = look_up_by(own, &outer, || at(1));
            assert!(same.is_null(), "a look-up that calls itself gets null");
            assert_eq!(look_up_by(own, &inner, || at(2)), at(2));
            assert!(
                is_looking_for(own, &outer),
                "the inner one took only its own mark"
            );
            at(3)
        });
        assert_eq!(found, at(3));
        assert_eq!(outer.load(Ordering::Relaxed), at(3));
        assert_eq!(inner.load(Ordering::Relaxed), at(2));
        assert_eq!(marks(&[own]), 0);
    }

    #[test]
    fn two_threads_may_look_up_the_same_name() {
        let _alone = SPEAKING.lock();
        let slot = Slot::new(null_mut());
        let outer = look_up_by(FIRST, &slot, || {
            assert_eq!(look_up_by(second(), &slot, || at(4)), at(4));
            at(4)
        });
        assert_eq!(outer, at(4));
    }

    /// As in the child of a process that forked while its other threads were in look-ups.
    #[test]
    fn a_dead_thread_holds_no_entry() {
        // No thread has this id: the kernel's highest is 2^22.
        let gone = u32::MAX >> 1;
        assert!(is_gone(gone) && !is_gone(crate::system::thread_id()));
        let entry = LookUp {
            thread: AtomicU32::new(gone),
            slot: AtomicPtr::new(null_mut()),
        };
        assert!(entry.claim(FIRST));
        assert!(!entry.claim(second()), "the first is alive");
    }
}
