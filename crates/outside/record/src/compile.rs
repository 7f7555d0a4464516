//! `sunder cc` and `sunder c++`: the system's compilers, with the thread sanitizer's hooks in
//! the code and our runtime in place of the sanitizer's.
//!
//! gcc looks for the sanitizer's start-up object and library first in the folder given with
//! `-B`. Ours holds the runtime under the name of the object and an empty archive under that of
//! the library. clang is told to link no sanitizer runtime, and gets ours as one more object.

use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, ExitStatus};

/// The language to compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `sunder cc`.
    C,
    /// `sunder c++`.
    Cpp,
}

/// What a compiler command produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Makes {
    /// A program: it gets the runtime.
    Program,
    /// A shared library: it uses the program's runtime.
    Library,
    /// Objects or other files; nothing is linked.
    Pieces,
    /// A static program, which can't have the runtime.
    Static,
}

/// Runs the compiler. Returns its exit status.
///
/// # Errors
/// If it can't be run, or would link a static program.
pub fn run(language: Language, arguments: &[OsString]) -> Result<ExitStatus> {
    let (variable, default) = match language {
        Language::C => ("SUNDER_CC", "gcc"),
        Language::Cpp => ("SUNDER_CXX", "g++"),
    };
    let compiler = std::env::var_os(variable).unwrap_or_else(|| default.into());
    let makes = makes(arguments);
    anyhow::ensure!(
        makes != Makes::Static,
        "a static program can't be recorded: its functions can't be replaced; leave -static out"
    );
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let extra = extra(is_clang(&compiler), makes, folder.path())?;
    Command::new(&compiler)
        .args(extra)
        .args(arguments)
        .status()
        .with_context(|| {
            format!(
                "cannot run {}; {variable} names another compiler",
                compiler.to_string_lossy()
            )
        })
}

fn is_clang(compiler: &OsStr) -> bool {
    let version = Command::new(compiler).arg("--version").output();
    version.is_ok_and(|v| String::from_utf8_lossy(&v.stdout).contains("clang"))
}

fn makes(arguments: &[OsString]) -> Makes {
    let has = |wanted: &[&str]| {
        arguments
            .iter()
            .any(|a| wanted.iter().any(|w| a == OsStr::new(w)))
    };
    if has(&["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "-r"]) {
        Makes::Pieces
    } else if has(&["-static", "-static-pie"]) {
        Makes::Static
    } else if has(&["-shared"]) {
        Makes::Library
    } else {
        Makes::Program
    }
}

/// The arguments to put before the user's own. Writes the runtime into `folder` if it has to be
/// linked.
fn extra(clang: bool, makes: Makes, folder: &Path) -> Result<Vec<OsString>> {
    let mut extra: Vec<OsString> = vec!["-fsanitize=thread".into()];
    if clang {
        // Without this, a load has no hook if a store to the same place follows it.
        extra.extend(["-mllvm", "-tsan-instrument-read-before-write=1"].map(Into::into));
    }
    if matches!(makes, Makes::Program | Makes::Library) {
        if clang {
            extra.push("-fno-sanitize-link-runtime".into());
        } else {
            let mut prefix = OsString::from("-B");
            prefix.push(folder);
            prefix.push("/");
            extra.push(prefix);
            std::fs::write(folder.join("libtsan.a"), "!<arch>\n")
                .context("cannot write a temporary file")?;
        }
    }
    if makes == Makes::Program {
        let object = folder.join("libtsan_preinit.o");
        std::fs::write(&object, sunder_guests::tracer())
            .context("cannot write a temporary file")?;
        if clang {
            extra.push(object.into());
        }
        extra.push("-pthread".into());
        // Shared libraries that are loaded later need the program's hooks.
        extra.push("-Wl,--export-dynamic-symbol=__tsan_*".into());
    }
    Ok(extra)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_what_a_compilation_makes() {
        for (command, expected) in [
            ("-O2 a.c -o a", Makes::Program),
            ("-c a.c", Makes::Pieces),
            ("-shared a.o -o a.so", Makes::Library),
            ("-static a.o", Makes::Static),
            ("-static -c a.c", Makes::Pieces),
        ] {
            let arguments: Vec<OsString> = command.split(' ').map(Into::into).collect();
            assert_eq!(makes(&arguments), expected, "{command}");
        }
    }
}
