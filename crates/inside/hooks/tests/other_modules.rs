//! Libraries of this machine that make kernel calls themselves: all these calls must be found, and
//! hooks must be possible for them.

// Runs outside the target.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::fs::File;
use std::path::Path;
use sunder_observe::code::{Entrances, ModuleCode};
use sunder_rewrite::sites::{Entering, Function, Number, Plan, Want};

/// Plans for a file, with hooks after the result of all calls and before them; `None` if the file
/// does not exist.
fn plans(file: &Path) -> Option<[Plan; 2]> {
    let code = ModuleCode::read(&File::open(file).ok()?)?;
    let bounds = |&(start, end): &(u64, u64)| Function { start, end };
    let functions: Vec<_> = code.functions.iter().map(bounds).collect();
    let mut entering = Entering::of(&code.bytes, code.address, &functions);
    assert_eq!(entering.unexplained(), None);
    if !code.catches {
        entering.without_exception_handlers();
    }
    let entrances = Entrances::read(File::open(file).ok()?)?;
    let starts: Vec<u64> = entering.functions().iter().map(|f| f.start).collect();
    for start in starts {
        entering.add_branch_targets(entrances.of(start).expect("it has no jumps to anywhere"));
    }
    Some([Want::Result, Want::Before].map(|want| entering.plan(|_, _| want)))
}

/// OpenMP's threads wait by kernel calls of the library itself, some of which follow loops that
/// spin.
#[test]
fn all_kernel_calls_of_the_openmp_library_can_be_hooked() {
    let library = Path::new("/usr/lib/x86_64-linux-gnu/libgomp.so.1");
    let Some([behind, before]) = plans(library) else {
        println!("SKIP: there is no {}", library.display());
        return;
    };
    let futex = Number::Always(libc::SYS_futex as u32);
    assert!(behind.entries > 10, "{} calls", behind.entries);
    for patch in behind.patches.iter().chain(&before.patches) {
        assert_eq!(patch.number, futex, "{patch:x?}");
    }
    for refused in &behind.refused {
        let other = before.patches.iter().find(|p| p.entry == refused.entry);
        assert!(other.is_some(), "{refused:x?}");
    }
    let (calls, seen) = (behind.entries, behind.patches.len());
    println!("{calls} calls, of which {seen} can have their result seen");
}
