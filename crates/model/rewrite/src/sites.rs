//! Finds the `syscall` instructions of a library (its entries into the kernel), and plans which
//! of them can be led through a hook, each with the whole instructions around it that a jump
//! would overwrite. The tool plans; the runtime inside the target carries the plan out, and its
//! trampolines run copies of the overwritten instructions ([`Elsewhere`]).
//!
//! An entry is planned only if it is certain to work; every other becomes a [`Refused`]. This
//! module must not read files, change code or know what the hooks are for.

mod branches;
mod code;
mod elsewhere;
mod numbers;
mod patch;
mod record;

pub use code::Function;
pub use elsewhere::{Distance, Elsewhere};
pub use numbers::Number;
pub use patch::{Patch, Plan, Reason, Refused, Want};
pub use sunder_x86::jump::LENGTH as JUMP;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use code::Bytes;
use core::cell::OnceCell;
use iced_x86::{Code, Instruction};
use patch::{ENTRY, Surroundings};

/// The encoding of an entry.
const ENTRY_BYTES: [u8; ENTRY] = [0x0f, 0x05];

/// Plans for `bytes` of code at the address `at`. `functions` may have any order and must not
/// overlap; code outside of them is not considered. `wants` tells how the hook handles a call
/// with this number.
#[must_use]
pub fn plan(bytes: &[u8], at: u64, functions: &[Function], wants: impl Fn(Number) -> Want) -> Plan {
    Entering::of(bytes, at, functions).plan(|_, number| wants(number))
}

/// The functions of some code that enter the kernel, and the branches into them. Finding these
/// takes the most time, and several plans can share them.
pub struct Entering<'a> {
    code: Bytes<'a>,
    functions: Vec<Function>,
    targets: Vec<u64>,
    unexplained: Option<u64>,
    catches: bool,
    /// The number of the call at each entry, once a plan was made.
    numbers: OnceCell<BTreeMap<u64, Number>>,
}

impl<'a> Entering<'a> {
    /// The arguments are those of [`plan`].
    #[must_use]
    pub fn of(bytes: &'a [u8], at: u64, functions: &[Function]) -> Self {
        let code = Bytes { bytes, at };
        let mut functions = functions.to_vec();
        functions.sort_unstable_by_key(|f| f.start);
        let places = memchr::memmem::find_iter(bytes, &ENTRY_BYTES).map(|n| at + n as u64);
        let places: Vec<u64> = places.collect();
        let holding = branches::holding(&functions, places.iter().copied());
        let mut entering = Vec::new();
        let mut open = places.iter().copied().peekable();
        let mut unexplained = None;
        for function in holding {
            let (mut enters, mut end) = (false, function.start);
            code.each(function, |i| {
                enters |= i.code() == Code::Syscall;
                end = i.next_ip();
            });
            if let Some(place) = open.next_if(|&place| place < function.start) {
                unexplained.get_or_insert(place);
            }
            while open.next_if(|&place| place < end).is_some() {}
            if enters {
                entering.push(function);
            }
        }
        let unexplained = unexplained.or_else(|| open.next());
        for function in &mut entering {
            let after = functions.partition_point(|f| f.start <= function.start);
            let next = functions.get(after).map(|f| f.start);
            function.end = code.with_padding(*function, next);
        }
        let targets = if entering.is_empty() {
            Vec::new()
        } else {
            branches::into(code, &functions, &entering)
        };
        Self {
            code,
            functions: entering,
            targets,
            unexplained,
            catches: true,
            numbers: OnceCell::new(),
        }
    }

    /// Declares that the code catches no exceptions.
    pub fn without_exception_handlers(&mut self) {
        self.catches = false;
        self.numbers.take();
    }

    /// The address of bytes like those of an entry that are in no function, or in one that
    /// can't be decoded up to there, if there are any: they may be data or code.
    #[must_use]
    pub const fn unexplained(&self) -> Option<u64> {
        self.unexplained
    }

    /// The functions that enter the kernel, including the padding after them, ascending.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Adds addresses to which control may come by other ways.
    pub fn add_branch_targets(&mut self, to: impl IntoIterator<Item = u64>) {
        self.targets.extend(to);
        self.targets.sort_unstable();
        self.targets.dedup();
        self.numbers.take();
    }

    /// Makes a plan. `wants` tells how the hook handles the entry at an address with this
    /// number.
    #[must_use]
    pub fn plan(&self, wants: impl Fn(u64, Number) -> Want) -> Plan {
        let numbers = self.numbers.get_or_init(|| {
            let mut numbers = BTreeMap::new();
            self.each(|instructions| {
                numbers.extend(numbers::all(instructions, &self.targets, self.catches));
            });
            numbers
        });
        let mut plan = Plan::default();
        self.each(|instructions| {
            let around = Surroundings {
                code: self.code,
                instructions,
                targets: &self.targets,
                numbers,
            };
            around.add_to(&mut plan, &wants);
        });
        apart(&mut plan);
        plan
    }

    /// Calls `see` with the instructions of each function.
    fn each(&self, mut see: impl FnMut(&[Instruction])) {
        let mut instructions = Vec::new();
        for &function in &self.functions {
            instructions.clear();
            self.code.each(function, |i| instructions.push(*i));
            see(&instructions);
        }
    }
}

/// Refuses a patch that overlaps the one before it.
fn apart(plan: &mut Plan) {
    let mut end = 0;
    let refused = &mut plan.refused;
    plan.patches.retain(|patch| {
        let free = patch.from >= end;
        if free {
            end = patch.from + patch.length as u64;
        } else {
            refused.push(Refused {
                entry: patch.entry,
                number: patch.number,
                reason: Reason::NoRoom,
            });
        }
        free
    });
}

#[cfg(test)]
mod tests;
