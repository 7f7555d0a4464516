//! Reads code and memory of the program while its threads run or wait. Called by
//! `serve`. Must not change anything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sunder_access::{Address, CodeAddress, Mapping, Mappings, ProcessId};
use sunder_hooking::code;
use sunder_observe::code::ModuleCode;
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::{proc, remote};
use sunder_rewrite::{Code, is_linker_stub, without_hooks};

/// Of longer functions, in bytes, only the code from the instruction on is read.
const LONGEST: u64 = 64 << 10;
/// Bytes that are read if no function is known.
const AROUND: usize = 64;

/// Most bytes of functions that are kept, in memory, for the next question. The program chooses the
/// questions; when there are more, what is kept is dropped and read again.
const MOST_KEPT: usize = 64 << 20;
/// Most bytes of files' code that are kept. Code of further files counts as unknown.
const MOST_CODE: u64 = 1 << 30;

/// Bytes of a stub of the dynamic linker (PLT entry).
const STUB: usize = 16;

/// A function in a file that the program has mapped.
struct Known {
    start: u64,
    /// Its bytes in the file.
    bytes: Vec<u8>,
}

/// The program's code and memory, for several threads that read them at the same time; see the head
/// of this file.
pub struct TargetCode {
    process: ProcessId,
    cached: Mutex<Cached>,
}

/// What is kept for the next question.
struct Cached {
    process: ProcessId,
    files: Arc<ForeignFiles>,
    mappings: Mappings,
    /// All executable mappings at the last [`Self::renew`].
    code: Vec<Mapping>,
    modules: HashMap<String, Option<ModuleCode>>,
    /// Bytes that `modules` may still take.
    code_left: u64,
    functions: Functions,
}

/// Start and bytes of functions, by an address in them.
#[derive(Default)]
struct Functions {
    known: HashMap<u64, (u64, Vec<u8>)>,
    /// Memory that it takes, about.
    bytes: usize,
}

impl Functions {
    fn keep(&mut self, ip: u64, found: (u64, Vec<u8>)) {
        let more = found.1.len() + size_of::<(u64, (u64, Vec<u8>))>();
        if self.bytes + more > MOST_KEPT {
            *self = Self::default();
        }
        self.bytes += more;
        self.known.insert(ip, found);
    }
}

impl TargetCode {
    /// For `process`, with nothing cached.
    pub fn new(process: ProcessId) -> Self {
        Self {
            process,
            cached: Mutex::new(Cached::new(process)),
        }
    }

    fn cached(&self) -> MutexGuard<'_, Cached> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes new mappings. If the executable ones have changed, cached code is dropped: another
    /// module may lie at the same address.
    pub fn renew(&self, mappings: &Mappings) {
        self.cached().renew(mappings);
    }

    /// Reads the file of the code at `ip`, if it has not been read.
    pub fn prepare(&self, ip: u64) {
        let unread = self.cached().unread(ip);
        // Without the lock, since threads may ask about other code.
        if let Some((mapping, files)) = unread {
            let read = Cached::read_module(&mapping, &files);
            self.cached().take_module(mapping.path, read);
        }
    }

    /// Start and bytes of the function around `ip`; if it is not known, `ip` and the bytes from
    /// there on.
    pub fn function(&self, ip: u64) -> Option<(u64, Vec<u8>)> {
        self.cached().function(ip)
    }

    /// The function or PLT entry that begins at `at`.
    pub fn beginning(&self, at: u64) -> Option<(u64, Vec<u8>)> {
        self.cached().beginning(at)
    }

    /// The little-endian number of `width` bytes (1 to 8) at `at`.
    pub fn number(&self, at: u64, width: u64) -> Option<u64> {
        let width = usize::try_from(width).ok().filter(|w| *w <= 8)?;
        let bytes = read(self.process, at, width)?;
        let mut wide = [0; 8];
        wide.get_mut(..bytes.len())?.copy_from_slice(&bytes);
        Some(u64::from_le_bytes(wide))
    }

    /// The 8 bytes at `at`.
    pub fn word(&self, at: u64) -> Option<u64> {
        self.number(at, 8)
    }
}

/// `len` bytes of the process at `at`; `None` if not all of them can be read.
fn read(process: ProcessId, at: u64, len: usize) -> Option<Vec<u8>> {
    remote::read(process, Address(at), len).filter(|bytes| bytes.len() == len)
}

impl Cached {
    fn new(process: ProcessId) -> Self {
        Self {
            process,
            files: Arc::new(ForeignFiles::of(process)),
            mappings: Mappings::new(),
            code: Vec::new(),
            modules: HashMap::new(),
            code_left: MOST_CODE,
            functions: Functions::default(),
        }
    }

    fn renew(&mut self, mappings: &Mappings) {
        if !code(mappings).eq(&self.code) {
            self.modules.clear();
            self.code_left = MOST_CODE;
            self.functions = Functions::default();
            self.code = code(mappings).cloned().collect();
        }
        self.mappings.clone_from(mappings);
    }

