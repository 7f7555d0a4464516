//! Whether a process that a claim names is one of the program's. The program writes the numbers
//! itself, and may write that of a process of which it may learn nothing; what the tool may read
//! of such a process must not get into a report. Called by `watching` before anything of the process is
//! read.

use sunder_access::ProcessId;
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::proc;
use sunder_wire::Claim;

/// The longest line of ancestors that is followed.
const GENERATIONS: u32 = 256;

/// Whose a process is that a claim names.
#[derive(Debug)]
pub enum Claimed {
    /// It is not the program's.
    Anothers,
    /// It had ended. Another process may get its number, so it must not be looked at any more.
    Ended,
    /// It is the program's, and lives; these are its files, by which it is known from others.
    Living(ForeignFiles),
}

/// Whether the process of this claim has ended, or is the program's because it has mapped the
/// segment or descends from `program`.
pub fn claimed(claim: &Claim, program: ProcessId) -> Claimed {
    let process = claim.process;
    // Whatever is learned by its number is learned of the same process only if that lives
    // afterwards.
    let files = ForeignFiles::of(process);
    if !proc::is_alive(process) {
        return Claimed::Ended;
    }
    match (is_the_programs(claim, program), files.is_alive()) {
        (true, true) => Claimed::Living(files),
        (true, false) => Claimed::Ended,
        (false, _) => Claimed::Anothers,
    }
}

fn is_the_programs(claim: &Claim, program: ProcessId) -> bool {
    let process = claim.process;
    let inode = claim.segment.inode();
    let mapped = || {
        proc::mappings(process).is_ok_and(|all| {
            let mut all = all.iter();
            all.any(|m| m.inode == inode && m.path.starts_with("/memfd:sunder-segment"))
        })
    };
    process == program || descends(process, program) || mapped()
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
        let is_the_programs = |claim: &Claim, program| match claimed(claim, program) {
            Claimed::Living(files) => files.is_alive(),
            _ => false,
        };
        assert!(matches!(claimed(&claim(1), nobody), Claimed::Anothers));
        assert!(is_the_programs(&claim(1), ProcessId(1)), "the program");
        assert!(is_the_programs(&claim(own), nobody), "it has the segment");
        let ended = claimed(&claim(nobody.0), ProcessId(own));
        assert!(matches!(ended, Claimed::Ended), "{ended:?}");
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
