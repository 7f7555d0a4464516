//! What `sunder run` wants, from the environment: `SUNDER_HEAP` is the policy,
//! the bytes of a line and, if call sites are to be padded, the file that lists
//! them, separated by commas. Before the constructor has read it, and without
//! it, the policy is `hoard`. Contexts: normal, before `main`; what it has read: all.

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

/// Bytes of a line.
pub fn line() -> u64 {
    LINE.load(Ordering::Relaxed).into()
}

/// Whether some call sites' objects get lines of their own.
pub fn pads() -> bool {
    PADS.load(Ordering::Relaxed)
}

/// Whether requests go straight to the bin of their class.
pub fn uses_classes() -> bool {
    policy() == Policy::Hoard && !pads()
}

extern "C" fn start(_count: c_int, _arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    if local::heap().is_null() {
        // Free blocks carry seals already if anything was allocated.
        // SAFETY: the kernel passes 16 random bytes.
        let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const usize;
        if !random.is_null() {
            // SAFETY: as above.
            span::set_secret(unsafe { random.read_unaligned() });
        }
    }
    // SAFETY: the dynamic linker passes the environment, which ends with null.
    let wanted = unsafe { find(environment, b"SUNDER_HEAP=") };
    if let Some(wanted) = wanted {
        // SAFETY: a value in the environment is a C string, and stays.
        unsafe { read(wanted) };
    }
    if !uses_classes() {
        let heap = local::heap();
        if !heap.is_null() {
            // SAFETY: this thread's heap.
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
/// `text` is a C string that stays.
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
        // The rest of the string, so that it ends with the zero.
        // SAFETY: as above.
        PADS.store(unsafe { site::load(path.as_ptr()) }, Ordering::Relaxed);
    }
}
