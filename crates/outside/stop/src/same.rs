//! Whether a stopped thread still has the memory that we have opened. It may have executed another program since,
//! with other rights than before, while its old memory lives on in a process that shares it and that nobody has
//! stopped. What is read and written then is the old memory; but registers are the new program's, which must get
//! none of ours.

use crate::world::Memory;
use std::io;

impl Memory {
    /// Whether this is the memory of `thread`, which must be stopped. Leaves a word at `at`, where 8 bytes must be
    /// free: a new one each time, that nobody could foresee when the thread was stopped.
    pub fn is_of(&self, thread: i32, at: u64) -> bool {
        let Some(word) = unforeseen() else {
            return false;
        };
        self.write(at, &word.to_le_bytes()).is_ok() && peek(thread, at).is_ok_and(|is| is == word)
    }
}

/// A random word; `None` if the kernel gives none.
fn unforeseen() -> Option<u64> {
    let mut bytes = [0; 8];
    // SAFETY: the kernel writes to these bytes.
    let given = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    (given == bytes.len() as isize).then(|| u64::from_le_bytes(bytes))
}

/// A word of the memory that a stopped thread has now.
fn peek(thread: i32, at: u64) -> io::Result<u64> {
    let mut word = 0u64;
    // SAFETY: the kernel's own call, unlike the C library's, stores the word where the last argument says.
    let done = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            u64::from(libc::PTRACE_PEEKDATA),
            thread,
            at,
            &raw mut word,
        )
    };
    match done {
        0 => Ok(word),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::borrowed::{Borrowed, Gate};
    use crate::thread::{Stop, Stopped, elsewhere, mortal, sweep};
    use std::ffi::c_void;
    use std::sync::PoisonError;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use std::time::{Duration, Instant};
    use sunder_access::ProcessId;

    /// How far the child is: 1 once its memory is shared, 2 when it is to execute another program.
    static STAGE: AtomicU32 = AtomicU32::new(0);
    static FREE: [AtomicU64; 512] = [const { AtomicU64::new(0) }; 512];

    extern "C" fn keeps_the_memory(_: *mut c_void) -> i32 {
        // SAFETY: takes integers; it ends with its parent.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        STAGE.store(1, Ordering::SeqCst);
        loop {
            // SAFETY: takes no arguments.
            unsafe { libc::pause() };
        }
    }

    /// A child whose memory another process shares, and which executes another program when it is told.
    fn child() -> i32 {
        let mut stack = vec![0u128; 1 << 12];
        let top = stack.as_mut_ptr_range().end;
        // SAFETY: the child makes kernel calls only; the process that it starts has a stack of its own, which is
        // as old as the memory is.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let flags = libc::CLONE_VM | libc::SIGCHLD;
                libc::clone(keeps_the_memory, top.cast(), flags, std::ptr::null_mut());
                while STAGE.load(Ordering::SeqCst) < 2 {
                    libc::sched_yield();
                }
                let arguments = [c"sleep".as_ptr(), c"60".as_ptr(), std::ptr::null()];
                libc::execv(c"/bin/sleep".as_ptr(), arguments.as_ptr());
                libc::_exit(1);
            }
            child
        }
    }

    fn wait_until(is: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is() {
            assert!(begun.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stopped(child: i32) -> Box<Stopped> {
        loop {
            sweep(child);
            match Stopped::stop(child, child) {
                Ok(Stop::Stopped(stopped)) => return stopped,
                Ok(Stop::NotNow) => std::thread::sleep(Duration::from_millis(1)),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_program_that_begins_while_its_old_memory_lives_gets_no_registers_of_ours() {
        let _alone = mortal::ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let child = child();
        let memory = Memory::of(ProcessId(child.unsigned_abs())).expect("our child's");
        let stage = STAGE.as_ptr() as u64;
        let is_at = |number: u32| {
            memory
                .read(stage, 4)
                .is_ok_and(|is| is == number.to_le_bytes())
        };
        wait_until(|| is_at(1));
        let free = FREE.as_ptr_range();
        let (at, top) = (free.start as u64, free.end as u64);
        let gate = Gate {
            call: at,
            restore: at,
        };
        let before = stopped(child);
        assert!(memory.is_of(child, at));
        assert!(Borrowed::below(&before, &memory, gate, top).is_ok());
        drop(before);
        memory
            .write(stage, &2u32.to_le_bytes())
            .expect("its memory");
        let name = format!("/proc/{child}/comm");
        wait_until(|| std::fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n"));
        let mut after = stopped(child);
        assert!(is_at(2), "its old memory is still there");
        assert!(!memory.is_of(child, at));
        let refused = Borrowed::below(&after, &memory, gate, top).map(drop);
        assert!(refused.is_err_and(|why| why.to_string() == elsewhere().to_string()));
        let registers = *after.registers();
        assert!(
            after
                .move_to(|thread| memory.is_of(thread, at), 0x1000, |_| {})
                .is_err()
        );
        assert_eq!(after.registers().rip, registers.rip);
        drop(after);
        // SAFETY: takes integers; our child, which has not been waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
        wait_until(|| sweep(child).is_some());
    }
}
