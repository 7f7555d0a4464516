//! What memory a kernel call may use while a thread waits in it: which of its arguments are
//! pointers, and to how many bytes. Called by `check` for threads that are stopped inside a call,
//! before pages move.
//!
//! Only arguments that the table names count as pointers. Other registers hold what earlier code
//! left in them, which may be any address. A call that is not in the table may use any memory.
//!
//! The program's memory is read through a function, nothing is allocated, and no thread is touched.
//! What is read is copied before it is checked, no count is trusted, and memory that can't be read
//! counts as a use of any memory.
//!
//! Sources: `include/linux/syscalls.h` of Linux for the arguments, section 2 of the manual for
//! their meaning. Sources of sizes stand beside them.

use Argument::{Fifth, First, Fourth, Second, Sixth, Third};
use Extent::{
    Address, Bits, Bytes, Elements, Exactly, Message, MessageText, Messages, Path, Vectors, Waiters,
};
use Pointer::{Mask, MaskBehind, Reads, Updates, Writes};

/// `struct timespec`, and `struct timeval` in `select`: two words.
const TIME: u64 = 16;
/// `int` and `unsigned int`: states, lengths, priorities, futex words.
const INT: u64 = 4;
/// `loff_t`: a position in a file.
const OFFSET: u64 = 8;
/// `struct pollfd` (asm-generic/poll.h).
const POLL: u64 = 8;
/// `struct epoll_event`, which is packed on this machine (linux/eventpoll.h).
const EVENT: u64 = 12;
/// `struct sembuf` (linux/sem.h).
const SEMAPHORE: u64 = 6;
/// `struct flock` (asm-generic/fcntl.h).
const LOCK: u64 = 32;
/// `siginfo_t` (asm-generic/siginfo.h).
const INFO: u64 = 128;
/// `struct rusage` (linux/resource.h).
const USAGE: u64 = 144;
/// The kernel's `sigset_t`.
const SET: u64 = 8;
/// The address of a mask and its size, as `pselect6` gets them.
const SET_AND_SIZE: u64 = 16;
/// `struct sockaddr_storage` (linux/socket.h): the kernel reads and writes no more than this.
const LONGEST_ADDRESS: u64 = 128;
/// The `long` before the text of a message of `msgsnd`.
const MESSAGE_TYPE: u64 = 8;
/// The word of a futex of `futex_waitv`: 4 bytes at present, up to 8 by its flags (linux/futex.h).
const WAITED_FOR: u64 = 8;
/// `PATH_MAX`.
const LONGEST_PATH: u64 = 4096;
/// `MAX_RW_COUNT` rounded up: the kernel transfers no more bytes in one call.
const MOST_BYTES: u64 = 1 << 31;
/// `UIO_MAXIOV`, the most vectors and the most messages of one call.
const MOST_VECTORS: u64 = 1024;
/// `FUTEX_WAITV_MAX`.
const MOST_WAITERS: u64 = 128;
/// Most vectors of all messages of one call that are examined while the program is stopped.
const MOST_LOOKED_AT: u64 = 16 * MOST_VECTORS;

/// An argument of a call, in the kernel's order: `rdi`, `rsi`, `rdx`, `r10`, `r8`, `r9`.
#[derive(Clone, Copy, Debug)]
enum Argument {
    First,
    Second,
    Third,
    Fourth,
    Fifth,
    Sixth,
}

/// How many bytes an argument points to.
#[derive(Clone, Copy, Debug)]
enum Extent {
    /// This many bytes.
    Exactly(u64),
    /// As many bytes as the other argument says, a `size_t`.
    Bytes(Argument),
    /// `struct msgbuf` with as many bytes of text as the other argument says.
    MessageText(Argument),
    /// A socket address of as many bytes as the other argument says, an `int`.
    Address(Argument),
    /// As many elements as the other argument says, an `int`, of this many bytes each.
    Elements(Argument, u64),
    /// As many bits as the other argument says, an `int`, in whole words.
    Bits(Argument),
    /// As many `struct iovec` as the other argument says, and their targets.
    Vectors(Argument),
    /// `struct msghdr`, and its targets.
    Message,
    /// As many `struct mmsghdr` as the other argument says, and their targets.
    Messages(Argument),
    /// As many `struct futex_waitv` as the other argument says, and their targets.
    Waiters(Argument),
    /// A path, to its zero byte.
    Path,
}

