//! From runtime addresses to link addresses: which mapping holds an address, how far above its link
//! addresses the file is loaded, and which file it is, even if its path now leads to another file.
//! All queries of [`Names`] use it.

use super::placed::{Placed, file_name_of, is_backed};
use super::process::Names;
use crate::image::{Image, ImageError};
use crate::module::Module;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use sunder_access::{Address, LinkAddress, Mapping};

/// The file of the copies of code that a repair makes. It never had names, and nobody replaced it.
const COPIES: &str = "/memfd:sunder-remap";

impl Names {
    /// The program itself: the ELF file with the lowest mapping. The kernel maps executables,
    /// whether position-independent or fixed, below the libraries.
    pub(super) fn executable(&mut self) -> Option<usize> {
        let lowest = self.mappings.iter().find(|m| is_backed(m))?.clone();
        self.module(&lowest)
    }

    /// Whether the mapping at `address` is no thread's stack, although a thread's stack pointer was in it:
    /// threads of Go run on stacks that lie among the objects of its heap.
    pub(super) fn keeps_stacks_elsewhere(&mut self, address: Address) -> bool {
        let is_kernels = |mapping: &Mapping| mapping.path.starts_with("[stack");
        if self.mappings.at(address).is_some_and(is_kernels) {
            return false;
        }
        let program = self.executable();
        program.is_some_and(|number| self.modules[number].image.is_go)
    }

    /// The module and link address of a runtime address.
    pub(crate) fn place(&mut self, address: Address) -> Option<Placed> {
        let Some(mapping) = self.mappings.at(address).cloned() else {
            return self.place_by_code(address);
        };
        let backing = if is_backed(&mapping) {
            mapping
        } else {
            self.file_before(&mapping)?
        };
        let module = self.module(&backing)?;
        let bias = self.bias(module, &backing)?;
        let image = &self.modules[module].image;
        let link = LinkAddress(address.0.wrapping_sub(bias));
        image.holds(link).then_some(Placed { module, link, bias })
    }

    /// The same where no mapping is known: of a program that has become another one, sometimes only those
    /// of code are. The file of the nearest code below has the address if one of its segments does.
    fn place_by_code(&mut self, address: Address) -> Option<Placed> {
        let is_code = |m: &&Mapping| m.execute && is_backed(m) && m.span.start < address;
        let code = self.mappings.iter().filter(is_code).last()?.clone();
        let module = self.module(&code)?;
        let bias = self.bias(module, &code)?;
        let link = LinkAddress(address.0.wrapping_sub(bias));
        let holds = self.modules[module].image.holds(link);
        holds.then_some(Placed { module, link, bias })
    }

    /// Whether the memory at an address is an ELF file's own, its zero-initialised data included;
    /// `None` if the file before it can't be read.
    pub fn is_of_a_file(&mut self, address: Address) -> Option<bool> {
        let mapping = self.mappings.at(address)?.clone();
        if is_backed(&mapping) {
            return Some(true);
        }
        let Some(backing) = self.file_before(&mapping) else {
            return Some(false);
        };
        let module = self.module(&backing)?;
        let bias = self.bias(module, &backing)?;
        let link = LinkAddress(address.0.wrapping_sub(bias));
        Some(self.modules.get(module)?.image.holds(link))
    }

    /// Runtime address minus link address, for the file of `mapping`.
    pub(super) fn bias(&self, module: usize, mapping: &Mapping) -> Option<u64> {
        let image = &self.modules.get(module)?.image;
        let (offset, address) = image.first_page()?;
        let same = |m: &&Mapping| m.path == mapping.path && m.inode == mapping.inode;
        // The lowest mapping that fits the first page: two segments may share a page of the file,
        // which is then mapped twice at the same offset, and a file may be loaded twice.
        let starts = self
            .mappings
            .iter()
            .filter(same)
            .filter(|m| m.file_offset == offset);
        let mut biases = starts.map(|m| m.span.start.0.wrapping_sub(address));
        let fits = |bias: &u64| {
            let link = LinkAddress(mapping.span.start.0.wrapping_sub(*bias));
            image.maps(link, mapping.file_offset)
        };
        biases.find(fits).or_else(|| {
            // Observers may report executable mappings only.
            let link = image.link_address(mapping.file_offset, mapping.execute)?;
            Some(mapping.span.start.0.wrapping_sub(link.0))
        })
    }

