//! Threads: each gets an index, tables and a timer. Contexts: normal.
//!
//! A thread is registered when `pthread_create` starts it, or at its first allocation if it was
//! made in another way. A destructor of thread-specific data notices its end; it also runs after
//! `pthread_exit` and cancellation.

use crate::local::{self, ENDED, Local, local};
use crate::state::CONFINEMENT;
use crate::tables::{Thread, give_back, new_tables};
use crate::{blocks, real, state, timer};
use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering;
use sunder_guest::allocator::Caller;
use sunder_guest::system;
use sunder_wire::layout::{Entry, MAX_THREADS, ThreadRecord, View};

sunder_guest::notices_ends! {
    /// The ends of threads that were begun.
    static ENDS by ended;
}

/// Makes the key for thread ends, and looks up the functions of the heap: the first look-up of one asks
/// the kernel for the thread's number, and a program that confines itself by an instruction of its own
/// may not be seen. Called before the first thread is registered.
pub fn prepare() {
    sunder_guest::allocator::real::look_up_all();
    ENDS.prepare();
}

/// Gives the calling thread its index and tables; false if that is not possible, or not now.
#[cold]
#[inline(never)]
pub fn register(view: View, local: *mut Local) -> bool {
    // SAFETY: the thread's own words.
    if unsafe { (*local).phase & ENDED != 0 } {
        return false;
    }
    let Some(_busy) = local::busy() else {
        return false;
    };
    let Some(_calls) = CONFINEMENT.begin() else {
        return false;
    };
    let Some(tables) = new_tables() else {
        return false;
    };
    // SAFETY: the tables are new and the calling thread's from now on. They may have been another's,
    // whose stack was known.
    unsafe {
        (*tables.as_ptr()).given_stack = (0, 0);
        adopt(view, local, tables.as_ptr(), 0);
    }
    true
}

/// Makes `tables` the calling thread's.
///
/// # Safety
/// No other thread uses `tables`; `local` is the calling thread's.
unsafe fn adopt(view: View, local: *mut Local, tables: *mut Thread, start: u64) {
    let status = view.status();
    let given = status
        .threads
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            (last + 1 < MAX_THREADS).then_some(last + 1)
        });
    let index = given.map_or(0, |last| last + 1);
    // SAFETY: the tables belong to the calling thread, by this function's contract.
    let (low, high) = given_bounds(unsafe { (*tables).given_stack }).unwrap_or_else(stack_bounds);
    // SAFETY: by this function's contract.
    unsafe {
        (*tables).heap = state::heap();
        (*tables).owner = Entry::owner(index);
        (*tables).stack_low = low;
        (*tables).stack_high = high;
        (*tables).sampled = system::clock(libc::CLOCK_THREAD_CPUTIME_ID);
        (*tables).timer_hz = 0;
        (*local).index = index;
        (*local).thread = tables;
    }
    let record = view.threads().get(index as usize).filter(|_| index != 0);
    if let Some(record) = record {
        // SAFETY: the tables belong to the calling thread, by this function's contract.
        unsafe { (*tables).creation.record(view, index) };
        describe(record, low, high, start);
    } else {
        status.threads_dropped.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the tables belong to the calling thread, by this function's contract.
    unsafe { timer::arm(view, record, &mut (*tables).timer_hz) };
    // The key is among the first 32, for which the C library allocates nothing.
    // SAFETY: the destructor uses the thread's words, not the value.
    unsafe { ENDS.watch(tables.cast()) };
}

fn describe(record: &ThreadRecord, low: u64, high: u64, start: u64) {
    let now = system::clock(libc::CLOCK_MONOTONIC);
    record.started.store(now, Ordering::Relaxed);
    record.stack_low.store(low, Ordering::Relaxed);
    record.stack_high.store(high, Ordering::Relaxed);
    record
        .fs_base
        .store(system::thread_pointer() as u64, Ordering::Relaxed);
    record.start_routine.store(start, Ordering::Relaxed);
    record.tid.store(system::thread_id(), Ordering::Release);
}

/// The stack that the calling thread was given, if its size is known. The C library puts a thread's
/// descriptor into the last page of a stack that it makes (glibc's `allocate_stack`), so the stack
/// ends with that page. A stack that is used again may be larger than was asked for; what lies beyond
/// is not known then.
fn given_bounds((low, size): (u64, u64)) -> Option<(u64, u64)> {
    const PAGE: u64 = 4096;
    if size == 0 {
        return None;
    }
    let high = if low == 0 {
        (system::thread_pointer() as u64 | (PAGE - 1)) + 1
    } else {
        low.checked_add(size)?
    };
    Some((high.saturating_sub(size), high))
}

/// The stack that a thread with these attributes will get, as [`Thread::given_stack`] has it. The
/// calls read the attributes only. Asking for the stack of a running thread instead would allocate
/// from the program's heap, before the thread's own first block.
///
/// # Safety
/// `attributes` is null or an attribute object.
unsafe fn stack_to_give(attributes: *const libc::pthread_attr_t) -> (u64, u64) {
    // SAFETY: an attribute object of plain data, filled by the first call; the places for the results
    // are valid; `attributes` by this function's contract.
    unsafe {
        let mut usual: libc::pthread_attr_t = core::mem::zeroed();
        let attributes = if attributes.is_null() {
            if libc::pthread_attr_init(&raw mut usual) != 0 {
                return (0, 0);
            }
            &raw const usual
        } else {
            attributes
        };
        let (mut low, mut size) = (null_mut(), 0);
        if libc::pthread_attr_getstack(attributes, &raw mut low, &raw mut size) != 0 {
            return (0, 0);
        }
        // Without a stack of the program's, its end is 0.
        if size != 0 && (low as usize).wrapping_add(size) != 0 {
            return (low as u64, size as u64);
        }
        let mut size = 0;
        let known = libc::pthread_attr_getstacksize(attributes, &raw mut size) == 0;
        (0, if known { size as u64 } else { 0 })
    }
}

