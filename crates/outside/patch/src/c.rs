//! What changes of C and C++ sources are made of: definitions of types, variables, allocations.

pub(crate) mod allocations;
pub(crate) mod carry;
pub(crate) mod heap;
pub(crate) mod names;
pub(crate) mod prescribed;
pub(crate) mod spelling;
pub(crate) mod spread;
pub(crate) mod types;
pub(crate) mod variables;
pub(crate) mod wrapped;
