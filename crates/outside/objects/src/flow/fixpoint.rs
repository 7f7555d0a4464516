//! The values of registers and frame slots at the start of each block, by going through the blocks
//! until nothing changes.

use super::analysis::Analysis;
use crate::answer::Storage;
use crate::blocks::Block;
use crate::locals::Location;
use crate::value::{State, Value};
use iced_x86::{FlowControl, Instruction, Mnemonic};

/// After this many visits the values of a block are given up.
const MAX_VISITS: u32 = 64;

impl Analysis<'_> {
    /// The state at the start of each block.
    pub(super) fn fixpoint(
        &mut self,
        instructions: &[Instruction],
        blocks: &[Block],
    ) -> Vec<Option<State>> {
        let start = |n: usize| instructions[blocks[n].first].ip();
        let mut entry: Vec<Option<State>> = vec![None; blocks.len()];
        let mut visits = vec![0u32; blocks.len()];
        let mut frame = State::at_entry(self.function.begin);
        if let Some(first) = entry.first_mut() {
            *first = Some(frame.clone());
        }
        let mut work = vec![0];
        let mut unreached = 0;
        loop {
            let Some(n) = work.pop() else {
                // A block that only an indirect jump reaches starts with unknown values, except for
                // the stack and frame pointers, which are those of the last block before it.
                // Padding before a loop is never reached.
                let padding = |n: usize| {
                    let of = |b: &Block| is_padding(&instructions[b.first..b.last]);
                    blocks.get(n).is_some_and(of)
                };
                while entry.get(unreached).is_some_and(Option::is_some) || padding(unreached) {
                    unreached += 1;
                }
                if unreached >= blocks.len() {
                    return entry;
                }
                entry[unreached] = Some(frame.frame_only(start(unreached)));
                work.push(unreached);
                continue;
            };
            let (Some(block), Some(mut state)) = (blocks.get(n), entry.get(n).cloned().flatten())
            else {
                continue;
            };
            for instruction in &instructions[block.first..block.last] {
                self.learn(instruction.ip(), &mut state);
                self.execute(instruction, &mut state);
            }
            if instructions[block.last - 1].flow_control() != FlowControl::Return {
                frame = state.clone();
            }
            for &next in &block.next {
                let mut joined = match &entry[next] {
                    None => state.clone(),
                    Some(before) => before.join(&state, start(next)),
                };
                if visits[next] > MAX_VISITS {
                    joined = joined.frame_only(start(next));
                }
                if entry[next].as_ref() != Some(&joined) {
                    visits[next] += 1;
                    entry[next] = Some(joined);
                    work.push(next);
                }
            }
        }
    }

    /// Adds the variables that the debug information has in registers at `ip`.
    pub(super) fn learn(&mut self, ip: u64, state: &mut State) {
        let function = self.function;
        let mut told = [false; 16];
        for local in function.locals_at(ip) {
            let (register, value) = match local.place {
                Location::Register(r) => (r, self.pointer_in(local, 0)),
                Location::Sum(r, sum) => (r, self.pointer_in(local, sum)),
                Location::Memory(r, at) if !matches!(state.registers[r], Value::Frame(_)) => {
                    let offset = (local.piece as i64).wrapping_sub(at);
                    (
                        r,
                        Some(
                            self.start_of(local.ty, local.name, Storage::Frame)
                                .plus(offset),
                        ),
                    )
                }
                _ => continue,
            };
            if matches!(local.place, Location::Register(_)) {
                self.note_local(local, state.registers[register], ip);
            }
            let (Some(Value::Inside(new)), false) = (value, told[register]) else {
                continue;
            };
            told[register] = true;
            let old = state.registers[register];
            if self.is_better(&new, old) {
                self.note_result(old, new.ty);
                state.registers[register] = self.tagged(Value::Inside(new), old);
            }
        }
    }
}

/// Whether a block has no effect: it fills the space before an aligned one.
fn is_padding(block: &[Instruction]) -> bool {
    block
        .iter()
        .all(|i| matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3))
}