/// An argument that is a pointer. Moved bytes can be neither read nor written at their old place,
/// so the direction makes no difference here.
#[derive(Clone, Copy, Debug)]
enum Pointer {
    /// The kernel reads there.
    Reads(Argument, Extent),
    /// The kernel writes there.
    Writes(Argument, Extent),
    /// The kernel reads and writes there.
    Updates(Argument, Extent),
    /// To a signal mask that replaces the thread's own during the call; the thread's own can't be
    /// seen then.
    Mask(Argument),
    /// To the address and size of such a mask.
    MaskBehind(Argument),
}

/// How the pointers among a call's arguments are found.
#[derive(Clone, Copy, Debug)]
enum Takes {
    /// These arguments are pointers.
    Always(&'static [Pointer]),
    /// The second argument says which ones are. For a value that is not known, any memory may be
    /// used.
    ByOperation(fn(u32) -> Option<&'static [Pointer]>),
    /// The call continues one of [`RESTARTED`], whose arguments are still in the registers.
    AsBefore,
}

use Takes::{Always, AsBefore, ByOperation};

const NOTHING: Takes = Always(&[]);

/// Calls that threads wait in.
///
/// These are left out on purpose, so that any memory counts as used:
/// - calls that change mappings, their sharing or the handling of signals, or that make processes;
/// - `io_uring_enter`, `io_getevents`, `io_pgetevents`, `vmsplice`: the kernel also uses memory
///   that it was given earlier;
/// - `ioctl` and others whose arguments differ by device.
#[rustfmt::skip]
const CALLS: &[(i64, Takes)] = &[
    // Bytes of files, pipes, sockets, terminals, events, signals and timers.
    (libc::SYS_read, Always(&[Writes(Second, Bytes(Third))])),
    (libc::SYS_write, Always(&[Reads(Second, Bytes(Third))])),
    (libc::SYS_pread64, Always(&[Writes(Second, Bytes(Third))])),
    (libc::SYS_pwrite64, Always(&[Reads(Second, Bytes(Third))])),
    (libc::SYS_readv, Always(&[Writes(Second, Vectors(Third))])),
    (libc::SYS_writev, Always(&[Reads(Second, Vectors(Third))])),
    (libc::SYS_preadv, Always(&[Writes(Second, Vectors(Third))])),
    (libc::SYS_pwritev, Always(&[Reads(Second, Vectors(Third))])),
    (libc::SYS_preadv2, Always(&[Writes(Second, Vectors(Third))])),
    (libc::SYS_pwritev2, Always(&[Reads(Second, Vectors(Third))])),
    (libc::SYS_sendfile, Always(&[Updates(Third, Exactly(OFFSET))])),
    (libc::SYS_splice, Always(&[Updates(Second, Exactly(OFFSET)), Updates(Fourth, Exactly(OFFSET))])),
    (libc::SYS_copy_file_range, Always(&[Updates(Second, Exactly(OFFSET)), Updates(Fourth, Exactly(OFFSET))])),
    (libc::SYS_tee, NOTHING),
    (libc::SYS_getrandom, Always(&[Writes(First, Bytes(Second))])),
    // Sockets.
    (libc::SYS_accept, Always(&[Writes(Second, Exactly(LONGEST_ADDRESS)), Updates(Third, Exactly(INT))])),
    (libc::SYS_accept4, Always(&[Writes(Second, Exactly(LONGEST_ADDRESS)), Updates(Third, Exactly(INT))])),
    (libc::SYS_connect, Always(&[Reads(Second, Address(Third))])),
    (libc::SYS_sendto, Always(&[Reads(Second, Bytes(Third)), Reads(Fifth, Address(Sixth))])),
    (libc::SYS_recvfrom, Always(&[
        Writes(Second, Bytes(Third)), Writes(Fifth, Exactly(LONGEST_ADDRESS)), Updates(Sixth, Exactly(INT)),
    ])),
    (libc::SYS_sendmsg, Always(&[Reads(Second, Message)])),
    (libc::SYS_recvmsg, Always(&[Updates(Second, Message)])),
    (libc::SYS_sendmmsg, Always(&[Updates(Second, Messages(Third))])),
    (libc::SYS_recvmmsg, Always(&[Updates(Second, Messages(Third)), Updates(Fifth, Exactly(TIME))])),
    // Events.
    (libc::SYS_poll, Always(&[Updates(First, Elements(Second, POLL))])),
    (libc::SYS_ppoll, Always(&[Updates(First, Elements(Second, POLL)), Updates(Third, Exactly(TIME)), Mask(Fourth)])),
    (libc::SYS_select, Always(&[
        Updates(Second, Bits(First)), Updates(Third, Bits(First)), Updates(Fourth, Bits(First)),
        Updates(Fifth, Exactly(TIME)),
    ])),
    (libc::SYS_pselect6, Always(&[
        Updates(Second, Bits(First)), Updates(Third, Bits(First)), Updates(Fourth, Bits(First)),
        Updates(Fifth, Exactly(TIME)), MaskBehind(Sixth),
    ])),
    (libc::SYS_epoll_wait, Always(&[Writes(Second, Elements(Third, EVENT))])),
    (libc::SYS_epoll_pwait, Always(&[Writes(Second, Elements(Third, EVENT)), Mask(Fifth)])),
    (libc::SYS_epoll_pwait2, Always(&[
        Writes(Second, Elements(Third, EVENT)), Reads(Fourth, Exactly(TIME)), Mask(Fifth),
    ])),
    // Threads, processes and signals.
    (libc::SYS_futex, ByOperation(futex)),
    (libc::SYS_futex_waitv, Always(&[Reads(First, Waiters(Second)), Reads(Fourth, Exactly(TIME))])),
    (libc::SYS_wait4, Always(&[Writes(Second, Exactly(INT)), Writes(Fourth, Exactly(USAGE))])),
    (libc::SYS_waitid, Always(&[Writes(Third, Exactly(INFO)), Writes(Fifth, Exactly(USAGE))])),
    (libc::SYS_rt_sigtimedwait, Always(&[
        Reads(First, Exactly(SET)), Writes(Second, Exactly(INFO)), Reads(Third, Exactly(TIME)),
    ])),
    (libc::SYS_rt_sigsuspend, Always(&[Mask(First)])),
    (libc::SYS_pause, NOTHING),
    (libc::SYS_sched_yield, NOTHING),
    // Time.
    (libc::SYS_nanosleep, Always(&[Reads(First, Exactly(TIME)), Writes(Second, Exactly(TIME))])),
    (libc::SYS_clock_nanosleep, Always(&[Reads(Third, Exactly(TIME)), Writes(Fourth, Exactly(TIME))])),
    (libc::SYS_restart_syscall, AsBefore),
    // Semaphores and messages between processes.
    (libc::SYS_semop, Always(&[Reads(Second, Elements(Third, SEMAPHORE))])),
    (libc::SYS_semtimedop, Always(&[Reads(Second, Elements(Third, SEMAPHORE)), Reads(Fourth, Exactly(TIME))])),
    (libc::SYS_msgsnd, Always(&[Reads(Second, MessageText(Third))])),
    (libc::SYS_msgrcv, Always(&[Writes(Second, MessageText(Third))])),
    (libc::SYS_mq_timedsend, Always(&[Reads(Second, Bytes(Third)), Reads(Fifth, Exactly(TIME))])),
    (libc::SYS_mq_timedreceive, Always(&[
        Writes(Second, Bytes(Third)), Writes(Fourth, Exactly(INT)), Reads(Fifth, Exactly(TIME)),
    ])),
    // Files: locks, disks, and pipes with a name.
    (libc::SYS_flock, NOTHING),
    (libc::SYS_fcntl, ByOperation(lock)),
    (libc::SYS_fsync, NOTHING),
    (libc::SYS_fdatasync, NOTHING),
    (libc::SYS_sync, NOTHING),
    (libc::SYS_syncfs, NOTHING),
    (libc::SYS_sync_file_range, NOTHING),
    (libc::SYS_open, Always(&[Reads(First, Path)])),
    (libc::SYS_openat, Always(&[Reads(Second, Path)])),
    (libc::SYS_close, NOTHING),
];

/// Calls with a time limit that the kernel continues by `restart_syscall` after a stop, and the
/// pointers that it uses then. The kernel has kept the limit itself; see "restart_syscall(2)". All
/// other calls are made again with their own number.
const RESTARTED: [(i64, &[Pointer]); 4] = [
    (libc::SYS_poll, &[Updates(First, Elements(Second, POLL))]),
    (libc::SYS_futex, &[Reads(First, Exactly(INT))]),
    (libc::SYS_nanosleep, &[Writes(Second, Exactly(TIME))]),
    (libc::SYS_clock_nanosleep, &[Writes(Fourth, Exactly(TIME))]),
];

/// The fourth and the fifth argument are pointers in some operations only; see "futex(2)".
fn futex(operation: u32) -> Option<&'static [Pointer]> {
    const WORD: Pointer = Updates(First, Exactly(INT));
    const LIMIT: Pointer = Reads(Fourth, Exactly(TIME));
    const OTHER: Pointer = Updates(Fifth, Exactly(INT));
    let options = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
    match operation as i32 & !options {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI | libc::FUTEX_LOCK_PI2 => {
            Some(&[WORD, LIMIT])
        }
        libc::FUTEX_WAIT_REQUEUE_PI => Some(&[WORD, LIMIT, OTHER]),
        libc::FUTEX_WAKE
        | libc::FUTEX_WAKE_BITSET
        | libc::FUTEX_UNLOCK_PI
        | libc::FUTEX_TRYLOCK_PI => Some(&[WORD]),
        libc::FUTEX_REQUEUE
        | libc::FUTEX_CMP_REQUEUE
        | libc::FUTEX_CMP_REQUEUE_PI
        | libc::FUTEX_WAKE_OP => Some(&[WORD, OTHER]),
        _ => None,
    }
}

/// `fcntl` that waits for a lock. Its other commands don't wait.
fn lock(command: u32) -> Option<&'static [Pointer]> {
    match command as i32 {
        libc::F_SETLKW | libc::F_OFD_SETLKW => Some(&[Reads(Third, Exactly(LOCK))]),
        _ => None,
    }
}

