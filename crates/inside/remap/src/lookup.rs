//! Which copy stands for an instruction, and which instruction a copy stands for.
//! Contexts: signal.

use crate::registers::{General, general, ip, set_general, set_ip};
use crate::shared::areas;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use sunder_wire::remap::{
    Area, CACHE, CONDITIONS, Condition, Control, ENTRIES, Resume, STACK, bucket,
};

/// Where a thread is in the original code.
#[derive(Clone, Copy, Debug)]
pub struct Original {
    /// The instruction.
    pub ip: u64,
    /// Whether the thread is in a copy of it.
    pub copied: bool,
    /// What the copy has done to the registers that the original has not.
    place: Option<&'static Resume>,
}

/// The original of an instruction in the area's code; `None` if `ip` is not in the code.
fn original_in(area: &'static Area, ip: u64) -> Option<Original> {
    let offset = ip.wrapping_sub(area.code.load(Relaxed));
    if offset >= CACHE {
        return None;
    }
    let count = area.resume_count.load(Acquire) as usize;
    let known = area.resumes.get(..count)?;
    let index = known.partition_point(|r| u64::from(r.offset.load(Relaxed)) < offset);
    let found = known.get(index);
    let found = found.filter(|r| u64::from(r.offset.load(Relaxed)) == offset);
    Some(Original {
        // If no instruction begins at this address, no thread can be there.
        ip: found.map_or(ip, |r| r.original.load(Relaxed)),
        copied: true,
        place: found,
    })
}

/// Where a thread at `ip` is in the original code.
fn original(ip: u64) -> Original {
    areas()
        .find_map(|area| original_in(area, ip))
        .unwrap_or(Original {
            ip,
            copied: false,
            place: None,
        })
}

/// If the thread is in a copy, moves it to the original, where it also continues, with the registers
/// that it would have there.
pub fn show_original(state: &mut libc::ucontext_t) -> Original {
    let original = original(ip(state));
    if original.copied {
        set_ip(state, original.ip);
    }
    if let Some(place) = original.place {
        let mut registers = general(state);
        // SAFETY: the thread has pushed the word, and only it moves its stack pointer.
        place.restore(&mut registers, |top| unsafe { (top as *const u64).read() });
        set_general(state, &registers);
    }
    original
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
        let (low, step) = (condition.low.load(Relaxed), condition.step.load(Relaxed));
        let is_within = (low..=condition.high.load(Relaxed)).contains(&value);
        is_within && value.wrapping_sub(low).is_multiple_of(step.max(1))
    })
}
