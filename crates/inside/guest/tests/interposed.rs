//! A program that interposes `malloc` and other functions of the C library, as our libraries do.
//! Many threads look up many functions at once for the first time, and every call must reach its
//! function. It has no test harness, because that would look them up first.

// Runs outside the target.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use core::ffi::{c_char, c_int, c_void};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use sunder_guest::allocator::{Caller, Watch};

/// A set of functions with slots of their own, so that each function can be looked up for the first
/// time again.
macro_rules! sets {
    ($($set:ident)*) => {
        $(mod $set {
            use super::{c_char, c_int, c_void};
            sunder_guest::functions! {
                all look_all_up;
                abs: fn(c_int) -> c_int;
                labs: fn(i64) -> i64;
                atoi: fn(*const c_char) -> c_int;
                atol: fn(*const c_char) -> i64;
                strlen: fn(*const c_char) -> usize;
                toupper: fn(c_int) -> c_int;
                tolower: fn(c_int) -> c_int;
                getpid: fn() -> c_int;
                getppid: fn() -> c_int;
                sched_yield: fn() -> c_int;
                /// Does not exist: the dynamic linker allocates a message for it, and frees it
                /// later.
                sunder_has_no_such_function: fn() -> c_int;
                memcmp: fn(*const c_void, *const c_void, usize) -> c_int;
            }

            /// Calls all of them, beginning at `first`; returns how many gave a wrong result.
            pub fn wrong(first: usize) -> usize {
                let digits = c"42".as_ptr();
                let here = || std::process::id() as c_int;
                // SAFETY: the arguments are valid by the functions' manuals.
                let calls: [&dyn Fn() -> bool; 12] = unsafe { [
                    &|| abs().is_some_and(|f| f(-3) == 3),
                    &|| labs().is_some_and(|f| f(-4) == 4),
                    &|| atoi().is_some_and(|f| f(digits) == 42),
                    &|| atol().is_some_and(|f| f(digits) == 42),
                    &|| strlen().is_some_and(|f| f(digits) == 2),
                    &|| toupper().is_some_and(|f| f(97) == 65),
                    &|| tolower().is_some_and(|f| f(65) == 97),
                    &|| getpid().is_some_and(|f| f() == here()),
                    &|| getppid().is_some_and(|f| f() > 0),
                    &|| sched_yield().is_some_and(|f| f() == 0),
                    &|| sunder_has_no_such_function().is_none(),
                    &|| memcmp().is_some_and(|f| f(digits.cast(), digits.cast(), 2) == 0),
                ] };
                let order = calls.iter().cycle().skip(first).take(calls.len());
                order.filter(|call| !call()).count()
            }
        })*

        /// For each set: a function that calls its functions, and one that looks all of them up.
        const SETS: &[(fn(usize) -> usize, fn())] = &[$(($set::wrong, $set::look_all_up)),*];
    };
}

sets! { a b c d e f g h i j k l m n o p }

/// The number of allocations that went through our functions.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// Counts the program's blocks.
struct Blocks;

impl Watch for Blocks {
    fn allocated(block: *mut c_void, _: usize, _: usize, _: Caller) -> *mut c_void {
        ALLOCATED.fetch_add(1, Ordering::Relaxed);
        block
    }

    fn freeing(_: *mut c_void) {}
}

sunder_guest::watched_heap!(Blocks);

fn main() {
    assert!(
        ALLOCATED.load(Ordering::Relaxed) > 0,
        "the standard library has allocated"
    );
    // More threads than look-ups that can be in progress at once.
    const THREADS: usize = 24;
    for (number, (wrong, look_all_up)) in SETS.iter().enumerate() {
        let together = Barrier::new(THREADS);
        let count: usize = std::thread::scope(|scope| {
            let run = |thread: usize| {
                let together = &together;
                move || {
                    together.wait();
                    wrong(thread)
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(run(t))).collect();
            threads
                .into_iter()
                .map(|t| t.join().expect("it does not panic"))
                .sum()
        });
        assert_eq!(
            count, 0,
            "calls of set {number} that did not reach their function"
        );
        look_all_up();
        assert_eq!(wrong(0), 0, "set {number}, looked up once more");
    }
    println!("every one of {} functions was reached", SETS.len() * 12);
}
