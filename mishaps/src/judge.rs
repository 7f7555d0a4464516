//! Whether a run was right: the program did what it does natively, or was not started, or was ended
//! as a document says; nothing was left behind; and the tool ended as it says that it does.

use crate::mishap::{Mishap, Shortage, Way};
use crate::mode::Start;
use crate::scene::{Outcome, Program, Scene};
use crate::shell::shown;
use std::os::unix::process::ExitStatusExt;

/// The tool's own failure, and a program that can't be executed or is not there.
const TOOL_FAILED: i32 = 125;
const NOT_EXECUTED: [i32; 2] = [126, 127];

/// The status of our program that could not make a thread (`endures.c`).
const NO_THREAD: i32 = 98;

/// What is to be said of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The program did what it does natively.
    Native,
    /// The program was not started.
    NotStarted,
    /// The signal ended the program, as it ends it natively.
    EndedBySignal,
    /// The program was ended, or something was left, as a document says.
    Documented(&'static str),
    /// This is wrong.
    Wrong(String),
}

/// Judges what became of `scene` when `mishap` happened; `native` is the program alone.
pub fn judge(scene: &Scene<'_>, mishap: &Mishap, native: &Outcome, seen: &Outcome) -> Verdict {
    let wrong = |what: String| Verdict::Wrong(what);
    let Some(tool) = seen.tool.map(shown) else {
        return wrong(format!("the tool hung:\n{}", seen.processes));
    };
    if !seen.processes.is_empty() {
        return wrong(format!("processes were left:\n{}", seen.processes));
    }
    if !seen.files.is_empty() {
        return wrong(format!("files were left: {}", seen.files.join(", ")));
    }
    if seen.stderr.contains("panicked at") && !no_memory(scene, mishap, seen) {
        return wrong("the tool panicked".into());
    }
    let verdict = program(scene, mishap, native, seen, tool);
    let verdict = match verdict {
        Verdict::Native => left_code(scene, mishap, seen, tool).unwrap_or(Verdict::Native),
        other => other,
    };
    match &verdict {
        Verdict::Wrong(_) => verdict,
        right => match tool_itself(scene, mishap, native, right, seen, tool) {
            None => verdict,
            Some(complaint) => wrong(complaint),
        },
    }
}

fn status_of(native: &Outcome) -> i32 {
    match native.program {
        Program::Ended(status) => shown(status),
        Program::OfTool | Program::Hung => -1,
    }
}

/// What the program did.
fn program(
    scene: &Scene<'_>,
    mishap: &Mishap,
    native: &Outcome,
    seen: &Outcome,
    tool: i32,
) -> Verdict {
    let right = status_of(native);
    let same_output = seen.stdout == native.stdout;
    let beginning = native.stdout.starts_with(&seen.stdout);
    let passed_on = mishap.way().filter(|way| *way != Way::Kill);
    let signalled = passed_on.map(|way| 128 + way.signal());
    let status = match seen.program {
        Program::Hung => return Verdict::Wrong("the program hung".into()),
        Program::Ended(status) => shown(status),
        // The tool has waited for it, or has not started it.
        Program::OfTool if tool == right => tool,
        Program::OfTool if ran_short(scene, mishap, tool) && beginning => {
            return Verdict::Documented(NO_ROOM);
        }
        Program::OfTool if seen.stdout.is_empty() => return Verdict::NotStarted,
        Program::OfTool if Some(tool) == signalled && beginning => {
            return Verdict::EndedBySignal;
        }
        Program::OfTool if same_output => return Verdict::Native,
        Program::OfTool => {
            return Verdict::Wrong(format!(
                "the tool ended with {tool} and the program's output is not complete"
            ));
        }
    };
    if status == right {
        return if same_output {
            Verdict::Native
        } else {
            Verdict::Wrong("other output".into())
        };
    }
    // Also a program that ignores the signal is ended by it before it says so.
    if Some(status) == signalled
        && scene.mode.start == Start::ByTool
        && beginning
        && (!scene.subject.ignores || seen.stdout.is_empty())
    {
        return Verdict::EndedBySignal;
    }
    if ran_short(scene, mishap, status) && beginning {
        return Verdict::Documented(NO_ROOM);
    }
    let killed = 128 + libc::SIGKILL;
    let isolates = scene.mode.name.contains("protect") || scene.mode.name.contains("isolate");
    let tool_died = seen.tool.is_some_and(|status| status.signal().is_some());
    if status == killed && isolates && tool_died && beginning {
        return Verdict::Documented("ended while its memory was converted");
    }
    Verdict::Wrong(format!(
        "the program ended with {status} instead of {right}"
    ))
}

/// What became of a program that [`ran_short`].
const NO_ROOM: &str = "no room for the program's memory beside our library";

/// The status of a program that is not ours when it has no memory.
const OTHERS_FAILURE: i32 = 1;

/// Whether the program ended with its own status for want of memory: our library and its records,
/// or our heap, take a part of a limited address space.
fn ran_short(scene: &Scene<'_>, mishap: &Mishap, status: i32) -> bool {
    let short = matches!(mishap, Mishap::Short(Shortage::AddressSpace(_)));
    let failure = if scene.subject.own {
        NO_THREAD
    } else {
        OTHERS_FAILURE
    };
    short && scene.mode.start == Start::ByTool && status == failure
}

