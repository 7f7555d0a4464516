//! A free block. It is linked through its own memory; its second word is its seal, by which a
//! double free is detected. Contexts: pre-init, normal, post-fork.

use core::sync::atomic::{AtomicUsize, Ordering};

/// A free block.
#[repr(C)]
pub struct Block {
    pub next: *mut Block,
    pub seal: usize,
}

/// A secret of this process, so that a program's data do not look like a seal. Set once, before the
/// first block, and never changed, because free blocks carry it.
static SECRET: AtomicUsize = AtomicUsize::new(0x7a5e_91c3_d208_4fb6);

/// The seal of the free block at `block`.
#[inline(always)]
pub fn seal(block: *mut Block) -> usize {
    SECRET.load(Ordering::Relaxed) ^ block as usize
}

/// Chooses the secret.
pub fn set_secret(secret: usize) {
    SECRET.store(secret, Ordering::Relaxed);
}