    /// The mapping of the file before `bss`, an anonymous mapping that continues it.
    fn file_before(&self, bss: &Mapping) -> Option<Mapping> {
        if !bss.path.is_empty() && bss.path != "[heap]" {
            return None;
        }
        // Code that a runtime made may lie behind a copy of the program's own.
        if bss.execute {
            return None;
        }
        let below: Vec<&Mapping> = self
            .mappings
            .iter()
            .take_while(|m| m.span.start < bss.span.start)
            .collect();
        let mut start = bss.span.start;
        for mapping in below.into_iter().rev() {
            if mapping.span.end() != start {
                return None;
            }
            if is_backed(mapping) {
                return Some(mapping.clone());
            }
            start = mapping.span.start;
        }
        None
    }

    pub(super) fn module(&mut self, mapping: &Mapping) -> Option<usize> {
        let key = (mapping.path.clone(), mapping.inode);
        if let Some(known) = self.known.get(&key) {
            return known.map(|n| n as usize);
        }
        let number = self.modules.len() as u32;
        let opened = self.open(mapping);
        if let Some(image) = opened {
            self.modules.push(Module::new(mapping.path.clone(), image));
            self.known.insert(key, Some(number));
            Some(number as usize)
        } else {
            self.known.insert(key, None);
            None
        }
    }

    fn open(&mut self, mapping: &Mapping) -> Option<Image> {
        let path = Path::new(file_name_of(mapping));
        let opened = self.file_of(mapping);
        let opened = opened.and_then(|file| Image::read(path, file));
        // Data files are mapped, too; only missing names of code are reported.
        let same = |m: &Mapping| m.execute && m.path == mapping.path;
        if let Err(error) = &opened
            && self.mappings.iter().any(same)
            && !mapping.path.starts_with(COPIES)
        {
            let sentence = format!(
                "{}: its code and data have no names, because {error}.",
                mapping.path
            );
            self.limits.sentences.push(sentence);
        }
        opened.ok()
    }

    /// The file that was mapped.
    pub(super) fn file_of(&self, mapping: &Mapping) -> Result<File, ImageError> {
        let by_path = self.options.files.open(Path::new(&mapping.path));
        match by_path {
            Ok(file) if !is_another(&file, mapping) => Ok(file),
            // What may not be opened was not replaced.
            Err(error) if error.kind() != io::ErrorKind::NotFound && is_named(mapping) => {
                self.held(mapping).map_err(|_| ImageError::Io(error))
            }
            _ => self.held(mapping),
        }
    }

    /// The file that was mapped, as somebody holds it.
    fn held(&self, mapping: &Mapping) -> Result<File, ImageError> {
        if let Some(file) = self.running_image(mapping) {
            return Ok(file.try_clone()?);
        }
        let key = (file_name_of(mapping).to_owned(), mapping.inode);
        match self.held.get(&key) {
            Some(Some(file)) => Ok(file.try_clone()?),
            Some(None) => Err(ImageError::Refused),
            None => Err(ImageError::Replaced),
        }
    }

    /// Sets the open file of `mapping`, for the time when its path leads to another file or to
    /// none. `None` means that the kernel refused it.
    pub fn set_file(&mut self, mapping: &Mapping, file: Option<Arc<File>>) {
        let key = (file_name_of(mapping).to_owned(), mapping.inode);
        self.held.insert(key, file);
    }

    /// The program's own file, if `mapping` is of that. On overlays the device numbers differ, so
    /// only the inode numbers are compared.
    fn running_image(&self, mapping: &Mapping) -> Option<&File> {
        let file = self.options.executable.as_deref()?;
        let found = file.metadata().ok()?;
        (mapping.inode != 0 && found.ino() == mapping.inode).then_some(file)
    }
}

/// Whether the path of `mapping` still is that of its file.
fn is_named(mapping: &Mapping) -> bool {
    file_name_of(mapping) == mapping.path
}

/// Whether `file`, which has the path of `mapping` now, is another one than the mapped one. On file
/// systems without a device of their own, such as the overlays of containers, the device numbers may
/// differ for the same file, so the answer is no.
fn is_another(file: &File, mapping: &Mapping) -> bool {
    if !is_named(mapping) {
        return true;
    }
    let Ok(found) = file.metadata() else {
        return false;
    };
    let major = found.dev() >> 8 & 0xfff;
    mapping.inode != 0 && found.ino() != mapping.inode && major != 0
}
