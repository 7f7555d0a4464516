//! Whether an allocation comes from one of the calls on a list, also through functions that allocate
//! for their callers (`operator new`, `strdup`). Only the stack frames of such functions are walked,
//! each by one addition and one load, by rules from call-frame information. Contexts: all.

use crate::allocator::Caller;

/// How to find the stack frame of a function's caller at one return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The frame's end is counted from the frame pointer, not from the stack pointer.
    pub from_frame_pointer: bool,
    /// The distance of the frame's end above that register in bytes. The return address lies just
    /// below the end.
    pub cfa: u64,
    /// Where the caller's frame pointer is saved, in bytes below the end; 0 if it is still in its
    /// register.
    pub saved: u64,
}

/// All frames are smaller, in bytes; a rule with a larger one is not followed.
const LARGEST_FRAME: u64 = 1 << 20;

/// What the list says of a call.
#[derive(Clone, Copy, Debug)]
pub struct ListedCall {
    /// The call ends an entry of the list: nothing more need be known.
    pub is_end: bool,
    /// How to find the caller of the function that makes the call.
    pub rule: Option<Rule>,
}

/// The return address of a call of an allocation function.
#[inline]
pub fn address(caller: Caller) -> u64 {
    // SAFETY: the return address of our own call, on the live stack.
    unsafe { *caller.sp }
}

/// Whether an entry of the list leads to this call of an allocation function. `find` gives the number
/// of the call with this return address inside the call of another number, 0 if the list has none;
/// number 0 stands for the allocation function. `call` gives what the list says of a number.
#[inline]
pub fn is_listed(
    caller: Caller,
    find: impl Fn(u16, u64) -> u16,
    call: impl Fn(u16) -> Option<ListedCall>,
) -> bool {
    let mut found = find(0, address(caller));
    let (mut sp, mut bp) = (caller.sp as u64 + 8, caller.bp);
    while let Some(known) = call(found) {
        if known.is_end {
            return true;
        }
        let Some(rule) = known.rule else {
            return false;
        };
        let base = if rule.from_frame_pointer { bp } else { sp };
        let cfa = base.wrapping_add(rule.cfa);
        // Even with a wrong rule, nothing beyond the size of a frame is read.
        let sound = cfa.wrapping_sub(sp) <= LARGEST_FRAME && cfa % 8 == 0;
        if !sound || rule.saved > cfa.wrapping_sub(sp) {
            return false;
        }
        // SAFETY: the address is within the stack, by the rule for this return address.
        unsafe {
            if rule.saved > 0 {
                bp = *((cfa - rule.saved) as *const u64);
            }
            found = find(found, *((cfa - 8) as *const u64));
        }
        sp = cfa;
    }
    false
}

/// Bits of a call's number in a word that remembers a return address.
const NUMBER_BITS: u32 = 17;
/// Addresses of programs have so many bits.
const ADDRESS_BITS: u32 = 47;

/// A return address inside a call, as it is remembered in a word of a table.
#[derive(Clone, Copy, Debug)]
pub struct Key(u64);

impl Key {
    /// The key of `address` inside the call `parent`. Two addresses that differ only in the upper
    /// bits are not both code of one program, so the parent is stored there.
    #[inline]
    pub const fn of(parent: u16, address: u64) -> Self {
        Self((address ^ (parent as u64) << 35) & ((1 << ADDRESS_BITS) - 1))
    }

    /// Its place in a table of `words`, a power of two.
    #[inline]
    pub const fn place(self, words: usize) -> usize {
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize & (words - 1)
    }

    /// The number that `word` remembers for this key.
    #[inline]
    pub const fn number_in(self, word: u64) -> Option<u16> {
        if word >> NUMBER_BITS == self.0 {
            return Some(word as u16);
        }
        None
    }

    /// The word that remembers `number` for this key.
    #[inline]
    pub const fn word(self, number: u16) -> u64 {
        self.0 << NUMBER_BITS | number as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `main` calls `wrapper` with a frame of 32 bytes, which calls the allocator; `other` calls it
    /// as well.
    #[test]
    fn a_wrappers_blocks_are_told_apart_by_its_caller() {
        const IN_WRAPPER: u64 = 0x1000;
        const IN_MAIN: u64 = 0x2000;
        let find = |parent: u16, address: u64| match (parent, address) {
            (0, IN_WRAPPER) => 1,
            (1, IN_MAIN) => 2,
            _ => 0,
        };
        let rule = Rule {
            from_frame_pointer: false,
            cfa: 32,
            saved: 0,
        };
        let call = |number: u16| match number {
            1 => Some(ListedCall {
                is_end: false,
                rule: Some(rule),
            }),
            2 => Some(ListedCall {
                is_end: true,
                rule: None,
            }),
            _ => None,
        };
        let stack = |wrapper_called_by: u64| [IN_WRAPPER, 0, 0, 0, wrapper_called_by, 0];
        let listed = |stack: &[u64; 6]| {
            let caller = Caller {
                sp: stack.as_ptr(),
                bp: 0,
            };
            is_listed(caller, find, call)
        };
        assert!(listed(&stack(IN_MAIN)));
        assert!(!listed(&stack(0x3000)));
        assert!(!listed(&[IN_MAIN, 0, 0, 0, IN_WRAPPER, 0]));
    }

    #[test]
    fn what_is_remembered_belongs_to_one_caller() {
        let (one, other) = (Key::of(1, 0x7f00_1234), Key::of(2, 0x7f00_1234));
        assert_eq!(one.number_in(one.word(7)), Some(7));
        assert_eq!(other.number_in(one.word(7)), None);
        assert_eq!(one.number_in(0), None);
        assert!(one.place(1024) < 1024);
    }
}
