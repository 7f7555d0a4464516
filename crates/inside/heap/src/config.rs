//! The settings of `sunder run`, from the environment. `SUNDER_HEAP` has the policy, the line size
//! in bytes and, if call sites are to be padded, the file that lists them, separated by commas.
//! Without the variable, and before the constructor has read it, the policy is `hoard`.
//!
//! Contexts: normal, before `main`; the settings that were read: all.

use crate::{local, pool, site, span};
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use sunder_placement::Policy;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = start;

static POLICY: AtomicU8 = AtomicU8::new(Policy::Hoard as u8);
static LINE: AtomicU32 = AtomicU32::new(64);
static PADS: AtomicBool = AtomicBool::new(false);

/// The policy.
pub fn policy() -> Policy {
    let number = usize::from(POLICY.load(Ordering::Relaxed));
    Policy::ALL.get(number).copied().unwrap_or(Policy::Hoard)
}

/// Size of a line, in bytes.
pub fn line() -> u64 {
    LINE.load(Ordering::Relaxed).into()
}

/// Whether the objects of some call sites get lines of their own.
pub fn pads() -> bool {
    PADS.load(Ordering::Relaxed)
}

/// Whether the size class alone chooses a request's bin.
pub fn uses_classes() -> bool {
    policy() == Policy::Hoard && !pads()
}

extern "C" fn start(_count: c_int, _arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    if local::heap().is_null() {
        // Once anything was allocated, free blocks carry seals, and the secret must not change.
        // SAFETY: the kernel passes the address of 16 random bytes.
        let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const usize;
        if !random.is_null() {
            // SAFETY: the kernel passes the address of 16 random bytes.
            span::set_secret(unsafe { random.read_unaligned() });
        }
    }
    // SAFETY: the dynamic linker passes the environment, which ends with null.
    let wanted = unsafe { find(environment, b"SUNDER_HEAP=") };
    if let Some(wanted) = wanted {
        // SAFETY: a value in the environment is a C string, which is never freed.
        unsafe { read(wanted) };
    }
    if !uses_classes() {
        let heap = local::heap();
        if !heap.is_null() {
            // SAFETY: this thread's own heap.
            unsafe { (*heap).look_at_everything() };
        }
    }
    pool::prepare();
}

/// The value of a variable.
///
/// # Safety
/// `environment` is an environment.
unsafe fn find(environment: *mut *mut c_char, name: &[u8]) -> Option<*const u8> {
    let mut at = environment;
    // SAFETY: by this function's contract, up to the null pointer and in each
    // string up to the zero.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let entry = (*at).cast::<u8>();
            let same = name
                .iter()
                .enumerate()
                .all(|(i, byte)| *entry.wrapping_add(i) == *byte);
            if same {
                return Some(entry.wrapping_add(name.len()));
            }
            at = at.wrapping_add(1);
        }
    }
    None
}

/// # Safety
/// `text` is a C string that is never freed.
unsafe fn read(text: *const u8) {
    // SAFETY: by this function's contract.
    let bytes = unsafe { core::ffi::CStr::from_ptr(text.cast()) }.to_bytes();
    let mut parts = bytes.splitn(3, |&byte| byte == b',');
    let name = parts.next().and_then(|p| core::str::from_utf8(p).ok());
    if let Some(policy) = name.and_then(|name| name.parse::<Policy>().ok()) {
        POLICY.store(policy as u8, Ordering::Relaxed);
    }
    let line = parts.next().and_then(|p| core::str::from_utf8(p).ok());
    if let Some(line) = line.and_then(|line| line.parse::<u32>().ok())
        && line.is_power_of_two()
        && (16..=4096).contains(&line)
    {
        LINE.store(line, Ordering::Relaxed);
    }
    if let Some(path) = parts.next() {
        // The rest of the string, which ends with the zero byte.
        // SAFETY: by this function's contract.
        PADS.store(unsafe { site::load(path.as_ptr()) }, Ordering::Relaxed);
    }
}