/// The kernel call in which a thread is stopped.
#[derive(Clone, Copy, Debug)]
pub struct KernelCall {
    /// Its number.
    pub number: i64,
    /// The argument registers, including those that the call does not use.
    pub arguments: [u64; 6],
    /// The address behind its instruction.
    pub after: u64,
}

/// Copies bytes of the program from an address; whether all of them could be read.
pub type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

impl KernelCall {
    /// Whether the call may use one of the `len` bytes from `page` on, changes mappings or their
    /// sharing, or replaces the thread's signal mask.
    pub fn is_in_the_way(&self, read: Read<'_>, (page, len): (u64, u64)) -> bool {
        let pages = Pages { page, len, read };
        let leads_there = |all: &[Pointer]| all.iter().any(|p| self.meets(p, &pages));
        // Calls by `int 0x80` have other numbers and other argument registers.
        let Some(loaded) = self.number_in_code(read) else {
            return true;
        };
        let row = CALLS.iter().find(|row| row.0 == self.number);
        let pointers = match row.map(|row| row.1) {
            Some(Always(pointers)) => Some(pointers),
            Some(ByOperation(pointers)) => pointers(self.argument(Second) as u32),
            Some(AsBefore) => {
                let known = RESTARTED.iter().find(|row| row.0 == loaded);
                return known.map_or_else(
                    || RESTARTED.iter().any(|row| leads_there(row.1)),
                    |row| leads_there(row.1),
                );
            }
            None => None,
        };
        pointers.is_none_or(leads_there)
    }