/// The calling thread's stack.
fn stack_bounds() -> (u64, u64) {
    if system::thread_id() == system::process_id() {
        let (low, high) = first_stack_bounds();
        // The first thread of a forked child keeps the stack of the thread that forked.
        let here = (&raw const low) as u64;
        if (low..high).contains(&here) || high == 0 {
            return (low, high);
        }
    }
    let mut bounds = (0, 0);
    // SAFETY: an attribute object of plain data, filled by the first call and
    // destroyed by the last; the places for the results are valid.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        let (mut low, mut size) = (null_mut(), 0);
        let got = real::pthread_getattr_np()
            .is_some_and(|real| real(libc::pthread_self(), &raw mut attributes) == 0);
        if got {
            libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut size);
            bounds = (low as u64, (low as u64).saturating_add(size as u64));
            libc::pthread_attr_destroy(&raw mut attributes);
        }
    }
    bounds
}

/// The first thread's stack ends where the dynamic linker found the program's
/// arguments, and grows as far as its limit.
fn first_stack_bounds() -> (u64, u64) {
    const MOST: u64 = 1 << 30;
    // SAFETY: the name is a C string; the variable is a pointer that the
    // dynamic linker set at the start.
    unsafe {
        let variable = libc::dlsym(libc::RTLD_DEFAULT, c"__libc_stack_end".as_ptr());
        if variable.is_null() {
            return (0, 0);
        }
        let high = *variable.cast::<u64>();
        let mut limit: libc::rlimit = core::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit);
        (high.saturating_sub(limit.rlim_cur.min(MOST)), high)
    }
}

/// The destructor of our key, at the thread's end. Later allocations and frees of the thread are
/// recorded without its tables.
unsafe extern "C" fn ended(_tables: *mut c_void) {
    let Some(view) = state::segment() else {
        return;
    };
    let local = local();
    // SAFETY: the thread's own words and, from them, its own tables.
    unsafe {
        let tables = (*local).thread;
        (*local).thread = null_mut();
        (*local).phase |= ENDED;
        if let Some(record) = view.threads().get((*local).index as usize) {
            timer::disarm(record);
            record.ended.store(1, Ordering::Release);
        }
        if !tables.is_null() {
            give_back(tables);
        }
    }
}

/// The start function of the new thread, and its argument.
#[repr(C)]
struct Beginning {
    start: real::Start,
    argument: *mut c_void,
}

/// Runs on the new thread before its start function.
unsafe extern "C-unwind" fn begin(tables: *mut Thread) -> Beginning {
    // SAFETY: `create` filled the tables and gave them to this thread.
    unsafe {
        let beginning = Beginning {
            start: (*tables).start.unwrap_or(return_argument),
            argument: (*tables).argument,
        };
        if (*tables).blocks {
            blocks::let_go();
        }
        match (state::segment(), local::busy(), CONFINEMENT.begin()) {
            (Some(view), Some(_busy), Some(_calls)) => {
                adopt(view, local(), tables, beginning.start as usize as u64);
            }
            _ => give_back(tables),
        }
        beginning
    }
}

unsafe extern "C-unwind" fn return_argument(argument: *mut c_void) -> *mut c_void {
    argument
}

/// Runs as the new thread's start function: registers the thread and jumps to the real one, so that
/// no frame of ours is on its stack when it is cancelled, exits, or is examined by a debugger.
#[unsafe(naked)]
unsafe extern "C-unwind" fn trampoline(tables: *mut c_void) -> *mut c_void {
    core::arch::naked_asm!(
        "sub rsp, 8",
        "call {}",
        "add rsp, 8",
        "mov rdi, rdx",
        "jmp rax",
        sym begin,
    )
}

/// Starts a thread as `pthread_create` does, for the caller whose registers are `sp` and `bp`.
///
/// # Safety
/// As the C library demands.
unsafe extern "C-unwind" fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: real::Start,
    argument: *mut c_void,
    sp: *const u64,
    bp: u64,
) -> c_int {
    let Some(real) = real::pthread_create() else {
        return libc::EAGAIN;
    };
    let own_calls = CONFINEMENT.begin();
    let recorded = state::segment().filter(|_| own_calls.is_some());
    let tables = recorded.and_then(|_| new_tables());
    let Some(tables) = tables.map(NonNull::as_ptr) else {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        return unsafe { real(thread, attributes, start, argument) };
    };
    // SAFETY: no other thread uses the tables yet; the rest are the caller's arguments.
    unsafe {
        (*tables).start = Some(start);
        (*tables).argument = argument;
        (*tables).given_stack = stack_to_give(attributes);
        // The mask is inherited.
        let holds = blocks::hold();
        (*tables).blocks = holds;
        (*tables)
            .creation
            .record_frames(local::thread(), Caller { sp, bp });
        let result = real(thread, attributes, trampoline, tables.cast());
        if holds {
            blocks::let_go();
        }
        if result != 0 {
            give_back(tables);
        }
        result
    }
}

/// Interposed; see the C library's manual. Passes its caller's registers on and has no stack frame
/// of its own.
///
/// # Safety
/// As the C library demands.
#[cfg(not(test))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: real::Start,
    argument: *mut c_void,
) -> c_int {
    core::arch::naked_asm!("mov r8, rsp", "mov r9, rbp", "jmp {}", sym create)
}
