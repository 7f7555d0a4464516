//! Which kernel calls of a running program's C library are led through hooks, and how:
//! more than in a program that we start, since nothing is interposed in a running one.
//! The plan is for the very files that the program has mapped. Called by `inject`.

use crate::calls::is_covered;
use anyhow::{Context, Result, bail, ensure};
use std::path::PathBuf;
use sunder_access::{Mapping, Mappings, ProcessId};
use sunder_hooks::overwritten;
use sunder_observe::code::ModuleCode;
use sunder_rewrite::sites::{self, Function, Number, Want};
use sunder_wire::sites::{BEFORE, Patch};

/// Calls that are seen in their place: they change the address space or how signals are
/// handled, and never wait.
const INSTEAD: [i64; 10] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_shmat,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
];

/// Calls before which bytes may have to go back, and which may wait, return twice or not
/// at all.
const BEFORE_THEM: [i64; 31] = [
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit_group,
    libc::SYS_seccomp,
    libc::SYS_prctl,
    libc::SYS_ptrace,
    libc::SYS_tgkill,
    libc::SYS_rt_sigsuspend,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_remap_file_pages,
];

/// The end of a signal handler, as the C library has it: it stays as it is, since
/// unwinders know it by its bytes.
const RESTORES: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];

/// Bytes before a call in a loop in which its number is loaded.
const LOOP: u64 = 64;

/// A module whose kernel calls are led through hooks.
pub struct Module {
    /// What the addresses of its file are counted from.
    pub base: u64,
    /// Its patches.
    pub patches: Vec<Patch>,
    /// Where its code returns from signal handlers.
    pub restorers: Vec<u64>,
    path: String,
    code: (u64, u64),
}

/// See the module's head.
pub struct Plan {
    /// The C library and the dynamic linker.
    pub modules: Vec<Module>,
}

impl Plan {
    /// For what `process` has mapped.
    ///
    /// # Errors
    /// Says in a sentence's second half what stands against it.
    pub fn new(process: ProcessId, mappings: &Mappings) -> Result<Self> {
        let code = mappings.iter().filter(|m| m.execute && m.is_file());
        let covered = code.filter(|m| is_covered(&m.path));
        let modules: Vec<Module> = covered.map(|m| module(process, m)).collect::<Result<_>>()?;
        let has = |name: &str| modules.iter().any(|m| m.path.ends_with(name));
        ensure!(
            has("/libc.so.6"),
            "it does not use the C library that hooks are made for (it is linked statically, or \
             with another)"
        );
        Ok(Self { modules })
    }

    /// How many patches there are.
    pub fn count(&self) -> usize {
        self.modules.iter().map(|m| m.patches.len()).sum()
    }

    /// All patches with what their addresses are counted from.
    pub fn patches(&self) -> impl Iterator<Item = (u64, &Patch)> {
        let all = self.modules.iter();
        all.flat_map(|m| m.patches.iter().map(|p| (m.base, p)))
    }

    /// First and last (exclusive) address of the code.
    pub fn extent(&self) -> (u64, u64) {
        let all = self.modules.iter().map(|m| m.code);
        all.fold((u64::MAX, 0), |(s, e), (a, b)| (s.min(a), e.max(b)))
    }

    /// A `syscall` instruction that stays.
    pub fn entry(&self) -> Option<u64> {
        let mut all = self.patches();
        let found = all.find(|(_, p)| p.flags & BEFORE != 0);
        found.map(|(base, p)| base + p.entry)
    }

    /// Whether a thread must not stand there while code is changed: inside of what is
    /// overwritten.
    pub fn is_inside(&self, ip: u64) -> bool {
        self.patches().any(|(base, patch)| {
            let at = ip.wrapping_sub(base);
            overwritten(patch)
                .is_some_and(|(start, end)| (start as u64 + 1..end as u64).contains(&at))
        })
    }

    /// Whether a thread there has been through a hook and not yet made its call.
    pub fn is_before_a_call(&self, ip: u64) -> bool {
        self.patches()
            .any(|(base, p)| p.flags & BEFORE != 0 && base + p.entry == ip)
    }
}

fn module(process: ProcessId, mapping: &Mapping) -> Result<Module> {
    let path = &mapping.path;
    let file = PathBuf::from(format!("/proc/{process}/root{path}"));
    let code =
        ModuleCode::read(&file).with_context(|| format!("the code of {path} can't be read"))?;
    let functions: Vec<Function> = code
        .functions
        .iter()
        .map(|&(start, end)| Function { start, end })
        .collect();
    let at = |address: u64| {
        let offset = usize::try_from(address.checked_sub(code.address)?).ok()?;
        code.bytes.get(offset..)
    };
    let first = sites::plan(&code.bytes, code.address, &functions, needed);
    for refused in &first.refused {
        // `read` of a program with one thread; see docs/design/remap.md.
        let may_be_left = refused.number == Number::Always(libc::SYS_read as u32)
            || refused.number == Number::Any
                && at(refused.entry - LOOP).is_some_and(|b| ends_it(&b[..LOOP as usize]));
        if !may_be_left {
            bail!(
                "a kernel call at {:#x} in {path} can't be led through a hook: {}",
                refused.entry,
                refused.reason
            );
        }
    }
    let ends_handler = |p: &&sites::Patch| {
        let before = p.entry.checked_sub(RESTORES.len() as u64 - 2);
        before
            .and_then(at)
            .is_some_and(|b| b.starts_with(&RESTORES))
    };
    let mut patches: Vec<sites::Patch> = first
        .patches
        .iter()
        .filter(|p| !ends_handler(p))
        .cloned()
        .collect();
    let second = sites::plan(&code.bytes, code.address, &functions, |number| {
        if needed(number) == Want::Call {
            Want::Nothing
        } else {
            Want::Result
        }
    });
    for patch in second.patches {
        let apart = |p: &sites::Patch| {
            p.from + p.length as u64 <= patch.from || patch.from + patch.length as u64 <= p.from
        };
        if patches.iter().all(apart) && !ends_handler(&&patch) {
            patches.push(patch);
        }
    }
    let base = mapping
        .span
        .start
        .0
        .checked_sub(code.address & !0xfff)
        .context("a library lies where it can't")?;
    let restorers = code
        .bytes
        .windows(RESTORES.len())
        .enumerate()
        .filter(|(_, bytes)| *bytes == RESTORES)
        .map(|(i, _)| base + code.address + i as u64)
        .collect();
    Ok(Module {
        base,
        patches: patches.iter().map(Patch::from).collect(),
        restorers,
        path: path.clone(),
        code: (mapping.span.start.0, mapping.span.end().0),
    })
}

/// The end of a thread or of the program, in a loop: its number was loaded before. So
/// there are no bytes that could be lost.
fn ends_it(before: &[u8]) -> bool {
    let constants = [libc::SYS_exit as u32, libc::SYS_exit_group as u32];
    let constants = constants.map(u32::to_le_bytes);
    before
        .windows(4)
        .any(|word| constants.iter().any(|c| c == word))
}

fn needed(number: Number) -> Want {
    match number {
        Number::Always(n) if INSTEAD.contains(&n.into()) => Want::Call,
        Number::Always(n) if BEFORE_THEM.contains(&n.into()) => Want::Before,
        Number::Any => Want::Before,
        Number::Always(_) => Want::Nothing,
    }
}
