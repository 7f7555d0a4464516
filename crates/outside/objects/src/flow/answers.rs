//! The results of the analysis of a function.

use crate::types::TypeId;
use crate::value::{Origin, Touched};
use std::collections::HashMap;

/// The accesses of all instructions of a function, and the names of origins.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) touched: HashMap<u64, Touched>,
    /// The types that results of calls point to, by the address after the call: known from the
    /// called function or from the variable that takes the result.
    pub(crate) results: HashMap<u64, TypeId>,
    /// The holders of these results, by the address after the call.
    pub(crate) calls: HashMap<u64, Call>,
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
    /// The name of what takes the result, with its rank; smaller is better.
    pub(super) taker: Option<((u8, u64, usize), String)>,
    /// Whether the function itself returns the result.
    pub(crate) returned: bool,
    /// The object whose address is the first argument.
    pub(crate) argument: Argument,
    /// The typed objects to which the first two arguments point.
    pub(crate) pointers: [Option<Touched>; 2],
}

impl Call {
    /// The variable or field that takes the result.
    pub(crate) fn taker(&self) -> Option<&str> {
        self.taker.as_ref().map(|(_, name)| name.as_str())
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
