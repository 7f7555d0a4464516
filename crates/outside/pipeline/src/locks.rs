//! A lock of the C library is one variable, although the library's functions access several
//! words of it: one thread reads the lock's kind while another changes the lock word. The user
//! can't separate these words by a layout, so this is true sharing. Called when lines are
//! joined to findings; it must not change anything but the kind of sharing.

use sunder_objects::{CodeFrame, Names, is_c_library};
use sunder_sharing::{Sharing, Verdict, WordUse};

/// Bytes of a `pthread_mutex_t` on x86-64, which begins with its lock word.
const MUTEX_BYTES: u32 = 40;
/// Bytes of the lock word.
const LOCK_WORD_BYTES: u32 = 4;

/// Makes the line's sharing true sharing if all words that its threads share belong to one
/// mutex.
pub fn join_words_of_one_lock(verdict: &mut Verdict, names: &mut Names) {
    if verdict.sharing != Sharing::True && is_one_mutex(verdict, names) {
        verdict.force_true_sharing();
    }
}

fn is_one_mutex(verdict: &Verdict, names: &mut Names) -> bool {
    let has_lock_word = verdict.words.iter().any(is_atomic);
    lies_like_one_mutex(&verdict.words)
        && verdict.sites.iter().all(|site| {
            let frames = names.frames(site.instruction);
            let innermost = frames.first();
            innermost.is_some_and(|frame| is_of_mutex(frame, has_lock_word))
        })
}

fn is_atomic(word: &WordUse) -> bool {
    word.threads.iter().any(|thread| thread.atomics > 0)
}

/// Whether the words can be one mutex: a word with atomic accesses, and no other words but
/// those within the size of a mutex; or the rest of a mutex whose lock word is on the line
/// before.
fn lies_like_one_mutex(words: &[WordUse]) -> bool {
    let (Some(first), Some(end)) = (words.first(), words.iter().map(|w| w.offset + w.size).max())
    else {
        return false;
    };
    match words.iter().filter(|w| is_atomic(w)).count() {
        0 => end <= MUTEX_BYTES - LOCK_WORD_BYTES,
        1 => is_atomic(first) && end - first.offset <= MUTEX_BYTES,
        _ => false,
    }
}

/// Whether the innermost function is one of the C library's functions for mutexes. Without
/// debug information the internal ones have no names of their own. Neither have those that fill and
/// copy memory, so a function without a name is taken for one of a mutex only if a lock word was
/// seen (`has_lock_word`).
fn is_of_mutex(frame: &CodeFrame, has_lock_word: bool) -> bool {
    let module = frame.module.as_deref().unwrap_or_default();
    let file = module.rsplit('/').next().unwrap_or_default();
    let function = frame.function.trim_start_matches('_');
    let function = function.strip_prefix("GI_").unwrap_or(function);
    let function = function.trim_start_matches('_');
    function.starts_with("pthread_mutex_")
        || function.starts_with("lll_")
        || (has_lock_word && is_c_library(module) && function.starts_with(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, module: &str) -> CodeFrame {
        CodeFrame {
            function: function.into(),
            module: Some(module.into()),
            ..CodeFrame::default()
        }
    }

    fn word(offset: u32, size: u32, atomics: u64) -> WordUse {
        let user = sunder_sharing::ThreadUse {
            atomics,
            ..sunder_sharing::ThreadUse::default()
        };
        WordUse {
            offset,
            size,
            threads: vec![user],
        }
    }

    #[test]
    fn words_of_one_mutex_are_joined_and_those_of_two_are_not() {
        // Lock word, owner, number of users, and kind of a mutex at byte 8.
        let whole = [word(8, 4, 9), word(16, 8, 0), word(24, 4, 0)];
        assert!(lies_like_one_mutex(&whole));
        // The same mutex at byte -8: its lock word is on the line before.
        assert!(lies_like_one_mutex(&[word(0, 8, 0), word(8, 4, 0)]));
        // The next mutex begins 40 bytes later.
        assert!(!lies_like_one_mutex(&[word(0, 4, 9), word(40, 4, 9)]));
        assert!(!lies_like_one_mutex(&[word(0, 4, 9), word(56, 4, 0)]));
        // The end of one mutex, and the lock word of the next.
        assert!(!lies_like_one_mutex(&[word(0, 4, 0), word(24, 4, 9)]));
        // Too far from the line's start to be the rest of a mutex.
        assert!(!lies_like_one_mutex(&[word(32, 8, 0)]));
        assert!(!lies_like_one_mutex(&[]));
    }

    #[test]
    fn functions_of_mutexes_are_known_by_name_and_by_place() {
        let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
        for name in [
            "___pthread_mutex_lock",
            "__GI___pthread_mutex_unlock_usercnt",
            "lll_mutex_lock_optimized",
            "__GI___lll_lock_wait",
            "pthread_mutex_unlock+0x3c",
            "libc.so.6+0x8a120",
        ] {
            assert!(is_of_mutex(&frame(name, libc), true), "{name}");
        }
        assert!(is_of_mutex(&frame("__pthread_mutex_lock", libc), false));
        // Perhaps the one that fills memory.
        assert!(!is_of_mutex(&frame("libc.so.6+0x16e0a3", libc), false));
        for name in ["pthread_cond_signal", "memcpy", "update"] {
            assert!(!is_of_mutex(&frame(name, libc), true), "{name}");
        }
        assert!(!is_of_mutex(
            &frame("libfoo.so+0x10", "/opt/libfoo.so"),
            true
        ));
    }
}
