//! A kernel call with its arguments.

use Argument::{Fifth, First, Fourth, Second, Sixth, Third};

/// An argument of a call, in the kernel's order: `rdi`, `rsi`, `rdx`, `r10`, `r8`, `r9`.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    First,
    Second,
    Third,
    Fourth,
    Fifth,
    Sixth,
}

/// A kernel call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCall {
    /// Its number.
    pub number: i64,
    /// The argument registers, including those that the call does not use.
    pub arguments: [u64; 6],
}

impl KernelCall {
    pub(crate) const fn argument(&self, which: Argument) -> u64 {
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
    pub(crate) const fn int(&self, which: Argument) -> u64 {
        self.argument(which) & 0xffff_ffff
    }
}
