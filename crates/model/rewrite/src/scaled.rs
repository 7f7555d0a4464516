//! Products that compilers compute as a difference or sum: `lea rax, [rdx*8]; sub rax, rdx` is seven
//! times rdx. From the two values alone only their common step would follow, and the elements of an
//! array of 56 bytes would seem to begin everywhere. Called with the graph of a loop, before its
//! facts are computed.
//!
//! No instruction in between may use memory: then no thread enters a copy there, and what the first
//! instruction computed is what the last one finds.

use crate::flow::Graph;
use crate::registers::Register;
use alloc::vec::Vec;
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register as Iced};
use sunder_x86::{Manual, Rule, Source, Value};

/// The most instructions between the first and the last of a product.
const FARTHEST: usize = 6;

/// Where an instruction is part of a product, its effects say so.
pub(crate) fn products(graph: &mut Graph) {
    let found: Vec<(usize, Value)> = (0..graph.nodes.len())
        .filter_map(|n| Some((n, product(graph, n)?)))
        .collect();
    for (n, value) in found {
        graph.nodes[n].effects.computes(value);
    }
}

/// The product that `n` completes.
fn product(graph: &Graph, n: usize) -> Option<Value> {
    let last = &graph.nodes[n].instruction;
    let bits = width(last)?;
    let more = match last.mnemonic() {
        Mnemonic::Add => 1u64,
        Mnemonic::Sub => u64::MAX,
        _ => return None,
    };
    let (to, from) = (last.op0_register(), last.op1_register());
    if last.op1_kind() != OpKind::Register || to == from {
        return None;
    }
    let (to, from) = (Register::of(to)?, Register::of(from)?);
    let mut factor = 1u64;
    let mut n = n;
    for _ in 0..FARTHEST {
        // On any other way to it, something else may have been computed.
        let [before] = graph.nodes[n].before[..] else {
            return None;
        };
        let node = &graph.nodes[before];
        let i = &node.instruction;
        if node.effects.writes(from) || Manual::new().does(i).accesses().next().is_some() {
            return None;
        }
        if node.effects.writes(to) {
            // What a narrower instruction computes is cut off.
            if width(i)? < bits {
                return None;
            }
            match step(i, from)? {
                Step::All(of) => {
                    let factor = factor.wrapping_mul(of).wrapping_add(more);
                    return Some(Value {
                        register: to.0,
                        bits,
                        rule: Rule::Times(Source::Register(from.0), Source::Constant(factor)),
                    });
                }
                Step::Own(by) => factor = factor.wrapping_mul(by),
            }
        }
        n = before;
    }
    None
}

/// What an instruction makes of its register.
enum Step {
    /// So many times the other register.
    All(u64),
    /// So many times itself.
    Own(u64),
}

fn step(i: &Instruction, from: Register) -> Option<Step> {
    let is_from = |register: Iced| Register::of(register) == Some(from);
    Some(match i.mnemonic() {
        Mnemonic::Mov if is_from(i.op1_register()) => Step::All(1),
        Mnemonic::Lea if i.memory_displacement64() == 0 && is_from(i.memory_index()) => {
            let scale = u64::from(i.memory_index_scale());
            match i.memory_base() {
                Iced::None => Step::All(scale),
                base if is_from(base) => Step::All(scale + 1),
                _ => return None,
            }
        }
        Mnemonic::Shl | Mnemonic::Sal => {
            let by = i.try_immediate(1).ok()? as u32 & (width(i)? - 1);
            Step::Own(1 << by)
        }
        _ => return None,
    })
}

/// The bits of the register that is written, if these are 32 or 64 and an address has as many.
fn width(i: &Instruction) -> Option<u32> {
    let to = i.op0_register();
    let short = i.code() == Code::Lea_r64_m && i.memory_index().is_gpr32();
    match i.op0_kind() == OpKind::Register && !short {
        true if to.is_gpr64() => Some(64),
        true if to.is_gpr32() => Some(32),
        _ => None,
    }
}
