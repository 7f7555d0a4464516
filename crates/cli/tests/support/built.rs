//! Programs that tests compile. Each is compiled once in a test process: tests run side by side, and
//! a program or library whose file is replaced meanwhile has none any more that could be read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// What became of those that were compiled.
static BUILT: Mutex<BTreeMap<PathBuf, Result<(), String>>> = Mutex::new(BTreeMap::new());

/// Compiles `program` by `compiler`, to which the output is added, unless this process has done so.
///
/// # Errors
/// What the compiler said, if it could not.
pub fn once(program: &Path, compiler: &mut Command) -> Result<(), String> {
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = built.entry(program.to_owned());
    entry.or_insert_with(|| compile(program, compiler)).clone()
}

/// Beside, and then renamed: an earlier test process may still run what lies there.
fn compile(program: &Path, compiler: &mut Command) -> Result<(), String> {
    let mut aside = program.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    let compiled = compiler.arg("-o").arg(&aside).output();
    let compiled = compiled.expect("the README names the compiler");
    if !compiled.status.success() {
        let errors = String::from_utf8_lossy(&compiled.stderr);
        return Err(format!("{compiler:?}: {errors}"));
    }
    std::fs::rename(&aside, program).map_err(|error| error.to_string())
}