    /// The number that the instruction before the call loads into `eax`, or -1 if another
    /// instruction stands there. `None` if the call was not made by `syscall`.
    fn number_in_code(&self, read: Read<'_>) -> Option<i64> {
        // `mov eax, number`, without a prefix that selects another register, and `syscall`.
        const LOADS: u8 = 0xb8;
        const PREFIXES: core::ops::RangeInclusive<u8> = 0x40..=0x4f;
        let mut code = [0; 2];
        if !read(self.after.wrapping_sub(2), &mut code) || code != [0x0f, 0x05] {
            return None;
        }
        let mut before = [0; 6];
        let is_read = read(self.after.wrapping_sub(8), &mut before);
        let [prefix, opcode, number @ ..] = before;
        let is_load = is_read && opcode == LOADS && !PREFIXES.contains(&prefix);
        Some(if is_load {
            u32::from_le_bytes(number).into()
        } else {
            -1
        })
    }

    const fn argument(&self, which: Argument) -> u64 {
        let [first, second, third, fourth, fifth, sixth] = self.arguments;
        match which {
            First => first,
            Second => second,
            Third => third,
            Fourth => fourth,
            Fifth => fifth,
            Sixth => sixth,
        }
    }

    /// An argument of type `int`: the kernel ignores the upper half of its register.
    fn int(&self, which: Argument) -> u64 {
        self.argument(which) & 0xffff_ffff
    }

