//! What a session needs to write a recording, and to take the steps of one: conversions, the code and the
//! files of a kept run, and how much of it may be kept. Used by the session, its processes and
//! `rejudge`. Nothing here knows the session.

mod code;
pub(crate) mod convert;
mod files;
mod keeper;
mod memory;

pub(crate) use code::KeptCode;
pub(crate) use convert::kept_owner_change;
pub(crate) use files::{KeptFiles, identity, key};
pub(crate) use keeper::{Keeper, Noting};
pub(crate) use memory::{Bounds, MOST_SEGMENTS, damaged};

use sunder_access::Span;

/// Functions that a runtime had made: their places and names.
pub(crate) type Made = Vec<(Span, String)>;
