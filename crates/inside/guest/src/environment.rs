//! The environment with which the program was started: finds the variables that the tool has added
//! for our libraries, and removes them without a trace.
//!
//! The kernel puts the environment's strings on the stack, below them the auxiliary vector, and
//! below that the array of pointers to the strings. Some programs (Go's runtime first of all) find
//! the auxiliary vector behind the null pointer that ends the array, so that what lies between the
//! array's new end and its old one must be pairs that they pass over. The tool adds an even number
//! of variables for this reason. The vector itself can't be moved instead: the dynamic linker has
//! its address.
//!
//! Used by the constructors of all libraries that the dynamic linker loads. It must not allocate,
//! and must not remove anything that the user has set.
//!
//! Contexts: normal, before `main`, one thread; functions that only read also post-fork.

use core::ffi::{c_char, c_int};

/// An array of C strings that ends with null.
pub type Strings = *mut *mut c_char;

/// The dynamic linker's list of libraries to load first, with the equals sign.
pub const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// A variable that has no meaning: with it, the number of variables that are added is even.
pub const PADDING: &[u8] = b"SUNDER_PADDING=";

/// The type of an entry of the auxiliary vector that readers pass over (`AT_IGNORE`).
const IGNORE: usize = 1;

#[cfg(not(test))]
unsafe extern "C" {
    /// The C library's variable. A constructor that ran before ours may have changed it.
    static environ: Strings;
}

/// Bytes of `string` before its end.
///
/// # Safety
/// `string` ends with a zero byte.
pub unsafe fn length(string: *const u8) -> usize {
    let mut n = 0;
    // SAFETY: stops at the zero byte that the caller guarantees.
    while unsafe { *string.wrapping_add(n) } != 0 {
        n += 1;
    }
    n
}

/// Whether `string` begins with `prefix`.
///
/// # Safety
/// `string` ends with a zero byte.
pub unsafe fn starts_with(string: *const u8, prefix: &[u8]) -> bool {
    prefix
        .iter()
        .enumerate()
        // SAFETY: a shorter string differs at its zero byte, where `all` stops.
        .all(|(i, &byte)| unsafe { *string.wrapping_add(i) } == byte)
}

/// The value of the variable whose name and equals sign are `prefix`.
///
/// # Safety
/// `environment` is null or an array of C strings that ends with null.
pub unsafe fn find(environment: Strings, prefix: &[u8]) -> Option<*mut u8> {
    let mut at = environment;
    // SAFETY: stops at the null pointer that ends the array; an entry is a C string.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            if starts_with((*at).cast(), prefix) {
                return Some((*at).cast::<u8>().wrapping_add(prefix.len()));
            }
            at = at.wrapping_add(1);
        }
    }
    None
}

/// How many entries an array of strings has.
///
/// # Safety
/// As [`find`].
pub unsafe fn count(strings: Strings) -> usize {
    let mut count = 0;
    // SAFETY: counts up to the null pointer that ends the array.
    while !strings.is_null() && unsafe { !(*strings.wrapping_add(count)).is_null() } {
        count += 1;
    }
    count
}

/// Which entry of the list of preloaded libraries is ours.
#[derive(Clone, Copy, Debug)]
pub enum Library<'a> {
    /// None: the library is part of the program.
    None,
    /// The first one.
    First,
    /// The one with this path.
    Path(&'a [u8]),
}

/// What the dynamic linker passes to a constructor.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// How many arguments the program has.
    pub count: c_int,
    /// The program's arguments.
    pub arguments: Strings,
    /// The environment.
    pub environment: Strings,
}

impl Start {
    /// The value of the variable whose name and equals sign are `prefix`.
    ///
    /// # Safety
    /// The dynamic linker has passed these values.
    pub unsafe fn find(&self, prefix: &[u8]) -> Option<*mut u8> {
        // SAFETY: by this function's contract.
        unsafe { find(self.environment, prefix) }
    }

