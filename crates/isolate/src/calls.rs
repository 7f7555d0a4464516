//! Stands before the functions that change the address space: while one of them is
//! under way nobody is isolated, since a worker's memory would be that of before. A
//! fork gets private memory first. Contexts: normal; also a child of `vfork`, which is
//! another process and is left alone.

use crate::{control, convert, enter, maps, real, system};
use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use sunder_wire::isolation::{Control, RANGES, SCRATCH, closed, state};

/// While it lives, nobody is isolated and no memory is made sharable.
pub struct Hold(&'static Control);

impl Hold {
    /// None where there is nothing to hold: in programs that are not protected, and in
    /// other processes.
    pub fn new() -> Option<Self> {
        let control = control::get()?;
        if control.process.load(Relaxed) != system::process_id() {
            return None;
        }
        control.held.fetch_add(1, SeqCst);
        let hold = Self(control);
        if control.conversions.load(SeqCst) > 0 {
            recall_all(control);
        }
        Some(hold)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, SeqCst);
    }
}

/// Has every isolated thread come home, and waits for that.
fn recall_all(control: &Control) {
    const LOOK: u32 = 500;
    for slot in &control.slots {
        loop {
            let now = slot.state.load(SeqCst);
            if now != state::ENTERING && now != state::ISOLATED {
                break;
            }
            slot.recall.store(1, SeqCst);
            if now == state::ISOLATED {
                enter::remind(slot);
            }
            system::wait(&slot.state, now, LOOK);
        }
    }
}

/// Whether memory of this range was made sharable, as far as is known.
fn may_be_converted(control: &Control, start: usize, bytes: usize) -> bool {
    let count = (control.range_count.load(Relaxed) as usize).min(RANGES);
    let end = start.saturating_add(bytes);
    control.conversions.load(Relaxed) > 0
        && control.ranges.iter().take(count).any(|[low, high]| {
            start < high.load(Relaxed) as usize && (low.load(Relaxed) as usize) < end
        })
}

/// Calls `act` with the parts of a range that are sharable memory.
fn for_converted(start: usize, bytes: usize, mut act: impl FnMut(usize, usize)) {
    // SAFETY: new memory, given back below.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = system::map(0, SCRATCH, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if at <= 0 {
            return;
        }
        let buffer = core::slice::from_raw_parts_mut(at as *mut u8, SCRATCH);
        if let Some(text) = maps::read(buffer) {
            for mapping in maps::all(text).filter(maps::Mapping::is_converted) {
                let from = mapping.start.max(start);
                let to = mapping.end.min(start.saturating_add(bytes));
                if from < to {
                    act(from, to - from);
                }
            }
        }
        system::call(libc::SYS_munmap, [at as usize, SCRATCH, 0, 0, 0, 0]);
    }
}

