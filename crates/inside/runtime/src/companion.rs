//! Another library of Sunder in this process, the isolating one. When the process executes another
//! program, the runtime passes that library on, too, as long as the library wants it. And the runtime,
//! which the program's allocations reach first, asks it which of them get cache lines of their own.
//!
//! Contexts: pre-init, normal, post-fork; also in a vforked child.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use sunder_guest::allocator::Caller;
use sunder_guest::{environment, system};

/// The environment variable of that library, with the equals sign.
pub const VARIABLE: &[u8] = b"SUNDER_ISOLATE=";

/// That library's function that returns what to pass on.
static CARRIED: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// That library's function that says which blocks get lines of their own.
static PLACES: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// What to pass on to a new program.
#[derive(Clone, Copy)]
pub struct Companion {
    /// The variable's value: the paths of two files and of the library.
    pub value: &'static [u8],
    /// The last of these paths, for `LD_PRELOAD`.
    pub library: &'static [u8],
}

// The loader gives a weak symbol that nothing defines the address 0. `dlsym` would fail, and its
// error's text comes from the program's heap, before the program's own first block.
core::arch::global_asm!(
    ".weak sunder_isolate_carried",
    ".weak sunder_isolate_places"
);

/// Looks for the library. Called by the constructor.
pub fn find() {
    let (carried, places): (*mut c_void, *mut c_void);
    // SAFETY: reads the entries that the loader has filled in for the symbols.
    unsafe {
        core::arch::asm!(
            "mov {}, qword ptr [rip + sunder_isolate_carried@GOTPCREL]",
            "mov {}, qword ptr [rip + sunder_isolate_places@GOTPCREL]",
            out(reg) carried,
            out(reg) places,
            options(nostack, preserves_flags, readonly)
        );
    }
    CARRIED.store(carried, Ordering::Release);
    PLACES.store(places, Ordering::Release);
}

/// Whether the block that `caller` asks for gets cache lines of its own.
#[inline]
pub fn places(caller: Caller) -> bool {
    type Places = unsafe extern "C" fn(*const u64, u64) -> c_int;
    let places = PLACES.load(Ordering::Relaxed);
    if places.is_null() {
        return false;
    }
    // SAFETY: the function of that name in our library has this type, and takes the registers at the
    // entry of an allocation function.
    unsafe { core::mem::transmute::<*mut c_void, Places>(places)(caller.sp, caller.bp) != 0 }
}

/// What to pass on to the next program, if that program can open the library.
pub fn get() -> Option<Companion> {
    type Carried = unsafe extern "C" fn() -> *const c_char;
    let carried = CARRIED.load(Ordering::Acquire);
    if carried.is_null() {
        return None;
    }
    // SAFETY: the function of that name in our library has this type; it returns null or a C string
    // that is never freed.
    let value = unsafe {
        let carried = core::mem::transmute::<*mut c_void, Carried>(carried);
        let value = carried().cast::<u8>();
        if value.is_null() {
            return None;
        }
        core::slice::from_raw_parts(value, environment::length(value))
    };
    let library = value.rsplit(|byte| *byte == b',').next()?;
    // SAFETY: the library's path ends where the value does: with a zero byte.
    let found = unsafe { system::open(libc::AT_FDCWD, library.as_ptr(), libc::O_RDONLY) };
    found.map(system::close)?;
    Some(Companion { value, library })
}
