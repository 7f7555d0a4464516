//! Plans the hooks for the kernel calls of the C library and the dynamic linker; the libraries that
//! remedies load into a program put the hooks in place. Called by `repair` and `protect`. Reads the
//! C library's files on this machine; must not touch a program. See `docs/design/hooks.md`.

use crate::calls::is_covered;
use anyhow::{Context, Result, ensure};
use memchr::memmem;
use std::fs::File;
use std::path::Path;
use sunder_access::{Mapping, Mappings};
use sunder_observe::code::ModuleCode;
use sunder_observe::proc::{self, Folder};
use sunder_rewrite::is_harmless;
use sunder_rewrite::sites::{self, Function, Number, Want};
use sunder_wire::sites::{ModulePlan, Patch};
use sunder_x86::trampoline::overwritten;

/// Kernel calls that change the address space, or that reveal what a remedy has changed in it: the
/// remedy's hook handles them.
pub const CHANGES: [i64; 12] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_remap_file_pages,
    libc::SYS_pkey_mprotect,
    libc::SYS_mlock,
    libc::SYS_mlock2,
];

/// Kernel calls that open files. A process's memory as a file shows what a remedy has moved away.
pub const OPENS: [i64; 3] = [libc::SYS_open, libc::SYS_openat, libc::SYS_openat2];

/// Kernel calls that may go without a hook where there is no room for one: they use none of the
/// program's memory, or only a thread's own descriptor, which no remedy touches. What the kernel does
/// with the list of robust mutexes later is the library's concern inside the program.
const WITHOUT_HOOK: [i64; 10] = [
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigreturn,
    libc::SYS_tgkill,
    libc::SYS_kill,
    libc::SYS_close,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_arch_prctl,
    libc::SYS_rseq,
];

/// Whether this call of the C library may stay without a hook where there is no room for one.
pub fn may_go_without_hook(number: Number) -> bool {
    match number {
        Number::Always(number) => WITHOUT_HOOK.contains(&number.into()),
        // In the C library these are the last calls of a thread or of the program, in loops.
        Number::In(_) | Number::Any => true,
    }
}

/// Whether the guards of these patches work. They rely on `rcx`, which a kernel call leaves alone where
/// the processor delivers events flexibly (FRED) and the kernel uses that, as its list of the
/// processor's features says.
///
/// # Errors
/// If there are guarded patches, and they do not work on this machine.
pub fn guards_work(patches: &[sites::Patch]) -> Result<()> {
    let guarded = patches.iter().any(|patch| patch.guarded);
    let features = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    ensure!(
        !guarded || !has_feature(&features, "fred"),
        "on this machine a hook can't tell whether control comes from a kernel call (FRED)"
    );
    Ok(())
}

/// Whether `/proc/cpuinfo` lists this feature of the processors.
fn has_feature(cpuinfo: &str, wanted: &str) -> bool {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == wanted))
}

/// The code that returns from a signal handler, as it is in the C library. Unwinders recognise a
/// signal frame by these bytes.
pub const RESTORES: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];

/// The hooks for the C library and the dynamic linker of this machine. A program nearly always uses
/// the same files; otherwise the library inside it reports that and does nothing.
#[derive(Debug)]
pub struct Plan {
    modules: Vec<Module>,
}

#[derive(Debug)]
struct Module {
    path: String,
    /// Address of the module's code, as in the file.
    address: u64,
    /// Addresses in the file at which its code returns from signal handlers.
    restorers: Vec<u64>,
    plan: ModulePlan<Vec<u8>, Vec<Patch>>,
}

impl Plan {
    /// `others` says what to do with calls that change no mappings.
    ///
    /// # Errors
    /// If there is no C library, or a call that changes mappings can't be led through a hook.
    pub fn new(others: Want) -> Result<Self> {
        Self::beside(&[], &[], others)
    }

    /// As [`Self::new`]; the calls `more` must be led through hooks too, like those that change
    /// mappings, and hooks run before the calls `before`.
    fn beside(more: &[i64], before: &[i64], others: Want) -> Result<Self> {
        let own = proc::mappings_in(Folder::Own).context("cannot read our mappings")?;
        let mut paths: Vec<String> = own
            .iter()
            .map(|mapping| mapping.path.clone())
            .filter(|path| is_covered(path))
            .collect();
        paths.dedup();
        if paths.is_empty() {
            paths = installed();
        }
        ensure!(
            !paths.is_empty(),
            "this system has no glibc 2.34 or newer, whose kernel calls could be led through hooks"
        );
        let modules = paths.iter().map(|path| module(path, more, before, others));
        let modules = modules.collect::<Result<_>>()?;
        Ok(Self { modules })
    }