    /// Whether a pointer leads to one of the pages.
    fn meets(&self, pointer: &Pointer, pages: &Pages<'_>) -> bool {
        let (argument, extent) = match *pointer {
            Reads(argument, extent) | Writes(argument, extent) | Updates(argument, extent) => {
                (argument, extent)
            }
            Mask(argument) => return self.argument(argument) != 0,
            MaskBehind(argument) => {
                let at = self.argument(argument);
                return pages.have(at, SET_AND_SIZE)
                    || at != 0 && pages.any(at, 1, |[mask, _]: [u64; 2]| mask != 0);
            }
        };
        let at = self.argument(argument);
        if at == 0 {
            return false;
        }
        match extent {
            Exactly(bytes) => pages.have(at, bytes),
            Bytes(count) => pages.have(at, self.argument(count).min(MOST_BYTES)),
            MessageText(count) => {
                pages.have(at, MESSAGE_TYPE + self.argument(count).min(MOST_BYTES))
            }
            Address(count) => pages.have(at, self.int(count).min(LONGEST_ADDRESS)),
            Elements(count, bytes) => pages.have(at, self.int(count) * bytes),
            Bits(count) => pages.have(at, self.int(count).div_ceil(64) * 8),
            Vectors(count) => {
                let mut left = MOST_VECTORS;
                pages.have_vectors(at, self.argument(count), &mut left)
            }
            Message => pages.have_messages::<MESSAGE>(at, 1),
            Messages(count) => pages.have_messages::<SHORT_MESSAGE>(at, self.int(count)),
            Waiters(count) => pages.have_waiters(at, self.int(count)),
            Path => pages.have_path(at),
        }
    }
}

/// Words of `struct msghdr`.
const MESSAGE: usize = 7;
/// Words of `struct mmsghdr`: a `struct msghdr`, and the number of bytes transferred.
const SHORT_MESSAGE: usize = 8;

