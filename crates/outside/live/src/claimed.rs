//! Whether a process that a claim names is one of the program's. The program writes the numbers
//! itself, and may write that of a process of which it may learn nothing; what the tool may read
//! of such a process must not get into a report. Called by `watching` before anything of the process is
//! read.

use sunder_access::ProcessId;
use sunder_observe::proc;
use sunder_wire::Claim;

/// The longest line of ancestors that is followed.
const GENERATIONS: u32 = 256;

/// Whether the process of this claim has mapped the segment, descends from `program`, or has ended,
/// so that nothing can be read of it.
pub fn is_the_programs(claim: &Claim, program: ProcessId) -> bool {
    let process = claim.process;
    let inode = claim.segment.inode();
    let mapped = || {
        proc::mappings(process).is_ok_and(|all| {
            let mut all = all.iter();
            all.any(|m| m.inode == inode && m.path.starts_with("/memfd:sunder-segment"))
        })
    };
    process == program || !proc::is_alive(process) || descends(process, program) || mapped()
}

fn descends(process: ProcessId, from: ProcessId) -> bool {
    let mut at = process;
    for _ in 0..GENERATIONS {
        match proc::status(at) {
            Ok(status) if status.parent == from => return true,
            Ok(status) if status.parent.0 > 1 => at = status.parent,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use sunder_access::Time;
    use sunder_wire::{Origin, Segment, SegmentOptions};

    fn claim(process: u32) -> Claim {
        Claim {
            image: 1,
            process: ProcessId(process),
            parent: ProcessId(1),
            time: Time(0),
            origin: Origin::Program,
            segment: Rc::new(Segment::create(&SegmentOptions::default()).expect("memory")),
            refused: false,
        }
    }

    /// Process 1 has started neither us nor the program, and has no segment of ours.
    #[test]
    fn a_process_of_another_program_is_refused() {
        let nobody = ProcessId(u32::MAX >> 1);
        let own = std::process::id();
        assert!(!is_the_programs(&claim(1), nobody));
        assert!(is_the_programs(&claim(1), ProcessId(1)), "the program");
        assert!(is_the_programs(&claim(own), nobody), "it has the segment");
        assert!(is_the_programs(&claim(nobody.0), ProcessId(own)), "ended");
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("starts");
        let (is_ours, is_others) = (
            is_the_programs(&claim(child.id()), ProcessId(own)),
            is_the_programs(&claim(child.id()), nobody),
        );
        child.kill().expect("it lives");
        child.wait().expect("our child");
        assert!(is_ours && !is_others);
    }
}
