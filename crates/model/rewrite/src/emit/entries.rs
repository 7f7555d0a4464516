//! The conditions under which a thread may enter a copy.

use crate::choose::Chosen;
use crate::registers::{FOLLOWED, Register};
use crate::request::Condition;
use crate::values::Values;
use alloc::vec::Vec;

/// The conditions for a thread that enters at `n`; `None` if they can't be expressed.
pub(super) fn demanded(chosen: &Chosen, n: usize) -> Option<Vec<Condition>> {
    let version = &chosen.fast;
    let facts = version.facts.get(&n)?;
    let needed = version.needed.get(&n).copied().unwrap_or(0);
    let mut conditions = Vec::new();
    for number in (0..FOLLOWED as u8).filter(|number| needed >> number & 1 != 0) {
        // If nothing is known about a register, the copy is right for all of its values.
        let Some(values) = facts[usize::from(number)] else {
            continue;
        };
        let register = Register(number);
        if register.as_slot().is_some() {
            let one = |r: Register| facts[r.index()].and_then(Values::only);
            let displacement = chosen.slots.as_ref()?.displacement(register)?;
            // The stack's address differs between threads; the distance from rbp does not.
            let slot = one(Register::RBP)?
                .wrapping_add(displacement)
                .wrapping_sub(one(Register::RSP)?);
            conditions.push(Condition::Stack(slot as i64, values.only()?));
        } else if values.is_dense() {
            let (low, high) = (values.low, values.high);
            conditions.push(Condition::Register(register, low, high));
        } else {
            let (low, high) = (values.low, values.high);
            conditions.push(Condition::Steps(register, low, high, values.step()));
        }
    }
    // Within a called function, the thread's return addresses must be those of the copy's
    // calls.
    let mut instance = chosen.graph.nodes[n].instance;
    while chosen.is_loop
        && let Some(call) = chosen.graph.called(instance)
    {
        let start = chosen.graph.find(instance, call.target)?;
        let rsp = |n: usize| version.facts.get(&n)?[Register::RSP.index()]?.only();
        // The stack's address differs between threads; the distance from rsp does not.
        let slot = rsp(start)?.wrapping_sub(rsp(n)?) as i64;
        conditions.push(Condition::Stack(slot, call.back));
        instance = call.from;
    }
    Some(conditions)
}
