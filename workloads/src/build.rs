//! Compiles workloads. A program's name contains a hash of everything that it is made from, so a
//! second build finds the result of the first, and builds at the same time can't disturb each
//! other.

use crate::error::{Error, Result};
use crate::plain::plain;
use crate::table::Workload;
use crate::table::{Language, programs, read};
use crate::variant::Variant;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tells apart the temporary names of builds in one process.
static NEXT_BUILD: AtomicU64 = AtomicU64::new(0);

/// A folder for built workloads: beside the running test or program, in
/// Cargo's target folder.
#[must_use]
pub fn default_out_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program
        .ancestors()
        .find(|folder| folder.join("deps").is_dir())
        .map_or_else(std::env::temp_dir, Path::to_owned);
    target.join("workloads")
}

impl Workload {
    /// Builds `variant` in `out_dir`, which is created, and returns the program's path. If the
    /// program was built before from the same sources, flags and compiler name, returns that one.
    /// Calls at the same time, also from several processes, are safe.
    ///
    /// # Errors
    /// If the compiler is missing or refuses the source, or on a file error.
    pub fn build(&self, variant: Variant, out_dir: &Path) -> Result<PathBuf> {
        let arguments = self.compiler_arguments(variant);
        let program = out_dir.join(format!(
            "{}-{}-{:016x}",
            self.name,
            variant.name(),
            self.fingerprint(&arguments)?
        ));
        if program.is_file() {
            return Ok(program);
        }
        create(out_dir)?;
        // Compiled in a folder of its own: rustc leaves object files beside its
        // output, by names that two builds could share.
        let number = NEXT_BUILD.fetch_add(1, Ordering::Relaxed);
        let scratch = out_dir.join(format!("build-{}-{number}", std::process::id()));
        create(&scratch)?;
        let built = self.compile(&arguments, &scratch);
        let placed = built.and_then(|file| {
            // What another build has put there meanwhile stays: it may run already, and the file of a
            // program that runs can't be read by its name once it was replaced.
            let linked = std::fs::hard_link(&file, &program);
            let placed = match linked {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                // Some file systems have no hard links.
                Err(_) => std::fs::rename(&file, &program),
                Ok(()) => Ok(()),
            };
            placed.map_err(|source| Error::File { path: file, source })
        });
        // It does not matter if files are left there.
        let _ = std::fs::remove_dir_all(&scratch);
        placed.map(|()| program)
    }

    /// The built `variant` with its arguments at test size, ready to be spawned.
    ///
    /// # Errors
    /// As [`Workload::build`].
    pub fn command(&self, variant: Variant, out_dir: &Path) -> Result<Command> {
        let mut command = Command::new(self.build(variant, out_dir)?);
        command.args(self.arguments());
        Ok(command)
    }

    /// THREADS and SIZE at test size.
    #[must_use]
    pub fn arguments(&self) -> [String; 2] {
        [self.threads.to_string(), self.size.to_string()]
    }

    fn compiler(&self) -> String {
        let (variable, default) = match self.language {
            Language::C => ("WORKLOADS_CC", "gcc"),
            Language::Cpp => ("WORKLOADS_CXX", "g++"),
            Language::Rust => ("RUSTC", "rustc"),
        };
        std::env::var(variable).unwrap_or_else(|_| default.to_owned())
    }

    /// All arguments but the output.
    fn compiler_arguments(&self, variant: Variant) -> Vec<String> {
        let mut arguments: Vec<String> = match self.language {
            Language::C => vec!["-std=gnu11"],
            Language::Cpp => vec!["-std=c++17"],
            Language::Rust => vec!["--edition", "2021", "-D", "warnings"],
        }
        .into_iter()
        .map(str::to_owned)
        .collect();
        let fixed = variant == Variant::Fixed;
        if self.language == Language::Rust {
            arguments.extend(["--check-cfg", "cfg(fixed)"].map(str::to_owned));
            if fixed {
                arguments.extend(["--cfg", "fixed"].map(str::to_owned));
            }
        } else {
            arguments.extend(["-g", "-pthread", "-Wall", "-Wextra", "-Werror"].map(str::to_owned));
            if fixed {
                arguments.push("-DFIXED=1".to_owned());
            }
        }
        arguments.extend(self.flags.iter().cloned());
        arguments.push(self.source_path().display().to_string());
        if self.language != Language::Rust {
            arguments.push("-lm".to_owned());
        }
        arguments
    }

    /// A line for `sh` that compiles `variant` to `program` in a folder with copies of the sources
    /// ([`Workload::write_plain_sources`]).
    #[must_use]
    pub fn build_line(&self, variant: Variant, program: &str) -> String {
        let source = self.source_path().display().to_string();
        let mut words = vec![self.compiler()];
        let arguments = self.compiler_arguments(variant).into_iter();
        words.extend(arguments.map(|argument| match argument == source {
            true => self.source.clone(),
            false => argument,
        }));
        words.extend(["-o".to_owned(), program.to_owned()]);
        let quoted = words
            .iter()
            .map(|word| format!("'{}'", word.replace('\'', "'\\''")));
        quoted.collect::<Vec<_>>().join(" ")
    }

    /// Writes the source without its fixed variant, and the header that it may include, into `folder`,
    /// which is created.
    ///
    /// # Errors
    /// On a file error.
    pub fn write_plain_sources(&self, folder: &Path) -> Result<()> {
        create(folder)?;
        for file in [self.source_path(), programs().join("workload.h")] {
            let copy = folder.join(file.file_name().unwrap_or_default());
            std::fs::write(&copy, plain(&read(&file)?, self.language))
                .map_err(|source| Error::File { path: copy, source })?;
        }
        Ok(())
    }

    fn fingerprint(&self, arguments: &[String]) -> Result<u64> {
        let mut hash = DefaultHasher::new();
        self.compiler().hash(&mut hash);
        arguments.hash(&mut hash);
        read(&self.source_path())?.hash(&mut hash);
        read(&programs().join("workload.h"))?.hash(&mut hash);
        Ok(hash.finish())
    }

    fn compile(&self, arguments: &[String], scratch: &Path) -> Result<PathBuf> {
        let file = scratch.join(&self.name);
        let mut command = Command::new(self.compiler());
        command.args(arguments).arg("-o").arg(&file);
        finish(&mut command, &self.name)?;
        Ok(file)
    }

    /// Compiles `variant` to `program` with another compiler, which may have arguments, such as
    /// `cc` of `sunder cc`.
    ///
    /// # Errors
    /// If the compiler is missing or refuses the source.
    pub fn compile_with(
        &self,
        variant: Variant,
        compiler: &mut Command,
        program: &Path,
    ) -> Result<()> {
        let arguments = self.compiler_arguments(variant);
        finish(compiler.args(arguments).arg("-o").arg(program), &self.name)
    }
}

/// Runs a compiler command that is complete.
pub(crate) fn finish(compiler: &mut Command, workload: &str) -> Result<()> {
    let output = compiler.output().map_err(|source| Error::NoCompiler {
        compiler: compiler.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Compile {
        workload: workload.to_owned(),
        command: format!("{compiler:?}"),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn create(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|source| Error::File {
        path: folder.to_owned(),
        source,
    })
}
