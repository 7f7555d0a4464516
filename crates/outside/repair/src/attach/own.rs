//! Modules other than the C library that make kernel calls of their own, as OpenMP's library does
//! when its threads wait: which of these calls are led through hooks, and how. If a single call
//! can't be led through a hook, or if it is not certain what some code does, nothing is moved in
//! the program, as nothing is known of what such a module would do unseen. The vDSO, the kernel's
//! own library in every program, is such a module: it calls the kernel for clocks of CPU time.
//! Called by `plan`.

use super::calls::{needed, only_if_there_is_room};
use super::module::Module;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::cell::Cell;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use sunder_access::{Mapping, ProcessId};
use sunder_guests::MemoryFile;
use sunder_hooking::{RESTORES, base, guards_work, restorers};
use sunder_observe::code::{Entrances, ModuleCode};
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::proc::{self, MemoryUse};
use sunder_rewrite::is_harmless;
use sunder_rewrite::sites::{self, Entering, Function, Number, Want};
use sunder_wire::sites::Patch;

/// After these calls the kernel uses the program's memory while no thread waits in a call.
const LETS_KERNEL_WRITE: [i64; 3] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_setup,
    libc::SYS_userfaultfd,
];

/// The plan for a module at its present address.
///
/// # Errors
/// Names the module, and says why there is no plan for it.
pub fn module(files: &ForeignFiles, mapping: &Mapping) -> Result<Module> {
    let path = &mapping.path;
    let file = files.mapped(mapping).context("it can't be opened");
    let plan = file.and_then(|file| plan(file, mapping));
    plan.map_err(|why| anyhow!("{path} makes kernel calls of its own, and {why:#}"))
}

/// The plan for the vDSO, which is in no file.
///
/// # Errors
/// Says why there is no plan.
pub fn kernels(process: ProcessId, mapping: &Mapping) -> Result<Module> {
    image(process, mapping)
        .and_then(|image| plan(File::open(image.path())?, mapping))
        .map_err(|why| anyhow!("the kernel's own library in it makes kernel calls, and {why:#}"))
}

fn image(process: ProcessId, mapping: &Mapping) -> Result<MemoryFile> {
    let memory = proc::memory(process, MemoryUse::Read).context("it can't be read")?;
    let mut bytes = vec![0; usize::try_from(mapping.span.len)?];
    memory
        .read_exact_at(&mut bytes, mapping.span.start.0)
        .context("it can't be read")?;
    MemoryFile::holding(c"sunder-vdso", &bytes).context("there is no memory")
}

fn plan(file: File, mapping: &Mapping) -> Result<Module> {
    let path = &mapping.path;
    let code = ModuleCode::read(&file).context("its code can't be read")?;
    ensure!(code.segments.len() == 1, "its code lies in several places");
    let patches = patches(&code, file)?;
    let base = base(mapping, code.address).context("it lies where it can't")?;
    let restorers = restorers(&code).map(|at| base + at).collect();
    Ok(Module {
        base,
        patches,
        restorers,
        // Borrowed threads use the C library's, which stays as long as the program.
        call: None,
        path: path.clone(),
        code: (mapping.span.start.0, mapping.span.end().0),
    })
}

/// The patches for the code of a file.
///
/// # Errors
/// Says which of its calls can't be led through a hook, and why.
pub fn patches(code: &ModuleCode, file: File) -> Result<Vec<Patch>> {
    let functions: Vec<Function> = code
        .functions
        .iter()
        .map(|&(start, end)| Function { start, end })
        .collect();
    let mut entering = Entering::of(&code.bytes, code.address, &functions);
    if !code.catches {
        entering.without_exception_handlers();
    }
    if let Some(at) = entering.unexplained() {
        bail!("the bytes of one at {at:#x} are in no code that is known");
    }
    let entrances = Entrances::read(file).context("its code can't be read")?;
    let functions: Vec<u64> = entering.functions().iter().map(|f| f.start).collect();
    for start in functions {
        let inside = entrances.of(start).with_context(|| {
            format!("it is not known where all jumps of its function at {start:#x} lead")
        })?;
        entering.add_branch_targets(inside);
    }
    ensure!(
        returns_from_handlers_are_known(code, &entering),
        "it returns from signal handlers in a way of its own"
    );
    let first = entering.plan(|_, number| wanted(number));
    // Calls whose hook can't be placed behind them get one before them.
    let behind = |refused: &sites::Refused| wanted(refused.number) == Want::Result;
    let retried: HashSet<u64> = first
        .refused
        .iter()
        .filter(|r| behind(r))
        .map(|r| r.entry)
        .collect();
    // Calls that need a hook before them only if there is room for it get one behind them.
    let left = first
        .refused
        .iter()
        .filter(|r| only_if_there_is_room(r.number));
    let left: HashSet<u64> = left.map(|r| r.entry).collect();
    let second = entering.plan(|entry, number| {
        if retried.contains(&entry) {
            Want::Before
        } else if left.contains(&entry) {
            Want::Result
        } else {
            wanted(number)
        }
    });
    if let Some(refused) = second.refused.first() {
        bail!(
            "that at {:#x} can't be led through a hook: {}",
            refused.entry,
            refused.reason
        );
    }
    guards_work(&second.patches)?;
    Ok(second.patches.iter().map(Patch::from).collect())
}

/// What the library inside the program must see of a call.
fn wanted(number: Number) -> Want {
    match number {
        Number::Always(n) if LETS_KERNEL_WRITE.contains(&n.into()) => Want::Before,
        Number::Always(n) if is_harmless(n) || i64::from(n) == libc::SYS_exit => Want::Nothing,
        Number::Always(n) if i64::from(n) == libc::SYS_rt_sigreturn => Want::Nothing,
        number => match needed(number) {
            Want::Nothing => Want::Result,
            more => more,
        },
    }
}

/// Whether all code that returns from signal handlers has the known form, by which signal frames
/// are found.
fn returns_from_handlers_are_known(code: &ModuleCode, entering: &Entering<'_>) -> bool {
    let known: HashSet<u64> = restorers(code)
        .map(|at| at + RESTORES.len() as u64 - 2)
        .collect();
    let all = Cell::new(true);
    let _nothing_planned = entering.plan(|entry, number| {
        let returns = number == Number::Always(libc::SYS_rt_sigreturn as u32);
        if returns && !known.contains(&entry) {
            all.set(false);
        }
        Want::Nothing
    });
    all.into_inner()
}
