//! The system calls that the tool makes in one run, as `strace` lists them, and the words by which
//! strace kills the tool at one of them or makes some of them fail. The program itself is never
//! traced: strace lets go of the child when it executes its program.

use crate::random::Random;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// Words before `sunder` that run it under strace. Strace is nobody's parent, so the tool's status
/// stays its own.
const STRACE: [&str; 5] = ["strace", "-D", "-f", "-qqq", "--detach-on=execve"];

/// Which calls a run made, each with how often its busiest thread made it.
#[derive(Clone, Debug, Default)]
pub struct Calls(BTreeMap<String, u64>);

impl Calls {
    /// Words before `sunder` that write a list of its calls to `file`.
    pub fn recording(file: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = STRACE.iter().map(OsString::from).collect();
        words.extend(["-o".into(), file.into()]);
        words
    }

    /// Reads such a list.
    pub fn read(list: &str) -> Self {
        let mut by_thread: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for line in list.lines() {
            // "1234  read(3, …" begins a call; "1234  <... read resumed>" and signals do not.
            let Some((thread, rest)) = line.split_once(' ') else {
                continue;
            };
            let Some((name, _)) = rest.trim_start().split_once('(') else {
                continue;
            };
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if !name.is_empty() && name.chars().all(is_name) {
                *by_thread.entry((thread, name)).or_default() += 1;
            }
        }
        let mut calls = BTreeMap::new();
        for ((_, name), count) in by_thread {
            // Strace sees the first one before it begins to count, and lets go at the next.
            if name != "execve" {
                let most: &mut u64 = calls.entry(name.to_owned()).or_default();
                *most = count.max(*most);
            }
        }
        Self(calls)
    }

    /// Whether there are none: strace is not there, or may not trace.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The names of all calls.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A call and which of its kind it is, from 1. Half of the draws treat all kinds alike, so that
    /// rare calls (`ptrace`, `memfd_create`) come as often as `read`.
    pub fn draw(&self, random: &mut Random) -> Option<(String, u64)> {
        if random.below(2) == 0 {
            let names: Vec<_> = self.0.iter().collect();
            if names.is_empty() {
                return None;
            }
            let (name, count) = *random.one_of(&names);
            return Some((name.clone(), 1 + random.below(*count)));
        }
        let mut at = random.below(self.count());
        for (name, count) in &self.0 {
            if at < *count {
                return Some((name.clone(), at + 1));
            }
            at -= count;
        }
        None
    }
}

/// Words before `sunder` that send it `signal` when a thread makes the call `name` for the
/// `number`th time; the call itself is not made if the signal kills.
pub fn signalling(name: &str, number: u64, signal: i32) -> Vec<OsString> {
    injecting(&[(name.to_owned(), format!("signal={signal}:when={number}"))])
}

/// Words before `sunder` by which each of these calls fails as its text says.
pub fn injecting(all: &[(String, String)]) -> Vec<OsString> {
    let mut words: Vec<OsString> = STRACE.iter().map(OsString::from).collect();
    words.extend(["-o".into(), "/dev/null".into()]);
    for (name, how) in all {
        words.extend(["-e".into(), format!("inject={name}:{how}").into()]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_for_each_thread() {
        let list = "12  execve(\"/bin/sunder\", [], 0x7ffd /* 9 vars */) = 0\n\
                    12  read(3, \"\", 10) = 0\n\
                    13  read(3,  <unfinished ...>\n\
                    12  read(4, \"\", 10) = 0\n\
                    13  <... read resumed>\"\", 10) = 0\n\
                    12  --- SIGCHLD {si_signo=SIGCHLD} ---\n\
                    12  ptrace(PTRACE_SEIZE, 14, NULL, 0) = 0\n\
                    12  +++ exited with 0 +++\n";
        let calls = Calls::read(list);
        assert_eq!(calls.0["read"], 2);
        assert_eq!(calls.0["ptrace"], 1);
        assert_eq!(calls.count(), 3);
        let mut seen = std::collections::BTreeSet::new();
        let mut random = Random::new(1);
        for _ in 0..100 {
            seen.extend(calls.draw(&mut random));
        }
        let all = [("ptrace", 1), ("read", 1), ("read", 2)];
        let all = all.map(|(name, number)| (name.to_owned(), number));
        assert_eq!(seen, all.into());
        assert!(Calls::read("strace: nothing\n").draw(&mut random).is_none());
    }
}
