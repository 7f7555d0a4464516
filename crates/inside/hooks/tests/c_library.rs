//! Tests with this machine's C library and dynamic linker, whose kernel calls are led through
//! hooks. Each test works in a child process, which has one thread and its own copy of the code.

// Runs outside the target.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::ffi::c_void;
use std::fs::File;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use sunder_hooks::{Call, Hooks, Refusal, install};
use sunder_observe::code::ModuleCode;
use sunder_rewrite::sites::{self, Function, Number, Want};
use sunder_wire::sites::{self as wire, ModulePlan, Patch};

/// Calls that change the address space.
const CHANGES: [i64; 5] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
];

/// The module in this process whose path has this end.
fn module(end: &str) -> ModuleCode {
    let maps =
        std::fs::read_to_string("/proc/self/maps").expect("a process can read its own mappings");
    let path = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .find(|path| path.ends_with(end))
        .expect("this process has loaded the module");
    let file = File::open(path).expect("it is readable");
    ModuleCode::read(&file).expect("it is an ELF file with an identifier")
}

fn wants(number: Number) -> Want {
    match number {
        Number::Always(n) if CHANGES.contains(&n.into()) => Want::Call,
        _ => Want::Result,
    }
}

/// The plan for the C library and the dynamic linker, and its number of patches.
fn plan() -> (Vec<u8>, usize) {
    let modules = [
        plan_for(module("/libc.so.6"), 300, &CHANGES),
        plan_for(module("/ld-linux-x86-64.so.2"), 20, &CHANGES[..3]),
    ];
    let count = modules.iter().map(|m| m.patches.len()).sum();
    (wire::write(&modules), count)
}

/// The plan for a module, which must have so many entries and patches for all calls of `needed`.
fn plan_for(code: ModuleCode, entries: usize, needed: &[i64]) -> ModulePlan<Vec<u8>, Vec<Patch>> {
    let bounds = |&(start, end): &(u64, u64)| Function { start, end };
    let functions: Vec<_> = code.functions.iter().map(bounds).collect();
    let plan = sites::plan(&code.bytes, code.address, &functions, wants);
    assert!(plan.entries >= entries, "{} entries", plan.entries);
    assert!(
        plan.patches.len() * 10 > plan.entries * 7,
        "{} of {}: {:?}",
        plan.patches.len(),
        plan.entries,
        plan.refused
    );
    // A thread that waits for a lock, and a file's bytes: these calls have pointers that may lead to
    // moved bytes, and the library makes them in many places.
    for number in [
        libc::SYS_futex,
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_openat,
    ] {
        let number = Number::Always(number as u32);
        let refused = plan.refused.iter().find(|r| r.number == number);
        assert_eq!(refused, None);
    }
    for &number in needed {
        let number = Number::Always(number as u32);
        assert!(
            plan.patches.iter().any(|p| p.number == number),
            "{number:?}"
        );
        assert!(
            plan.refused.iter().all(|r| r.number != number),
            "{number:?}"
        );
    }
    ModulePlan {
        build_id: code.build_id,
        patches: plan.patches.iter().map(Patch::from).collect(),
    }
}

static CHANGED: [AtomicUsize; 32] = [const { AtomicUsize::new(0) }; 32];
static FAULTS: AtomicUsize = AtomicUsize::new(0);
static OPENED: AtomicUsize = AtomicUsize::new(0);
static LAST: AtomicI64 = AtomicI64::new(0);

unsafe extern "C" fn count(call: &mut Call) {
    if let Some(changed) = CHANGED.get(call.number as usize) {
        changed.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the program's own call, with its own arguments.
    unsafe { call.make() };
}

/// Makes the page of [`OPENED`] accessible and repeats the call; counts in [`FAULTS`].
unsafe extern "C" fn open_page(call: &mut Call) {
    LAST.store(call.number, Ordering::Relaxed);
    let page = OPENED.load(Ordering::Relaxed);
    let mut open = Call {
        arguments: [
            page,
            4096,
            (libc::PROT_READ | libc::PROT_WRITE) as usize,
            0,
            0,
            0,
        ],
        result: 0,
        number: libc::SYS_mprotect,
    };
    // SAFETY: the test's own page; then the program's own call.
    unsafe {
        open.make();
        FAULTS.fetch_add(1, Ordering::Release);
        call.make();
    }
}

const HOOKS: Hooks = Hooks {
    instead: count,
    failed: open_page,
};

/// Runs `work` in a child, whose exit status says whether it succeeded.
fn in_a_child(work: impl FnOnce() -> bool) {
    // SAFETY: the child has only this thread and ends by `_exit`.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(60);
            libc::_exit(i32::from(!work()));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0, "wait status of the child");
    }
}

