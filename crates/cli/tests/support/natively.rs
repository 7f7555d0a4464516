//! What a program does without us. Many tests compare with that, for the same programs; each program
//! runs natively once and not for each of them, which is a third of what they would take together.
//!
//! Not for programs that write something else in each run.

use crate::support::limited;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};

/// What the command has written and its status: from a run before, of this test or another one,
/// if program, arguments and environment are the same.
pub fn natively(command: &Command) -> Output {
    let file = kept_in(command);
    if let Some(output) = file.as_deref().and_then(read) {
        return output;
    }
    let output = limited::output(command);
    // One that the time limit ended says nothing about the program.
    let ended = limited::status(&output) != Some(128 + libc::SIGKILL);
    if let Some(file) = file.filter(|_| ended) {
        keep(&file, &output);
    }
    output
}

/// The file for the command's results, if its program is told by its path. One that is built anew has
/// another.
fn kept_in(command: &Command) -> Option<PathBuf> {
    let program = command.get_program();
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    command.get_args().for_each(|a| a.hash(&mut hasher));
    command.get_envs().for_each(|e| e.hash(&mut hasher));
    let built = std::fs::metadata(program).ok()?;
    (built.len(), built.modified().ok()?).hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("natively");
    Some(folder.join(format!("{:016x}", hasher.finish())))
}

/// The status, the length of what was written to standard output, that, and the rest.
fn keep(file: &Path, output: &Output) {
    let mut bytes = output.status.into_raw().to_le_bytes().to_vec();
    bytes.extend((output.stdout.len() as u64).to_le_bytes());
    bytes.extend(&output.stdout);
    bytes.extend(&output.stderr);
    let folder = file.parent().expect("it has a folder");
    std::fs::create_dir_all(folder).expect("our own folder");
    // Tests of one process are threads, and several may keep the same at once.
    let aside = tempfile::NamedTempFile::new_in(folder).expect("a file");
    std::fs::write(&aside, bytes).expect("written");
    aside.persist(file).expect("same folder");
}

fn read(file: &Path) -> Option<Output> {
    let bytes = std::fs::read(file).ok()?;
    let (status, rest) = bytes.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let (stdout, stderr) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
    Some(Output {
        status: ExitStatus::from_raw(i32::from_le_bytes(*status)),
        stdout: stdout.to_vec(),
        stderr: stderr.to_vec(),
    })
}