fn fails(error: c_int) -> c_int {
    // SAFETY: the place of this thread's error number.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// Before a fork: the child needs private copies. Isolation is over then.
fn prepare_to_fork(hold: &Hold) -> bool {
    const LOOK: u32 = 50_000;
    let control = hold.0;
    if control.conversions.load(SeqCst) == 0 {
        return true;
    }
    control.closed.store(closed::FORK, SeqCst);
    let me = system::thread_id();
    while control
        .stop
        .compare_exchange(0, me, SeqCst, SeqCst)
        .is_err()
    {
        system::wait(&control.stop, control.stop.load(Relaxed), LOOK);
    }
    let mut done = control.conversions.load(SeqCst) == 0;
    if !done && all_stop(control) {
        done = convert::unshare(control);
    }
    control.stopped.store(0, SeqCst);
    control.stop.store(0, SeqCst);
    system::wake(&control.stop);
    done
}

/// Waits until the tool has stopped everybody else; false if it can't or is gone.
fn all_stop(control: &Control) -> bool {
    const LOOK: u32 = 50_000;
    loop {
        match control.stopped.load(Acquire) {
            0 => {}
            answer => return answer == 1,
        }
        system::wait(&control.stopped, 0, LOOK);
        let tool = control.tool.load(Relaxed) as usize;
        // SAFETY: no signal is sent.
        if tool == 0 || unsafe { system::call(libc::SYS_kill, [tool, 0, 0, 0, 0, 0]) } != 0 {
            return control.stopped.load(Acquire) == 1;
        }
    }
}

/// Runs what forks.
fn forking(real: impl FnOnce() -> c_int) -> c_int {
    let Some(hold) = Hold::new() else {
        return real();
    };
    if !prepare_to_fork(&hold) {
        return fails(libc::ENOMEM);
    }
    let result = real();
    if result == 0 && hold.0.process.load(Relaxed) != system::process_id() {
        // The child: none of this is its business, and the count is its parent's.
        control::set(core::ptr::null_mut());
        core::mem::forget(hold);
    }
    result
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fork() -> c_int {
    match real::fork() {
        // SAFETY: handed on.
        Some(real) => forking(|| unsafe { real() }),
        None => fails(libc::ENOSYS),
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Fork() -> c_int {
    match real::_Fork() {
        // SAFETY: handed on.
        Some(real) => forking(|| unsafe { real() }),
        None => fails(libc::ENOSYS),
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn daemon(stay: c_int, keep: c_int) -> c_int {
    match real::daemon() {
        // SAFETY: handed on.
        Some(real) => forking(|| unsafe { real(stay, keep) }),
        None => fails(libc::ENOSYS),
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forkpty(
    master: *mut c_int,
    name: *mut c_char,
    settings: *const c_void,
    size: *const c_void,
) -> c_int {
    match real::forkpty() {
        // SAFETY: handed on.
        Some(real) => forking(|| unsafe { real(master, name, settings, size) }),
        None => fails(libc::ENOSYS),
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn munmap(start: *mut c_void, bytes: usize) -> c_int {
    let Some(real) = real::munmap() else {
        return fails(libc::ENOSYS);
    };
    let hold = Hold::new();
    if let Some(hold) = &hold
        && may_be_converted(hold.0, start as usize, bytes)
    {
        // Or the memory would stay in the file.
        for_converted(start as usize, bytes, discard);
    }
    // SAFETY: handed on.
    unsafe { real(start, bytes) }
}

/// Gives the memory of a sharable range back: it reads as zeroes.
fn discard(start: usize, bytes: usize) {
    let remove = libc::MADV_REMOVE as usize;
    // SAFETY: the program said that it does not need what is there.
    unsafe { system::call(libc::SYS_madvise, [start, bytes, remove, 0, 0, 0]) };
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mprotect(
    start: *mut c_void,
    bytes: usize,
    protection: c_int,
) -> c_int {
    let Some(real) = real::mprotect() else {
        return fails(libc::ENOSYS);
    };
    let _hold = Hold::new();
    // SAFETY: handed on.
    unsafe { real(start, bytes, protection) }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mmap(
    start: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let Some(real) = real::mmap() else {
        fails(libc::ENOSYS);
        return libc::MAP_FAILED;
    };
    // New memory is no news to a worker, which has none of it; replaced memory is.
    let _hold = (flags & libc::MAP_FIXED != 0).then(Hold::new);
    // SAFETY: handed on.
    unsafe { real(start, bytes, protection, flags, file, offset) }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mmap64(
    start: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: handed on; the two are one on this machine.
    unsafe { mmap(start, bytes, protection, flags, file, offset) }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    const DONTNEED_LOCKED: c_int = 24;
    let Some(real) = real::madvise() else {
        return fails(libc::ENOSYS);
    };
    let hold = Hold::new();
    if let Some(hold) = &hold
        && may_be_converted(hold.0, start as usize, bytes)
    {
        // Programs count on zeroes afterwards, which private memory gives.
        if advice == libc::MADV_DONTNEED || advice == DONTNEED_LOCKED {
            for_converted(start as usize, bytes, discard);
        }
        // The kernel knows this of private memory only. It need not do anything.
        if advice == libc::MADV_FREE {
            return 0;
        }
    }
    // SAFETY: handed on.
    unsafe { real(start, bytes, advice) }
}

/// Interposed; see the C library's manual. Sharable memory neither grows nor moves as a
/// mapping (what follows in its file is other memory): it is copied.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mremap(
    old: *mut c_void,
    old_bytes: usize,
    bytes: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let Some(real) = real::mremap() else {
        fails(libc::ENOSYS);
        return libc::MAP_FAILED;
    };
    let hold = Hold::new();
    let shrinks = bytes <= old_bytes && flags & libc::MREMAP_FIXED == 0;
    match &hold {
        Some(hold) if !shrinks && may_be_converted(hold.0, old as usize, old_bytes) => {
            if flags != libc::MREMAP_MAYMOVE || old_bytes == 0 {
                fails(libc::ENOMEM);
                return libc::MAP_FAILED;
            }
            // SAFETY: new memory, at least as large as the old.
            unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let new = system::map(0, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
                if new < 0 {
                    fails(libc::ENOMEM);
                    return libc::MAP_FAILED;
                }
                core::ptr::copy_nonoverlapping(old.cast::<u8>(), new as *mut u8, old_bytes);
                for_converted(old as usize, old_bytes, discard);
                system::call(libc::SYS_munmap, [old as usize, old_bytes, 0, 0, 0, 0]);
                new as *mut c_void
            }
        }
        // SAFETY: handed on.
        _ => unsafe { real(old, old_bytes, bytes, flags, to) },
    }
}

/// Interposed; see the C library's manual: its own heap grows large blocks by `mremap`,
/// without our [`mremap`].
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    const MAPPED: usize = 2;
    let Some(real) = real::realloc() else {
        fails(libc::ENOMEM);
        return core::ptr::null_mut();
    };
    crate::blocks::forget(block);
    // SAFETY: a block of the C library's heap has a size with flags before it.
    let is_mapped = !block.is_null()
        && real::has_c_heap()
        && unsafe { block.cast::<usize>().wrapping_sub(1).read() } & MAPPED != 0;
    let hold = if is_mapped { Hold::new() } else { None };
    match &hold {
        Some(hold) if bytes > 0 && may_be_converted(hold.0, block as usize, 1) => {
            // SAFETY: what `realloc` means, in other words.
            unsafe {
                #[allow(clippy::disallowed_methods, reason = "the program asked for it")]
                let new = libc::malloc(bytes);
                if !new.is_null() {
                    let old = libc::malloc_usable_size(block).min(bytes);
                    core::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), old);
                    #[allow(clippy::disallowed_methods, reason = "the program asked for it")]
                    libc::free(block);
                }
                new
            }
        }
        // SAFETY: handed on.
        _ => unsafe { real(block, bytes) },
    }
}

/// Interposed: may make a process that shares nothing.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn clone() -> c_int {
    // All registers of arguments are kept; the seventh argument lies on the stack, where
    // the real function finds it.
    core::arch::naked_asm!(
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
        "mov rdi, rdx",
        "call {before}",
        "mov r11, rax",
        "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "mov eax, -1",
        "ret",
        before = sym before_clone,
    )
}

/// The real `clone`, or 0 if it must not be called.
extern "C" fn before_clone(flags: usize) -> usize {
    let real = real::clone().map_or(0, |f| f as usize);
    if flags as c_int & libc::CLONE_VM != 0 {
        return real;
    }
    match Hold::new() {
        // Nobody is isolated any more, and no memory is made sharable again.
        Some(hold) if !forks_for_good(&hold) => {
            fails(libc::ENOMEM);
            0
        }
        _ => real,
    }
}

/// As [`prepare_to_fork`], also for what comes after the hold.
fn forks_for_good(hold: &Hold) -> bool {
    hold.0.closed.store(closed::FORK, SeqCst);
    prepare_to_fork(hold)
}

/// Interposed: programs that go around the functions above.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn syscall() -> c_long {
    core::arch::naked_asm!(
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
        "call {before}",
        "mov r11, rax",
        "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "mov rax, -1",
        "ret",
        before = sym before_syscall,
    )
}

/// The real `syscall`, or 0 if it must not be called.
extern "C" fn before_syscall(number: c_long, a: usize) -> usize {
    const CLONE3: c_long = libc::SYS_clone3;
    let real = real::syscall().map_or(0, |f| f as usize);
    let forks = match number {
        libc::SYS_fork | CLONE3 => true,
        libc::SYS_clone => a as c_int & libc::CLONE_VM == 0,
        _ => false,
    };
    let moves = matches!(
        number,
        libc::SYS_munmap | libc::SYS_mremap | libc::SYS_madvise | libc::SYS_mprotect
    );
    if !forks && !moves && number != libc::SYS_membarrier {
        return real;
    }
    let Some(hold) = Hold::new() else {
        return real;
    };
    if forks && !forks_for_good(&hold) {
        fails(libc::ENOMEM);
        return 0;
    }
    // What such a call is to do to sharable memory can't be told from here.
    if (moves || number == libc::SYS_membarrier) && !ends(&hold, number) {
        fails(libc::ENOMEM);
        return 0;
    }
    real
}

/// Nobody is isolated from here on, and memory is private again.
fn ends(hold: &Hold, number: c_long) -> bool {
    let why = if number == libc::SYS_membarrier {
        closed::MEMBARRIER
    } else {
        closed::MOVED
    };
    let control = hold.0;
    let before = control
        .closed
        .compare_exchange(closed::OPEN, why, SeqCst, Relaxed);
    let done = prepare_to_fork(hold);
    if before.is_ok() {
        control.closed.store(why, Release);
    }
    done
}
