//! Threads: their beginnings, ends and joins. Contexts: normal, post-fork.

use crate::hooks;
use crate::local::{Frame, RECORDER, after, before, buffer, local, recorded, set_buffer};
use crate::real::{self, C11Start, Start};
use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::{pthread_attr_t, pthread_t, timespec};
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::system;
use sunder_trace::slot::{Key, Slot, Sync, tag};

/// The start function of a new thread and its other data, from its creator.
#[derive(Clone, Copy)]
struct Beginning {
    start: Option<Start>,
    c11: Option<C11Start>,
    argument: *mut c_void,
    parent: u32,
    /// Its own index in the trace.
    index: u32,
}

struct Note {
    taken: AtomicBool,
    beginning: UnsafeCell<Beginning>,
}

// SAFETY: only the thread that has set `taken` uses the note, and passes it to one new thread.
unsafe impl core::marker::Sync for Note {}

const NOTES: usize = 128;

static NOTE: [Note; NOTES] = [const {
    Note {
        taken: AtomicBool::new(false),
        beginning: UnsafeCell::new(Beginning {
            start: None,
            c11: None,
            argument: null_mut(),
            parent: 0,
            index: 0,
        }),
    }
}; NOTES];

sunder_guest::notices_ends! {
    /// The ends of threads that were begun.
    static ENDS by ended;
}

/// Claims a note and fills it. New threads read their note at once, so one soon becomes free.
fn write(beginning: Beginning) -> &'static Note {
    loop {
        for note in &NOTE {
            if !note.taken.swap(true, Ordering::Acquire) {
                // SAFETY: this thread has claimed the note.
                unsafe { *note.beginning.get() = beginning };
                return note;
            }
        }
        system::give_way();
    }
}

/// Makes the key. Called before the first thread is recorded.
pub fn prepare() {
    ENDS.prepare();
}

/// The start and the size of the calling thread's stack, as the C library reports them.
fn own_stack() -> Option<(u64, u64)> {
    // SAFETY: plain data, for which zeroes are valid, and locals for the results.
    unsafe {
        let mut attributes: pthread_attr_t = core::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return None;
        }
        let (mut start, mut bytes) = (null_mut(), 0);
        let got =
            libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut bytes);
        libc::pthread_attr_destroy(&raw mut attributes);
        (got == 0).then_some((start.addr() as u64, bytes as u64))
    }
}

/// The stack of the first thread, up to its limit; `inside` is an address near its end.
pub fn first_stack(inside: u64) -> (u64, u64) {
    const LARGEST: u64 = 64 << 20;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the result is a local.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    let end = inside.next_multiple_of(PAGE as u64);
    let bytes = limit.rlim_cur.clamp(1 << 16, LARGEST).min(end);
    (end - bytes, bytes)
}

/// Begins to record the calling thread, with the index of its creator and its own, each 0 if there
/// is none; `stack` has the start and size of its stack, if known.
pub fn begin(parent: u32, index: u32, stack: Option<(u64, u64)>) {
    // SAFETY: the thread-local memory lives until `ended`, or as long as the process.
    let buffer = unsafe { RECORDER.attach(&raw const (*local()).cursor, parent, index) };
    let Some(buffer) = buffer else {
        return;
    };
    set_buffer(buffer);
    if let Some((start, bytes)) = stack {
        // SAFETY: the calling thread's memory and buffer.
        unsafe {
            (*local()).stack_end = start + bytes;
            let key = Key::new(tag::STACK, 0, bytes);
            RECORDER.push(buffer, Slot::new(start, key));
        }
    }
    const BYTES: usize = crate::local::FRAMES * size_of::<Frame>();
    if buffer.extra().is_null()
        && let Some(memory) = sunder_recorder::map(BYTES, PAGE)
    {
        buffer.set_extra(memory.as_ptr());
    }
    if !buffer.extra().is_null() {
        // SAFETY: the memory belongs to the buffer, which belongs to this thread.
        unsafe { hooks::set_frames(buffer.extra().cast(), crate::local::FRAMES) };
    }
    arm(4);
}

/// Makes the destructor run so many rounds later, because destructors of the program may use
/// memory.
fn arm(rounds: usize) {
    // SAFETY: the destructor counts down the value.
    unsafe { ENDS.watch(core::ptr::without_provenance_mut(rounds)) };
}

unsafe extern "C" fn ended(rounds: *mut c_void) {
    if rounds as usize > 1 {
        return arm(rounds as usize - 1);
    }
    if let Some(own) = recorded() {
        // SAFETY: the calling thread's buffer and memory.
        unsafe {
            RECORDER.detach(own);
            hooks::stop(local());
        }
        set_buffer(null_mut::<sunder_recorder::Buffer>());
    }
}

