//! The file that the library inside the program shares with us: made, mapped, and
//! filled with the plan for the C library's kernel calls. The one place here that
//! touches memory that others change.

use crate::calls::is_covered;
use anyhow::{Context, Result};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use sunder_observe::code::ModuleCode;
use sunder_rewrite::sites::{self, Function, Number, Want};
use sunder_wire::remap::{AREAS, BYTES, CACHE, Control, MAGIC, TOTAL, VERSION};
use sunder_wire::sites::{ANY_NUMBER, CALL, COPIED, ModulePlan, Patch, RETURNS};

/// Kernel calls that change the address space: the library puts bytes back before.
const CHANGES: [i64; 7] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_shmat,
];

/// How the file is called in a list of mappings.
pub const CONTROL_NAME: &str = "/memfd:sunder-remap";

/// See the module's head.
pub struct ControlFile {
    file: File,
    /// Never unmapped, so that no thread of ours loses it.
    base: *mut u8,
}

// SAFETY: all that is read and written through the base are atomic words, and the
// bytes of code, which only one thread writes.
unsafe impl Send for ControlFile {}
// SAFETY: as above.
unsafe impl Sync for ControlFile {}

impl ControlFile {
    /// Makes one with the plan.
    ///
    /// # Errors
    /// If the kernel gives no memory, or the C library can't be planned for.
    pub fn new() -> Result<Self> {
        let plan = plan()?;
        let make = || -> io::Result<(File, *mut u8)> {
            // SAFETY: the name is a C string.
            let fd = unsafe { libc::memfd_create(c"sunder-remap".as_ptr(), libc::MFD_CLOEXEC) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: just opened, and nobody else's.
            let file = unsafe { File::from_raw_fd(fd) };
            file.set_len((TOTAL + plan.len()) as u64)?;
            file.write_all_at(&plan, TOTAL as u64)?;
            // SAFETY: a new mapping where the kernel likes.
            let base = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    TOTAL,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    fd,
                    0,
                )
            };
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            Ok((file, base.cast()))
        };
        let (file, base) =
            make().context("cannot make the file that is shared with the program")?;
        let made = Self { file, base };
        let control = made.control();
        control.tool.store(std::process::id(), Ordering::Relaxed);
        control.version.store(VERSION, Ordering::Relaxed);
        control.magic.store(MAGIC, Ordering::Release);
        Ok(made)
    }

    /// What both sides read and write.
    pub fn control(&self) -> &Control {
        // SAFETY: mapped for good, aligned, and any bytes are atomic words.
        unsafe { &*self.base.cast::<Control>() }
    }

    /// Puts code into the area's cache; whether it fits.
    pub fn write_code(&self, area: usize, offset: u64, code: &[u8]) -> bool {
        let end = offset.checked_add(code.len() as u64);
        if area >= AREAS || end.is_none_or(|end| end > CACHE) {
            return false;
        }
        let at = BYTES + area * CACHE as usize + offset as usize;
        // SAFETY: within the mapping; nothing executes these bytes before it is told.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.base.add(at), code.len()) };
        true
    }

    /// The path by which the program can open it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}

/// The plan for the C library that we have ourselves, and its dynamic linker: the
/// program nearly always has the same, and else the library inside it says so and
/// does nothing.
fn plan() -> Result<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").context("cannot read our mappings")?;
    let mut paths: Vec<&str> = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .filter(|path| is_covered(path))
        .collect();
    paths.dedup();
    anyhow::ensure!(
        !paths.is_empty(),
        "there is no C library whose kernel calls could be led through hooks"
    );
    let modules: Vec<_> = paths.into_iter().map(module).collect::<Result<_>>()?;
    Ok(sunder_wire::sites::write(&modules))
}

fn module(path: &str) -> Result<ModulePlan<Vec<u8>, Vec<Patch>>> {
    let code = ModuleCode::read(path.as_ref())
        .with_context(|| format!("cannot read the code of {path}"))?;
    let functions: Vec<_> = code
        .functions
        .iter()
        .map(|&(start, end)| Function { start, end })
        .collect();
    let plan = sites::plan(&code.bytes, code.address, &functions, wants);
    for number in CHANGES {
        let number = Number::Always(number as u32);
        anyhow::ensure!(
            plan.refused.iter().all(|r| r.number != number),
            "a kernel call of {path} that changes mappings can't be led through a hook"
        );
    }
    Ok(ModulePlan {
        build_id: code.build_id,
        patches: plan.patches.iter().map(record).collect(),
    })
}

fn wants(number: Number) -> Want {
    match number {
        Number::Always(n) if CHANGES.contains(&n.into()) => Want::Call,
        _ => Want::Result,
    }
}

fn record(patch: &sites::Patch) -> Patch {
    let copied = |bytes: &[u8]| {
        let mut all = [0; COPIED];
        all[..bytes.len()].copy_from_slice(bytes);
        all
    };
    let call = if patch.want == Want::Call { CALL } else { 0 };
    let returns = if patch.returns { RETURNS } else { 0 };
    Patch {
        entry: patch.entry,
        from: patch.from,
        number: match patch.number {
            Number::Always(n) => n as i32,
            Number::Any => ANY_NUMBER,
        },
        flags: call | returns,
        head_len: patch.head.len() as u8,
        tail_len: patch.tail.len() as u8,
        reserved: 0,
        head: copied(&patch.head),
        tail: copied(&patch.tail),
    }
}
