//! Reads memory of another process, without stopping it. Called by the decoder for code, and by
//! rooms that measure or repair. It must not write there.

use crate::pending::PendingRead;
use crate::proc::MemoryUse;
use std::os::unix::fs::FileExt;
use sunder_access::{Address, ProcessId};

/// Up to `len` bytes at `at`: fewer if the memory after them is not mapped. `None` if none can be
/// read.
pub fn read(of: ProcessId, at: Address, len: usize) -> Option<Vec<u8>> {
    let _reading = PendingRead::begin(of);
    let mut bytes = vec![0; len];
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: len,
    };
    let foreign = libc::iovec {
        iov_base: at.0 as *mut libc::c_void,
        iov_len: len,
    };
    let from = |process: ProcessId| {
        // SAFETY: the kernel writes at most `len` bytes to `bytes` and checks the
        // foreign address.
        unsafe { libc::process_vm_readv(process.0 as i32, &local, 1, &foreign, 1, 0) }
    };
    let mut read = from(of);
    if read < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
        read = from(crate::proc::living_number(of));
    }
    let read = match usize::try_from(read) {
        Ok(read) if read > 0 => read,
        // Refused by a seccomp filter, or partly unmapped: reading the file may give more.
        _ => crate::proc::memory(of, MemoryUse::Read)
            .and_then(|memory| memory.read_at(&mut bytes, at.0))
            .ok()?,
    };
    bytes.truncate(read);
    (read > 0).then_some(bytes)
}
