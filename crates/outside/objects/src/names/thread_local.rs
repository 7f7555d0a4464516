//! Thread-local variables: the thread and the module whose block holds an address. The file of the
//! program tells the distance of its block below the thread pointer. The blocks of libraries are
//! known only from the process ([`crate::tls`]), which must be read while it lives. An address in
//! two blocks has no name.

use super::placed::{is_backed, is_c_library};
use super::process::Names;
use super::thread_blocks::{Candidate, KnownLibrary, MAX_BLOCKS};
use crate::answer::{HeapBlock, ObjectContext, ObjectKind, ObjectName, ThreadPointer};
use crate::dwarf::StaticLocation;
use crate::fold;
use crate::tls::{self, BlockLocation, Library, MAX_DISTANCE, Read};
use std::collections::HashMap;
use sunder_access::{Address, Mapping, Mappings};

impl Names {
    /// Reads from the living process with `mappings` where the blocks of libraries' thread-local
    /// variables lie, for `threads`; earlier calls for other threads still count. `read` fills the
    /// bytes with the process's memory from the address on and returns whether it could. A call
    /// costs little once the blocks are known; blocks that are made later need another call.
    pub fn read_thread_locals(
        &mut self,
        mappings: &Mappings,
        threads: &[ThreadPointer],
        read: &mut dyn FnMut(Address, &mut [u8]) -> bool,
    ) {
        let loaded = self.loaded_libraries(mappings);
        let mut numbers: HashMap<u64, Option<usize>> = HashMap::new();
        if self.program_has_thread_locals(mappings) {
            // Module 1 is always the program.
            numbers.insert(1, None);
        }
        for index in loaded {
            let known = &mut self.blocks.libraries[index];
            if known.distance.is_some() {
                continue;
            }
            match known.file.block_location(known.bias, read) {
                Some(BlockLocation::Distance(distance)) if !known.moved => {
                    known.distance = Some(distance)
                }
                Some(BlockLocation::Module(number)) => {
                    // If two claim one number, neither gets it.
                    let claim = numbers.entry(number).or_insert(Some(index));
                    *claim = claim.filter(|&other| other == index);
                }
                _ => {}
            }
        }
        let numbers: HashMap<u64, usize> = numbers
            .into_iter()
            .filter_map(|(number, index)| Some((number, index?)))
            .collect();
        if !numbers.is_empty() && uses_glibc(mappings) {
            self.read_tables(&numbers, threads, read);
        }
    }

    /// The libraries with thread-local variables that are mapped now.
    fn loaded_libraries(&mut self, mappings: &Mappings) -> Vec<usize> {
        let mut loaded = Vec::new();
        let program = mappings.iter().find(|m| is_backed(m));
        for mapping in mappings.iter().filter(|m| is_backed(m) && m.execute) {
            if program.is_some_and(|p| same_file(p, mapping)) {
                continue;
            }
            let key = (mapping.path.clone(), mapping.inode);
            let number = match self.blocks.numbers.get(&key) {
                Some(number) => *number,
                None => {
                    let number = self.new_library(mapping);
                    self.blocks.numbers.insert(key, number);
                    number
                }
            };
            let Some(index) = number else { continue };
            let known = &mut self.blocks.libraries[index];
            let Some(bias) = bias(&known.file, mapping, mappings) else {
                continue;
            };
            if known.bias != bias {
                known.moved = known.bias != 0;
                known.distance = None;
                known.bias = bias;
            }
            if !loaded.contains(&index) {
                loaded.push(index);
            }
        }
        loaded
    }

    fn new_library(&mut self, mapping: &Mapping) -> Option<usize> {
        let file = self.file_of(mapping).ok()?;
        self.blocks.libraries.push(KnownLibrary {
            file: Library::read(file)?,
            mapping: mapping.clone(),
            bias: 0,
            distance: None,
            moved: false,
        });
        Some(self.blocks.libraries.len() - 1)
    }

    fn program_has_thread_locals(&mut self, mappings: &Mappings) -> bool {
        let Some(program) = mappings.iter().find(|m| is_backed(m)) else {
            return false;
        };
        let key = (program.path.clone(), program.inode);
        let number = match self.blocks.numbers.get(&key) {
            Some(number) => *number,
            None => {
                let number = self.new_library(program);
                self.blocks.numbers.insert(key, number);
                number
            }
        };
        number.is_some()
    }

