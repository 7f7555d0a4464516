//! The functions that stand behind ours: the next ones in the dynamic linker's order, be
//! they the C library's or those of a preloaded allocator. Used by every library that puts
//! functions in front of a program's. Each is found at its first call, on which the linker
//! may itself call what we stand in front of; memory that it asks for then comes from
//! [`early`](crate::early). It must not allocate, panic or wait for a thread that does not
//! look something up. Contexts: pre-init, normal; in a handler only what was found before.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Where a function was found; null before.
pub type Slot = AtomicPtr<c_void>;

/// One look-up that is under way.
struct Place {
    /// The thread that looks; 0: nobody.
    thread: AtomicU32,
    /// For which slot; written by that thread, and of meaning to it alone.
    slot: AtomicPtr<Slot>,
}

/// How many look-ups are under way at once before others wait. One would not do: what
/// several threads put there and take back in any order tells nobody's state.
const PLACES: usize = 16;

static LOOKING: [Place; PLACES] = [const {
    Place {
        thread: AtomicU32::new(0),
        slot: AtomicPtr::new(null_mut()),
    }
}; PLACES];

/// In a forked child: whoever was looking something up is not here.
pub fn forget_looking() {
    for place in &LOOKING {
        place.release();
    }
}

impl Place {
    /// Its slot goes first: a handler that comes in between finds no other's.
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

/// Whether no thread has this number: it was of a process that forked in the middle.
fn is_gone(thread: u32) -> bool {
    // SAFETY: signal 0 is sent to nobody.
    let result = unsafe { crate::system::call(libc::SYS_tkill, [thread as usize, 0, 0, 0, 0, 0]) };
    result == -(libc::ESRCH as isize)
}

/// A place of our own among those that look; waits for one if there is none, which is
/// never for long.
fn begin(own: u32, slot: &Slot) -> &'static Place {
    let unused = |p: &&Place| p.thread.load(Ordering::Relaxed) == 0 && p.claim(own);
    loop {
        let place = LOOKING.iter().find(unused);
        if let Some(place) = place.or_else(|| LOOKING.iter().find(|p| p.claim(own))) {
            place.slot.store(as_key(slot), Ordering::Relaxed);
            return place;
        }
        crate::system::give_way();
    }
}

fn as_key(slot: &Slot) -> *mut Slot {
    core::ptr::from_ref(slot).cast_mut()
}

/// Whether this thread is in the middle of looking for the function of this slot.
fn is_looking_for(own: u32, slot: &Slot) -> bool {
    LOOKING.iter().any(|place| {
        place.thread.load(Ordering::Relaxed) == own
            && place.slot.load(Ordering::Relaxed) == as_key(slot)
    })
}

fn look_up_by(own: u32, slot: &Slot, find: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if is_looking_for(own, slot) {
        return null_mut();
    }
    let place = begin(own, slot);
    let found = find();
    place.release();
    slot.store(found, Ordering::Relaxed);
    found
}

/// Finds the next function of this name and leaves it in `slot`; null if there is none, or
/// if this very look-up is what called us. For [`functions`].
#[doc(hidden)]
#[cold]
#[must_use]
pub fn look_up(slot: &Slot, name: &CStr) -> *mut c_void {
    look_up_by(crate::system::thread_id(), slot, || {
        // SAFETY: the name is a C string. Whose "next" it is, the linker knows by this
        // code's address, which is in the library that it is linked into.
        unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
    })
}

/// For [`functions`]: the name with its end.
#[doc(hidden)]
#[must_use]
pub const fn name(bytes: &'static [u8]) -> &'static CStr {
    match CStr::from_bytes_with_nul(bytes) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// Makes a function of each name, which gives the next function of that name in the
/// dynamic linker's order: `None` if there is none, and while it is this one that the
/// calling thread looks up. With `all NAME;` in front, `NAME()` looks all of them up, so
/// that later calls need not. The types are what the manual says.
#[macro_export]
macro_rules! functions {
    (all $all:ident; $($(#[$attribute:meta])* $name:ident: fn($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// Looks all up, so that later calls need not.
        pub fn $all() {
            $(let _ = $name();)*
        }
        $crate::functions! { $($(#[$attribute])* $name: fn($($argument),*) $(-> $result)?;)* }
    };
    ($($(#[$attribute:meta])* $name:ident: fn($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {$(
        /// The next function of this name; `None` while this thread looks it up.
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
            // SAFETY: null is `None`; anything else is the function of this name, whose
            // type the C standard or its manual gives.
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
        let of_ours = |p: &&Place| own.contains(&p.thread.load(Ordering::Relaxed));
        LOOKING.iter().filter(of_ours).count()
    }

    // Threads of which the kernel knows nothing would count as gone: these exist. One test at a
    // time speaks for them.
    static SPEAKING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    const FIRST: u32 = 1;
    fn second() -> u32 {
        crate::system::process_id()
    }

    /// In each order, of which one place for all would keep a mark or lose one.
    #[test]
    fn look_ups_that_overlap_leave_nobody_looking() {
        let _alone = SPEAKING.lock();
        let slots = [const { Slot::new(null_mut()) }; 2];
        let first = begin(FIRST, &slots[0]);
        let second_place = begin(second(), &slots[1]);
        assert!(!core::ptr::eq(first, second_place));
        first.release();
        assert!(is_looking_for(second(), &slots[1]), "it still is");
        assert!(!is_looking_for(FIRST, &slots[0]));
        second_place.release();
        assert_eq!(marks(&[FIRST, second()]), 0);
    }

    #[test]
    fn what_a_look_up_itself_calls_is_found_but_for_the_same() {
        let own = crate::system::thread_id();
        let (outer, inner) = (Slot::new(null_mut()), Slot::new(null_mut()));
        let found = look_up_by(own, &outer, || {
            let same = look_up_by(own, &outer, || at(1));
            assert!(same.is_null(), "this would never end");
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
    fn another_thread_may_look_for_the_same() {
        let _alone = SPEAKING.lock();
        let slot = Slot::new(null_mut());
        let outer = look_up_by(FIRST, &slot, || {
            assert_eq!(look_up_by(second(), &slot, || at(4)), at(4));
            at(4)
        });
        assert_eq!(outer, at(4));
    }

    /// As in the child of a process that forked while its other threads looked.
    #[test]
    fn who_is_gone_holds_no_place() {
        // No thread has it: the kernel's highest number is 2^22.
        let gone = u32::MAX >> 1;
        assert!(is_gone(gone) && !is_gone(crate::system::thread_id()));
        let place = Place {
            thread: AtomicU32::new(gone),
            slot: AtomicPtr::new(null_mut()),
        };
        assert!(place.claim(FIRST));
        assert!(!place.claim(second()), "the first is alive");
    }
}
