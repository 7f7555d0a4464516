//! The constructor of the preloaded library, and its handlers of forks.
//!
//! Context: normal, before `main`, one thread.

use crate::before::before_opening;
use crate::shared::{Hold, control, set_control};
use crate::{area, fault, hooks, peek, process, program, real};
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;
use sunder_guest::environment::{self, Library, Start};
use sunder_guest::system;
use sunder_wire::remap::{BY_FORK, Control, MAGIC, NO_HOOKS, NOT_LOADED, READY, TOTAL, VERSION};

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = start;

/// Names the library's path, a comma, and the path of the shared file.
const VARIABLE: &[u8] = b"SUNDER_REMAP=";

const LONGEST: usize = 256;

/// The hold of the thread that forks.
struct Kept {
    hold: UnsafeCell<MaybeUninit<Hold>>,
}

// SAFETY: only the thread that forks writes it, under the C library's fork lock.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept {
    hold: UnsafeCell::new(MaybeUninit::uninit()),
};
extern "C" fn start(count: c_int, arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    let start = Start {
        count,
        arguments,
        environment,
    };
    // SAFETY: the dynamic linker passes the environment, which ends with null.
    let Some(value) = (unsafe { start.find(VARIABLE) }) else {
        return;
    };
    // SAFETY: a value in the environment is a C string.
    let value = unsafe { core::slice::from_raw_parts(value, environment::length(value)) };
    let Some(comma) = value.iter().position(|&b| b == b',') else {
        return;
    };
    let (mut library, mut file) = ([0; LONGEST], [0; LONGEST]);
    let (Some(own), Some(path)) = (value.get(..comma), value.get(comma + 1..)) else {
        return;
    };
    let (Some(place), true) = (library.get_mut(..own.len()), path.len() < LONGEST) else {
        return;
    };
    place.copy_from_slice(own);
    // At least one zero byte remains behind the path.
    let Some(place) = file.get_mut(..path.len()) else {
        return;
    };
    place.copy_from_slice(path);
    let own = Library::Path(library.get(..own.len()).unwrap_or_default());
    // SAFETY: the dynamic linker passes these values, and no other thread runs yet.
    unsafe { start.remove(&[VARIABLE], own) };
    let Some((control, plan, bytes)) = open(&file) else {
        return;
    };
    begin(control, plan, bytes);
}

/// Maps the shared file, with room for all code to come. Also returns where the plan for the hooks
/// lies in it, and its length in bytes. Done at the start, because the program may later give up
/// the right to open the file.
fn open(path: &[u8; LONGEST]) -> Option<(*mut Control, *const u8, usize)> {
    // SAFETY: the caller passes a C string.
    let fd = unsafe { system::open(libc::AT_FDCWD, path.as_ptr(), libc::O_RDWR) }?;
    let size = system::identity(fd).map_or(0, |file| file.size as usize);
    // SAFETY: new mappings at addresses that the kernel chooses.
    let (at, plan) = unsafe {
        (
            system::map(0, TOTAL, system::READ_WRITE, libc::MAP_SHARED, fd, 0),
            system::map(
                0,
                size.checked_sub(TOTAL)?,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                fd,
                TOTAL,
            ),
        )
    };
    system::close(fd);
    if at <= 0 || plan <= 0 {
        return None;
    }
    let control = at as *mut Control;
    // SAFETY: the mapping covers the whole file.
    let (magic, version) = unsafe {
        (
            (*control).magic.load(Ordering::Acquire),
            (*control).version.load(Ordering::Acquire),
        )
    };
    (magic == MAGIC && version == VERSION).then_some((
        control,
        plan as *const u8,
        size.wrapping_sub(TOTAL),
    ))
}

fn begin(mapped: *mut Control, plan: *const u8, bytes: usize) {
    // SAFETY: the mapping covers the whole file and is never removed.
    let shared = unsafe { &*mapped };
    let process = system::process_id();
    let first =
        shared
            .ready
            .compare_exchange(NOT_LOADED, NO_HOOKS, Ordering::AcqRel, Ordering::Relaxed);
    // The tool follows one program: the first that it has started.
    if first.is_err() || shared.process.load(Ordering::Relaxed) != process {
        return;
    }
    real::look_up_all();
    process::record();
    // SAFETY: so many bytes are mapped, and stay mapped while they are read.
    let plan = unsafe { core::slice::from_raw_parts(plan, bytes) };
    sunder_hooks::lead_to(hooks::HOOKS, before_opening);
    // SAFETY: constructors run before there are other threads.
    if unsafe { sunder_hooks::install(plan, hooks::HOOKS) }.is_err() {
        return;
    }
    // SAFETY: the mapping is never removed.
    unsafe { sunder_hooks::remember(plan) };
    if !install_handler() {
        return;
    }
    peek::open();
    #[cfg(not(test))]
    crate::syscall::prepare();
    // SAFETY: functions of the demanded types in a library that is never unloaded; the mapping is
    // never removed, either.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
        set_control(mapped);
    }
    shared.ready.store(READY, Ordering::Release);
}

/// Installs our handler of SIGSEGV over the program's action.
fn install_handler() -> bool {
    let Some(real) = real::sigaction() else {
        return false;
    };
    // SAFETY: plain data, for which zeroes are valid.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) =
        unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
    new.sa_sigaction = fault::handler as *const () as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: valid actions, whose masks begin with the kernel's 64-bit mask.
    unsafe {
        // `sigfillset` leaves out the two signals that the C library reserves. One of them cancels
        // a thread, which must not happen in our handler.
        (&raw mut new.sa_mask).cast::<u64>().write(u64::MAX);
        if real(libc::SIGSEGV, &raw const new, &raw mut old) != 0 {
            return false;
        }
    }
    program::set(&old);
    program::set_replaced();
    // If the process was started with the signal blocked, a fault would end it.
    system::set_mask(libc::SIG_UNBLOCK, program::BIT);
    true
}

extern "C" fn before_fork() {
    let hold = Hold::new();
    area::roll_back_all(BY_FORK);
    // SAFETY: the C library lets one thread fork at a time.
    unsafe { (*KEPT.hold.get()).write(hold) };
}

extern "C" fn in_parent() {
    // SAFETY: `before_fork` of the same fork has written it.
    drop(unsafe { (*KEPT.hold.get()).assume_init_read() });
}

/// The child is another program: nothing is ever moved in it.
extern "C" fn in_child() {
    if control().is_some() {
        // SAFETY: `set_control` accepts null.
        unsafe { set_control(null_mut()) };
    }
    // SAFETY: `before_fork` of the same fork has written it.
    drop(unsafe { (*KEPT.hold.get()).assume_init_read() });
}