    /// The plan in the format that the library inside the program reads.
    pub fn bytes(&self) -> Vec<u8> {
        let plans: Vec<_> = self.modules.iter().map(|m| m.plan.clone()).collect();
        sunder_wire::sites::write(&plans)
    }

    /// The plan for a program that has these mappings; `None` if it has another C library.
    pub fn placed(&self, mappings: &Mappings) -> Option<Placed<'_>> {
        let modules = self.modules.iter().map(|module| {
            let mut code = mappings.iter().filter(|m| m.execute);
            let code = code.find(|m| m.path == module.path)?;
            Some((base(code, module.address)?, module))
        });
        let modules = modules.collect::<Option<_>>()?;
        Some(Placed { modules })
    }
}

/// Paths of this machine's C library and dynamic linker, for a Sunder that is linked statically. The
/// linker is where all programs name it, and the C library lies beside it. Empty if they are not
/// there, or are called otherwise, as glibc before 2.34 calls them.
fn installed() -> Vec<String> {
    let linker = Path::new("/lib64/ld-linux-x86-64.so.2").canonicalize();
    let library = linker.as_ref().ok().and_then(|linker| {
        let beside = linker.parent()?.join("libc.so.6");
        beside.canonicalize().ok()
    });
    let both: Option<Vec<String>> = [library, linker.ok()]
        .into_iter()
        .map(|path| Some(path?.to_str()?.to_owned()).filter(|path| is_covered(path)))
        .collect();
    both.unwrap_or_default()
}

/// [`Plan::bytes`] for a library that faults on purpose. It must see every call that blocks
/// signals, so that no thread blocks the signal of such a fault: the C library blocks all signals
/// when a thread begins and ends. Before a file is opened it is asked, because the file may show the
/// program's memory.
///
/// # Errors
/// As [`Plan::new`]; also if the calls that block signals can't be led through hooks.
pub fn plan(others: Want) -> Result<Vec<u8>> {
    Ok(Plan::beside(&[libc::SYS_rt_sigprocmask], &OPENS, others)?.bytes())
}

/// A plan with the addresses of one running program.
#[derive(Debug)]
pub struct Placed<'a> {
    modules: Vec<(u64, &'a Module)>,
}

impl Placed<'_> {
    /// Whether `ip` lies inside an instruction sequence that a hook overwrites. No thread may stand
    /// there while code is changed.
    pub fn is_inside(&self, ip: u64) -> bool {
        self.modules.iter().any(|(base, module)| {
            let patches = &module.plan.patches;
            patches.iter().any(|p| is_inside(p, ip.wrapping_sub(*base)))
        })
    }

    /// Addresses of the code that returns from signal handlers.
    pub fn restorers(&self) -> Vec<u64> {
        let modules = self.modules.iter();
        modules
            .flat_map(|(base, module)| module.restorers.iter().map(move |at| base + at))
            .collect()
    }
}

/// Whether `at`, an address in the patch's file, lies inside the bytes that the patch overwrites.
/// Their first byte does not count: a thread that stands there executes the new code.
pub fn is_inside(patch: &Patch, at: u64) -> bool {
    overwritten(patch).is_some_and(|(start, end)| (start as u64 + 1..end as u64).contains(&at))
}

/// The address at which a file's address 0 lies, if its code has `address` in the file and is
/// mapped as `code`.
pub fn base(code: &Mapping, address: u64) -> Option<u64> {
    code.span.start.0.checked_sub(address & !0xfff)
}

/// Addresses, as in the file, of the code that returns from signal handlers.
pub fn restorers(code: &ModuleCode) -> impl Iterator<Item = u64> {
    let found = memmem::find_iter(&code.bytes, &RESTORES);
    found.map(|i| code.address + i as u64)
}

/// Whether two patches overwrite different bytes.
pub fn are_apart(one: &sites::Patch, other: &sites::Patch) -> bool {
    one.from + one.length as u64 <= other.from || other.from + other.length as u64 <= one.from
}

