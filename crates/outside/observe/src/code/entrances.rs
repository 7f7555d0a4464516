//! Addresses at which control may enter functions of one ELF file other than at their start, for
//! planning changes of these functions.

use super::image::Image;
use std::fs::File;

/// The entries of one file. See the module's head.
#[derive(Debug)]
pub struct Entrances {
    image: Image,
}

impl Entrances {
    /// Reads the file; `None` if it is no ELF file for x86-64.
    #[must_use]
    pub fn read(file: File) -> Option<Self> {
        let image = Image::from_file(file)?;
        Some(Self { image })
    }

    /// Addresses in the function that begins at `start` to which jumps of other functions or jump
    /// tables lead. `None` if it has indirect jumps whose targets are unknown.
    #[must_use]
    pub fn of(&self, start: u64) -> Option<Vec<u64>> {
        let function = self.image.function_of(start)?;
        let known = function.tables_known && function.exact_start;
        let entries = function.entries.iter();
        known.then(|| entries.map(|&entry| start + u64::from(entry)).collect())
    }
}
