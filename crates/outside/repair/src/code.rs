//! Code and memory of the program, read while its threads run or wait.

use std::collections::HashMap;
use sunder_access::{Address, CodeAddress, Mapping, Mappings, ProcessId};
use sunder_hooking::code;
use sunder_observe::code::ModuleCode;
use sunder_observe::proc;
use sunder_rewrite::{Code, is_linker_stub, without_hooks};

/// Functions above this are read around the instruction only.
const LONGEST: u64 = 64 << 10;
/// What is read where no function is known.
const AROUND: usize = 64;

/// Bytes of the linker's stubs.
const STUB: usize = 16;

/// A function of the file that the program has mapped.
struct Known {
    start: u64,
    /// As in the file.
    bytes: Vec<u8>,
}

/// See the module's head.
pub struct TargetCode {
    process: ProcessId,
    mappings: Mappings,
    /// All code when this was told last.
    code: Vec<Mapping>,
    modules: HashMap<String, Option<ModuleCode>>,
    functions: HashMap<u64, (u64, Vec<u8>)>,
}

impl TargetCode {
    /// That of `process`.
    pub fn new(process: ProcessId) -> Self {
        Self {
            process,
            mappings: Mappings::new(),
            code: Vec::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
        }
    }

    /// Forgets what it knows if other code is there by now: what is loaded may lie where
    /// something else did.
    pub fn renew(&mut self, mappings: &Mappings) {
        if !code(mappings).eq(&self.code) {
            self.modules.clear();
            self.functions.clear();
            self.code = code(mappings).cloned().collect();
        }
        self.mappings.clone_from(mappings);
    }

    /// Start and bytes of the function that `ip` is in; if that is not known, the
    /// bytes from `ip` on.
    pub fn function(&mut self, ip: u64) -> Option<(u64, Vec<u8>)> {
        if let Some(known) = self.functions.get(&ip) {
            return Some(known.clone());
        }
        let found = self
            .stub(ip)
            .or_else(|| self.function_of(ip))
            .or_else(|| Some((ip, self.read(ip, AROUND)?)))?;
        self.functions.insert(ip, found.clone());
        Some(found)
    }

    /// What the file and the memory say of the function of `ip`.
    fn function_of(&mut self, ip: u64) -> Option<(u64, Vec<u8>)> {
        self.known(ip).and_then(|known| {
            let bytes = self.read(known.start, known.bytes.len())?;
            let bytes = self.without_hooks(&known, bytes);
            Some((known.start, bytes))
        })
    }

    /// The linker's code for a function that `ip` is in. Its stubs lie one behind the other,
    /// and nothing says where each begins but their common alignment.
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

    /// The function that begins there, or the linker's code for one.
    pub fn beginning(&mut self, at: u64) -> Option<(u64, Vec<u8>)> {
        self.mapping(at)?;
        if let Some(known) = self.known(at).filter(|known| known.start == at) {
            return self.function(known.start);
        }
        self.stub(at).filter(|(start, _)| *start == at)
    }

    /// The bytes as they are, but for hooks that say nothing about a copy.
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

    /// The function of `ip`, as its file has it.
    fn known(&mut self, ip: u64) -> Option<Known> {
        let mapping = self.mapping(ip)?;
        if !mapping.is_file() {
            return None;
        }
        let module = self.modules.entry(mapping.path.clone());
        let module = module.or_insert_with(|| ModuleCode::read(mapping.path.as_ref()));
        let module = module.as_ref()?;
        let address = module.address;
        let first = module.address_at(mapping.file_offset)?;
        let base = mapping.span.start.0.checked_sub(first)?;
        let at = ip.checked_sub(base)?;
        let after = module.functions.partition_point(|f| f.0 <= at);
        let (start, end) = *module.functions.get(after.checked_sub(1)?)?;
        let fits = at < end && end - start <= LONGEST;
        let offset = |at: u64| usize::try_from(at.checked_sub(address)?).ok();
        let bytes = module.bytes.get(offset(start)?..offset(end)?)?;
        fits.then(|| Known {
            start: base + start,
            bytes: bytes.to_vec(),
        })
    }

    fn mapping(&mut self, ip: u64) -> Option<Mapping> {
        if self.mappings.at(Address(ip)).is_none() {
            self.mappings = proc::mappings(self.process).ok()?;
        }
        let found = self.mappings.at(Address(ip)).filter(|m| m.execute);
        found.cloned()
    }

    /// So many bytes at `at`, all of them.
    pub fn read(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: len,
        };
        let foreign = libc::iovec {
            iov_base: at as *mut libc::c_void,
            iov_len: len,
        };
        let from = |process: ProcessId| {
            // SAFETY: the kernel writes at most `len` bytes to `bytes` and checks the
            // foreign address.
            unsafe { libc::process_vm_readv(process.0 as i32, &local, 1, &foreign, 1, 0) }
        };
        let mut read = from(self.process);
        if read < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
            read = from(proc::living_number(self.process));
        }
        (read == len as isize).then_some(bytes)
    }

    /// The number of so many bytes (1 to 8) at `at`.
    pub fn number(&self, at: u64, width: u64) -> Option<u64> {
        let bytes = self.read(at, usize::try_from(width).ok().filter(|w| *w <= 8)?)?;
        let mut wide = [0; 8];
        wide.get_mut(..bytes.len())?.copy_from_slice(&bytes);
        Some(u64::from_le_bytes(wide))
    }

    /// The eight bytes at `at`.
    pub fn word(&self, at: u64) -> Option<u64> {
        let bytes = self.read(at, 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}