    /// Reads the tables of `threads` for the modules in `numbers`.
    fn read_tables(
        &mut self,
        numbers: &HashMap<u64, usize>,
        threads: &[ThreadPointer],
        read: &mut Read<'_>,
    ) {
        let end = numbers.keys().max().map_or(0, |n| n + 1);
        let mut distances: HashMap<usize, Vec<u64>> = HashMap::new();
        for thread in threads {
            let Some(table) = tls::blocks_of_thread(thread.fs_base, end, read) else {
                continue;
            };
            for (&number, &index) in numbers {
                let start = usize::try_from(number).ok().and_then(|n| *table.get(n)?);
                let fits = |s: &u64| self.blocks.libraries[index].file.can_start(*s);
                let Some(start) = start.filter(fits) else {
                    continue;
                };
                if self.blocks.seen.len() < MAX_BLOCKS {
                    self.blocks.seen.insert((index, start, thread.thread));
                }
                let distance = thread.fs_base.0.wrapping_sub(start);
                distances.entry(index).or_default().push(distance);
            }
        }
        for (index, of_threads) in distances {
            let known = &mut self.blocks.libraries[index];
            // ThreadBlocks on the heap never lie at one distance from all threads.
            if let [first, others @ ..] = &of_threads[..]
                && !others.is_empty()
                && others.iter().all(|d| d == first)
                && (known.file.size..MAX_DISTANCE).contains(first)
                && !known.moved
            {
                known.distance = Some(*first);
            }
        }
    }

    /// The thread-local variable at `address`.
    pub(super) fn thread_local(
        &mut self,
        address: Address,
        context: &ObjectContext,
    ) -> Option<ObjectName> {
        let mut found = self.own_candidates(address, context);
        found.extend(self.blocks.candidates(address, context));
        let first = *found.first()?;
        let same = |c: &Candidate| c.library == first.library && c.start == first.start;
        if !found.iter().all(same) {
            return None;
        }
        let module = match first.library {
            Some(index) => self.module(&self.blocks.libraries[index].mapping.clone())?,
            None => self.executable()?,
        };
        let mut object = self.variable_of_block(module, address, first.start)?;
        // Threads that lived one after the other may have had the same memory.
        let only = found.iter().all(|c| c.thread == first.thread);
        let mut touching = found
            .iter()
            .filter(|c| context.touched_by.contains(&c.thread));
        object.thread = match (only, touching.next(), touching.next()) {
            (true, _, _) => Some(first.thread),
            (false, Some(one), None) => Some(one.thread),
            _ => None,
        };
        Some(object)
    }

    /// The program's own block lies at a fixed distance below the thread pointer
    /// (variant II of Drepper's "ELF Handling for Thread-Local Storage", section
    /// 3.4.2).
    fn own_candidates(&mut self, address: Address, context: &ObjectContext) -> Vec<Candidate> {
        if context.thread_pointers.is_empty() {
            return Vec::new();
        }
        let program = self.executable();
        let size = program.and_then(|m| self.modules[m].image.tls_size());
        let size = size.unwrap_or(0);
        let all = context.thread_pointers.iter();
        all.map(|t| Candidate {
            library: None,
            start: t.fs_base.0.wrapping_sub(size),
            thread: t.thread,
        })
        .filter(|c| address.0.wrapping_sub(c.start) < size)
        .collect()
    }

    /// The variable that holds `address` in the block of `module` at `block`.
    fn variable_of_block(
        &mut self,
        module: usize,
        address: Address,
        block: u64,
    ) -> Option<ObjectName> {
        let position = address.0.wrapping_sub(block);
        if let Some((variable, handle)) = self.variable(module, StaticLocation::Tls(position)) {
            let start = Address(block.wrapping_add(variable.start));
            return Some(self.variable_name(ObjectKind::Tls, variable, handle, start));
        }
        let module = &self.modules[module];
        let symbol = module.image.symbols.thread_local(position)?;
        Some(ObjectName {
            kind: ObjectKind::Tls,
            name: Some(fold::variable(&symbol.name)),
            size: Some(symbol.size),
            start: Address(block.wrapping_add(symbol.address)),
            module: Some(module.path.clone()),
            ..ObjectName::default()
        })
    }

    /// Whether the dynamic loader allocated `block`: it keeps the thread-local blocks of libraries
    /// that were loaded later on the program's heap.
    pub(super) fn is_of_loader(&self, block: &HeapBlock) -> bool {
        let caller = block.allocation.first();
        let mapping = caller.and_then(|c| self.mappings.at(Address(c.0)));
        let file = mapping.and_then(|m| m.path.rsplit('/').next());
        file.is_some_and(|f| f.starts_with("ld-") || f.starts_with("ld.so"))
    }
}

fn same_file(one: &Mapping, other: &Mapping) -> bool {
    one.path == other.path && one.inode == other.inode
}

/// Runtime address minus link address, for the file of `mapping`.
fn bias(file: &Library, mapping: &Mapping, mappings: &Mappings) -> Option<u64> {
    let (offset, address) = file.first_page;
    let first = mappings
        .iter()
        .find(|m| same_file(m, mapping) && m.file_offset == offset)?;
    Some(first.span.start.0.wrapping_sub(address))
}

/// Whether the process's C library is glibc, whose layout of the table of blocks is known.
fn uses_glibc(mappings: &Mappings) -> bool {
    let mut all = mappings.iter().filter(|m| is_c_library(&m.path));
    all.any(|m| {
        let file = m.path.rsplit('/').next().unwrap_or_default();
        file == "libc.so.6" || file.starts_with("libc-2.")
    })
}
