//! Children wait in real kernel calls, with the address of a page in every register that is not an
//! argument. No such call may be in that page's way, whatever the kernel makes of the wait when the
//! child is stopped.

use crate::attach::check::call_of;
use std::arch::asm;
use std::io;
use std::ptr::null_mut;
use std::time::{Duration, Instant};
use sunder_access::ProcessId;
use sunder_stop::{Memory, Stop, Stopped, sweep, wait};

const BYTES: usize = 4096;
/// Stops of one wait: the second one sees what the kernel made of the call at the first one.
const STOPS: usize = 3;
/// A child that takes longer than this hangs, even on a busy machine.
const HANGS: Duration = Duration::from_secs(60);

/// Pages that a child inherits.
struct Places {
    /// A page that no argument points to.
    page: u64,
    /// A page that the call is to use.
    used: u64,
    /// A page with a vector that points to `used`, then [`MESSAGE`] and [`SIGNALS`].
    leading: u64,
    /// A page with a time limit that is longer than any test.
    time: u64,
}

/// Offset from the vector to a message with that vector.
const MESSAGE: u64 = 16;
/// Offset from the vector to a set of one signal.
const SIGNALS: u64 = 80;

impl Places {
    fn new() -> Self {
        let [page, used, leading, time] = [(); 4].map(|()| mapped());
        let vector = [used, 8];
        let message = [0, 0, leading, 1, 0, 0, 0, 0];
        let signals = [1 << (libc::SIGUSR1 - 1)];
        let words = [&vector[..], &message, &signals].concat();
        for (i, word) in words.into_iter().enumerate() {
            // SAFETY: the page is new and large enough.
            unsafe { (leading as *mut u64).add(i).write(word) };
        }
        // SAFETY: as above.
        unsafe { (time as *mut [u64; 2]).write([500, 0]) };
        Self {
            page,
            used,
            leading,
            time,
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for at in [self.page, self.used, self.leading, self.time] {
            // SAFETY: the page is ours, and nothing uses it any more.
            unsafe { libc::munmap(at as *mut libc::c_void, BYTES) };
        }
    }
}

fn mapped() -> u64 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: maps new memory, and changes only that.
    let at = unsafe { libc::mmap(null_mut(), BYTES, rights, kind, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at as u64
}

/// Makes a kernel call with its number loaded right before, as the C library does.
///
/// # Safety
/// The call's own demands on its arguments.
unsafe fn call<const NUMBER: i64>(arguments: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the caller upholds the call's demands.
    unsafe {
        asm!(
            "mov eax, {number}",
            "syscall",
            number = const NUMBER,
            out("rax") result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            out("rcx") _,
            out("r11") _,
        );
    }
    result
}

/// One wait.
struct Wait {
    name: &'static str,
    call: unsafe fn([u64; 6]) -> i64,
    /// Opens the file that the call waits for; -1 for none.
    file: fn() -> i32,
    /// The call's arguments, given that file; other registers get the address of [`Places::page`].
    arguments: fn(&Places, u64) -> Vec<u64>,
    /// Whether the arguments lead to [`Places::used`].
    uses: bool,
}

/// A pipe that nothing is written to.
fn pipe() -> i32 {
    let mut ends = [0; 2];
    // SAFETY: `ends` is a place for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    ends[0]
}

/// A socket that nothing is sent to.
fn socket() -> i32 {
    let mut ends = [0; 2];
    // SAFETY: the array is a place for two descriptors.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, ends.as_mut_ptr()) };
    assert_eq!(made, 0);
    ends[0]
}

/// A socket that nothing connects to.
fn listener() -> i32 {
    let family = libc::AF_UNIX as libc::sa_family_t;
    let len = size_of_val(&family) as u32;
    // SAFETY: an address with nothing but its family, for which the kernel chooses a name.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        assert_eq!(libc::bind(socket, (&raw const family).cast(), len), 0);
        assert_eq!(libc::listen(socket, 1), 0);
        socket
    }
}

/// An epoll instance without events.
fn queue() -> i32 {
    // SAFETY: takes no pointers.
    unsafe { libc::epoll_create1(0) }
}

fn none() -> i32 {
    -1
}

macro_rules! waits {
    ($($call:ident($file:ident, $uses:ident) = |$places:pat_param, $at:pat_param| [$($argument:expr),*];)*) => {
        &[$(Wait {
            name: stringify!($call),
            call: call::<{ libc::$call }>,
            file: $file,
            arguments: |$places, $at| vec![$($argument),*],
            uses: $uses,
        }),*]
    };
}

const PRIVATE: u64 = libc::FUTEX_PRIVATE_FLAG as u64;
const ABSOLUTE: u64 = libc::FUTEX_WAIT_BITSET as u64 | PRIVATE;
const FOR_EVER: u64 = 0xffff_ffff;

#[rustfmt::skip]
const WAITS: &[Wait] = waits! {
    SYS_read(pipe, true) = |p, file| [file, p.used, 8];
    SYS_readv(pipe, true) = |p, file| [file, p.leading, 1];
    SYS_recvfrom(socket, true) = |p, file| [file, p.used, 8, 0, 0, 0];
    SYS_preadv2(pipe, true) = |p, file| [file, p.leading, 1, u64::MAX, u64::MAX, 0];
    SYS_recvmsg(socket, true) = |p, file| [file, p.leading + MESSAGE, 0];
    SYS_recvmmsg(socket, true) = |p, file| [file, p.leading + MESSAGE, 1, 0, 0];
    SYS_recvmmsg(socket, true) = |p, file| [file, p.leading + MESSAGE, 1, 0, p.time];
    SYS_accept(listener, true) = |p, file| [file, p.used, p.used + 128];
    SYS_accept4(listener, true) = |p, file| [file, p.used, p.used + 128, 0];
    SYS_poll(none, true) = |p, _| [p.used, 1, 500_000];
    SYS_poll(none, true) = |p, _| [p.used, 1, FOR_EVER];
    SYS_ppoll(none, true) = |p, _| [p.used, 1, p.time, 0, 8];
    SYS_select(none, true) = |p, _| [64, p.used, 0, 0, p.time];
    SYS_pselect6(none, true) = |p, _| [64, p.used, 0, 0, p.time, 0];
    SYS_epoll_wait(queue, true) = |p, file| [file, p.used, 4, 500_000];
    SYS_epoll_pwait(queue, true) = |p, file| [file, p.used, 4, FOR_EVER, 0, 8];
    SYS_epoll_pwait2(queue, true) = |p, file| [file, p.used, 4, p.time, 0, 8];
    SYS_futex(none, true) = |p, _| [p.used, PRIVATE, 0, 0];
    SYS_futex(none, true) = |p, _| [p.used, PRIVATE, 0, p.time];
    SYS_futex(none, true) = |p, _| [p.used, ABSOLUTE, 0, 0, p.page, 1];
    SYS_nanosleep(none, true) = |p, _| [p.time, p.used];
    SYS_nanosleep(none, false) = |p, _| [p.time, 0];
    SYS_clock_nanosleep(none, true) = |p, _| [0, 0, p.time, p.used];
    SYS_clock_nanosleep(none, false) = |p, _| [1, 0, p.time, 0];
    SYS_rt_sigtimedwait(none, true) = |p, _| [p.leading + SIGNALS, p.used, p.time, 8];
    SYS_pause(none, false) = |_, _| [];
};

/// Waits until the child sleeps in the kernel.
fn sleeps(child: i32) {
    let start = Instant::now();
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().unwrap_or("").trim_start();
        if state.starts_with('S') {
            return;
        }
        assert!(start.elapsed() < HANGS, "the child never waits: {stat}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Stops the child, trying again while that is not possible.
fn stop(child: i32) -> io::Result<Box<Stopped>> {
    let start = Instant::now();
    loop {
        match Stopped::stop(child, child)? {
            Stop::Stopped(stopped) => return Ok(stopped),
            Stop::Ended(status) => panic!("the child has ended with {status:#x}"),
            Stop::NotNow => {
                sweep(child);
            }
        }
        assert!(start.elapsed() < HANGS, "the child never stops");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What was seen at one stop.
struct Seen {
    number: i64,
    is_in_a_call: bool,
    meets_page: bool,
    meets_used: bool,
}

/// Stops a child several times in the same wait.
fn look(child: i32, places: &Places) -> io::Result<Vec<Seen>> {
    let memory = Memory::of(ProcessId(child as u32))?;
    let read = |at, into: &mut [u8]| memory.read_into(at, into).is_ok();
    let mut all = Vec::new();
    for _ in 0..STOPS {
        sleeps(child);
        let stopped = stop(child)?;
        let call = call_of(stopped.registers());
        let meets = |page| call.is_in_the_way(&read, (page, BYTES as u64));
        all.push(Seen {
            number: call.call.number,
            is_in_a_call: stopped.computing_at().is_none(),
            meets_page: meets(places.page),
            meets_used: meets(places.used),
        });
    }
    Ok(all)
}

/// What is seen at the stops of a child in this wait.
fn waiting(what: &Wait) -> io::Result<Vec<Seen>> {
    let places = Places::new();
    let file = (what.file)();
    let mut arguments = [places.page + 64; 6];
    let own = (what.arguments)(&places, file as u64);
    for (argument, own) in arguments.iter_mut().zip(own) {
        *argument = own;
    }
    // SAFETY: between `fork` and its end the child makes one call, on memory of its own.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            (what.call)(arguments);
            libc::_exit(3);
        }
    }
    assert!(child > 0, "fork failed");
    let seen = look(child, &places);
    // SAFETY: the child and the descriptor are ours.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        while wait(child).is_some_and(|status| libc::WIFSTOPPED(status)) {}
        libc::close(file);
    }
    seen
}

#[test]
fn stale_registers_of_threads_that_wait_are_in_nobodys_way() {
    let mut restarted = 0;
    for what in WAITS {
        let name = what.name;
        let seen = match waiting(what) {
            Ok(seen) => seen,
            Err(error) => {
                println!("SKIP: a child can't be stopped: {error}");
                return;
            }
        };
        for seen in seen {
            let number = seen.number;
            assert!(seen.is_in_a_call, "{name}");
            assert!(!seen.meets_page, "{name} as {number}: a stale register");
            assert_eq!(seen.meets_used, what.uses, "{name} as {number}");
            restarted += u32::from(number == libc::SYS_restart_syscall);
        }
    }
    assert!(restarted > 0, "no wait went on as restart_syscall");
}
