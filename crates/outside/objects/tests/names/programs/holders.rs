//! Blocks that boxes, vectors and counted references hold.
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn backtrace(buffer: *mut *mut c_void, size: c_int) -> c_int;
}
static mut STACK: [*mut c_void; 40] = [std::ptr::null_mut(); 40];
static mut DEPTH: c_int = 0;
static mut INSIDE: bool = false;

/// Replaces the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    unsafe {
        if !INSIDE {
            INSIDE = true;
            DEPTH = backtrace((&raw mut STACK).cast(), 40);
            INSIDE = false;
        }
        __libc_malloc(size)
    }
}

#[inline(never)]
fn tell(holder: &str) {
    unsafe {
        INSIDE = true;
        let stack = &*(&raw const STACK);
        let stack: Vec<String> = stack[1..DEPTH as usize].iter().map(|&a| format!("{a:p}")).collect();
        println!("block {holder} {}", stack.join(" "));
        INSIDE = false;
    }
}

struct Slot {
    hits: AtomicU64,
    spare: [u64; 3],
}
fn slot(n: u64) -> Slot {
    Slot { hits: AtomicU64::new(n), spare: [n; 3] }
}

#[inline(never)]
fn boxed(n: u64) {
    let boxed = Box::new(slot(n));
    tell("boxed");
    black_box(&boxed);
}
#[inline(never)]
fn vector(n: u64) {
    let mut filled: Vec<Slot> = Vec::with_capacity(n as usize + 3);
    tell("filled");
    filled.push(slot(n));
    black_box(&filled);
}
#[inline(never)]
fn gathered(n: u64) {
    let gathered: Vec<Slot> = (0..n + 1).map(slot).collect();
    tell("gathered");
    let slots = &gathered;
    std::thread::scope(|scope| {
        scope.spawn(move || slots[0].hits.fetch_add(1, Ordering::Relaxed));
    });
}
#[inline(never)]
fn counted(n: u64) {
    let counted = Arc::new(slot(n));
    tell("counted");
    counted.hits.fetch_add(counted.spare[0], Ordering::Relaxed);
    black_box(&counted);
}

fn main() {
    let n = std::env::args().count() as u64;
    boxed(n);
    vector(n);
    gathered(n);
    counted(n);
    unsafe { INSIDE = true };
    print!("{}", std::fs::read_to_string("/proc/self/maps").unwrap());
}
