//! Code and memory of the program, read while its threads run or wait.

use std::collections::HashMap;
use sunder_access::{Address, Mapping, Mappings, ProcessId};
use sunder_observe::code::ModuleCode;
use sunder_observe::proc;

/// Functions above this are read around the instruction only.
const LONGEST: u64 = 64 << 10;
/// What is read where no function is known.
const AROUND: usize = 64;

/// Functions of a module: where its code begins in the file's addresses, and their
/// bounds there.
type Module = Option<(u64, Vec<(u64, u64)>)>;

/// See the module's head.
pub struct TargetCode {
    process: ProcessId,
    mappings: Mappings,
    modules: HashMap<String, Module>,
    functions: HashMap<u64, (u64, Vec<u8>)>,
}

impl TargetCode {
    /// That of `process`.
    pub fn new(process: ProcessId) -> Self {
        Self {
            process,
            mappings: Mappings::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
        }
    }

    /// Start and bytes of the function that `ip` is in; if that is not known, the
    /// bytes from `ip` on.
    pub fn function(&mut self, ip: u64) -> Option<(u64, Vec<u8>)> {
        if let Some(known) = self.functions.get(&ip) {
            return Some(known.clone());
        }
        let found = self
            .bounds(ip)
            .and_then(|(start, end)| {
                let len = usize::try_from(end - start).ok()?;
                Some((start, self.read(start, len)?))
            })
            .or_else(|| Some((ip, self.read(ip, AROUND)?)))?;
        self.functions.insert(ip, found.clone());
        Some(found)
    }

    /// Where the function of `ip` begins and ends.
    fn bounds(&mut self, ip: u64) -> Option<(u64, u64)> {
        let mapping = self.mapping(ip)?;
        if !mapping.is_file() {
            return None;
        }
        let module = self.modules.entry(mapping.path.clone()).or_insert_with(|| {
            let code = ModuleCode::read(mapping.path.as_ref())?;
            Some((code.address, code.functions))
        });
        let (address, functions) = module.as_ref()?;
        let base = mapping.span.start.0.checked_sub(address & !0xfff)?;
        let at = ip.checked_sub(base)?;
        let after = functions.partition_point(|f| f.0 <= at);
        let (start, end) = *functions.get(after.checked_sub(1)?)?;
        let fits = at < end && end - start <= LONGEST;
        fits.then_some((base + start, base + end))
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
        let process = self.process.0 as i32;
        // SAFETY: the kernel writes at most `len` bytes to `bytes` and checks the
        // foreign address.
        let read = unsafe { libc::process_vm_readv(process, &local, 1, &foreign, 1, 0) };
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
