//! The results of the analysis of a function.

use crate::types::TypeId;
use crate::value::{Origin, Touched};
use std::collections::HashMap;
use std::ops::Range;

/// The accesses of all instructions of a function, and the names of origins.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) touched: HashMap<u64, Touched>,
    /// The types that results of calls point to, by the address after the call: known from the
    /// called function or from the variable that takes the result.
    pub(crate) results: HashMap<u64, TypeId>,
    /// The holders of these results, by the address after the call.
    pub(crate) calls: HashMap<u64, Call>,
    /// The blocks of the function with the number of the loop that each is in.
    pub(super) loops: Vec<(Range<u64>, Option<u32>)>,
    pub(super) names: Vec<String>,
    /// The addresses of variables with static storage, by origin; `None` for a name that several
    /// have.
    pub(super) statics: HashMap<u32, Option<u64>>,
}

impl Answers {
    /// The address of the variable with static storage that leads to the object, if it is only one.
    pub(crate) fn static_start(&self, origin: Origin) -> Option<u64> {
        self.statics.get(&origin.0).copied().flatten()
    }

    /// The first instructions of the blocks that are in one loop with the instruction at `address`:
    /// none if it is in no loop; `None` if it is not known.
    pub(crate) fn loop_around(&self, address: u64) -> Option<Vec<u64>> {
        let block = self.loops.iter().find(|(code, _)| code.contains(&address));
        let (_, number) = block?;
        let same = |(_, other): &&(Range<u64>, Option<u32>)| number.is_some() && other == number;
        Some(
            self.loops
                .iter()
                .filter(same)
                .map(|(c, _)| c.start)
                .collect(),
        )
    }

    /// The name of the variable that leads to the object.
    pub(crate) fn name(&self, origin: Origin) -> Option<&str> {
        self.names
            .get(origin.0 as usize)
            .map(String::as_str)
            .filter(|n| !n.is_empty())
    }
}

/// The facts about one call, which is identified by the address after it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    /// What takes the result.
    pub(crate) taker: Option<Taker>,
    /// Whether the function itself returns the result.
    pub(crate) returned: bool,
    /// The object whose address is the first argument.
    pub(crate) argument: Argument,
    /// The typed objects to which the first two arguments point.
    pub(crate) pointers: [Option<Touched>; 2],
}

/// The variable or field that takes the result of a call.
#[derive(Clone, Debug)]
pub(crate) struct Taker {
    /// How many inlined functions it is in, the instruction where it has the result, and its entry
    /// in the debug information; the smaller, the better a name it is.
    pub(super) rank: (u8, u64, usize),
    pub(crate) name: String,
    /// Whether it is a local variable as a whole, which says little of the object.
    pub(crate) local: bool,
    /// The type of the whole variable that takes it, or of which a field does.
    pub(crate) variable: TypeId,
}

impl Taker {
    /// The instruction at which it has the result.
    pub(crate) fn at(&self) -> u64 {
        self.rank.1
    }
}

/// The object whose address is the first argument of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Argument {
    /// An object without a name.
    #[default]
    Unknown,
    /// A temporary: a place in the frame without a name, by its offset.
    Temporary(i64),
    /// The function's own first argument, such as `this` or the address for its returned
    /// object.
    Own,
    /// An object of a library type, such as a container.
    Container(String),
    /// A pointer variable, which the called function may set.
    Pointer(String),
}
