//! A process borrows a thread of another one and is killed before each of its steps in turn.
//! Afterwards the thread must have all its registers, its signal mask, and the bytes below its
//! stack pointer, and its wait must not have ended. If a signal had stopped it before, it is stopped still.

use super::{Borrowed, Gate, STUB};
use crate::thread::mortal::{ALONE, dies_at};
use crate::world::{Memory, StopError, World};
use std::arch::naked_asm;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use sunder_access::ProcessId;

/// An upper bound of the steps that a borrower makes.
const MOST_STEPS: i64 = 500;
/// Exit status of a target that found nothing changed.
const GOOD: i32 = 7;
/// A process that takes longer than this hangs, even on a busy machine.
const HANGS: Duration = Duration::from_secs(60);

/// Shared by both processes, which are forked after it is mapped.
#[repr(C)]
struct Shared {
    /// The target is where it is to be borrowed.
    ready: AtomicU32,
    /// The target may end.
    end: AtomicU32,
    /// How often the function was called.
    called: AtomicU32,
    /// The called function, which waits, may return.
    go: AtomicU32,
    gate: [u8; 16],
    restore: [u8; 16],
    stub: [u8; 16],
    stack: [u8; 64 << 10],
    frames: [u8; 64 << 10],
}

fn shared() -> &'static Shared {
    let rights = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let bytes = size_of::<Shared>();
    // SAFETY: a new mapping, large enough, aligned, and never unmapped; zeroes are valid.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), bytes, rights, kind, -1, 0).cast::<Shared>();
        assert_ne!(at.cast(), libc::MAP_FAILED);
        let shared = &mut *at;
        shared.gate[..3].copy_from_slice(&[0x0f, 0x05, 0xc3]);
        shared.restore[..9].copy_from_slice(&sunder_hooking::RESTORES);
        shared.stub[..STUB.len()].copy_from_slice(&STUB);
        shared
    }
}

fn at<T>(place: &T) -> u64 {
    &raw const *place as u64
}

/// Fills all registers and the red zone, waits until the word at `rdi` is not 0, and compares. 0 if
/// nothing has changed.
#[unsafe(naked)]
unsafe extern "C" fn holds(_end: *const AtomicU32, _ready: *const AtomicU32) -> u64 {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov rbx, 0x1101",
        "mov rbp, 0x1102",
        "mov rcx, 0x1103",
        "mov rdx, 0x1104",
        "mov r8, 0x1105",
        "mov r9, 0x1106",
        "mov r10, 0x1107",
        "mov r11, 0x1108",
        "mov r12, 0x1109",
        "mov r13, 0x110a",
        "mov r14, 0x110b",
        "mov r15, 0x110c",
        "movq xmm0, r12",
        "movq xmm15, r15",
        "mov qword ptr [rsp - 128], 0x1111",
        "std",
        "mov dword ptr [rsi], 1",
        "2:",
        "cmp dword ptr [rdi], 0",
        "je 2b",
        "pushfq",
        "pop rax",
        "cld",
        "and eax, 0x400",
        "xor eax, 0x400",
        "xor rbx, 0x1101",
        "or rax, rbx",
        "xor rbp, 0x1102",
        "or rax, rbp",
        "xor rcx, 0x1103",
        "or rax, rcx",
        "xor rdx, 0x1104",
        "or rax, rdx",
        "xor r8, 0x1105",
        "or rax, r8",
        "xor r9, 0x1106",
        "or rax, r9",
        "xor r10, 0x1107",
        "or rax, r10",
        "xor r11, 0x1108",
        "or rax, r11",
        "xor r12, 0x1109",
        "or rax, r12",
        "xor r13, 0x110a",
        "or rax, r13",
        "xor r14, 0x110b",
        "or rax, r14",
        "xor r15, 0x110c",
        "or rax, r15",
        "movq rbx, xmm0",
        "xor rbx, 0x1109",
        "or rax, rbx",
        "movq rbx, xmm15",
        "xor rbx, 0x110c",
        "or rax, rbx",
        "mov rbx, qword ptr [rsp - 128]",
        "xor rbx, 0x1111",
        "or rax, rbx",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

/// The function that a borrowed thread calls: changes registers that a function may change.
extern "C" fn function(count: &AtomicU32) -> u64 {
    count.fetch_add(1, Ordering::SeqCst);
    // SAFETY: all changed registers are declared.
    unsafe {
        std::arch::asm!(
            "xorps xmm0, xmm0",
            "xorps xmm15, xmm15",
            out("xmm0") _,
            out("xmm15") _,
        );
    }
    42
}

/// What a target does while its thread is borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Computes,
    Reads,
    Polls,
    WaitsWithAMask,
}

