//! Thread-local memory that is reached without a call, and a guard on it. Contexts: all.
//!
//! `thread_local!` in a shared library calls `__tls_get_addr`, which is slow and may allocate. In a
//! library that is loaded at the program's start, thread-local memory has a fixed offset from the
//! thread pointer (initial-exec), and [`thread_words!`](crate::thread_words) uses only that.

/// Makes zeroed thread-local memory, under a symbol of the library's own:
///
/// ```text
/// sunder_guest::thread_words! {
///     "sunder_example", bytes: 16, align: 16;
///     /// The calling thread's own words.
///     pub fn local() -> *mut Words;
///     /// The first of these words, in one load.
///     pub fn first() -> *mut u8;
/// }
/// ```
///
/// The first function returns its address. An optional second function returns its first word,
/// which may change during a thread's life and is read at each call.
#[macro_export]
macro_rules! thread_words {
    (
        $symbol:literal, bytes: $bytes:literal, align: $align:literal;
        $(#[$attribute:meta])* $visible:vis fn $name:ident() -> *mut $words:ty;
        $($(#[$first_attribute:meta])* $first_visible:vis fn $first:ident() -> *mut $word:ty;)?
    ) => {
        ::core::arch::global_asm!(
            ".section .tbss,\"awT\",@nobits",
            concat!(".globl ", $symbol),
            concat!(".hidden ", $symbol),
            concat!(".type ", $symbol, ", @object"),
            concat!(".size ", $symbol, ", ", stringify!($bytes)),
            concat!(".balign ", stringify!($align)),
            concat!($symbol, ":"),
            concat!(".zero ", stringify!($bytes)),
            ".text",
        );

        const _: () = assert!(size_of::<$words>() <= $bytes && align_of::<$words>() <= $align);

        $(#[$attribute])*
        #[inline(always)]
        $visible fn $name() -> *mut $words {
            let words: *mut $words;
            // SAFETY: reads the thread pointer and the symbol's offset from it.
            unsafe {
                ::core::arch::asm!(
                    concat!("mov {0}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "add {0}, qword ptr fs:[0]",
                    out(reg) words,
                    options(nostack, readonly),
                );
            }
            words
        }

        $(
            $(#[$first_attribute])*
            #[inline(always)]
            $first_visible fn $first() -> *mut $word {
                let word: *mut $word;
                // SAFETY: reads the first word of the symbol. Not `pure`, because the word may
                // change during a thread's life.
                unsafe {
                    ::core::arch::asm!(
                        concat!("mov {0}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                        "mov {0}, qword ptr fs:[{0}]",
                        out(reg) word,
                        options(nostack, readonly, preserves_flags),
                    );
                }
                word
            }
        )?
    };
}

/// Keeps a bit set in a word of the calling thread until dropped, so that functions that the thread
/// calls meanwhile can see it.
#[derive(Debug)]
pub struct Inside {
    word: *mut u32,
    bit: u32,
}

impl Inside {
    /// Sets the bit; `None` if it is set already.
    ///
    /// # Safety
    /// `word` belongs to the calling thread, and is valid until the guard is dropped. Signal
    /// handlers that interrupt the thread leave it unchanged.
    #[inline]
    pub unsafe fn enter(word: *mut u32, bit: u32) -> Option<Self> {
        // SAFETY: by this function's contract.
        unsafe {
            if *word & bit != 0 {
                return None;
            }
            *word |= bit;
        }
        Some(Self { word, bit })
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: by the contract of `enter`; guards can't be sent to other threads (they contain a
        // raw pointer).
        unsafe { *self.word &= !self.bit };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Words {
        first: *mut u8,
        flags: u32,
    }

    crate::thread_words! {
        "sunder_guest_test", bytes: 16, align: 16;
        fn words() -> *mut Words;
        fn first() -> *mut u8;
    }

    #[test]
    fn each_thread_has_words_of_its_own_that_begin_as_zero() {
        // SAFETY: the calling thread's own words, which live as long as the thread.
        unsafe {
            assert!((*words()).first.is_null());
            let mut byte = 0u8;
            (*words()).first = &raw mut byte;
            assert_eq!(first(), &raw mut byte);
            let other = std::thread::spawn(|| (words() as usize, first().is_null()));
            let (address, is_null) = other.join().expect("it does not panic");
            assert!(is_null && address != words() as usize);
            (*words()).first = core::ptr::null_mut();
        }
    }

    #[test]
    fn a_second_guard_is_refused_and_other_bits_stay() {
        // SAFETY: the calling thread's own words.
        unsafe {
            let flags = &raw mut (*words()).flags;
            *flags = 2;
            let guard = Inside::enter(flags, 1).expect("the bit was clear");
            assert_eq!(*flags, 3);
            assert!(Inside::enter(flags, 1).is_none());
            *flags |= 4;
            drop(guard);
            assert_eq!(*flags, 6);
            assert!(Inside::enter(flags, 1).is_some());
        }
    }
}
