//! Follows a call's pointers to the memory that the call uses. Sources of bounds stand beside them.

use crate::call::Argument::Second;
use crate::call::KernelCall;
use crate::table::Extent::{
    Address, Bits, Bytes, Elements, Exactly, Message, MessageText, Messages, Path, Vectors, Waiters,
};
use crate::table::Pointer::{self, Mask, MaskBehind, Reads, Updates, Writes};
use crate::table::{RESTART, SOCKET_ADDRESS, Takes, WORD, continued, continued_calls, takes};

/// The address of a mask and its size, as `pselect6` gets them.
const SET_AND_SIZE: u64 = 16;
/// The `long` before the text of a message of `msgsnd`.
const MESSAGE_TYPE: u64 = 8;
/// `PATH_MAX`.
const LONGEST_PATH: u64 = 4096;
/// `MAX_RW_COUNT` rounded up: the kernel transfers no more bytes in one call.
const MOST_BYTES: u64 = 1 << 31;
/// `UIO_MAXIOV`, the most vectors and the most messages of one call.
const MOST_VECTORS: u64 = 1024;
/// `FUTEX_WAITV_MAX`.
const MOST_WAITERS: u64 = 128;
/// Most vectors of all messages of one call that are examined, since the program may be stopped
/// meanwhile.
const MOST_LOOKED_AT: u64 = 16 * MOST_VECTORS;
/// Words of `struct msghdr`.
const MESSAGE: usize = 7;
/// Words of `struct mmsghdr`: a `struct msghdr`, and the number of bytes transferred.
const SHORT_MESSAGE: usize = 8;

/// One use that a call makes of the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The call reads or writes these bytes. Moved bytes can be neither read nor written at their
    /// old place, so the direction makes no difference.
    Memory {
        /// Address of the first byte.
        at: u64,
        /// Number of bytes, at least 1.
        len: u64,
    },
    /// During the call the thread has the signal mask at this address; the thread's own can't be
    /// seen then.
    Mask(u64),
    /// The call may use any memory, or changes mappings or how they are shared.
    Anything,
}

/// Copies bytes of the program from an address; whether all of them could be read.
pub type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

impl KernelCall {
    /// Whether `is_meant` holds for one of the call's uses of memory. All of them are shown to it,
    /// until it holds for one. A call that is not known uses [`Use::Anything`].
    pub fn any_use(&self, read: Read<'_>, is_meant: &mut dyn FnMut(Use) -> bool) -> bool {
        let mut walk = Walk::new(read, is_meant);
        match takes(self.number) {
            Some(Takes::Always(pointers)) => self.any(pointers, &mut walk),
            Some(Takes::ByOperation(pointers)) => match pointers(self.argument(Second) as u32) {
                Some(pointers) => self.any(pointers, &mut walk),
                None => walk.anything(),
            },
            Some(Takes::AsBefore) => self.any_use_continued(None, &mut walk),
            None => walk.anything(),
        }
    }

    /// As [`Self::any_use`] for `restart_syscall`, which continues the call of the number `before`.
    /// If that is not one that the kernel continues so, it may be any of those.
    pub fn any_use_of_rest(
        &self,
        before: i64,
        read: Read<'_>,
        is_meant: &mut dyn FnMut(Use) -> bool,
    ) -> bool {
        self.any_use_continued(Some(before), &mut Walk::new(read, is_meant))
    }

    /// Whether it continues a call that a stop has interrupted (`restart_syscall`).
    pub const fn continues(&self) -> bool {
        self.number == RESTART
    }

    fn any_use_continued(&self, before: Option<i64>, walk: &mut Walk<'_>) -> bool {
        match before.and_then(continued) {
            Some(pointers) => self.any(pointers, walk),
            None => continued_calls().any(|pointers| self.any(pointers, walk)),
        }
    }

    fn any(&self, pointers: &[Pointer], walk: &mut Walk<'_>) -> bool {
        pointers.iter().any(|pointer| walk.leads(self, pointer))
    }
}

/// Shows uses to the caller's function, until that holds for one.
struct Walk<'a> {
    read: Read<'a>,
    is_meant: &'a mut dyn FnMut(Use) -> bool,
}

impl<'a> Walk<'a> {
    fn new(read: Read<'a>, is_meant: &'a mut dyn FnMut(Use) -> bool) -> Self {
        Self { read, is_meant }
    }

    /// The call may use any memory.
    fn anything(&mut self) -> bool {
        (self.is_meant)(Use::Anything)
    }

