//! Which copy stands for an instruction, and which instruction a copy stands for.
//! Contexts: signal.

use crate::registers::{General, ip, set_ip};
use crate::shared::areas;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use sunder_wire::remap::{Area, CACHE, CONDITIONS, Condition, Control, ENTRIES, STACK, bucket};

/// The original of an instruction in the area's code; `None` if `ip` is not in the code, and
/// `Some(None)` if it is there but at no instruction of a copy.
fn original_in(area: &Area, ip: u64) -> Option<Option<u64>> {
    let offset = ip.wrapping_sub(area.code.load(Relaxed));
    if offset >= CACHE {
        return None;
    }
    let count = area.resume_count.load(Acquire) as usize;
    let known = area.resumes.get(..count)?;
    let index = known.partition_point(|r| r.offset.load(Relaxed) < offset);
    let found = known
        .get(index)
        .filter(|r| r.offset.load(Relaxed) == offset)
        .map(|r| r.original.load(Relaxed));
    Some(found)
}

/// The original instruction for `ip`, and whether the thread is in a copy of it.
pub fn original(ip: u64) -> (u64, bool) {
    for area in areas() {
        match original_in(area, ip) {
            Some(Some(original)) => return (original, true),
            // No instruction begins at this address, so no thread can be there.
            Some(None) => return (ip, true),
            None => {}
        }
    }
    (ip, false)
}

/// If the thread is in a copy, changes its instruction pointer to the original, where it also
/// continues. The registers are the same in both.
pub fn show_original(state: &mut libc::ucontext_t) {
    let here = ip(state);
    let (original, copied) = original(here);
    if copied && original != here {
        set_ip(state, original);
    }
}

/// The address at which a thread continues that can't execute `ip`. `only_alone` excludes copies of
/// more than the one instruction.
pub fn find(
    control: &Control,
    number: u32,
    ip: u64,
    general: &General,
    only_alone: bool,
) -> Option<u64> {
    let mut next = control.buckets.get(bucket(ip))?.load(Acquire);
    let mut second = None;
    // A damaged list may contain a loop, so the walk ends after as many entries as can exist.
    for _ in 0..ENTRIES {
        let entry = control.entries.get(next.checked_sub(1)? as usize);
        let Some(entry) = entry else { break };
        next = entry.next.load(Relaxed);
        let fits = entry.original.load(Relaxed) == ip
            && entry.area.load(Relaxed) == number
            && holds(&entry.conditions, entry.count.load(Relaxed), general);
        if fits {
            let target = Some(entry.target.load(Relaxed));
            match (entry.alone.load(Relaxed) != 0, only_alone) {
                (true, true) | (false, false) => return target,
                (true, false) => second = second.or(target),
                (false, true) => {}
            }
        }
        if next == 0 {
            break;
        }
    }
    second
}

fn holds(conditions: &[Condition; CONDITIONS], count: u32, general: &General) -> bool {
    conditions.iter().take(count as usize).all(|condition| {
        let what = condition.what.load(Relaxed);
        let value = if what & 0xff == STACK {
            let offset = what as i64 >> 8;
            let rsp = general.get(4).copied().unwrap_or(0);
            let at = rsp.wrapping_add_signed(offset);
            // SAFETY: reads the thread's own stack, above its stack pointer.
            unsafe { (at as *const u64).read_unaligned() }
        } else {
            match general.get(what as usize) {
                Some(&value) => value,
                None => return false,
            }
        };
        (condition.low.load(Relaxed)..=condition.high.load(Relaxed)).contains(&value)
    })
}
