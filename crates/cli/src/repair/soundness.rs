//! Whether a program is one in which bytes may be moved at all, by what the kernel
//! says of it.

use sunder_access::ProcessId;
use sunder_observe::proc;

/// Nothing else watches or confines the program, and its stacks are plain.
pub fn is_sound(process: ProcessId) -> Result<(), String> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))
        .map_err(|e| format!("its state can't be read: {e}"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        line.map_or("", |l| l.trim_start_matches(':').trim())
    };
    if !matches!(field("TracerPid"), "0" | "") {
        return Err("the program is being traced".into());
    }
    if field("x86_Thread_features").contains("shstk") {
        return Err("the program has shadow stacks".into());
    }
    if field("VmLck").is_empty() {
        return Err("the program has ended".into());
    }
    if !field("VmLck").starts_with('0') {
        return Err("the program has locked memory".into());
    }
    let threads = proc::threads(process).map_err(|e| e.to_string())?;
    for thread in threads {
        let path = format!("/proc/{process}/task/{thread}/status");
        let blocked = std::fs::read_to_string(path).unwrap_or_default();
        let line = blocked.lines().find_map(|l| l.strip_prefix("SigBlk:"));
        let mask = line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok());
        if mask.is_some_and(|m| m >> (libc::SIGSEGV - 1) & 1 != 0) {
            return Err("a thread blocks the signal that faults make".into());
        }
    }
    Ok(())
}
