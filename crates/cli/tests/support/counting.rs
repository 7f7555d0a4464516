//! A program that counts in two threads, falsely shared, until it reads a byte: the target of the tests
//! of `attach --repair` and of repairs from `top`. Its source is `programs/attached.c`.

use super::{Ended, c_program};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

/// The program. Compiled once: compiling again would replace the file under programs that run.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let compiled = || c_program("attached", &[]).expect("gcc is needed, as the README says");
    PROGRAM.get_or_init(compiled)
}

/// A program that counts until it is told to end.
pub struct Target {
    /// The process.
    pub process: Ended,
    output: BufReader<ChildStdout>,
    /// Whether it is as its arguments ask. It says so if it could not be.
    pub is_as_asked: bool,
}

impl Target {
    /// Starts it, and waits until it counts.
    pub fn start(arguments: &[&str]) -> Self {
        Self::of(program(), arguments)
    }

    /// The same, of a program that was compiled otherwise.
    pub fn of(program: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Ended::new(&mut command);
        let output = process.child().stdout.take().expect("piped");
        let mut target = Self {
            process,
            output: BufReader::new(output),
            is_as_asked: false,
        };
        let mut line = String::new();
        target.output.read_line(&mut line).expect("readable");
        // The second line: it could not be given what its arguments need, and says so.
        assert!(line == "ready\n" || line == "not ready\n", "{line}");
        target.is_as_asked = line == "ready\n";
        target
    }

    /// Waits until the program writes the line `wanted`.
    pub fn says(&mut self, wanted: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("readable");
        assert_eq!(line.trim_end(), wanted);
    }

    /// Waits until our library is in the program.
    pub fn is_repaired(&self) {
        for _ in 0..3000 {
            if self.has_library() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("the library was never mapped");
    }

    /// Whether our library is in the program.
    pub fn has_library(&self) -> bool {
        String::from_utf8_lossy(&self.file("maps")).contains("memfd:sunder-remap")
    }

    /// Stops the whole process.
    pub fn stop(&self) {
        self.process.kill(libc::SIGSTOP);
        let begun = Instant::now();
        while !self.is_stopped() {
            assert!(begun.elapsed().as_secs() < 60, "it does not stop");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Whether a signal has stopped the whole process.
    pub fn is_stopped(&self) -> bool {
        String::from_utf8_lossy(&self.file("status")).contains("T (stopped)")
    }

    /// Its process id, as an argument.
    pub fn id(&self) -> String {
        self.process.id()
    }

    /// What a file of its in `/proc` holds.
    pub fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(format!("/proc/{}/{name}", self.id())).expect("the process lives")
    }

    /// The signals that the program handles, and its mappings of files and of code.
    pub fn state(&self) -> (Vec<u64>, Vec<String>) {
        let text = |name: &str| String::from_utf8(self.file(name)).expect("text");
        // The program itself changes its handler of SIGUSR2 all the time.
        let but_one = !(1 << (libc::SIGUSR2 - 1));
        let number = |l: &str| {
            let value = l.strip_prefix("SigCgt:")?;
            Some(u64::from_str_radix(value.trim(), 16).expect("hexadecimal") & but_one)
        };
        let mut signals: Vec<u64> = text("status").lines().filter_map(number).collect();
        // Its counting threads block every signal that can be blocked.
        let folder =
            std::fs::read_dir(format!("/proc/{}/task", self.id())).expect("the process lives");
        let blocked = |task: std::fs::DirEntry| {
            let status = std::fs::read_to_string(task.path().join("status")).ok()?;
            let line = status.lines().find_map(|l| l.strip_prefix("SigBlk:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        };
        let bit = 1 << (libc::SIGSEGV - 1);
        let masks = folder.flatten().skip(1).take(2).filter_map(blocked);
        signals.extend(masks.map(|m| m & bit));
        let maps = text("maps");
        let kept = maps
            .lines()
            .filter(|l| l.contains('/') || l.contains("xp "));
        (signals, kept.map(str::to_owned).collect())
    }

    /// Whether the code of its C library in memory equals the file's.
    pub fn code_is_its_files(&self) -> bool {
        let maps = String::from_utf8(self.file("maps")).expect("text");
        let of_library = |l: &&str| l.contains("r-xp") && l.contains("/libc.so.6");
        let line = maps.lines().find(of_library).expect("it has one");
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal");
        let (start, end) = words[0].split_once('-').expect("a range");
        let len = (number(end) - number(start)) as usize;
        let read = |path: &str, at: u64| {
            use std::os::unix::fs::FileExt;
            let mut bytes = vec![0; len];
            let file = std::fs::File::open(path).expect("readable");
            let got = file.read_at(&mut bytes, at).expect("readable");
            bytes.truncate(got);
            bytes
        };
        let memory = read(&format!("/proc/{}/mem", self.id()), number(start));
        let file = read(words[5], number(words[2]));
        memory[..file.len()] == file[..]
    }

    /// The CPU time of all its threads, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds(&self.id()).expect("the process lives")
    }

    /// Ends the program; what it wrote, and whether it succeeded.
    pub fn end(mut self) -> (String, bool) {
        let child = self.process.child();
        let mut input = child.stdin.take().expect("piped");
        input.write_all(b"x").expect("it reads");
        drop(input);
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("readable");
        let status = self.process.child().wait().expect("waited for");
        (text, status.success())
    }
}

/// The CPU time of all threads of a process, in seconds; `None` if there is no such process.
pub fn cpu_seconds(process: &str) -> Option<f64> {
    cpu_times(process).map(|(user, kernel)| user + kernel)
}

/// The same, in code of its own and in the kernel.
pub fn cpu_times(process: &str) -> Option<(f64, f64)> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit(')').next()?.split(' ').collect();
    let ticks = |n: usize| fields.get(n)?.parse::<f64>().ok();
    // SAFETY: takes an integer.
    let second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    Some((ticks(12)? / second, ticks(13)? / second))
}