fn seen(number: i64) -> usize {
    CHANGED[number as usize].load(Ordering::Relaxed)
}

#[test]
fn changes_of_the_address_space_from_inside_the_library_are_seen() {
    let (plan, count) = plan();
    in_a_child(|| {
        // SAFETY: the child has one thread.
        let installed = unsafe { install(&plan, HOOKS) } == Ok(count);
        // SAFETY: memory of the test's own.
        unsafe {
            let block = libc::malloc(10 << 20);
            block.write_bytes(1, 10 << 20);
            let block = libc::realloc(block, 40 << 20);
            let kept = *block.cast::<u8>() == 1;
            libc::free(block);
            installed
                && kept
                && seen(libc::SYS_mmap) == 1
                && seen(libc::SYS_mremap) == 1
                && seen(libc::SYS_munmap) == 1
        }
    });
}

/// Code that belongs to no file must be recognisable as ours.
#[test]
fn trampolines_lie_in_the_reported_areas() {
    let (plan, count) = plan();
    in_a_child(|| {
        // In advance, as in programs in which nothing may be asked later.
        sunder_hooks::note_modules();
        let none_before = sunder_hooks::areas().all(|area| area == (0, 0));
        // SAFETY: the child has one thread.
        let installed = unsafe { install(&plan, HOOKS) } == Ok(count);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let mut made = Vec::new();
        for line in maps.lines().filter(|l| l.contains("r-xp 00000000 00:00 0")) {
            let range = line
                .split_once(' ')
                .and_then(|(range, _)| range.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            made.extend(range.map(|(start, end)| (number(start), number(end))));
        }
        let known: Vec<_> = sunder_hooks::areas().filter(|a| a.1 > 0).collect();
        let is_made = |area: &(usize, usize)| made.iter().any(|m| m.0 <= area.0 && area.1 <= m.1);
        none_before && installed && known.len() == 2 && known.iter().all(is_made)
    });
}

#[test]
fn changes_of_the_address_space_by_the_linker_are_seen() {
    let (plan, count) = plan();
    in_a_child(|| {
        // SAFETY: the child has one thread; the library is the machine's.
        unsafe {
            let installed = install(&plan, HOOKS) == Ok(count);
            let library = libc::dlopen(c"libm.so.6".as_ptr(), libc::RTLD_NOW);
            let (mapped, protected) = (seen(libc::SYS_mmap), seen(libc::SYS_mprotect));
            let closed = !library.is_null() && libc::dlclose(library) == 0;
            installed && closed && mapped >= 3 && protected >= 1 && seen(libc::SYS_munmap) >= 1
        }
    });
}

/// A page of the test's own.
fn new_page() -> *mut c_void {
    // SAFETY: a new mapping at an address that the kernel chooses.
    unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    }
}

#[test]
fn a_call_that_meets_a_protected_page_is_made_again() {
    let (plan, _) = plan();
    in_a_child(|| {
        // SAFETY: the child has one thread; page and pipe are its own.
        unsafe {
            let page = new_page();
            let mut pipe = [0; 2];
            let ready = install(&plan, HOOKS).is_ok() && libc::pipe(pipe.as_mut_ptr()) == 0;
            OPENED.store(page as usize, Ordering::Relaxed);
            let close = || libc::mprotect(page, 4096, libc::PROT_NONE) == 0;
            let sent = libc::write(pipe[1], c"hello".as_ptr().cast::<c_void>(), 5) == 5;
            let read = close() && libc::read(pipe[0], page, 5) == 5;
            let number = LAST.load(Ordering::Relaxed) == libc::SYS_read;
            let hello = std::slice::from_raw_parts(page.cast::<u8>(), 5) == b"hello";
            let none_else = FAULTS.load(Ordering::Relaxed) == 1;
            // An error that the hooks do not cause stays an error.
            let bad = libc::read(pipe[1], page, 5) == -1
                && std::io::Error::last_os_error().raw_os_error() == Some(libc::EBADF);
            ready
                && sent
                && read
                && number
                && hello
                && none_else
                && bad
                && FAULTS.load(Ordering::Relaxed) == 1
        }
    });
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handled(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

/// Installs [`handled`] for a signal.
unsafe fn handle(signal: libc::c_int, flags: libc::c_int) -> bool {
    // SAFETY: plain data, for which zeroes are valid; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handled as *const () as usize;
        action.sa_flags = flags;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut()) == 0
    }
}