/// The target's whole run. It exits with [`GOOD`] if it found nothing changed.
///
/// # Safety
/// To be called in a forked child only: takes no lock.
unsafe fn live(does: Does, shared: &Shared, input: i32) -> ! {
    // SAFETY: the places and descriptors are our own.
    unsafe {
        libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
        let mut mask: u64 = 1 << (libc::SIGUSR1 - 1);
        let (set, size) = (libc::SIG_SETMASK, 8usize);
        let none = std::ptr::null_mut::<u64>();
        libc::syscall(libc::SYS_rt_sigprocmask, set, &raw const mask, none, size);
        let mut byte = 0u8;
        let mut files = libc::pollfd {
            fd: input,
            events: libc::POLLIN,
            revents: 0,
        };
        let good = if does == Does::Computes {
            holds(&raw const shared.end, &raw const shared.ready) == 0
        } else {
            shared.ready.store(1, Ordering::SeqCst);
            match does {
                Does::Reads => libc::read(input, (&raw mut byte).cast(), 1) == 1,
                Does::Polls => libc::poll(&raw mut files, 1, 600_000) == 1,
                _ => {
                    let mut all: libc::sigset_t = std::mem::zeroed();
                    libc::sigfillset(&raw mut all);
                    let time = std::ptr::null();
                    libc::ppoll(&raw mut files, 1, time, &raw const all) == 1
                }
            }
        };
        let before = mask;
        libc::syscall(libc::SYS_rt_sigprocmask, set, none, &raw mut mask, size);
        libc::_exit(if good && mask == before { GOOD } else { 8 });
    }
}

/// Stops all threads of a process, trying again while they can't be stopped.
fn stopped(process: ProcessId) -> Option<World> {
    let begun = Instant::now();
    loop {
        match World::stop_suspended(process) {
            Ok(world) => return Some(world),
            Err(StopError::NotNow) if begun.elapsed() < HANGS => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => return None,
        }
    }
}

/// The borrower, which is killed before step number `dies`. With `suspended`, a signal has stopped the target.
fn borrow(target: i32, shared: &Shared, suspended: bool, dies: i64) -> i32 {
    let gate = Gate {
        call: at(&shared.gate),
        restore: at(&shared.restore),
    };
    let process = ProcessId(target as u32);
    let Ok(memory) = Memory::of(process) else {
        return 1;
    };
    dies_at(dies);
    let done = || -> Option<()> {
        let world = stopped(process)?;
        (world.is_suspended() == suspended).then_some(())?;
        let thread = &world.threads()[0];
        let rights = libc::PROT_READ as u64;
        let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let map = [0, 4096, rights, kind, u64::MAX, 0];
        let end = |part: &[u8]| part.as_ptr_range().end as u64;
        // The frame first lies on the thread's own stack, then elsewhere.
        {
            let worker = Borrowed::new(thread, &memory, gate).ok()?;
            let mapped = worker.call(libc::SYS_mmap, map).ok()?;
            (mapped > 0).then_some(())?;
            let failed = worker.call(libc::SYS_close, [99, 0, 0, 0, 0, 0]).ok()?;
            (failed == -i64::from(libc::EBADF)).then_some(())?;
        }
        let top = end(&shared.frames);
        let worker = Borrowed::below(thread, &memory, gate, top).ok()?;
        for _ in 0..2 {
            let called = function as *const () as u64;
            let stack = end(&shared.stack);
            let told = worker.function(called, at(&shared.called), stack, at(&shared.stub));
            (told.ok()? == 42).then_some(())?;
            let own = worker.call(libc::SYS_getpid, [0; 6]).ok()?;
            (own == i64::from(target)).then_some(())?;
        }
        Some(())
    }();
    dies_at(0);
    if done.is_some() { 0 } else { 2 }
}

