//! Compiles the test programs and finds addresses in them without the crate
//! under test: symbols by the `object` crate, instructions by their source line
//! through binutils' `objdump`.

use object::{Object, ObjectSegment, ObjectSymbol};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use sunder_access::{Address, CodeAddress, Mapping, Mappings, Span};
use sunder_objects::{NameOptions, Names, OwnFiles};

/// Added to link addresses, so that a mistake between the two shows.
pub const BIAS: u64 = 0x5555_5555_4000;

pub struct Program {
    pub folder: tempfile::TempDir,
    pub file: PathBuf,
    source: String,
}

/// Compiles `source` of the programs folder; `None`, with a notice, if the compiler is not
/// installed.
pub fn compile(source: &str, options: &[&str]) -> Option<Program> {
    let compiler = match Path::new(source).extension().and_then(|e| e.to_str()) {
        Some("c") => "gcc",
        Some("cc") => "g++",
        Some("f90") => "gfortran",
        _ => "rustc",
    };
    compile_by(compiler, source, options)
}

/// Like [`compile`], with another compiler.
pub fn compile_by(compiler: &str, source: &str, options: &[&str]) -> Option<Program> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/names/programs");
    let copy = folder.path().join(source);
    std::fs::copy(programs.join(source), &copy).expect("the source is there");
    let file = folder.path().join("program");
    let built = Command::new(compiler)
        .current_dir(folder.path())
        .args(options)
        .args(["-o", "program", source])
        .args(if compiler == "rustc" {
            &[][..]
        } else {
            &["-pthread"][..]
        })
        .output();
    let Ok(built) = built else {
        println!("SKIP: {compiler} is not installed");
        return None;
    };
    let errors = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(built.status.success(), "{compiler} {options:?}: {errors}");
    let source = std::fs::read_to_string(copy).expect("readable");
    Some(Program {
        folder,
        file,
        source,
    })
}

