//! A free block. It is linked through its own memory: its first word is the next block, and its
//! second word a seal of that. The seal shows a block that is freed twice, and a link that the program
//! has written over. Contexts: pre-init, normal, signal, post-fork.

use core::sync::atomic::{AtomicUsize, Ordering};

/// The blocks of a list lie in one segment of so many bytes, which is aligned to that. No block lies
/// at its start, where lists end: there is an [`End`].
pub const SEGMENT: usize = 4 << 20;

/// A free block.
#[repr(C)]
pub struct Block {
    next: *mut Block,
    seal: usize,
}

/// What lies where lists end. It is never written, and is no whole block, so that taking the first
/// block of a list needs no test for the end.
#[repr(C)]
pub struct End([usize; 2]);

impl End {
    pub const NEW: Self = Self([0; 2]);
}

/// A secret of this process, so that a program's data do not look like a seal. Set once, before the
/// first block, and never changed, because free blocks carry it.
static SECRET: AtomicUsize = AtomicUsize::new(0x7a5e_91c3_d208_4fb6);

/// Is set in every secret, so that an [`End`] is no whole block, and no address or small number of a
/// program looks like a seal.
const NEVER_ZERO: usize = 1 << 62;

/// Chooses the secret.
pub fn set_secret(secret: usize) {
    SECRET.store(secret | NEVER_ZERO, Ordering::Relaxed);
}

/// What seals are made of. A section reads it once, since the compiler would read it each time.
#[derive(Clone, Copy)]
pub struct Secret(usize);

impl Secret {
    #[inline(always)]
    pub fn get() -> Self {
        Self(SECRET.load(Ordering::Relaxed))
    }
}

/// The end of a list of blocks in the segment that has this address.
#[inline(always)]
pub const fn end_of(address: usize) -> *mut Block {
    (address & !(SEGMENT - 1)) as *mut Block
}

impl Block {
    /// Whether a list ends here. Null ends one, too.
    #[inline(always)]
    pub fn is_end(block: *mut Self) -> bool {
        block as usize & (SEGMENT - 1) == 0
    }

    /// The next block of its list.
    ///
    /// # Safety
    /// `block` is readable.
    #[inline(always)]
    pub unsafe fn next(block: *mut Self) -> *mut Self {
        // SAFETY: by this function's contract.
        unsafe { (*block).next }
    }

    /// Whether a free block is as [`Self::link`] left it.
    ///
    /// # Safety
    /// As [`Self::next`].
    #[inline(always)]
    pub unsafe fn is_whole(block: *mut Self, secret: Secret) -> bool {
        // SAFETY: by this function's contract.
        unsafe { (*block).next as usize ^ (*block).seal == secret.0 }
    }

    /// Whether a block is free. A program's data look so with the probability of 2^-41. Of the
    /// block's words only the second is read: the first is where programs have often just written
    /// less than a word, for which a processor would wait.
    ///
    /// # Safety
    /// As [`Self::next`].
    #[inline(always)]
    pub unsafe fn may_be_free(block: *mut Self, secret: Secret) -> bool {
        // SAFETY: by this function's contract.
        unsafe { (*block).seal ^ secret.0 ^ (block as usize) < SEGMENT }
    }

    /// Puts a free block before another of its segment, or before the end, and seals it.
    ///
    /// # Safety
    /// `block` is writable and the heap's own.
    #[inline(always)]
    pub unsafe fn link(block: *mut Self, next: *mut Self, secret: Secret) {
        // SAFETY: by this function's contract.
        unsafe {
            (*block).next = next;
            (*block).seal = next as usize ^ secret.0;
        }
    }

    /// Takes the seal off a block, which the program gets.
    ///
    /// # Safety
    /// As [`Self::link`].
    #[inline(always)]
    pub unsafe fn open(block: *mut Self) {
        // SAFETY: by this function's contract.
        unsafe { (*block).seal = 0 };
    }
}
