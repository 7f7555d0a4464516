//! The plan by which the libraries that remedies put into a program lead its C
//! library's kernel calls through hooks. Called by `repair` and `protect`; reads the
//! files of the C library that we have ourselves. See `docs/design/hooks.md`.

use crate::calls::is_covered;
use anyhow::{Context, Result, ensure};
use sunder_observe::code::ModuleCode;
use sunder_rewrite::sites::{self, Function, Number, Want};
use sunder_wire::sites::{ModulePlan, Patch};

/// Kernel calls that change the address space: a remedy is asked in their place.
pub const CHANGES: [i64; 10] = [
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
];

/// The plan for the C library that we have ourselves, and its dynamic linker: the
/// program nearly always has the same, and else the library inside it says so and
/// does nothing. `others` is what is wanted of calls that change no mappings.
///
/// # Errors
/// If there is no C library, or a call that changes mappings can't be led aside.
pub fn plan(others: Want) -> Result<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").context("cannot read our mappings")?;
    let mut paths: Vec<&str> = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .filter(|path| is_covered(path))
        .collect();
    paths.dedup();
    ensure!(
        !paths.is_empty(),
        "there is no C library whose kernel calls could be led through hooks"
    );
    let modules = paths.into_iter().map(|path| module(path, others));
    let modules: Vec<_> = modules.collect::<Result<_>>()?;
    Ok(sunder_wire::sites::write(&modules))
}

fn module(path: &str, others: Want) -> Result<ModulePlan<Vec<u8>, Vec<Patch>>> {
    let code = ModuleCode::read(path.as_ref())
        .with_context(|| format!("cannot read the code of {path}"))?;
    let functions: Vec<_> = code
        .functions
        .iter()
        .map(|&(start, end)| Function { start, end })
        .collect();
    let wants = |number| match number {
        Number::Always(n) if CHANGES.contains(&n.into()) => Want::Call,
        _ => others,
    };
    let plan = sites::plan(&code.bytes, code.address, &functions, wants);
    for number in CHANGES {
        let number = Number::Always(number as u32);
        ensure!(
            plan.refused.iter().all(|r| r.number != number),
            "a kernel call of {path} that changes mappings can't be led through a hook"
        );
    }
    Ok(ModulePlan {
        build_id: code.build_id,
        patches: plan.patches.iter().map(Patch::from).collect(),
    })
}
