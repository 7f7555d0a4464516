//! The settings of `sunder run`, from the environment. `SUNDER_HEAP` has the policy, the line size
//! in bytes and, if call sites are to be padded, the file that lists them, separated by commas.
//! Without the variable, and before [`crate::start`] has read it, the policy is `hoard`.
//!
//! Contexts: `read` before `main`; the settings that were read: all.

use crate::site;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use sunder_placement::Policy;

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

/// Reads the value of `SUNDER_HEAP`.
///
/// # Safety
/// `text` is a C string that is never freed.
pub unsafe fn read(text: *const u8) {
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