/// Waits until the thread sleeps in the kernel.
fn sleeps(thread: i32) {
    let path = format!("/proc/self/task/{thread}/stat");
    while !std::fs::read_to_string(&path).is_ok_and(|stat| stat.contains(") S ")) {
        std::thread::yield_now();
    }
}

/// The C library waits for a barrier in a loop, before which it has loaded the call's number into a
/// register.
#[test]
fn a_wait_in_a_loop_that_meets_a_protected_page_is_made_again() {
    let (plan, _) = plan();
    in_a_child(|| {
        // SAFETY: the child has one thread; the page is its own, and a barrier fits into it.
        unsafe {
            let page = new_page();
            OPENED.store(page as usize, Ordering::Relaxed);
            let at = page as usize;
            let barrier = || at as *mut libc::pthread_barrier_t;
            let ready = install(&plan, HOOKS).is_ok()
                && libc::pthread_barrier_init(barrier(), std::ptr::null(), 2) == 0
                && handle(libc::SIGUSR1, 0)
                && handle(libc::SIGUSR2, libc::SA_RESTART);
            let (tell, told) = std::sync::mpsc::channel();
            let waiter = std::thread::spawn(move || {
                let _ = tell.send((libc::gettid(), libc::pthread_self() as usize));
                libc::pthread_barrier_wait(at as *mut libc::pthread_barrier_t);
            });
            let (number, thread) = told.recv().unwrap_or_default();
            let waiting = thread as libc::pthread_t;
            sleeps(number);
            // The wait ends early, and the loop starts it again.
            libc::pthread_kill(waiting, libc::SIGUSR1);
            while HANDLED.load(Ordering::SeqCst) < 1 {
                std::thread::yield_now();
            }
            sleeps(number);
            // The kernel restarts the call and can't access the page.
            let closed = libc::mprotect(page, 4096, libc::PROT_NONE) == 0;
            libc::pthread_kill(waiting, libc::SIGUSR2);
            while FAULTS.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            let futex = LAST.load(Ordering::Relaxed) == libc::SYS_futex;
            libc::pthread_barrier_wait(barrier());
            ready && closed && futex && waiter.join().is_ok()
        }
    });
}

/// A thread's stack, end and locks keep working.
#[test]
fn threads_locks_and_children_work_as_before() {
    let (plan, _) = plan();
    in_a_child(|| {
        // SAFETY: the child has one thread.
        if unsafe { install(&plan, HOOKS) }.is_err() {
            return false;
        }
        let total = std::sync::Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        *total.lock().expect("no thread panics") += 1;
                        std::thread::yield_now();
                    }
                });
            }
        });
        let status = std::process::Command::new("true").status();
        *total.lock().expect("no thread panics") == 8000 && status.is_ok_and(|s| s.success())
    });
}

#[test]
fn a_plan_that_does_not_fit_changes_nothing() {
    let (plan, _) = plan();
    in_a_child(|| {
        let mut other = plan.clone();
        other[16] ^= 1; // the identifier
        // SAFETY: the child has one thread.
        unsafe {
            install(&plan[..plan.len() - 1], HOOKS) == Err(Refusal::NoPlan)
                && install(&other, HOOKS) == Err(Refusal::OtherModule)
                && install(&plan, HOOKS).is_ok()
                // The code is no longer the code that the plan was made for.
                && install(&plan, HOOKS) == Err(Refusal::OtherCode)
        }
    });
}
