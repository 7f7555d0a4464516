//! Programs of Go: threads that carry goroutines, stacks on the heap, and no symbols once stripped.

use crate::support::installed::go;
use crate::support::targets::{found, side_by_side};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use sunder_findings::{ObjectKind, Site};

/// The program of many goroutines with or without symbols and debug information; `None`, with a notice,
/// if no compiler is installed.
fn built(stripped: bool) -> Option<PathBuf> {
    static ALL: [OnceLock<Option<PathBuf>>; 2] = [const { OnceLock::new() }; 2];
    let built = || match stripped {
        true => compiled("goroutines", "goroutines.stripped", &["-ldflags=-s -w"]),
        false => compiled("goroutines", "goroutines", &[]),
    };
    ALL[usize::from(stripped)].get_or_init(built).clone()
}

/// The program of the source of this name, with more options of the compiler.
fn compiled(source: &str, name: &str, options: &[&str]) -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = target.join(name);
    let mut compiler = Command::new(go()?);
    compiler.args(["build", "-o"]).arg(&program).args(options);
    // The compiler keeps what it compiles there, where nobody has told it a place.
    if std::env::var_os("HOME").is_none() && std::env::var_os("GOCACHE").is_none() {
        compiler.env("GOCACHE", target.join("go-cache"));
    }
    let source = sources.join(source).with_extension("go");
    let done = compiler.arg(source).output().expect("it is installed");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    Some(program)
}

/// Threads run on stacks among the objects of the heap.
#[test]
fn objects_of_its_heap_are_on_nobodys_stack() {
    let Some(program) = built(false) else { return };
    side_by_side("go", || {
        let all = found(&program)?;
        assert!(
            all.iter().all(|f| f.object.kind != ObjectKind::Stack),
            "{all:?}"
        );
        let has = |of: &str| {
            let types = all.iter().map(|f| f.object.type_name.as_deref());
            types.flatten().any(|name| name.contains(of))
        };
        match has("main.metrics") && has("main.shard") {
            true => Ok(()),
            false => Err(format!("not both were found: {all:?}")),
        }
    });
}

/// What was executed before a sample is known, and so is the name of its function.
#[test]
fn of_a_stripped_program_accesses_and_functions_are_known() {
    let Some(program) = built(true) else { return };
    side_by_side("stripped go", || {
        let all = found(&program)?;
        let sites: Vec<_> = all.iter().flat_map(|f| &f.sites).collect();
        let is_own = |site: &&&Site| site.function.starts_with("main.work");
        if all.len() < 2 || sites.iter().filter(is_own).count() < 2 {
            return Err(format!("too little was found: {sites:?}"));
        }
        // What comes from inlined functions has no line.
        let is_there = |site: &&Site| {
            let file = site.file.as_deref().unwrap_or_default();
            file.ends_with("goroutines.go") && site.line == Some(26)
        };
        match sites.iter().copied().any(|site| is_there(&site)) {
            true => Ok(()),
            false => Err(format!("`s.n += k` was not seen: {sites:?}")),
        }
    });
}

/// The compiler says of an interface of two words that it is in a register, and means its data.
#[test]
fn the_data_of_an_interface_are_not_taken_for_its_table() {
    let Some(program) = compiled("lockers", "lockers", &[]) else {
        return;
    };
    side_by_side("go's interfaces", || {
        let all = found(&program)?;
        let types = all.iter().filter_map(|f| f.object.type_name.as_deref());
        let wrong: Vec<&str> = types.filter(|name| name.contains("abi.")).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        match all.is_empty() {
            true => Err("nothing was found".to_owned()),
            false => Ok(()),
        }
    });
}
