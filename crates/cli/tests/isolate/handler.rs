//! What a worker of the isolating library executes while the C library's code is unmapped in it
//! (`crates/inside/isolate/src/worker.rs`): the way into the program's code, the signal handler,
//! and the return from it. Checks the library that is built into this program: follows
//! everything that can be reached from there, instruction by instruction. Allowed are
//!
//! - direct calls and jumps within the library;
//! - jumps through a table of addresses in the same function, as compilers make of a `match`:
//!   the table is constant, so no code outside of the function can be reached;
//! - in the handler, system calls at one single place, which the worker's filter lets pass.
//!
//! Everything else could call code that is unmapped: through the procedure linkage table or the
//! global offset table (imports), or through a pointer.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind};
use std::collections::{BTreeMap, BTreeSet};

/// The library's parts that this test needs.
struct Library {
    text: Vec<(u64, Vec<u8>)>,
    /// Functions in the unwinding information: from the first byte to the end, exclusive.
    functions: BTreeMap<u64, u64>,
    /// What the dynamic linker writes, by address: an address within the library, or an import.
    places: BTreeMap<u64, Result<u64, String>>,
    sections: BTreeMap<String, [u64; 2]>,
    exports: BTreeMap<String, u64>,
}

/// What can be reached from one root.
#[derive(Debug, Default)]
struct Reached {
    functions: BTreeSet<u64>,
    system_calls: BTreeSet<u64>,
    /// Instructions that are not allowed, each described.
    wrong: BTreeSet<String>,
}

impl Library {
    fn read() -> Self {
        let bytes = sunder_guests::isolation_library();
        let file = object::File::parse(bytes).expect("it was just built");
        let mut library = Self {
            text: Vec::new(),
            functions: functions(&file),
            places: BTreeMap::new(),
            sections: BTreeMap::new(),
            exports: BTreeMap::new(),
        };
        for section in file.sections() {
            let (start, size) = (section.address(), section.size());
            let name = section.name().unwrap_or_default().to_owned();
            if section.kind() == SectionKind::Text {
                let bytes = section.uncompressed_data().expect("code is in the file");
                // Excludes stubs, which lead to imports.
                if !name.starts_with(".plt") {
                    library.text.push((start, bytes.into_owned()));
                }
            }
            library.sections.insert(name, [start, start + size]);
        }
        let names: Vec<_> = file.dynamic_symbols().collect();
        for (at, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let goes = match relocation.target() {
                RelocationTarget::Symbol(index) => {
                    let symbol = names.iter().find(|s| s.index() == index);
                    let name = symbol.and_then(|s| s.name().ok()).unwrap_or("?");
                    Err(name.to_owned())
                }
                _ => Ok(relocation.addend().cast_unsigned()),
            };
            library.places.insert(at, goes);
        }
        for symbol in names.iter().filter(|s| s.is_definition()) {
            let name = symbol.name().unwrap_or_default().to_owned();
            library.exports.insert(name, symbol.address());
        }
        library
    }

    /// The addresses of code that a section of pointers holds.
    fn pointers(&self, section: &str) -> Vec<u64> {
        let [start, end] = self.sections[section];
        let all = self.places.range(start..end);
        all.filter_map(|(_, goes)| goes.clone().ok()).collect()
    }

    /// The function around an address, and whether the unwinding information has it. Without, it is
    /// all that follows the address.
    fn function(&self, address: u64) -> Option<([u64; 2], bool)> {
        if let Some((&start, &end)) = self.functions.range(..=address).next_back()
            && address < end
        {
            return Some(([start, end], true));
        }
        let (start, bytes) = self.text.iter().find(|t| self.is_in(t, address))?;
        let next = self.functions.range(address..).next().map(|f| *f.0);
        let end = start + bytes.len() as u64;
        Some(([address, next.unwrap_or(end).min(end)], false))
    }

    fn is_in(&self, (start, bytes): &(u64, Vec<u8>), address: u64) -> bool {
        (*start..start + bytes.len() as u64).contains(&address)
    }

    /// Follows everything from `root` on.
    fn reach(&self, root: u64) -> Reached {
        let mut reached = Reached::default();
        let mut open = vec![root];
        while let Some(address) = open.pop() {
            let Some((range, whole)) = self.function(address) else {
                let wrong = format!("{address:x} is not in the library's own code");
                reached.wrong.insert(wrong);
                continue;
            };
            // A function without unwinding information is followed once from each entry.
            if reached.functions.insert(range[0]) {
                self.look_at(range, whole, &mut reached, &mut open);
            }
        }
        reached
    }