    /// Whether a pointer of the call leads to a use that is meant.
    fn leads(&mut self, call: &KernelCall, pointer: &Pointer) -> bool {
        let (argument, extent) = match *pointer {
            Reads(argument, extent) | Writes(argument, extent) | Updates(argument, extent) => {
                (argument, extent)
            }
            Mask(argument) => return self.mask(call.argument(argument)),
            MaskBehind(argument) => return self.mask_behind(call.argument(argument)),
        };
        let at = call.argument(argument);
        if at == 0 {
            return false;
        }
        match extent {
            Exactly(bytes) => self.memory(at, bytes),
            Bytes(count) => self.memory(at, call.argument(count).min(MOST_BYTES)),
            MessageText(count) => {
                self.memory(at, MESSAGE_TYPE + call.argument(count).min(MOST_BYTES))
            }
            Address(count) => self.memory(at, call.int(count).min(SOCKET_ADDRESS)),
            Elements(count, bytes) => self.memory(at, call.int(count) * bytes),
            Bits(count) => self.memory(at, call.int(count).div_ceil(64) * 8),
            Vectors(count) => {
                let mut left = MOST_VECTORS;
                self.vectors(at, call.argument(count), &mut left)
            }
            Message => self.messages::<MESSAGE>(at, 1),
            Messages(count) => self.messages::<SHORT_MESSAGE>(at, call.int(count)),
            Waiters(count) => self.waiters(at, call.int(count)),
            Path => self.path(at),
        }
    }

    fn memory(&mut self, at: u64, len: u64) -> bool {
        len > 0 && (self.is_meant)(Use::Memory { at, len })
    }

    fn mask(&mut self, at: u64) -> bool {
        at != 0 && (self.is_meant)(Use::Mask(at))
    }

    /// A mask whose address and size stand at `at`.
    fn mask_behind(&mut self, at: u64) -> bool {
        at != 0
            && (self.memory(at, SET_AND_SIZE)
                || self.any(at, 1, |walk, [mask, _]: [u64; 2]| walk.mask(mask)))
    }

    /// Whether `is_such` holds for one of `count` elements, of `WORDS` words each, of an array at
    /// `at`. If the array can't be read, the call may use anything.
    fn any<const WORDS: usize>(
        &mut self,
        at: u64,
        count: u64,
        mut is_such: impl FnMut(&mut Self, [u64; WORDS]) -> bool,
    ) -> bool {
        let size = 8 * WORDS;
        let mut room = [0u8; 1024];
        let most = (room.len() / size) as u64;
        let mut first = 0;
        while first < count {
            let part = (count - first).min(most);
            let place = at.checked_add(first * size as u64);
            let (Some(place), Some(bytes)) = (place, room.get_mut(..part as usize * size)) else {
                return self.anything();
            };
            if !(self.read)(place, bytes) {
                return self.anything();
            }
            let (words, _) = bytes.as_chunks::<8>();
            let (elements, _) = words.as_chunks::<WORDS>();
            let mut elements = elements.iter().map(|e| e.map(u64::from_le_bytes));
            if elements.any(|element| is_such(self, element)) {
                return true;
            }
            first += part;
        }
        false
    }

    /// `count` vectors and their targets. `left` is the number of vectors that may still be
    /// examined; if there are more, the call may use anything.
    fn vectors(&mut self, at: u64, count: u64, left: &mut u64) -> bool {
        if count > MOST_VECTORS.min(*left) {
            return self.anything();
        }
        *left -= count;
        self.memory(at, 16 * count)
            || self.any(at, count, |walk, [start, bytes]: [u64; 2]| {
                walk.memory(start, bytes.min(MOST_BYTES))
            })
    }

    /// `count` messages of `WORDS` words each, and their targets.
    fn messages<const WORDS: usize>(&mut self, at: u64, count: u64) -> bool {
        if count > MOST_VECTORS {
            return self.anything();
        }
        let mut left = MOST_LOOKED_AT;
        self.memory(at, 8 * WORDS as u64 * count)
            || self.any(at, count, |walk, message: [u64; WORDS]| {
                let [name, named, vectors, count, control, bytes, ..] = message[..] else {
                    return walk.anything();
                };
                // The length of the name is half a word; the other half means nothing.
                let named = (named & 0xffff_ffff).min(SOCKET_ADDRESS);
                walk.memory(name, named)
                    || walk.memory(control, bytes.min(MOST_BYTES))
                    || walk.vectors(vectors, count, &mut left)
            })
    }

    /// `count` futexes that are waited for (`struct futex_waitv`: value, address, flags).
    fn waiters(&mut self, at: u64, count: u64) -> bool {
        if count > MOST_WAITERS {
            return self.anything();
        }
        self.memory(at, 24 * count)
            || self.any(at, count, |walk, [_, word, _]: [u64; 3]| {
                walk.memory(word, WORD)
            })
    }

    /// A path, to its zero byte.
    fn path(&mut self, at: u64) -> bool {
        const PART: u64 = 64;
        // Each part ends at or before the end of a page.
        let mut place = at;
        while place - at < LONGEST_PATH {
            let mut part = [0u8; PART as usize];
            let Some(bytes) = part.get_mut(..(PART - place % PART) as usize) else {
                return self.anything();
            };
            if !(self.read)(place, bytes) {
                return self.anything();
            }
            if let Some(zero) = bytes.iter().position(|b| *b == 0) {
                return self.memory(at, place - at + zero as u64 + 1);
            }
            match place.checked_add(bytes.len() as u64) {
                Some(next) => place = next,
                None => return self.anything(),
            }
        }
        self.memory(at, LONGEST_PATH)
    }
}
