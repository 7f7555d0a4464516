//! `sunder repair` leaves a program alone until there is something to move. A program without false
//! sharing keeps its C library's code as it is in the file and has nothing of the remedy in its
//! memory. A program with false sharing gets both while it runs, and they take little memory.

use crate::support::{Ended, c_program, contention, plain_sunder, skips, targets};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// CPU seconds after which a computing thread has been sampled many times.
const LONG: f64 = 0.7;
/// How long threads are given to run at the same time.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program under repair that counts in two threads until its input ends.
struct Target {
    process: Ended,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Its process number, as text.
    id: String,
}

impl Target {
    fn start(program: &Path, what: &str) -> Self {
        let mut command = plain_sunder();
        command
            .args(["repair", "--"])
            .arg(program)
            .arg(what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = Ended::new(&mut command);
        let input = process.child().stdin.take().expect("piped");
        let mut output = BufReader::new(process.child().stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("readable");
        assert_eq!(line, "ready\n");
        let of = process.id();
        let children = format!("/proc/{of}/task/{of}/children");
        let children = std::fs::read_to_string(children).expect("the kernel lists children");
        let mut children = children.split_whitespace();
        let id = children.next().expect("it has started one").to_owned();
        Self {
            process,
            input,
            output,
            id,
        }
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.id)).expect("the process lives")
    }

    /// How many bytes of its C library's code differ from the file.
    fn changed(&self) -> usize {
        let maps = self.text("maps");
        let of_library = |l: &&str| l.contains("r-xp") && l.contains("/libc.so.6");
        let line = maps.lines().find(of_library).expect("it has one");
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal");
        let (start, end) = words[0].split_once('-').expect("a range");
        let read = |path: &str, at: u64| {
            let mut bytes = vec![0; (number(end) - number(start)) as usize];
            let file = std::fs::File::open(path).expect("readable");
            let got = file.read_at(&mut bytes, at).expect("readable");
            bytes.truncate(got);
            bytes
        };
        let memory = read(&format!("/proc/{}/mem", self.id), number(start));
        let file = read(words[5], number(words[2]));
        assert!(file.len() > 1 << 20, "of what it has {} bytes", file.len());
        let both = memory.iter().zip(&file);
        both.filter(|(memory, file)| memory != file).count()
    }

    /// Whether the remedy is mapped. The library itself has no file; the mapping that shows is the
    /// file that it shares with the tool.
    fn has_remedy(&self) -> bool {
        self.text("maps").contains("sunder-remap")
    }

    /// The program's private memory of all mappings and the memory that it shares with the tool, in
    /// bytes.
    fn memory(&self) -> u64 {
        let text = self.text("smaps");
        let mut shared = false;
        let mut kib = 0;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("Anonymous:") => kib += words.next().map_or(0, kibibytes),
                Some("Rss:") if shared => kib += words.next().map_or(0, kibibytes),
                Some(first) if !first.ends_with(':') => shared = line.contains("sunder-remap"),
                _ => {}
            }
        }
        kib << 10
    }

    /// Whether something was moved: copies of its code then lie in the shared file.
    fn has_copies(&self) -> bool {
        let maps = self.text("maps");
        let mut lines = maps.lines();
        lines.any(|l| l.contains("r-xs") && l.contains("sunder-remap"))
    }

    fn cpu_seconds(&self) -> f64 {
        let text = self.text("stat");
        let fields = text.rsplit(')').next().expect("a name");
        let ticks = |n| fields.split(' ').nth(n).map(str::parse::<f64>);
        let ticks = |n| ticks(n).expect("a field").expect("a number");
        // SAFETY: takes an integer.
        (ticks(12) + ticks(13)) / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
    }

    /// Waits until `done` or for `patience`; whether it was done.
    fn wait(&self, patience: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let begun = Instant::now();
        while !done(self) {
            if begun.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Ends the program, and checks that its output and status are those of the program alone.
    fn end(mut self) {
        self.input.write_all(b"x").expect("it reads");
        drop(self.input);
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("readable");
        let status = self.process.child().wait().expect("waited for");
        assert_eq!((text.as_str(), status.code()), ("wrong 0\n", Some(0)));
    }
}

fn kibibytes(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn program() -> std::path::PathBuf {
    c_program("attached", &[]).expect("it compiles")
}

#[test]
fn a_program_without_false_sharing_is_left_alone() {
    let _alone = targets::alone();
    let _first = targets::before_others();
    let target = Target::start(&program(), "apart");
    let computed = target.wait(8 * PATIENCE, |t| t.cpu_seconds() > 2.0 * LONG);
    assert!(computed, "its threads compute");
    assert_eq!(target.changed(), 0);
    assert!(!target.has_remedy());
    target.end();
}

#[test]
fn a_program_with_false_sharing_gets_hooks_and_the_library() {
    let _alone = targets::alone();
    let _first = targets::before_others();
    skips::begun();
    let target = Target::start(&program(), "");
    let (cpu, begun) = (target.cpu_seconds(), Instant::now());
    let came = target.wait(PATIENCE, Target::has_remedy);
    let side_by_side = target.cpu_seconds() - cpu > 1.5 * begun.elapsed().as_secs_f64();
    // The file is mapped before the code is changed.
    let changed = came && target.wait(PATIENCE, |t| t.changed() > 0);
    target.end();
    if came {
        assert!(changed, "the library is mapped, but nothing is hooked");
    } else {
        contention::complain_if(side_by_side, || "the library was never mapped".into());
        skips::too_busy();
        println!("SKIP: its threads did not contend side by side");
    }
}

/// How many bytes the library, the hooks, moved bytes and copies of code may take in a program.
const MOST_MEMORY: u64 = 1_000_000;

#[test]
fn what_comes_into_a_program_takes_little_of_its_memory() {
    let _alone = targets::alone();
    let target = Target::start(&program(), "");
    let before = target.memory();
    let early = target.has_remedy();
    let came = !early && target.wait(PATIENCE, Target::has_copies);
    // Once its threads execute the copies, its memory no longer grows.
    let settled = came && target.wait(PATIENCE, |t| t.cpu_seconds() > 4.0 * LONG);
    let more = target.memory().saturating_sub(before);
    target.end();
    if early {
        println!("SKIP: bytes were moved before its memory could be looked at");
    } else if settled {
        println!("{} KiB more", more >> 10);
        assert!(more > 0 && more < MOST_MEMORY, "{more} bytes");
    } else {
        println!("SKIP: its threads did not run side by side");
    }
}
