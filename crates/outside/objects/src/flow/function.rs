//! The function to be analysed.

use crate::image::Image;
use crate::locals::Local;
use std::collections::HashMap;

/// One function to be analysed.
pub(crate) struct Function<'a> {
    pub(crate) begin: u64,
    pub(crate) code: &'a [u8],
    pub(crate) locals: Vec<Local>,
    /// Addresses that the loader writes to pointers of the file, by the pointer's address.
    pub(crate) pointers: &'a HashMap<u64, u64>,
    /// Names of functions of other files, by the address of their pointer.
    pub(crate) imports: &'a HashMap<u64, String>,
    pub(crate) image: &'a Image,
    /// For executables, the distance from the start of their TLS block to the thread pointer.
    pub(crate) tls_size: Option<u64>,
    /// Whether the code is loaded at its link address, so that constants in it are addresses of
    /// variables.
    pub(crate) fixed: bool,
}

impl Function<'_> {
    pub(super) fn locals_at(&self, ip: u64) -> impl Iterator<Item = &Local> {
        self.locals
            .iter()
            .filter(move |l| l.begin <= ip && ip < l.end)
    }
}
