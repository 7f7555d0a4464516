//! Where instructions are in the source, remembered while a result is made: the same few
//! instructions touch all lines of an array. Not for longer, as mappings and names may change.

use super::{at_frame, is_library_frame, user_frame};
use crate::process::Process;
use std::collections::HashMap;
use std::rc::Rc;
use sunder_access::CodeAddress;
use sunder_findings as findings;

/// Where one instruction is.
pub struct Place {
    /// A site without counts.
    pub site: findings::Site,
    /// Whether all of its functions belong to libraries.
    pub is_in_library: bool,
}

/// The places that were asked for so far, of one process.
#[derive(Default)]
pub struct Places(HashMap<CodeAddress, Rc<Place>>);

impl Places {
    /// The place of `instruction`.
    pub fn of(&mut self, process: &mut Process, instruction: CodeAddress) -> Rc<Place> {
        let known = self.0.entry(instruction);
        Rc::clone(known.or_insert_with(|| {
            let frames = process.names.frames(instruction);
            let frame = user_frame(&frames);
            let in_loop = process.names.in_loop(instruction, &frame.function);
            Rc::new(Place {
                site: findings::Site {
                    in_loop,
                    address: instruction,
                    ..at_frame(&process.names, frame)
                },
                is_in_library: is_library_frame(frame),
            })
        }))
    }
}