    /// Removes the variables that begin so (a name and the equals sign), [`PADDING`], and `library`
    /// from the list of preloaded libraries; that variable goes too if the user has not set it. Their
    /// values are gone then: `/proc/self/environ` shows zeros in their place.
    ///
    /// # Safety
    /// The dynamic linker has passed these values, and no other thread uses the environment.
    pub unsafe fn remove(&self, variables: &[&[u8]], library: Library<'_>) {
        if self.environment.is_null() {
            return;
        }
        // SAFETY: by this function's contract. The kernel's array of pointers follows the one of
        // the arguments; behind another array (for a library that is loaded later) nothing may be
        // read or written.
        unsafe {
            let behind_arguments = self
                .arguments
                .wrapping_add(usize::try_from(self.count).unwrap_or(0) + 1);
            let preload = find(self.environment, PRELOAD);
            let is_ours_alone = preload.is_some_and(|list| remove_entry(list, library));
            let gone = |string: *const u8| {
                variables.iter().any(|name| starts_with(string, name))
                    || starts_with(string, PADDING)
                    || is_ours_alone && starts_with(string, PRELOAD)
            };
            #[cfg(not(test))]
            if environ != self.environment {
                // A copy of the array, with the same strings.
                compact(environ, gone, false);
            }
            let (end, old_end) = compact(self.environment, gone, true);
            if behind_arguments == self.environment {
                close_gap(end, old_end);
            }
        }
    }
}

/// Removes the strings that are `gone` from an array, and fills them with zeros if `erase`.
/// Returns where the array ends now, and where it ended before.
///
/// # Safety
/// `environment` is null or an environment that no other thread uses.
unsafe fn compact(
    environment: Strings,
    gone: impl Fn(*const u8) -> bool,
    erase: bool,
) -> (Strings, Strings) {
    let (mut from, mut to) = (environment, environment);
    if from.is_null() {
        return (from, to);
    }
    loop {
        // SAFETY: both stay within the array; `to` never overtakes `from`. A string may be written
        // up to its end.
        unsafe {
            let string = *from;
            if string.is_null() {
                *to = string;
                return (to, from);
            }
            if !gone(string.cast()) {
                *to = string;
                to = to.wrapping_add(1);
            } else if erase {
                let bytes = length(string.cast());
                core::ptr::write_bytes(string.cast::<u8>(), 0, bytes);
            }
        }
        from = from.wrapping_add(1);
    }
}

/// Fills the words between the new end of the environment's array and the auxiliary vector, which
/// begins behind `old_end` or behind what an earlier removal has filled, with pairs that readers of
/// the vector pass over. If the number of words is odd, the last one is zero: readers see an empty
/// vector. Another of our libraries then removes the rest.
///
/// # Safety
/// Both point to null pointers, and the auxiliary vector lies behind `old_end`, with at most what
/// this function has filled in between.
unsafe fn close_gap(end: Strings, old_end: Strings) {
    let first = end.wrapping_add(1).cast::<usize>();
    let mut vector = old_end.wrapping_add(1).cast::<usize>();
    // SAFETY: by this function's contract, which says what lies up to the vector. The kernel's
    // vector has no entries to be passed over, and is never empty.
    unsafe {
        while *vector == IGNORE && *vector.wrapping_add(1) == 0 {
            vector = vector.wrapping_add(2);
        }
        if *vector == 0 {
            vector = vector.wrapping_add(1);
        }
        let words = (vector.addr() - first.addr()) / size_of::<usize>();
        for i in 0..words {
            let begins_pair = i % 2 == 0 && i + 1 < words;
            *first.wrapping_add(i) = if begins_pair { IGNORE } else { 0 };
        }
    }
}