/// Waits for a child to end; its wait status.
fn ended(child: i32) -> i32 {
    let begun = Instant::now();
    let mut status = 0;
    while begun.elapsed() < HANGS {
        // SAFETY: a valid place for the status.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            return status;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    // SAFETY: signals a child of ours.
    unsafe { libc::kill(child, libc::SIGKILL) };
    panic!("process {child} does not end");
}

/// Waits until a signal has stopped a process.
fn is_suspended(process: i32) -> bool {
    let begun = Instant::now();
    while !told(process, "State").starts_with('T') {
        if begun.elapsed() > HANGS {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// One run; whether the borrower was not killed before its end. With `suspended`, a signal stops the target
/// before.
fn survives(does: Does, suspended: bool, dies: i64) -> bool {
    let shared = shared();
    let mut pipe = [0; 2];
    // SAFETY: the descriptors' places are valid. The children take no lock but the allocator's,
    // which `fork` handles, and locks that are held by this thread.
    let (target, borrower) = unsafe {
        assert_eq!(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC), 0);
        let target = libc::fork();
        if target == 0 {
            live(does, shared, pipe[0]);
        }
        while shared.ready.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        // The target is in its kernel call by now, or just before it; then it is stopped before the
        // call.
        if suspended {
            libc::kill(target, libc::SIGSTOP);
            assert!(is_suspended(target), "{does:?}: it does not stop");
        }
        let borrower = libc::fork();
        if borrower == 0 {
            let status = borrow(target, shared, suspended, dies);
            libc::_exit(status);
        }
        (target, borrower)
    };
    let status = ended(borrower);
    let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
    let whole = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
    if suspended {
        let stays = is_suspended(target);
        // SAFETY: signals a child of ours that has not been waited for.
        unsafe { libc::kill(target, libc::SIGCONT) };
        assert!(stays, "{does:?}, killed before step {dies}: it goes on");
    }
    shared.end.store(1, Ordering::SeqCst);
    // SAFETY: the descriptors and the mapping are our own.
    unsafe {
        libc::write(pipe[1], [0u8].as_ptr().cast(), 1);
        let status = ended(target);
        libc::close(pipe[0]);
        libc::close(pipe[1]);
        libc::munmap((&raw const *shared).cast_mut().cast(), size_of::<Shared>());
        let good = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == GOOD;
        assert!(good, "{does:?}, killed before step {dies}: {status:#x}");
    }
    assert!(killed || whole, "{does:?} at step {dies}: {status:#x}");
    whole
}

#[test]
fn tracer_killed_during_a_borrowed_call_leaves_the_thread_unchanged() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !crate::world::may_trace() {
        println!("SKIP: threads can't be stopped here");
        return;
    }
    for suspended in [false, true] {
        for does in [
            Does::Computes,
            Does::Reads,
            Does::Polls,
            Does::WaitsWithAMask,
        ] {
            let survives = |dies| survives(does, suspended, dies);
            assert!(survives(0), "failed without being killed");
            let steps = (1..MOST_STEPS).find(|&step| survives(step));
            let steps = steps.expect("the borrower makes fewer steps than MOST_STEPS");
            println!("{does:?}: killed before each of {steps} steps");
            assert!(steps > 20, "{does:?}: the steps were not counted");
        }
    }
}

/// A function that returns only after the borrower has stopped waiting, and makes a kernel call
/// after that.
extern "C" fn late(shared: &Shared) -> u64 {
    while shared.go.load(Ordering::SeqCst) == 0 {
        std::hint::spin_loop();
    }
    // SAFETY: takes no arguments.
    unsafe { libc::getppid() };
    shared.called.fetch_add(1, Ordering::SeqCst);
    42
}

/// A function that makes kernel calls until the borrower has given up, as code that a program has changed.
extern "C" fn endless(shared: &Shared) -> u64 {
    while shared.go.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(50));
    }
    shared.called.fetch_add(1, Ordering::SeqCst);
    42
}

/// Starts a target that computes and, once it does, a borrower, which exits with what `borrow`
/// returns; the numbers of both.
fn computing(shared: &Shared, borrow: impl FnOnce(i32) -> i32) -> (i32, i32) {
    // SAFETY: as in `survives`; the target computes, so it needs no descriptor.
    unsafe {
        let target = libc::fork();
        if target == 0 {
            live(Does::Computes, shared, -1);
        }
        while shared.ready.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let borrower = libc::fork();
        if borrower == 0 {
            libc::_exit(borrow(target));
        }
        (target, borrower)
    }
}

/// What happens to the whole process while its thread is borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    /// It is stopped.
    Stopped,
    /// It is stopped, and the borrower is killed before the thread is given back.
    StoppedAndLeft,
    /// It is stopped and continued.
    Continued,
}

/// The borrower, whose thread calls the kernel after the process was sent signals.
fn lend(target: i32, shared: &Shared, meanwhile: Meanwhile) -> Option<()> {
    let gate = Gate {
        call: at(&shared.gate),
        restore: at(&shared.restore),
    };
    let process = ProcessId(target as u32);
    let memory = Memory::of(process).ok()?;
    let world = stopped(process)?;
    let worker = Borrowed::new(&world.threads()[0], &memory, gate).ok()?;
    let own = || (worker.call(libc::SYS_getpid, [0; 6]).ok()? == i64::from(target)).then_some(());
    own()?;
    // SAFETY: signals a sibling that is waited for by our parent.
    unsafe { libc::kill(target, libc::SIGSTOP) };
    own()?;
    own()?;
    if meanwhile == Meanwhile::StoppedAndLeft {
        // SAFETY: ends this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    if meanwhile == Meanwhile::Continued {
        // SAFETY: as above.
        unsafe { libc::kill(target, libc::SIGCONT) };
        own()?;
    }
    Some(())
}

