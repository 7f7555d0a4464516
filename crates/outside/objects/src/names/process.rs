//! What is known of one process image: its mappings, and the files that have been read. The queries
//! are in the files beside this one.

use super::lock_call::FoundCall;
use super::thread_blocks::ThreadBlocks;
use crate::copies::Copies;
use crate::files::Files;
use crate::generated::GeneratedCode;
use crate::image::Image;
use crate::limits::Limits;
use crate::module::{Debug, Module};
use crate::options::NameOptions;
use crate::remembered::Memory;
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use sunder_access::{CodeAddress, Mappings};

/// Names of one process image. Loads lazily, owns all caches.
pub struct Names {
    pub(crate) options: NameOptions,
    pub(super) mappings: Mappings,
    pub(super) modules: Vec<Module>,
    /// By path and inode; `None` for files without names.
    pub(super) known: HashMap<(String, u64), Option<u32>>,
    pub(super) limits: Limits,
    /// `None` until first needed.
    pub(super) lock_calls: Option<Vec<FoundCall>>,
    /// The thread-local blocks of libraries.
    pub(super) blocks: ThreadBlocks,
    /// The functions whose code is in no file.
    pub(super) generated: GeneratedCode,
    pub(super) copies: Copies,
    /// See [`Names::set_file`].
    pub(super) held: HashMap<(String, u64), Option<Arc<File>>>,
}

impl Names {
    /// Names of an image without mappings.
    pub fn new(options: NameOptions) -> Self {
        Self {
            options,
            mappings: Mappings::new(),
            modules: Vec::new(),
            known: HashMap::new(),
            limits: Limits::default(),
            lock_calls: None,
            blocks: ThreadBlocks::default(),
            generated: GeneratedCode::default(),
            copies: Copies::default(),
            held: HashMap::new(),
        }
    }

    /// Replaces the way in which files are opened. Modules that have been read stay in memory.
    pub fn set_files(&mut self, files: Arc<dyn Files>) {
        self.options.files = files;
    }

    /// Sets what keeps the answers of debug information.
    pub fn set_memory(&mut self, memory: Arc<dyn Memory>) {
        self.options.memory = Some(memory);
    }

    /// From now on no debug information is read, and what it would say is not known.
    pub fn leave_debug_information(&mut self) {
        self.options.debug_information = false;
    }

    /// Sets the functions whose code a runtime made while the program ran.
    pub fn set_generated(&mut self, code: GeneratedCode) {
        self.generated = code;
    }

    /// Adds instructions of a copy of code that a remedy made, each with the original one: queries about
    /// it are answered for that one.
    pub fn add_copies(
        &mut self,
        instructions: impl IntoIterator<Item = (CodeAddress, CodeAddress)>,
    ) {
        self.copies.add(instructions);
    }

    /// The instruction that is told of in place of the one at `code`.
    pub(super) fn original(&self, code: CodeAddress) -> CodeAddress {
        self.copies.original(code)
    }

    /// Replaces the mappings. Modules that have been read stay in memory.
    pub fn set_mappings(&mut self, mappings: Mappings) {
        self.mappings = mappings;
        self.lock_calls = None;
    }

    /// One sentence for each thing that could not be found or read so far.
    pub fn limits(&self) -> Vec<String> {
        self.limits.in_sentences()
    }

    /// The debug information of a module, loaded at the first call, and the list for its missing
    /// parts.
    pub(crate) fn debug(&mut self, module: usize) -> Option<(&mut Debug, &mut Vec<String>)> {
        let (debug, _, limits) = self.debug_and_image(module)?;
        Some((debug, limits))
    }

    /// The same with the module's file, whose code is analysed.
    pub(super) fn debug_and_image(
        &mut self,
        module: usize,
    ) -> Option<(&mut Debug, &Image, &mut Vec<String>)> {
        let Self {
            modules,
            options,
            limits,
            ..
        } = self;
        let (debug, image) = modules.get_mut(module)?.debug(options, limits)?;
        Some((debug, image, &mut limits.sentences))
    }
}
