//! What is wrong about a command line beyond what the parser can see: options that do not go
//! together, or that are not enough. The command then ends with [`crate::status::USAGE`].

use std::fmt::{self, Display, Formatter};

/// Wrong usage, in a sentence that says what to do.
#[derive(Debug)]
pub struct WrongUsage(String);

impl Display for WrongUsage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUsage {}

/// An error that says what is wrong about the options, and what to do.
pub fn wrong(sentence: impl Into<String>) -> anyhow::Error {
    WrongUsage(sentence.into()).into()
}
