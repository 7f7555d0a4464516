//! Which blocks get cache lines of their own: those that are allocated through calls on the tool's
//! list. The runtime, which the program's allocations reach first, asks here, and then asks the program's
//! allocator for whole lines. So the allocator stays the program's own, and `free` has no part in this.
//!
//! Contexts: pre-init, normal; also inside `malloc`.

use crate::control;
use crate::hold::CONFINEMENT;
use core::ffi::c_int;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sunder_guest::allocator::Caller;
use sunder_guest::callers::{self, Key, ListedCall, Rule};
use sunder_guest::{code, maps, system};
use sunder_wire::placing::{Call, File, PATH, Placing, REMEMBERED, SHARES, rule};

/// Whether the block that is asked for gets lines of its own; it counts as placed then. `sp` and `bp`
/// are the registers at the entry of an allocation function of the runtime beside us, which the program
/// calls.
///
/// # Safety
/// The stack pointer is that of a live call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sunder_isolate_places(sp: *const u64, bp: u64) -> c_int {
    let Some(control) = control::get() else {
        return 0;
    };
    let some = control.placing.count.load(Acquire) > 0;
    c_int::from(some && is_listed(&control.placing, Caller { sp, bp }))
}

#[inline(never)]
fn is_listed(placing: &Placing, caller: Caller) -> bool {
    let count = placing.count.load(Acquire);
    if placing.looked.load(Acquire) != count {
        look_for_files(placing);
        placing.looked.store(count, Release);
    }
    let calls = placing.calls.get(..count as usize).unwrap_or_default();
    let listed = callers::is_listed(
        caller,
        |parent, address| find(placing, calls, parent, address),
        |number| {
            let call = calls.get(usize::from(number).checked_sub(1)?)?;
            Some(ListedCall {
                is_end: call.listed.load(Relaxed) != 0,
                rule: rule_of(call),
            })
        },
    );
    listed && take_one(placing)
}

fn rule_of(call: &Call) -> Option<Rule> {
    let kind = call.rule.load(Relaxed);
    (kind != rule::NONE).then(|| Rule {
        from_frame_pointer: kind == rule::FRAME,
        cfa: call.cfa.load(Relaxed).into(),
        saved: call.saved.load(Relaxed).into(),
    })
}

/// The number of the call with this return address inside the call `parent`; 0 if there is none.
fn find(placing: &Placing, calls: &[Call], parent: u16, address: u64) -> u16 {
    // What is remembered of a return address holds for as many calls as there were then.
    let generation = (calls.len() as u16 & 31) << 7;
    let key = Key::of(parent | generation, address);
    let Some(word) = placing.remembered.get(key.place(REMEMBERED)) else {
        return 0;
    };
    if let Some(known) = key.number_in(word.load(Relaxed)) {
        return known;
    }
    let is_meant = |call: &Call| {
        let file = placing.files.get(call.file.load(Relaxed) as usize);
        let bias = file.map_or(0, |file| file.bias.load(Relaxed));
        let at = bias
            .checked_sub(1)
            .map(|bias| call.offset.load(Relaxed).wrapping_add(bias));
        call.parent.load(Relaxed) == u32::from(parent) && at == Some(address)
    };
    let found = calls
        .iter()
        .position(is_meant)
        .map_or(0, |at| at as u16 + 1);
    word.store(key.word(found), Relaxed);
    found
}

/// Finds out where the files of the calls are loaded.
fn look_for_files(placing: &Placing) {
    let Some(_calls) = CONFINEMENT.begin() else {
        return;
    };
    let Some(fd) = maps::open(maps::OF_PROCESS) else {
        return;
    };
    maps::stream(fd, &mut [0; 1024], |mapping| {
        if mapping.is_of_file() {
            let unknown = |file: &&File| file.bias.load(Relaxed) == 0;
            let mut files = placing.files.iter().filter(unknown);
            if let Some(file) = files.find(|file| has_path(file, mapping.name)) {
                file.bias
                    .store(code::bias_of(mapping).wrapping_add(1), Relaxed);
            }
        }
        ControlFlow::Continue(())
    });
    system::close(fd);
}

fn has_path(file: &File, path: &[u8]) -> bool {
    let own = file.path.iter().map(|byte| byte.load(Relaxed));
    path.len() < PATH && own.zip(path.iter().chain([&0])).all(|(a, &b)| a == b)
}

/// Whether the calling thread's part of the threads may place one more block.
fn take_one(placing: &Placing) -> bool {
    let thread: usize;
    // SAFETY: the thread pointer points to itself.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(nostack, readonly, preserves_flags));
    }
    let place = (thread >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    let Some(share) = placing.shares.get(place & (SHARES - 1)) else {
        return false;
    };
    share.left.load(Relaxed) > 0 && share.left.fetch_sub(1, Relaxed) > 0
}

/// The program has become another one, which has other files.
pub fn begin(placing: &Placing) {
    for file in &placing.files {
        file.bias.store(0, Relaxed);
    }
    for word in &placing.remembered {
        word.store(0, Relaxed);
    }
    placing.looked.store(0, Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// The call on the list returns to an address in this test program, which is mapped.
    #[test]
    fn listed_calls_are_recognised_as_long_as_there_are_blocks_left() {
        let control = testing::control();
        let placing = &control.placing;
        let here = has_path as *const () as u64;
        let mut name = [0; 256];
        let (offset, path) = code::find(here, &mut name).expect("it is in a file");
        for (to, from) in placing.files[0].path.iter().zip(path) {
            to.store(*from, Relaxed);
        }
        placing.calls[0].offset.store(offset, Relaxed);
        placing.calls[0].listed.store(1, Relaxed);
        let listed = |address: u64| {
            let stack = [address, 0];
            let caller = Caller {
                sp: stack.as_ptr(),
                bp: 0,
            };
            is_listed(placing, caller)
        };
        assert!(!listed(here), "nothing is listed yet");
        placing.count.store(1, Release);
        assert!(!listed(here), "no block is left");
        for share in &placing.shares {
            share.left.store(2, Relaxed);
        }
        assert!(listed(here) && listed(here));
        assert!(!listed(here), "two blocks were left");
        for share in &placing.shares {
            share.left.store(9, Relaxed);
        }
        assert!(listed(here));
        assert!(!listed(here + 1));
        // Another program, in which the file is not loaded.
        begin(placing);
        placing.files[0].path[0].store(b'x', Relaxed);
        assert!(!listed(here));
    }
}
