//! Holds the sources and documents against the rules that the documents state.

mod architecture;
mod circles;
mod documents;
mod records;
mod words;