/// The pages that are to move, and access to the program's memory.
struct Pages<'a> {
    page: u64,
    len: u64,
    read: Read<'a>,
}

impl Pages<'_> {
    /// Whether one of these bytes lies on the pages.
    fn have(&self, start: u64, bytes: u64) -> bool {
        bytes > 0
            && start < self.page.saturating_add(self.len)
            && self.page < start.saturating_add(bytes)
    }

    /// Whether `is_such` holds for one of `count` elements, of `WORDS` words each, of an array at
    /// `at`; also true if the array can't be read.
    fn any<const WORDS: usize>(
        &self,
        at: u64,
        count: u64,
        mut is_such: impl FnMut([u64; WORDS]) -> bool,
    ) -> bool {
        let size = 8 * WORDS;
        let mut room = [0u8; 1024];
        let most = (room.len() / size) as u64;
        let mut first = 0;
        while first < count {
            let part = (count - first).min(most);
            let bytes = &mut room[..part as usize * size];
            let place = at.checked_add(first * size as u64);
            if !place.is_some_and(|place| (self.read)(place, bytes)) {
                return true;
            }
            let (words, _) = bytes.as_chunks::<8>();
            let (elements, _) = words.as_chunks::<WORDS>();
            let mut elements = elements.iter().map(|e| e.map(u64::from_le_bytes));
            if elements.any(&mut is_such) {
                return true;
            }
            first += part;
        }
        false
    }

    /// Whether one of `count` vectors lies on the pages or points to them. `left` is the number of
    /// vectors that may still be examined; if there are more, this is true.
    fn have_vectors(&self, at: u64, count: u64, left: &mut u64) -> bool {
        if count > MOST_VECTORS.min(*left) {
            return true;
        }
        *left -= count;
        let leads_there = |[start, bytes]: [u64; 2]| self.have(start, bytes.min(MOST_BYTES));
        self.have(at, 16 * count) || self.any(at, count, leads_there)
    }

    /// The same for `count` messages of `WORDS` words each.
    fn have_messages<const WORDS: usize>(&self, at: u64, count: u64) -> bool {
        if count > MOST_VECTORS {
            return true;
        }
        let mut left = MOST_LOOKED_AT;
        let leads_there = |message: [u64; WORDS]| {
            let [name, named, vectors, count, control, bytes, ..] = message[..] else {
                return true;
            };
            // The length of the name is half a word; the other half means nothing.
            let named = (named & 0xffff_ffff).min(LONGEST_ADDRESS);
            self.have(name, named)
                || self.have(control, bytes.min(MOST_BYTES))
                || self.have_vectors(vectors, count, &mut left)
        };
        self.have(at, 8 * WORDS as u64 * count) || self.any(at, count, leads_there)
    }

    /// The same for futexes that are waited for.
    fn have_waiters(&self, at: u64, count: u64) -> bool {
        // `struct futex_waitv`: value, address, flags.
        let leads_there = |[_, word, _]: [u64; 3]| self.have(word, WAITED_FOR);
        count > MOST_WAITERS || self.have(at, 24 * count) || self.any(at, count, leads_there)
    }

    /// Whether a path lies on the pages.
    fn have_path(&self, at: u64) -> bool {
        const PART: u64 = 64;
        // Each part ends at or before the end of a page.
        let mut place = at;
        while place - at < LONGEST_PATH {
            let mut part = [0u8; PART as usize];
            let bytes = &mut part[..(PART - place % PART) as usize];
            if !(self.read)(place, bytes) {
                return true;
            }
            if let Some(zero) = bytes.iter().position(|b| *b == 0) {
                return self.have(at, place - at + zero as u64 + 1);
            }
            match place.checked_add(bytes.len() as u64) {
                Some(next) => place = next,
                None => return true,
            }
        }
        self.have(at, LONGEST_PATH)
    }
}

#[cfg(test)]
mod tests;