fn module(path: &str, more: &[i64], before: &[i64], others: Want) -> Result<Module> {
    let file = File::open(path).ok();
    let code = file
        .and_then(|file| ModuleCode::read(&file))
        .with_context(|| format!("cannot read the code of {path}"))?;
    // The library inside the program recognises the module by its build identifier.
    ensure!(!code.build_id.is_empty(), "{path} has no build identifier");
    let functions: Vec<_> = code
        .functions
        .iter()
        .map(|&(start, end)| Function { start, end })
        .collect();
    let wants = |number| match number {
        Number::Always(n) if CHANGES.contains(&n.into()) || more.contains(&n.into()) => Want::Call,
        Number::Always(n) if before.contains(&n.into()) => Want::Before,
        // Copies of code make these calls too, and would have to leave hooks on them out.
        Number::Always(n) if is_harmless(n) => Want::Nothing,
        _ => others,
    };
    let plan = sites::plan(&code.bytes, code.address, &functions, wants);
    // Behind the calls `before`, too: memory that they use may be moved after the hook before them, for
    // which there may be no room.
    let behind = |number| match number {
        Number::Always(n) if before.contains(&n.into()) => others,
        _ => Want::Nothing,
    };
    let mut patches = plan.patches;
    for patch in sites::plan(&code.bytes, code.address, &functions, behind).patches {
        if patches.iter().all(|other| are_apart(&patch, other)) {
            patches.push(patch);
        }
    }
    for refused in &plan.refused {
        let is_it = |call: &i64| refused.number == Number::Always(*call as u32);
        ensure!(
            !CHANGES.iter().chain(more).any(is_it),
            "a kernel call of {path} that changes mappings or blocks signals can't be led through a \
             hook"
        );
        let has_another = patches.iter().any(|patch| patch.entry == refused.entry);
        ensure!(
            has_another || may_go_without_hook(refused.number),
            "a kernel call at {:#x} in {path} can't be led through a hook: {}",
            refused.entry,
            refused.reason
        );
    }
    patches.sort_by_key(|patch| patch.from);
    guards_work(&patches)?;
    Ok(Module {
        path: path.to_owned(),
        address: code.address,
        restorers: restorers(&code).collect(),
        plan: ModulePlan {
            build_id: code.build_id,
            patches: patches.iter().map(Patch::from).collect(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_found_by_their_whole_name() {
        let info = "processor\t: 0\nflags\t\t: fpu sse2 fred_like lm\n";
        assert!(has_feature(info, "sse2") && has_feature(info, "lm"));
        assert!(!has_feature(info, "fred") && !has_feature("", "fred"));
    }

    /// What a file shows is decided before it is opened, and a path that was moved is met behind the call.
    #[test]
    fn files_are_opened_between_two_hooks() {
        let plan = Plan::beside(&[libc::SYS_rt_sigprocmask], &OPENS, Want::Result)
            .expect("glibc 2.34 or newer");
        let patches = || plan.modules.iter().flat_map(|module| &module.plan.patches);
        let opens = patches().filter(|patch| OPENS.contains(&i64::from(patch.number)));
        let mut hooks = std::collections::BTreeMap::<_, Vec<_>>::new();
        for patch in opens {
            let is_before = patch.flags & sunder_wire::sites::BEFORE != 0;
            hooks.entry(patch.entry).or_default().push(is_before);
        }
        assert!(!hooks.is_empty());
        for (entry, are_before) in &hooks {
            assert!(are_before.contains(&true), "{entry:#x}");
            assert!(are_before.contains(&false), "{entry:#x}");
        }
    }

    #[test]
    fn a_static_sunder_plans_for_the_libraries_that_programs_load() {
        let own = proc::mappings_in(Folder::Own).expect("our mappings");
        let loaded = own.iter().filter(|m| is_covered(&m.path));
        let mut loaded: Vec<String> = loaded.map(|m| m.path.clone()).collect();
        loaded.dedup();
        if loaded.is_empty() {
            println!("SKIP: this test is linked statically, or glibc is older than 2.34");
            return;
        }
        let mut found = installed();
        loaded.sort();
        found.sort();
        assert_eq!(found, loaded);
    }
}