/// What is left in a program that the tool was attached to.
fn left_code(scene: &Scene<'_>, mishap: &Mishap, seen: &Outcome, tool: i32) -> Option<Verdict> {
    if seen.code.is_empty() {
        return None;
    }
    let repairs = scene.mode.words.contains(&"--repair");
    let killed = mishap.way() == Some(Way::Kill) || no_memory(scene, mishap, seen);
    if repairs && (killed || tool == TOOL_FAILED) {
        return Some(Verdict::Documented("the library stays, passive"));
    }
    let what = seen.code.join("\n");
    Some(Verdict::Wrong(format!("left in the program:\n{what}")))
}

/// What is wrong with the tool's own status and words.
fn tool_itself(
    scene: &Scene<'_>,
    mishap: &Mishap,
    native: &Outcome,
    verdict: &Verdict,
    seen: &Outcome,
    tool: i32,
) -> Option<String> {
    let right = match scene.mode.start {
        Start::ByTool => status_of(native),
        Start::Before => 0,
    };
    if let Some(way) = mishap.way() {
        let ended = 128 + way.signal();
        // The signal may hit the child before it executes the program.
        if tool == ended || tool == right {
            return None;
        }
        // A closed terminal can't be written to.
        let sentence = way == Way::ClosedTerminal || seen.stderr.contains("sunder:");
        return (tool != TOOL_FAILED || !sentence)
            .then(|| format!("the tool ended with {tool} instead of {right} or {ended}"));
    }
    if tool == right && *verdict != Verdict::NotStarted {
        return None;
    }
    // It passes the program's status on.
    if *verdict == Verdict::Documented(NO_ROOM) {
        return None;
    }
    let fault = !matches!(mishap, Mishap::None);
    // What glibc's loader says before any code of ours.
    let of_loader = [
        "error while loading shared libraries",
        "cannot allocate TLS data structures for initial thread",
    ];
    let by_loader = of_loader.iter().any(|words| seen.stderr.contains(words));
    let not_executed = NOT_EXECUTED.contains(&tool) && *verdict == Verdict::NotStarted;
    let said = !seen.stderr.trim().is_empty() || complaint_is_lost(mishap);
    // The emulator has no memory or no file, and says so.
    let emulated = scene.mode.name.contains("emulated");
    let emulator_says = ["qemu-x86_64: ", "mmap stack: Cannot allocate memory"];
    if fault
        && emulated
        && emulator_says
            .iter()
            .any(|words| seen.stderr.contains(words))
    {
        return None;
    }
    if no_memory(scene, mishap, seen) {
        return None;
    }
    if fault && said && (tool == TOOL_FAILED || not_executed || by_loader) {
        return None;
    }
    Some(format!(
        "the tool ended with {tool} instead of {right} ({verdict:?})"
    ))
}

/// Whether the tool was ended for want of memory by what it is made of: the dynamic loader, which
/// dies without a word before the tool begins, or Rust's library, which ends it with a sentence.
fn no_memory(scene: &Scene<'_>, mishap: &Mishap, seen: &Outcome) -> bool {
    let possible = match mishap {
        Mishap::Failing(all) => all
            .iter()
            .any(|(name, _)| name == "mmap" || name == "mprotect"),
        Mishap::Short(Shortage::AddressSpace(_)) => true,
        _ => false,
    };
    // Where the program ran before the tool did, its output does not tell whether the tool had begun.
    let had_not_begun = match scene.mode.start {
        Start::ByTool => seen.stdout.is_empty(),
        Start::Before => fails_in_loader(mishap),
    };
    let by_loader = seen.stderr.is_empty() && had_not_begun;
    let by_rust = |words: &str| seen.stderr.contains(words);
    possible
        && match seen.tool.and_then(|status| status.signal()) {
            Some(libc::SIGSEGV) => by_loader,
            Some(libc::SIGABRT) => by_rust("memory allocation of") || by_rust("alternative stack"),
            _ => false,
        }
}

/// Whether a call fails that the dynamic loader makes, before the tool begins. Of the tool's calls of
/// `mmap` the first 16 are the loader's, and of those of `mprotect` the first 5; here the first few
/// count, as other libraries make other numbers of calls.
fn fails_in_loader(mishap: &Mishap) -> bool {
    const FIRST: u64 = 4;
    let Mishap::Failing(all) = mishap else {
        return false;
    };
    let number = |how: &str| {
        let (_, number) = how.split_once(":when=")?;
        number.split('+').next()?.parse::<u64>().ok()
    };
    all.iter().any(|(name, how)| {
        matches!(name.as_str(), "mmap" | "mprotect") && number(how).is_some_and(|n| n <= FIRST)
    })
}

/// Whether what the tool says on standard error may have failed too.
fn complaint_is_lost(mishap: &Mishap) -> bool {
    matches!(mishap, Mishap::Failing(all) if all.iter().any(|(name, _)| name.starts_with("write")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_calls_are_the_loaders() {
        let failing = |name: &str, how: &str| Mishap::Failing(vec![(name.into(), how.into())]);
        assert!(fails_in_loader(&failing("mmap", "error=ENOMEM:when=1+100")));
        assert!(fails_in_loader(&failing("mprotect", "error=ENOMEM:when=4")));
        // The tool's own.
        assert!(!fails_in_loader(&failing(
            "mmap",
            "error=ENOMEM:when=30+100"
        )));
        assert!(!fails_in_loader(&failing(
            "openat",
            "error=ENOENT:when=1+100"
        )));
        assert!(!fails_in_loader(&Mishap::None));
    }
}
