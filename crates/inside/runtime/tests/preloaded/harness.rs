//! Builds the library and the test programs, and runs them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use sunder_wire::{Segment, SegmentOptions};

/// The folder for everything that the tests build.
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The library in the form that is loaded into programs. Built once for each run of the tests, in
/// the folder in which `crates/outside/guests/build/main.rs` also builds it (the outer cargo has locked
/// the usual one).
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = folder().with_file_name("guests");
        let status = Command::new(env!("CARGO"))
            .args(["build", "--profile", "guest", "--quiet", "--manifest-path"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("CARGO_BUILD_TARGET")
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the library does not build");
        target.join("guest/libsunder_runtime.so")
    })
}

/// Compiles `tests/programs/NAME.c`, once. Not position-independent, so that
/// the addresses in the file are those in memory.
pub fn program(name: &str) -> PathBuf {
    let arguments = ["-O1", "-fno-optimize-sibling-calls"];
    compiled("gcc", name, &format!("{name}.c"), &arguments)
}

/// Compiles `tests/programs/SOURCE` to `name`, once.
pub fn compiled(compiler: &str, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().expect("no test panics while it compiles");
    if let Some(path) = built.get(name) {
        return path.clone();
    }
    let path = folder().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(source);
    let status = Command::new(compiler)
        .args(arguments)
        .args(["-g", "-no-pie", "-pthread", "-Wno-alloc-size-larger-than"])
        .arg("-o")
        .args([&path, &source])
        .arg("-ldl")
        .status()
        .expect("the compiler runs");
    assert!(status.success(), "{} does not compile", source.display());
    built.insert(name.into(), path.clone());
    path
}

/// A segment that records the heap and takes no samples.
pub fn heap_segment() -> Segment {
    Segment::create(&SegmentOptions {
        heap: true,
        ..SegmentOptions::default()
    })
    .expect("memory file")
}

/// `command` with the library preloaded.
pub fn preload<'a>(command: &'a mut Command, segment: &Segment) -> &'a mut Command {
    for (name, value) in segment.environment(library(), None) {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// A program that has printed `ready` and waits for the end of its input.
pub struct Waiting {
    /// The lines that it printed before.
    pub lines: Vec<String>,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Waiting {
    /// Starts `command` and reads its output until `ready`.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = output.read_line(&mut line).expect("readable");
            if read == 0 {
                let status = child.wait();
                panic!("the program ended early ({status:?}) after {lines:#?}");
            }
            match line.trim_end() {
                "ready" => break,
                line => lines.push(line.to_owned()),
            }
        }
        Self {
            lines,
            child,
            output,
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("waited for");
    }

    /// Closes its input, waits for its end, and returns the rest of its output. It must succeed.
    pub fn finish(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        let status = self.child.wait().expect("waited for");
        assert!(status.success(), "{status}: {rest}");
        rest
    }
}

/// The functions of a program: start, size and name.
pub fn functions(program: &Path) -> Vec<(u64, u64, String)> {
    let output = Command::new("nm")
        .args(["-S", "--defined-only"])
        .arg(program)
        .output()
        .expect("nm runs");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let start = u64::from_str_radix(words.next()?, 16).ok()?;
            let size = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?;
            let name = words.next()?;
            matches!(kind, "t" | "T").then(|| (start, size, name.to_owned()))
        })
        .collect()
}