/// A stop of the whole process must not get lost: whoever has sent it may wait for it.
#[test]
fn a_process_that_is_stopped_while_its_thread_is_borrowed_stops() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !crate::world::may_trace() {
        println!("SKIP: threads can't be stopped here");
        return;
    }
    for meanwhile in [
        Meanwhile::Stopped,
        Meanwhile::StoppedAndLeft,
        Meanwhile::Continued,
    ] {
        let shared = shared();
        let (target, borrower) = computing(shared, |target| {
            i32::from(lend(target, shared, meanwhile).is_none())
        });
        let status = ended(borrower);
        let killed = libc::WIFSIGNALED(status) && meanwhile == Meanwhile::StoppedAndLeft;
        assert!(killed || status == 0, "{meanwhile:?}: {status:#x}");
        if meanwhile != Meanwhile::Continued {
            assert!(is_suspended(target), "{meanwhile:?}: it is not stopped");
            // SAFETY: signals a child of ours that has not been waited for.
            unsafe { libc::kill(target, libc::SIGCONT) };
        }
        shared.end.store(1, Ordering::SeqCst);
        let status = ended(target);
        let good = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == GOOD;
        assert!(good, "{meanwhile:?}: {status:#x}");
    }
}

/// The value of a line of `/proc/<process>/status`, that is, of the first thread.
fn told(process: i32, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let value = |line: &str| {
        Some(
            line.strip_prefix(name)?
                .strip_prefix(':')?
                .trim()
                .to_owned(),
        )
    };
    text.lines().find_map(value).unwrap_or_default()
}

/// The borrower, which stops waiting too early for `called`, as `limit` says; what went wrong, if anything did.
fn lose(
    target: i32,
    shared: &Shared,
    called: extern "C" fn(&Shared) -> u64,
    limit: fn(&mut Borrowed<'_>),
) -> Result<(), &'static str> {
    let gate = Gate {
        call: at(&shared.gate),
        restore: at(&shared.restore),
    };
    let process = ProcessId(target as u32);
    let memory = Memory::of(process).map_err(|_| "no memory")?;
    let world = World::stop(process).map_err(|_| "not stopped")?;
    let end = |part: &[u8]| part.as_ptr_range().end as u64;
    let thread = &world.threads()[0];
    let worker = Borrowed::below(thread, &memory, gate, end(&shared.frames));
    let mut worker = worker.map_err(|_| "not borrowed")?;
    limit(&mut worker);
    let (called, stack) = (called as *const () as u64, end(&shared.stack));
    let told_in_time = worker.function(called, at(shared), stack, at(&shared.stub));
    shared.go.store(1, Ordering::SeqCst);
    let begun = Instant::now();
    while !told(target, "State").starts_with('t') {
        if begun.elapsed() > HANGS {
            return Err("the lost thread made no kernel call");
        }
    }
    if told_in_time.is_ok() || worker.call(libc::SYS_getpid, [0; 6]).is_ok() {
        return Err("the thread was not lost");
    }
    drop(worker);
    drop(world);
    while told(target, "TracerPid") != "0" {
        crate::thread::sweep(target);
        if begun.elapsed() > HANGS {
            return Err("the thread is still attached");
        }
    }
    Ok(())
}

/// Nothing must interfere with what the lost thread still does, and it must go back to where it
/// was.
fn is_lost_and_resumes(called: extern "C" fn(&Shared) -> u64, limit: fn(&mut Borrowed<'_>)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !crate::world::may_trace() {
        println!("SKIP: threads can't be stopped here");
        return;
    }
    let shared = shared();
    let (target, borrower) = computing(shared, |target| {
        let lost = lose(target, shared, called, limit);
        if let Err(why) = lost {
            println!("{why}");
        }
        i32::from(lost.is_err())
    });
    let status = ended(borrower);
    shared.end.store(1, Ordering::SeqCst);
    let targets = ended(target);
    assert_eq!(status, 0, "exit status of the borrower");
    assert!(
        libc::WIFEXITED(targets) && libc::WEXITSTATUS(targets) == GOOD,
        "{targets:#x}"
    );
    assert_eq!(shared.called.load(Ordering::SeqCst), 1);
}

#[test]
fn borrowed_thread_that_misses_the_deadline_resumes_by_itself() {
    is_lost_and_resumes(late, |worker| worker.waits = 0);
}

#[test]
fn borrowed_thread_that_makes_kernel_calls_without_end_resumes_by_itself() {
    is_lost_and_resumes(endless, |worker| worker.until = Instant::now());
}