    fn look_at(&self, range: [u64; 2], whole: bool, reached: &mut Reached, open: &mut Vec<u64>) {
        let [start, end] = range;
        let text = self.text.iter().find(|t| self.is_in(t, start));
        let (base, bytes) = text.expect("functions lie in code");
        let bytes = &bytes[(start - base) as usize..(end - base) as usize];
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let mut before = [Instruction::default(); 3];
        while decoder.can_decode() {
            let at = decoder.decode();
            if at.is_invalid() {
                let wrong = format!("{:x} can't be decoded", at.ip());
                reached.wrong.insert(wrong);
                return;
            }
            if at.mnemonic() == Mnemonic::Syscall {
                reached.system_calls.insert(at.ip());
            }
            match at.flow_control() {
                FlowControl::Call
                | FlowControl::UnconditionalBranch
                | FlowControl::ConditionalBranch
                    if at.mnemonic() != Mnemonic::Syscall =>
                {
                    let target = at.near_branch_target();
                    if !(start..end).contains(&target) {
                        open.push(target);
                    }
                }
                FlowControl::IndirectBranch if is_table(&before, &at) => {}
                FlowControl::IndirectCall | FlowControl::IndirectBranch => {
                    let to = self.import(&at);
                    reached.wrong.insert(format!("{:x} calls {to}", at.ip()));
                }
                FlowControl::XbeginXabortXend => {
                    let wrong = format!("{:x} is a hardware transaction", at.ip());
                    reached.wrong.insert(wrong);
                }
                _ => {}
            }
            let ends = matches!(
                at.flow_control(),
                FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::Exception
            );
            if ends && !whole {
                return;
            }
            before = [before[1], before[2], at];
        }
    }

    /// What an indirect call reaches, as far as the library tells.
    fn import(&self, at: &Instruction) -> String {
        if at.op0_kind() != OpKind::Memory || !at.is_ip_rel_memory_operand() {
            return "through a pointer".to_owned();
        }
        match self.places.get(&at.ip_rel_memory_address()) {
            Some(Err(name)) => name.clone(),
            _ => "through a pointer in memory".to_owned(),
        }
    }
}

/// `movsxd a, [table + i*4]`, `add a, table`, `jmp a`.
fn is_table(before: &[Instruction; 3], jump: &Instruction) -> bool {
    let [_, load, add] = before;
    jump.code() == Code::Jmp_rm64
        && jump.op0_kind() == OpKind::Register
        && add.mnemonic() == Mnemonic::Add
        && add.op0_register() == jump.op0_register()
        && add.op1_kind() == OpKind::Register
        && load.mnemonic() == Mnemonic::Movsxd
        && load.op0_register() == jump.op0_register()
        && load.memory_base() == add.op1_register()
        && load.memory_index_scale() == 4
}

/// The functions that unwinding information knows: starts and ends.
fn functions(file: &object::File<'_>) -> BTreeMap<u64, u64> {
    use gimli::UnwindSection;
    let section = file.section_by_name(".eh_frame").expect("it has one");
    let data = section.data().expect("it is in the file");
    let frames = gimli::EhFrame::new(data, gimli::LittleEndian);
    let bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
    let mut entries = frames.entries(&bases);
    let mut found = BTreeMap::new();
    while let Some(entry) = entries.next().expect("the compiler wrote it") {
        if let gimli::CieOrFde::Fde(partial) = entry {
            let fde = partial
                .parse(gimli::EhFrame::cie_from_offset)
                .expect("the compiler wrote it");
            found.insert(fde.initial_address(), fde.end_address());
        }
    }
    found
}

#[test]
fn a_worker_without_the_c_library_calls_nothing_of_it() {
    let library = Library::read();
    let [handler, compute, restorer] = library.pointers(".sunder.worker")[..] else {
        panic!("the library names its three entries");
    };
    for root in [handler, compute, restorer] {
        let reached = library.reach(root);
        assert!(reached.wrong.is_empty(), "from {root:x}: {reached:#x?}");
    }
    // The handler commits, asks the tool and leaves: it is more than one function.
    let from_handler = library.reach(handler);
    assert!(from_handler.functions.len() > 3, "{from_handler:x?}");
    // The filter allows system calls at two addresses: the handler's, and the one of its
    // return.
    assert_eq!(from_handler.system_calls.len(), 1, "{from_handler:x?}");
    let back = library.reach(restorer);
    assert_eq!(back.system_calls.len(), 1, "{back:x?}");
    assert_ne!(from_handler.system_calls, back.system_calls);
}

#[test]
fn calls_of_the_c_library_are_seen_where_there_are_any() {
    let library = Library::read();
    // The library's initialisers look functions up, in the C library.
    let starts = library.pointers(".init_array");
    let wrong: Vec<String> = starts
        .iter()
        .flat_map(|start| library.reach(*start).wrong)
        .collect();
    assert!(
        wrong.iter().any(|w| w.ends_with("calls dlsym")),
        "{wrong:?}"
    );
    // The library's `malloc` calls the C library's through a pointer.
    let wrong = library.reach(library.exports["malloc"]).wrong;
    assert!(
        wrong.iter().any(|w| w.ends_with("through a pointer")),
        "{wrong:?}"
    );
}