/// Removes an entry, and the colon beside it, from a list of libraries. Returns whether the entry
/// was alone. (A colon behind it shows that the user has set the list, even if to nothing.)
///
/// # Safety
/// `list` is a C string that may be written to.
unsafe fn remove_entry(list: *mut u8, library: Library<'_>) -> bool {
    // SAFETY: by this function's contract; all positions are within the string or at its end.
    unsafe {
        let len = length(list);
        let mut start = 0;
        while start <= len {
            let mut end = start;
            while end < len && *list.wrapping_add(end) != b':' {
                end += 1;
            }
            let is_ours = match library {
                Library::None => false,
                Library::First => true,
                Library::Path(path) => {
                    end - start == path.len() && starts_with(list.wrapping_add(start), path)
                }
            };
            if is_ours {
                let (from, to) = match (end < len, start > 0) {
                    (true, _) => (end + 1, start),
                    (false, true) => (end, start - 1),
                    (false, false) => return true,
                };
                let rest = len - from;
                core::ptr::copy(list.wrapping_add(from), list.wrapping_add(to), rest);
                core::ptr::write_bytes(list.wrapping_add(to + rest), 0, len - to - rest);
                return false;
            }
            start = end + 1;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{CStr, CString};

    const SEGMENT: &[u8] = b"SUNDER_SEGMENT=";
    const ISOLATE: &[u8] = b"SUNDER_ISOLATE=";

    /// What the kernel writes for a program without arguments: the arrays of the arguments and
    /// of the environment, and the auxiliary vector.
    struct Block {
        words: Vec<usize>,
        strings: Vec<(*mut c_char, usize)>,
    }

    const VECTOR: [usize; 6] = [33, 0x7fff_0000, 6, 4096, 0, 0];

    impl Block {
        fn new(entries: &[&str]) -> Self {
            let strings: Vec<_> = entries
                .iter()
                .map(|entry| {
                    (
                        CString::new(*entry).expect("no zero").into_raw(),
                        entry.len(),
                    )
                })
                .collect();
            let mut words = vec![0];
            words.extend(strings.iter().map(|(string, _)| string.addr()));
            words.push(0);
            words.extend(VECTOR);
            Self { words, strings }
        }

        fn start(&mut self) -> Start {
            let arguments = self.words.as_mut_ptr().cast();
            Start {
                count: 0,
                arguments,
                environment: arguments.wrapping_add(1),
            }
        }

        fn remove(&mut self, variables: &[&[u8]], library: Library<'_>) {
            // SAFETY: the block is as the kernel writes it, and the strings may be shortened.
            unsafe { self.start().remove(variables, library) }
        }

        fn environment(&self) -> Vec<String> {
            let left = self.words[1..].iter().take_while(|&&word| word != 0);
            left.map(|&word| {
                // SAFETY: the word is an entry of the array.
                let text = unsafe { CStr::from_ptr(core::ptr::with_exposed_provenance(word)) };
                text.to_string_lossy().into_owned()
            })
            .collect()
        }

        /// The auxiliary vector, as a program finds it behind the environment: entries up to the
        /// one that ends it, without those to be passed over.
        fn vector(&self) -> Vec<usize> {
            let end = self.words[1..].iter().position(|&word| word == 0);
            let from = end.expect("it has an end") + 2;
            let pairs = self.words[from..].chunks_exact(2);
            let pairs = pairs.take_while(|pair| pair[0] != 0);
            pairs
                .filter(|pair| pair[0] != IGNORE)
                .flatten()
                .copied()
                .collect()
        }

        /// All bytes of the strings, as `/proc/self/environ` shows them.
        fn bytes(&self) -> Vec<u8> {
            let each = self.strings.iter().flat_map(|&(string, bytes)| {
                // SAFETY: so many bytes were allocated for the string.
                unsafe { core::slice::from_raw_parts(string.cast::<u8>(), bytes) }.to_vec()
            });
            each.collect()
        }
    }

    #[test]
    fn the_users_environment_comes_back() {
        let ours = "SUNDER_SEGMENT=/proc/1/fd/3";
        for (given, wanted) in [
            (
                vec!["A=1", "LD_PRELOAD=/r.so", ours, "B="],
                vec!["A=1", "B="],
            ),
            (vec![ours, "LD_PRELOAD=/r.so:"], vec!["LD_PRELOAD="]),
            (
                vec![
                    "LD_PRELOAD=/r.so:/a.so:/b.so c.so",
                    "SUNDER_SEGMENTS=1",
                    ours,
                ],
                vec!["LD_PRELOAD=/a.so:/b.so c.so", "SUNDER_SEGMENTS=1"],
            ),
            (vec![], vec![]),
        ] {
            let mut block = Block::new(&given);
            block.remove(&[SEGMENT], Library::First);
            assert_eq!(block.environment(), wanted);
            let shown = String::from_utf8(block.bytes()).expect("no other bytes");
            assert!(
                !shown.contains("/proc/1/fd/3") && !shown.contains("/r.so"),
                "{shown:?}"
            );
        }
    }

    #[test]
    fn a_library_is_removed_from_any_position() {
        for (before, after, is_only) in [
            ("/i.so", "/i.so", true),
            ("/i.so:/u.so", "/u.so", false),
            ("/r.so:/i.so", "/r.so", false),
            ("/r.so:/i.so:/u.so", "/r.so:/u.so", false),
            ("/r.so:/i.sox", "/r.so:/i.sox", false),
            ("/i.so:", "", false),
            ("", "", false),
        ] {
            let mut list: Vec<u8> = before.bytes().chain([0]).collect();
            // SAFETY: a string with its zero.
            let alone = unsafe { remove_entry(list.as_mut_ptr(), Library::Path(b"/i.so")) };
            assert_eq!(alone, is_only, "{before}");
            let text = CStr::from_bytes_until_nul(&list).expect("the list ends with a zero byte");
            assert_eq!(text.to_str(), Ok(after));
            let rest = list.get(after.len()..).expect("it only becomes shorter");
            assert!(rest.iter().all(|&byte| byte == 0), "{before}");
        }
    }

    /// Each step is what one library removes: the variables, and how its list is found.
    type Step<'a> = (&'a [&'a [u8]], Library<'a>);

    #[test]
    fn the_auxiliary_vector_is_found_after_an_even_number_of_variables() {
        let runtime: Step<'_> = (&[SEGMENT], Library::Path(b"/r.so"));
        let isolate: Step<'_> = (&[ISOLATE], Library::Path(b"/i.so"));
        for (given, steps) in [
            (
                vec!["A=1", "LD_PRELOAD=/r.so", "SUNDER_SEGMENT=/s"],
                vec![runtime],
            ),
            (
                vec![
                    "LD_PRELOAD=/r.so:/u.so",
                    "SUNDER_SEGMENT=/s",
                    "SUNDER_PADDING=",
                ],
                vec![runtime],
            ),
            (
                vec![
                    "LD_PRELOAD=/r.so:/i.so",
                    "SUNDER_ISOLATE=/c",
                    "SUNDER_SEGMENT=/s",
                    "SUNDER_PADDING=",
                ],
                vec![runtime, isolate],
            ),
            (
                vec![
                    "LD_PRELOAD=/r.so:/i.so",
                    "SUNDER_ISOLATE=/c",
                    "SUNDER_SEGMENT=/s",
                    "SUNDER_PADDING=",
                ],
                vec![isolate, runtime],
            ),
            (
                vec![
                    "LD_PRELOAD=/r.so:/i.so:/u.so",
                    "SUNDER_ISOLATE=/c",
                    "SUNDER_SEGMENT=/s",
                    "B=2",
                ],
                vec![isolate, runtime],
            ),
            (vec!["A=1"], vec![runtime]),
        ] {
            let mut block = Block::new(&given);
            for (variables, library) in &steps {
                block.remove(variables, *library);
            }
            assert_eq!(block.vector(), VECTOR[..4], "{given:?}");
        }
    }

    #[test]
    fn an_odd_number_of_variables_leaves_no_stale_entry() {
        let mut block = Block::new(&["SUNDER_SEGMENT=/s", "SUNDER_ISOLATE=/c", "LD_PRELOAD=/r.so"]);
        block.remove(&[SEGMENT, ISOLATE], Library::First);
        assert_eq!(block.vector(), []);
        assert_eq!(block.environment(), Vec::<String>::new());
    }

    #[test]
    fn nothing_is_written_behind_an_array_that_is_not_the_kernels() {
        let mut block = Block::new(&["A=1", "SUNDER_SEGMENT=/s", "B=2"]);
        let mut start = block.start();
        start.count = 7;
        // SAFETY: as above.
        unsafe { start.remove(&[SEGMENT], Library::First) };
        assert_eq!(block.environment(), ["A=1", "B=2"]);
        assert_eq!(block.words[4..], [&[0][..], &VECTOR].concat());
    }
}