    fn function(&mut self, ip: u64) -> Option<(u64, Vec<u8>)> {
        if let Some(known) = self.functions.known.get(&ip) {
            return Some(known.clone());
        }
        let found = self
            .stub(ip)
            .or_else(|| self.function_of(ip))
            .or_else(|| Some((ip, self.read(ip, AROUND)?)))?;
        self.functions.keep(ip, found.clone());
        Some(found)
    }

    /// The function around `ip` by its file's tables, with its bytes in memory.
    fn function_of(&mut self, ip: u64) -> Option<(u64, Vec<u8>)> {
        self.known(ip).and_then(|known| {
            let bytes = self.read(known.start, known.bytes.len())?;
            let bytes = self.without_hooks(&known, bytes);
            Some((known.start, bytes))
        })
    }

    /// The PLT entry around `ip`. Entries follow one another, and only their alignment tells where
    /// each begins.
    fn stub(&mut self, ip: u64) -> Option<(u64, Vec<u8>)> {
        let start = ip / STUB as u64 * STUB as u64;
        self.mapping(start)?;
        let bytes = self.read(start, STUB)?;
        let stub = Code {
            start: CodeAddress(start),
            bytes: &bytes,
        };
        is_linker_stub(stub).then_some((start, bytes))
    }

    fn beginning(&mut self, at: u64) -> Option<(u64, Vec<u8>)> {
        self.mapping(at)?;
        if let Some(known) = self.known(at).filter(|known| known.start == at) {
            return self.function(known.start);
        }
        self.stub(at).filter(|(start, _)| *start == at)
    }

    /// The bytes in memory, with our hooks replaced by the code of the file: a copy needs no hooks.
    fn without_hooks(&mut self, known: &Known, bytes: Vec<u8>) -> Vec<u8> {
        if bytes == known.bytes {
            return bytes;
        }
        let code = Code {
            start: CodeAddress(known.start),
            bytes: &bytes,
        };
        without_hooks(code, &known.bytes).unwrap_or(bytes)
    }

    /// The function around `ip` in its file.
    fn known(&mut self, ip: u64) -> Option<Known> {
        let mapping = self.mapping(ip)?;
        if !mapping.is_file() {
            return None;
        }
        if !self.modules.contains_key(&mapping.path) {
            let read = Self::read_module(&mapping, &self.files);
            self.take_module(mapping.path.clone(), read);
        }
        let module = self.modules.get(&mapping.path)?.as_ref()?;
        let address = module.address;
        let first = module.address_at(mapping.file_offset)?;
        let base = mapping.span.start.0.checked_sub(first)?;
        let at = ip.checked_sub(base)?;
        let after = module.functions.partition_point(|f| f.0 <= at);
        let (start, end) = *module.functions.get(after.checked_sub(1)?)?;
        let fits = at < end && end.checked_sub(start)? <= LONGEST;
        let offset = |at: u64| usize::try_from(at.checked_sub(address)?).ok();
        let bytes = module.bytes.get(offset(start)?..offset(end)?)?;
        if !fits {
            return None;
        }
        Some(Known {
            start: base.checked_add(start)?,
            bytes: bytes.to_vec(),
        })
    }

    /// The mapping of the file whose code is at `ip`, if the file has not been read, and the files
    /// among which it is.
    fn unread(&mut self, ip: u64) -> Option<(Mapping, Arc<ForeignFiles>)> {
        let mapping = self.mapping(ip).filter(Mapping::is_file)?;
        let is_unread = !self.modules.contains_key(&mapping.path);
        is_unread.then(|| (mapping, Arc::clone(&self.files)))
    }

    /// The code of the mapped file.
    fn read_module(mapping: &Mapping, files: &ForeignFiles) -> Option<ModuleCode> {
        ModuleCode::read(&files.mapped(mapping).ok()?)
    }

    /// Keeps the code of the file at `path`, if there is room for it.
    fn take_module(&mut self, path: String, read: Option<ModuleCode>) {
        let kept = read.and_then(|read| {
            self.code_left = self.code_left.checked_sub(room_of(&read))?;
            Some(read)
        });
        self.modules.insert(path, kept);
    }

    fn mapping(&mut self, ip: u64) -> Option<Mapping> {
        if self.mappings.at(Address(ip)).is_none() {
            self.mappings = proc::mappings(self.process).ok()?;
        }
        let found = self.mappings.at(Address(ip)).filter(|m| m.execute);
        found.cloned()
    }

    fn read(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        read(self.process, at, len)
    }
}

/// Memory that the code of a file takes, about.
fn room_of(module: &ModuleCode) -> u64 {
    (module.bytes.len() + size_of_val(&*module.functions)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_kept_up_to_a_number_of_bytes() {
        let mut functions = Functions::default();
        let longest = LONGEST as usize;
        for ip in 0..10 * (MOST_KEPT / longest) as u64 {
            functions.keep(ip, (0, vec![0; longest]));
            let kept: usize = functions.known.values().map(|f| f.1.len()).sum();
            assert!(kept <= functions.bytes && functions.bytes <= MOST_KEPT);
            assert!(functions.known.contains_key(&ip), "{ip} was kept last");
        }
    }
}