/// The beginning of a new thread: reads its note and records it.
fn receive(note: *mut c_void) -> Beginning {
    // SAFETY: `write` filled the note for this thread.
    let note = unsafe { &*note.cast::<Note>() };
    // SAFETY: `write` filled the note for this thread.
    let beginning = unsafe { *note.beginning.get() };
    note.taken.store(false, Ordering::Release);
    // Before the thread is recorded, because this may allocate.
    let stack = own_stack();
    begin(beginning.parent, beginning.index, stack);
    beginning
}

unsafe extern "C-unwind" fn run(note: *mut c_void) -> *mut c_void {
    let beginning = receive(note);
    match beginning.start {
        // SAFETY: the program's own start function with its argument.
        Some(start) => unsafe { start(beginning.argument) },
        None => null_mut(),
    }
}

unsafe extern "C-unwind" fn run_c11(note: *mut c_void) -> c_int {
    let beginning = receive(note);
    // SAFETY: the program's own start function with its argument.
    beginning
        .c11
        .map_or(0, |start| unsafe { start(beginning.argument) })
}

/// Records the stack frames in which the calling thread creates another: data that both threads use
/// lies there. The return address of the call lies at `own`.
fn record_frames(own: *const u64) {
    let Some(buffer) = recorded() else {
        return;
    };
    hooks::waiting_frames(own, |pointer, returns| {
        let key = Key::new(tag::FRAME, 0, returns);
        // SAFETY: the calling thread's buffer.
        unsafe { RECORDER.push(buffer, Slot::new(pointer, key)) };
    });
}

fn own_index() -> u32 {
    // SAFETY: buffers are never unmapped.
    unsafe { buffer().as_ref() }.map_or(0, |b| b.thread())
}

/// Interposed; see its manual.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    naked_asm!("mov r8, rsp", "jmp {}", sym create)
}

unsafe extern "C-unwind" fn create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
    own: *const u64,
) -> c_int {
    let Some(real) = real::pthread_create() else {
        return libc::EAGAIN;
    };
    if !RECORDER.is_recording() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        return unsafe { real(thread, attributes, start, argument) };
    }
    record_frames(own);
    let index = RECORDER.reserve();
    before(Slot::sync(Sync::ThreadCreate, index.into()));
    let note = write(Beginning {
        start: Some(start),
        c11: None,
        argument,
        parent: own_index(),
        index,
    });
    let to = core::ptr::from_ref(note).cast_mut().cast();
    // SAFETY: the caller's arguments; the note belongs to the new thread.
    let result = unsafe { real(thread, attributes, run, to) };
    if result != 0 {
        note.taken.store(false, Ordering::Release);
    }
    result
}

/// Interposed; see its manual.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn thrd_create(
    thread: *mut pthread_t,
    start: C11Start,
    argument: *mut c_void,
) -> c_int {
    naked_asm!("mov rcx, rsp", "jmp {}", sym create_c11)
}

unsafe extern "C-unwind" fn create_c11(
    thread: *mut pthread_t,
    start: C11Start,
    argument: *mut c_void,
    own: *const u64,
) -> c_int {
    let Some(real) = real::thrd_create() else {
        real::missing();
    };
    if !RECORDER.is_recording() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        return unsafe { real(thread, start, argument) };
    }
    record_frames(own);
    let index = RECORDER.reserve();
    before(Slot::sync(Sync::ThreadCreate, index.into()));
    let note = write(Beginning {
        start: None,
        c11: Some(start),
        argument,
        parent: own_index(),
        index,
    });
    let to = core::ptr::from_ref(note).cast_mut().cast();
    // SAFETY: the caller's arguments; the note belongs to the new thread.
    let result = unsafe { real(thread, run_c11, to) };
    if result != 0 {
        note.taken.store(false, Ordering::Release);
    }
    result
}

macro_rules! join {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// Interposed; see its manual.
        ///
        /// # Safety
        /// As the manual demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(thread: pthread_t, $($argument: $type),*) -> c_int {
            let Some(real) = real::$name() else {
                real::missing();
            };
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
            let result = unsafe { real(thread, $($argument),*) };
            if result == 0 {
                after(Slot::sync(Sync::ThreadJoin, thread as u64));
            }
            result
        }
    )*};
}

join! {
    pthread_join(value: *mut *mut c_void);
    pthread_tryjoin_np(value: *mut *mut c_void);
    pthread_timedjoin_np(value: *mut *mut c_void, until: *const timespec);
    thrd_join(value: *mut c_int);
}