impl Program {
    /// Runs a tool of binutils in the program's folder.
    pub fn tool(&self, name: &str, arguments: &[&str]) -> Option<String> {
        let run = Command::new(name)
            .current_dir(self.folder.path())
            .args(arguments)
            .output();
        let Ok(run) = run else {
            println!("SKIP: {name} is not installed");
            return None;
        };
        assert!(
            run.status.success(),
            "{name} {arguments:?}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
        Some(String::from_utf8_lossy(&run.stdout).into_owned())
    }

    /// Names of the program as if it were loaded at [`BIAS`].
    pub fn names(&self) -> Names {
        self.names_with(NameOptions {
            debug_dirs: Vec::new(),
            files: Arc::new(OwnFiles::default()),
            executable: None,
            debuginfod_cache: None,
            memory: None,
            debug_information: true,
        })
    }

    pub fn names_with(&self, options: NameOptions) -> Names {
        let mut names = Names::new(options);
        names.set_mappings(self.mappings());
        names
    }

    /// The mappings that the kernel would show for the loaded program.
    pub fn mappings(&self) -> Mappings {
        let data = std::fs::read(&self.file).expect("readable");
        let elf = object::File::parse(&*data).expect("an ELF file");
        let page = |x: u64| x & !0xfff;
        let mut all = Mappings::new();
        for segment in elf.segments() {
            let (offset, file_size) = segment.file_range();
            let start = page(segment.address());
            let in_file = (segment.address() + file_size).next_multiple_of(0x1000);
            let end = (segment.address() + segment.size()).next_multiple_of(0x1000);
            let mut mapping = Mapping {
                span: Span::new(Address(BIAS + start), in_file - start),
                file_offset: page(offset),
                path: self.file.display().to_string(),
                inode: std::fs::metadata(&self.file).expect("there").ino(),
                read: true,
                write: true,
                execute: true,
                shared: false,
            };
            all.insert(mapping.clone());
            if end > in_file {
                // The zero-filled rest is anonymous memory.
                mapping.span = Span::new(Address(BIAS + in_file), end - in_file);
                mapping.path = String::new();
                mapping.execute = false;
                mapping.inode = 0;
                all.insert(mapping);
            }
        }
        all
    }

    /// The runtime address of the symbol whose demangled name ends like this.
    pub fn address(&self, name: &str) -> Address {
        Address(BIAS + self.symbol(name))
    }

    /// The link address of that symbol.
    pub fn symbol(&self, name: &str) -> u64 {
        let data = std::fs::read(&self.file).expect("readable");
        let elf = object::File::parse(&*data).expect("an ELF file");
        let fits = |raw: &str| {
            let rust = format!("{:#}", rustc_demangle::demangle(raw));
            rust == name
                || rust.ends_with(&format!("::{name}"))
                || (raw.ends_with(name) && !raw.starts_with("_GLOBAL_"))
        };
        let mut symbols = elf.symbols();
        symbols
            .find(|s| !s.is_undefined() && s.name().is_ok_and(fits))
            .unwrap_or_else(|| panic!("no symbol {name}"))
            .address()
    }

    /// The number of the source line marked `LINE mark`.
    pub fn line(&self, mark: &str) -> u32 {
        let wanted = format!("LINE {mark}");
        let found = self
            .source
            .lines()
            .position(|l| l.trim_end_matches(" */").ends_with(&wanted));
        found.unwrap_or_else(|| panic!("no line marked {mark}")) as u32 + 1
    }

    /// The number of the one source line that is `text`, apart from its indent.
    pub fn line_of(&self, text: &str) -> u32 {
        let found = self.source.lines().position(|l| l.trim() == text);
        found.unwrap_or_else(|| panic!("no line {text}")) as u32 + 1
    }

    /// The instructions of the marked line: address and Intel syntax.
    pub fn instructions(&self, mark: &str) -> Vec<(CodeAddress, String)> {
        let line = self.line(mark);
        let Some(listing) = self.tool(
            "objdump",
            &["-dl", "--no-show-raw-insn", "-M", "intel", "program"],
        ) else {
            return Vec::new();
        };
        let mut here = false;
        let mut found = Vec::new();
        for text in listing.lines() {
            let trimmed = text.trim();
            if let Some((address, rest)) = trimmed.split_once(":\t") {
                if here && let Ok(address) = u64::from_str_radix(address, 16) {
                    found.push((CodeAddress(BIAS + address), rest.to_owned()));
                }
            } else if let Some((file, number)) = trimmed.rsplit_once(':') {
                let number = number.split(' ').next().unwrap_or("");
                let own = [".c", ".cc", ".rs"].iter().any(|e| file.ends_with(e));
                here = own && !file.contains("/rustc/") && number.parse() == Ok(line);
            }
        }
        found
    }

    /// The last of these instructions that writes memory outside of the stack frame.
    pub fn store(&self, mark: &str) -> CodeAddress {
        let all = self.instructions(mark);
        last_store(&all).unwrap_or_else(|| panic!("no store at {mark}: {all:?}"))
    }

    /// The same of a whole function.
    pub fn store_in(&self, function: &str) -> CodeAddress {
        let all = self.disassembled(function);
        last_store(&all).unwrap_or_else(|| panic!("no store in {function}: {all:?}"))
    }

    /// The return address of the first call in `function` of something named `callee`.
    pub fn return_of(&self, function: &str, callee: &str) -> CodeAddress {
        let all = self.disassembled(function);
        let call =
            |(_, text): &(CodeAddress, String)| text.starts_with("call") && text.contains(callee);
        let at = all.iter().position(call);
        let at = at.unwrap_or_else(|| panic!("no call of {callee} in {function}: {all:?}"));
        all[at + 1].0
    }

    /// The one function whose mangled name contains all of `parts`.
    pub fn function_with(&self, parts: &[&str]) -> String {
        let listing = self.tool("nm", &["program"]).unwrap_or_default();
        let names = listing.lines().filter_map(|l| l.split(' ').next_back());
        let mut found = names.filter(|n| parts.iter().all(|p| n.contains(p)));
        let name = found
            .next()
            .unwrap_or_else(|| panic!("no function with {parts:?}"));
        name.to_owned()
    }

    fn disassembled(&self, function: &str) -> Vec<(CodeAddress, String)> {
        let only = format!("--disassemble={function}");
        let arguments = ["--no-show-raw-insn", "-M", "intel", &only, "program"];
        let listing = self.tool("objdump", &arguments).unwrap_or_default();
        let parse = |line: &str| {
            let (address, text) = line.trim().split_once(":\t")?;
            let address = u64::from_str_radix(address, 16).ok()?;
            Some((CodeAddress(BIAS + address), text.to_owned()))
        };
        listing.lines().filter_map(parse).collect()
    }
}

fn last_store(all: &[(CodeAddress, String)]) -> Option<CodeAddress> {
    let writes = |text: &str| {
        let text = text.trim_start_matches("lock ");
        let operands = text.split_once(' ').map_or("", |(_, o)| o.trim());
        let first = operands.split(',').next().unwrap_or("");
        let memory = first.contains('[') || first.contains("fs:");
        let frame = first.contains("[rbp") || first.contains("[rsp");
        let reads = ["cmp", "test", "call", "jmp", "push"]
            .iter()
            .any(|m| text.starts_with(m));
        memory && !frame && !reads
    };
    all.iter()
        .rev()
        .find(|(_, text)| writes(text))
        .map(|(at, _)| *at)
}
