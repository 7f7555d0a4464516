//! `stat`: states and times of threads.

use super::folder::{Folder, read};
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::time::{Duration, SystemTime};
use sunder_access::{Address, ProcessId, Span, ThreadId};

/// The letter of a state, as in [`super::Status`]; none if the file does not tell.
///
/// # Errors
/// If it can't be read, as that of a thread that is gone.
pub fn state(folder: Folder) -> io::Result<Option<char>> {
    let text = folder.text("stat")?;
    // The second field is the name in parentheses and may hold anything.
    let after_name = text.rsplit_once(')').map(|(_, rest)| rest);
    Ok(after_name.and_then(|rest| rest.trim_start().chars().next()))
}

/// The share, 0 to 100, of its CPU time and that of the children that it has waited for, which these
/// children used; `None` if it has waited for no child that had run. Also told of a zombie. Times count
/// in hundredths of a second; less is 0.
pub fn childrens_percent(process: ProcessId) -> Option<f64> {
    // Field 11: minor page faults of such children; every one has some.
    stat(process, "stat", 11, 1).filter(|&faults| faults > 0)?;
    // Fields 14 to 17: utime, stime, cutime, cstime.
    let all = stat(process, "stat", 14, 4)?;
    let theirs = stat(process, "stat", 16, 2)?;
    Some(match all {
        0 => 0.0,
        all => 100.0 * theirs as f64 / all as f64,
    })
}

/// The CPU time of all its threads so far, and of the children that it has waited for; `None` if it is gone.
/// Also told of a zombie.
pub fn cpu_time(process: ProcessId) -> Option<Duration> {
    // Fields 14 to 17: utime, stime, cutime, cstime.
    let ticks = stat(process, "stat", 14, 4)?;
    let seconds = ticks as f64 / clock_ticks_per_second() as f64;
    Some(Duration::from_secs_f64(seconds))
}

/// The CPU time of its own threads so far; `None` if it is gone.
pub fn own_cpu_time(process: ProcessId) -> Option<Duration> {
    // Fields 14 and 15: utime, stime.
    let ticks = stat(process, "stat", 14, 2)?;
    Some(Duration::from_secs_f64(
        ticks as f64 / clock_ticks_per_second() as f64,
    ))
}

/// When the process began, to a hundredth of a second; `None` if it is gone.
pub fn started(process: ProcessId) -> Option<SystemTime> {
    let ticks = start_ticks(process)?;
    let at = Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64);
    let now = clock_gettime(ClockId::Boottime);
    let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32);
    SystemTime::now().checked_sub(now.checked_sub(at)?)
}

/// The time from the machine's start to the process's, in clock ticks; `None` if it can't be read.
pub fn start_ticks(process: ProcessId) -> Option<u64> {
    stat(process, "stat", 22, 1)
}

/// The memory that others read for the program's arguments and environment (`/proc/PID/cmdline`),
/// mostly the end of the first thread's stack; `None` if it can't be read, or is not ours to know.
pub fn arguments(process: ProcessId) -> Option<Span> {
    let [start, end] = [48, 51].map(|field| stat(process, "stat", field, 1));
    let (start, end) = (start?, end?);
    (start > 0 && end > start).then(|| Span::new(Address(start), end - start))
}

/// The CPU time that a thread has used, in clock ticks.
fn cpu_ticks(process: ProcessId, thread: ThreadId) -> Option<u64> {
    // Fields 14 and 15: utime, stime.
    stat(process, &format!("task/{thread}/stat"), 14, 2)
}

/// The sum of `count` fields of a `stat` file from `first` on, numbered from 1
/// as in proc(5).
fn stat(process: ProcessId, file: &str, first: usize, count: usize) -> Option<u64> {
    let text = read(process, file).ok()?;
    // The second field is the name in parentheses and may hold anything.
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 2;
    let text = String::from_utf8_lossy(text.get(after_name..)?).into_owned();
    let mut sum = 0;
    let mut fields = text.split(' ').skip(first - 3);
    for _ in 0..count {
        sum += fields.next()?.parse::<u64>().ok()?;
    }
    Some(sum)
}

/// Sorts `threads` by the CPU time that they have used, most first.
pub(crate) fn busiest_first(process: ProcessId, threads: &mut [ThreadId]) {
    threads
        .sort_by_cached_key(|&thread| std::cmp::Reverse(cpu_ticks(process, thread).unwrap_or(0)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_lie_at_the_end_of_the_first_stack() {
        let own = ProcessId(std::process::id());
        let span = arguments(own).expect("our own");
        let mappings = crate::proc::mappings(own).expect("our own");
        let stack = mappings.at(span.start).expect("mapped");
        assert_eq!(stack.path, "[stack]");
        assert!(stack.span.contains(Address(span.end().0 - 1)));
        let first = std::env::args().next().expect("our own name");
        let memory = crate::proc::memory(own, crate::proc::MemoryUse::Read).expect("our own");
        let mut found = vec![0; first.len()];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut found, span.start.0)
            .expect("mapped");
        assert_eq!(found, first.as_bytes());
    }

    #[test]
    fn a_process_began_when_it_was_started() {
        let before = SystemTime::now();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let began = started(ProcessId(child.id()));
        let _ = child.kill();
        let _ = child.wait();
        let began = began.expect("it lived");
        // A clock tick, and what the clocks may be set in between.
        let slack = Duration::from_millis(100);
        assert!(began + slack >= before && began <= SystemTime::now() + slack);
        assert_eq!(started(ProcessId(5_000_000)), None);
    }

    #[test]
    fn a_child_that_was_waited_for_is_known() {
        let waited = |script: &str| {
            let mut shell = std::process::Command::new("sh")
                .args(["-c", script])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("there is a shell");
            let mut line = [0u8; 1];
            let out = shell.stdout.as_mut().expect("piped");
            std::io::Read::read_exact(out, &mut line).expect("the shell says x");
            let answer = childrens_percent(ProcessId(shell.id()));
            drop(shell.stdin.take());
            shell.wait().expect("the shell ends");
            answer
        };
        assert_eq!(waited("/bin/true; echo x; read y"), Some(0.0));
        assert_eq!(waited("echo x; read y"), None);
        let loops = "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo x; read y";
        let percent = waited(loops).expect("it had a child");
        assert!(percent > 80.0 && percent <= 100.0, "{percent}");
    }
}
