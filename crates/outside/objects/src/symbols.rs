//! The symbols of an ELF file: functions and variables by address, from its tables, from the packed
//! table of a stripped file, or from that of Go's runtime. Called by [`crate::image`].

use crate::bounded::{Elf, Share};
use crate::fold::shortened;
use crate::mini;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use sunder_access::LinkAddress;
use sunder_go::Table;

#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) name: Box<str>,
    global: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Symbols {
    code: Vec<Symbol>,
    data: Vec<Symbol>,
    /// Thread-local variables; their addresses are offsets in the TLS block.
    tls: Vec<Symbol>,
    /// Whether there is a full symbol table, not only the dynamic one.
    pub(crate) full: bool,
    /// Whether a packed table has the functions instead.
    pub(crate) packed: bool,
    /// The table of Go's runtime, and where its code begins, if the functions are from there.
    go: Option<(Vec<u8>, u64)>,
    /// The memory of the tables.
    share: Share,
}

impl Symbols {
    /// The symbols of `elf`: the full table if there is one, else the dynamic.
    pub(crate) fn read(elf: &Elf<'_>) -> Self {
        let mut all = Self::default();
        for symbol in elf.symbols() {
            all.add(&symbol);
        }
        all.full = !all.code.is_empty() || !all.data.is_empty();
        if !all.full {
            for symbol in elf.dynamic_symbols() {
                all.add(&symbol);
            }
            all.add_packed(elf);
            all.add_functions_of_go(elf);
        }
        for table in [&mut all.code, &mut all.data, &mut all.tls] {
            // Of several names for one address, the sized, global and shortest one comes last,
            // where the look-up finds it first.
            table.sort_by(|a, b| {
                (a.address, a.size > 0, a.global, b.name.len()).cmp(&(
                    b.address,
                    b.size > 0,
                    b.global,
                    a.name.len(),
                ))
            });
        }
        all
    }

    /// Adds functions from the packed table of a stripped file.
    fn add_packed(&mut self, elf: &Elf<'_>) {
        let section = elf.section_by_name(mini::SECTION);
        let Some(packed) = section.and_then(|s| s.data().ok()) else {
            return;
        };
        let Some(file) = mini::unpack(packed) else {
            return;
        };
        for symbol in mini::parse(&file).iter().flat_map(|f| f.symbols()) {
            self.add(&symbol);
            self.packed = true;
        }
    }

    /// Adds functions from the table of Go's runtime, which stripping leaves.
    fn add_functions_of_go(&mut self, elf: &Elf<'_>) {
        let section = |name| {
            let section = elf.section_by_name(name)?;
            Some((section.address(), section.data().ok()?))
        };
        let table = sunder_go::SECTIONS.into_iter().find_map(section);
        let Some(((_, bytes), (text, code))) = table.zip(section(".text")) else {
            return;
        };
        let Some(table) = Table::read(bytes, text, code) else {
            return;
        };
        if self.share.grow(bytes.len() as u64) {
            self.go = Some((bytes.to_vec(), table.text()));
        }
        for function in table.functions() {
            let room = size_of::<Symbol>() + function.name.len();
            if self.share.grow(room as u64) {
                self.code.push(Symbol {
                    address: function.start,
                    size: function.end - function.start,
                    name: shortened(function.name).into(),
                    global: true,
                });
                self.packed = true;
            }
        }
    }

    fn add<'data>(&mut self, symbol: &impl ObjectSymbol<'data>) {
        if symbol.is_undefined() {
            return;
        }
        let Ok(name) = symbol.name() else { return };
        let table = match symbol.kind() {
            SymbolKind::Text => &mut self.code,
            SymbolKind::Data => &mut self.data,
            SymbolKind::Tls => &mut self.tls,
            _ => return,
        };
        let name = shortened(name);
        let room = size_of::<Symbol>() + name.len();
        if !name.is_empty() && self.share.grow(room as u64) {
            table.push(Symbol {
                address: symbol.address(),
                size: symbol.size(),
                name: name.into(),
                global: symbol.is_global(),
            });
        }
    }

    /// The file and line of the instruction at `address`, if the table of Go's runtime tells them.
    pub(crate) fn line(&self, address: LinkAddress) -> Option<(&str, u32)> {
        self.table_of_go()?.line(address.0)
    }

    /// Whether the instruction at `address` is in the table of Go's runtime, which is read only where there
    /// are no symbols.
    pub(crate) fn is_in_go(&self, address: LinkAddress) -> bool {
        self.table_of_go()
            .is_some_and(|table| table.holds(address.0))
    }

    fn table_of_go(&self) -> Option<Table<'_>> {
        let (table, text) = self.go.as_ref()?;
        Table::at(table, *text)
    }

    /// The function that holds `address`. A function of hand-written assembly has no size and
    /// reaches to the next symbol, but not one of those that the linker puts before all others: it is
    /// short, and a compiler that writes no symbols, as Haskell's, leaves its code behind it.
    pub(crate) fn function(&self, address: LinkAddress) -> Option<&Symbol> {
        at(&self.code, address.0, true)
            .filter(|s| s.size > 0 || s.address == address.0 || !BEFORE_ALL.contains(&&*s.name))
    }

    /// All functions.
    pub(crate) fn functions(&self) -> &[Symbol] {
        &self.code
    }

    /// The variable that holds `address`.
    pub(crate) fn variable(&self, address: LinkAddress) -> Option<&Symbol> {
        at(&self.data, address.0, false)
    }

    /// The addresses of variables with static storage.
    pub(crate) fn variables(&self) -> impl Iterator<Item = u64> {
        self.data.iter().map(|s| s.address)
    }

    /// The thread-local variable at `offset` in the module's TLS block.
    pub(crate) fn thread_local(&self, offset: u64) -> Option<&Symbol> {
        at(&self.tls, offset, false)
    }
}

/// Functions of the files that the linker puts before a program's own (`crtbegin.o`).
const BEFORE_ALL: [&str; 4] = [
    "frame_dummy",
    "register_tm_clones",
    "deregister_tm_clones",
    "__do_global_dtors_aux",
];

fn at(table: &[Symbol], address: u64, unsized_too: bool) -> Option<&Symbol> {
    let end = table.partition_point(|s| s.address <= address);
    // Symbols inside others (local labels) mean that the nearest one below may not be the one that
    // covers the address; a few steps suffice.
    let near = &table[end.saturating_sub(8)..end];
    near.iter()
        .rev()
        .find(|s| address - s.address < s.size)
        .or_else(|| near.last().filter(|s| unsized_too && s.size == 0))
}
