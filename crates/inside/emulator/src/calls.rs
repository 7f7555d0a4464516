//! The call stack of a thread, from the stores of calls and the loads of returns. It is correct for
//! any code, with or without frame pointers. Contexts: normal, on the thread of the emulated
//! processor.

/// The most calls that are kept; deeper ones are dropped.
const MOST: usize = 8192;

/// The most frames that are recorded of a thread creation, with those of the C library.
const WAITING: usize = 12;

#[repr(C)]
#[derive(Clone, Copy)]
struct Call {
    /// The return address.
    returns: u64,
    /// The stack slot of the return address.
    at: u64,
}

/// A call stack. Zeroed memory is an empty one.
#[repr(C)]
pub struct Calls {
    /// Whether a call was seen.
    begun: bool,
    depth: usize,
    calls: [Call; MOST],
}

impl Calls {
    /// Removes all calls, because another thread will use the memory.
    pub fn forget(&mut self) {
        self.depth = 0;
        self.begun = false;
    }

    /// Whether no call was seen yet. True only at the first question.
    #[inline]
    pub fn begins(&mut self) -> bool {
        !core::mem::replace(&mut self.begun, true)
    }

    /// A call has stored its return address at `at`.
    #[inline]
    pub fn called(&mut self, returns: u64, at: u64) {
        // Calls with slots at this address or below were left by `longjmp` or an exception.
        self.leave(at);
        if let Some(call) = self.calls.get_mut(self.depth) {
            *call = Call { returns, at };
            self.depth += 1;
        }
    }

    /// A return has loaded its return address from `at`.
    #[inline]
    pub fn leave(&mut self, at: u64) {
        while let Some(call) = self.calls.get(self.depth.wrapping_sub(1)) {
            if call.at > at {
                break;
            }
            self.depth -= 1;
        }
    }

    /// Calls `each` with the frames that wait in a call, innermost first, in the form of
    /// `sunder_trace::slot::tag::FRAME`: stack pointer and return address.
    pub fn waiting(&self, mut each: impl FnMut(u64, u64)) {
        let calls = self.calls.get(..self.depth).unwrap_or_default();
        let mut waiting = calls.iter().rev();
        for call in waiting.by_ref().take(WAITING) {
            each(call.at.wrapping_add(8), call.returns);
        }
        // The outermost one's caller.
        each(waiting.next().map_or(0, |call| call.at.wrapping_add(8)), 0);
    }

    /// Writes the return addresses to `to`, innermost first, without the innermost ones for which
    /// `ours` is true. Returns how many were written.
    pub fn stack(&self, ours: impl Fn(u64) -> bool, to: &mut [u64]) -> usize {
        let calls = self.calls.get(..self.depth).unwrap_or_default();
        let returns = calls.iter().rev().map(|c| c.returns);
        let mut count = 0;
        for (entry, address) in to.iter_mut().zip(returns.skip_while(|&r| ours(r))) {
            *entry = address;
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Box<Calls> {
        Box::new(Calls {
            begun: false,
            depth: 0,
            calls: [Call { returns: 0, at: 0 }; MOST],
        })
    }

    fn stack(calls: &Calls) -> Vec<u64> {
        let mut to = [0; 4];
        let count = calls.stack(|r| r >= 1000, &mut to);
        to[..count].to_vec()
    }

    #[test]
    fn calls_nest_and_return() {
        let mut calls = empty();
        calls.called(1, 0x100);
        calls.called(2, 0x80);
        calls.called(1000, 0x60);
        assert_eq!(stack(&calls), [2, 1]);
        calls.leave(0x60);
        calls.leave(0x80);
        calls.called(3, 0x80);
        assert_eq!(stack(&calls), [3, 1]);
    }

    #[test]
    fn a_jump_leaves_several_calls() {
        let mut calls = empty();
        for (returns, at) in [(1, 0x100), (2, 0x80), (3, 0x60)] {
            calls.called(returns, at);
        }
        calls.called(4, 0x90);
        assert_eq!(stack(&calls), [4, 1]);
    }

    #[test]
    fn the_frames_of_calls_have_each_other_s_stack_pointers() {
        let mut calls = empty();
        assert!(calls.begins() && !calls.begins());
        for (returns, at) in [(1, 0x100), (2, 0x80), (3, 0x60)] {
            calls.called(returns, at);
        }
        let mut told = Vec::new();
        calls.waiting(|pointer, returns| told.push((pointer, returns)));
        assert_eq!(told, [(0x68, 3), (0x88, 2), (0x108, 1), (0, 0)]);
    }

    #[test]
    fn endless_recursion_keeps_the_outermost() {
        let mut calls = empty();
        for i in 0..2 * MOST as u64 {
            calls.called(i % 7, 0x100_0000 - i * 16);
        }
        assert_eq!(calls.depth, MOST);
        calls.leave(0x100_0000 - 16);
        assert_eq!(stack(&calls), [0]);
    }
}
