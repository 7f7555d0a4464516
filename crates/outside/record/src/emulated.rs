//! Starts a program under the emulator with our plugin. Used by `record`.

use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use sunder_guests::MemoryFile;
use sunder_live::program::{self, Linkage};
use sunder_observe::launch::{Launch, PADDING_VARIABLE};

/// The emulator of this architecture, and the package of Debian that has it.
const EMULATOR: &str = "qemu-x86_64";
const PACKAGE: &str = "qemu-user";

/// The files that are needed to start a program under the emulator. Keep it until the program
/// has started.
pub struct Emulated {
    emulator: PathBuf,
    plugin: MemoryFile,
    /// The library that tells the plugin of allocations; `None` if the program's loader can't
    /// take it.
    announce: Option<MemoryFile>,
    program: PathBuf,
}

impl Emulated {
    /// Prepares to start the program of this name.
    ///
    /// # Errors
    /// If the emulator is not installed, or can't run this kind of file.
    pub fn new(name: &OsStr) -> Result<Self> {
        let shown = name.to_string_lossy();
        let program = program::find(name)
            .with_context(|| format!("cannot execute {shown}: it was not found"))?;
        let emulator = program::find(OsStr::new(EMULATOR)).with_context(|| {
            format!(
                "{shown} was not built with `sunder cc`, so it can only be recorded under an \
                 emulator: install Debian's package {PACKAGE} ({EMULATOR} is not in PATH)"
            )
        })?;
        is_program(&program).with_context(|| format!("cannot record {shown}"))?;
        let announce = if can_preload(name, &program) {
            Some(MemoryFile::announce()?)
        } else {
            None
        };
        Ok(Self {
            emulator,
            plugin: MemoryFile::emulator()?,
            announce,
            program,
        })
    }

    /// How to start the program `name` with these arguments.
    ///
    /// # Errors
    /// If the plugin can't be handed down.
    pub fn launch(&self, name: &OsStr, arguments: &[OsString]) -> Result<Launch> {
        // The program gets the name by which it was called, and its environment does not show
        // ours.
        let mut all: Vec<OsString> = vec!["-0".into(), name.into()];
        if let Some(announce) = &self.announce {
            let mut preload = OsString::from("LD_PRELOAD=");
            preload.push(announce.path());
            if let Some(own) = std::env::var_os("LD_PRELOAD") {
                preload.push(":");
                preload.push(own);
            } else {
                // Programs find the auxiliary vector, which has pairs of words, behind the
                // environment: the library must remove an even number of variables.
                all.extend(["-E".into(), format!("{PADDING_VARIABLE}=").into()]);
            }
            all.extend(["-E".into(), preload]);
        }
        all.extend(["-U", "SUNDER_TRACE", "-plugin"].map(OsString::from));
        let skip = all.len() + 2;
        // Without its plugin the emulator does not begin, so the file must outlive us.
        let plugin = self.plugin.handed_down()?;
        let descriptor = self.plugin.descriptor();
        all.push(format!("{},skip={skip},from={descriptor}", plugin.display()).into());
        all.push(self.program.clone().into());
        all.extend_from_slice(arguments);
        Ok(Launch::new(self.emulator.clone()).arguments(all))
    }
}

/// Whether there is a program of this name that may be executed.
pub fn is_executable(name: &OsStr) -> bool {
    let metadata = program::find(name).and_then(|path| std::fs::metadata(path).ok());
    metadata.is_some_and(|m| m.is_file() && m.mode() & 0o111 != 0)
}

/// Whether the emulator can run the file.
fn is_program(path: &Path) -> Result<()> {
    let mut head = [0; 20];
    let file = File::open(path)?;
    let read = file.read_at(&mut head, 0)?;
    let is = |start: &[u8]| head.get(..read).is_some_and(|h| h.starts_with(start));
    anyhow::ensure!(
        !is(b"#!"),
        "it is a script; name its interpreter: sunder trace -o FILE -- INTERPRETER SCRIPT"
    );
    // The class and the byte order in the identification, then the machine.
    anyhow::ensure!(
        is(b"\x7fELF\x02\x01") && head.get(18..20) == Some(&[62, 0]),
        "it is no program for x86-64"
    );
    Ok(())
}

/// Whether the program's dynamic loader can load our library.
fn can_preload(name: &OsStr, path: &Path) -> bool {
    program::preload_hindrance(name).is_none() && program::linkage(path) == Linkage::Dynamic
}

/// Whether the program carries our runtime: it has the hooks of
/// `-fsanitize=thread` and not the sanitizer's library.
pub fn is_instrumented(name: &OsStr) -> bool {
    let Some(bytes) = program::find(name).and_then(|path| std::fs::read(path).ok()) else {
        return false;
    };
    let has = |text: &[u8]| bytes.windows(text.len()).any(|w| w == text);
    has(b"\0__tsan_func_entry\0") && !has(b"\0libtsan.so") && !has(b"libclang_rt.tsan")
}
