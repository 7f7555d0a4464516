//! Finds the pointers in memory through which near accesses go. Called with the window of the
//! walks. It must not name a pointer that the window itself changes after loading it.
//!
//! Stores to unknown addresses are tolerated. The user of a slot has to assume anyway that
//! nothing outside of the window (another block, a called function, another thread) changed it,
//! and checks that by reading it twice; the same check covers a store of the window that might
//! overlap it. A store that certainly overlaps it disproves the assumption. The loaded
//! register's value does not depend on later stores.

use super::decoded::{Decoded, Slot, WINDOW};
use super::effect::{Effect, Index, KnownRegisters, RSP, Register, scaled};
use super::function::{Function, Step};
use super::operand::{Operand, Touch};
use std::cmp::Ordering;
use sunder_access::{Address, Span};

/// The instructions that matter, as indices into the function's steps.
pub(super) struct Window {
    /// The first load before the sampled instruction, or that itself.
    pub start: usize,
    /// The sampled instruction.
    pub sampled: usize,
    /// The last instruction that may go through a slot.
    pub last: usize,
}

/// The slots whose values registers hold.
#[derive(Default)]
struct Pointers {
    slots: [Slot; 16],
    /// Bit `r` tells whether register `r` holds one.
    held: u16,
}

impl Pointers {
    fn get(&self, register: Register) -> Option<Slot> {
        let index = usize::from(register & 15);
        (self.held >> index & 1 == 1).then(|| self.slots[index])
    }

    fn set(&mut self, register: Register, slot: Option<Slot>) {
        let index = usize::from(register & 15);
        match slot {
            Some(slot) => {
                self.slots[index] = slot;
                self.held |= 1 << index;
            }
            None => self.held &= !(1 << index),
        }
    }

    /// Applies the effect of `step`. `known` are the registers before it.
    fn forward(&mut self, step: &Step, loaded: Option<Address>, known: &KnownRegisters) {
        let (to, slot) = match step.effect {
            Effect::Swap { a, b } => {
                let (old_a, old_b) = (self.get(a), self.get(b));
                self.set(a, old_b);
                self.set(b, old_a);
                return;
            }
            Effect::Load { to } => (to, loaded.map(|address| Slot { address, add: 0 })),
            Effect::Copy {
                to,
                from,
                narrow: false,
            } => (to, self.get(from)),
            Effect::Add {
                to,
                value,
                narrow: false,
            } => (to, moved(self.get(to), Some(value))),
            Effect::AddRegister {
                to,
                from,
                subtract: true,
                narrow: false,
            } => {
                let less = known.get(from).map(u64::wrapping_neg);
                (to, moved(self.get(to), less))
            }
            Effect::AddRegister {
                to,
                from,
                subtract: false,
                narrow: false,
            } => {
                let sum = moved(self.get(to), known.get(from));
                (to, sum.or_else(|| moved(self.get(from), known.get(to))))
            }
            Effect::Sum {
                to,
                base,
                index,
                displacement,
                narrow: false,
            } => (to, self.sum(base, index, displacement, known)),
            // Constants and the like come from no slot.
            _ => (0, None),
        };
        self.held &= !step.writes;
        if slot.is_some() {
            self.set(to, slot);
        }
    }

    /// The slot for `base + index * scale + displacement`, where one of the two holds a slot's
    /// value and the other is known.
    fn sum(
        &self,
        base: Option<Register>,
        index: Option<Index>,
        displacement: u64,
        known: &KnownRegisters,
    ) -> Option<Slot> {
        if let Some(slot) = base.filter(|&b| known.get(b).is_none()) {
            let index = scaled(index, known)?;
            return moved(self.get(slot), Some(index.wrapping_add(displacement)));
        }
        let base = base.map_or(Some(0), |base| known.get(base))?;
        let index = index.filter(|index| index.scale == 1)?;
        moved(
            self.get(index.register),
            Some(base.wrapping_add(displacement)),
        )
    }
}

fn moved(slot: Option<Slot>, by: Option<u64>) -> Option<Slot> {
    let slot = slot?;
    Some(Slot {
        add: slot.add.wrapping_add_unsigned(by?),
        ..slot
    })
}

/// Sets [`super::NearAccess::through`] of the near accesses.
pub(super) fn assign(function: &Function, window: Window, general: &[u64; 16], out: &mut Decoded) {
    // Up to the block's end, because later stores count too.
    let steps = &function.steps[window.start..];
    let ahead = window.sampled - window.start;
    let unchanged = unchanged(&steps[..ahead]);
    let mut pass = Pass {
        known: KnownRegisters::nothing(),
        pointers: Pointers::default(),
        named: false,
        out,
    };
    let mut learned = 0;
    for (position, step) in steps.iter().take(ahead + WINDOW).enumerate() {
        // Registers that do not change up to the sample have the sample's values, from there on
        // as well.
        match position.cmp(&ahead) {
            Ordering::Less => {
                pass.known.learn(unchanged[position] & !learned, general);
                learned = unchanged[position];
            }
            Ordering::Equal => pass.known = KnownRegisters::all(*general),
            Ordering::Greater => {}
        }
        let is_past = window.start + position > window.last;
        if step.invalid || is_past && !pass.named {
            return;
        }
        pass.step(function, step, position as i32 - ahead as i32);
        if position >= ahead && step.ends_block {
            return;
        }
    }
}

/// For each step, the registers that neither it nor a later one may change.
fn unchanged(steps: &[Step]) -> [u16; WINDOW] {
    let mut masks = [0; WINDOW];
    let mut changed = 0;
    for (position, step) in steps.iter().enumerate().rev() {
        changed |= step.writes;
        masks[position] = !changed;
    }
    masks
}

struct Pass<'a> {
    known: KnownRegisters,
    pointers: Pointers,
    /// Whether a slot was named that a store could still disprove.
    named: bool,
    out: &'a mut Decoded,
}

impl Pass<'_> {
    fn step(&mut self, function: &Function, step: &Step, distance: i32) {
        let operands = function.operands(step);
        let mut loaded = None;
        // With several operands it would not be clear which near access belongs to which.
        if let [operand] = operands {
            match operand.touch(&self.known) {
                Touch::At(address) => loaded = Some(address),
                Touch::Unknown if step.through => self.name(operand, distance),
                Touch::Unknown | Touch::Within(_) | Touch::Nothing => {}
            }
            if let Some(site) = operand.site()
                && step.effect.is_load()
                && !function.is_steady(site)
            {
                loaded = None;
            }
        }
        for operand in operands.iter().filter(|o| o.kind.writes()) {
            if let Touch::At(address) | Touch::Within(address) = operand.touch(&self.known) {
                self.changed(Span::new(address, operand.width.into()));
            }
        }
        if let Effect::Add { to: RSP, value, .. } = step.effect
            && (value as i64) < 0
            && let Some(top) = self.known.get(RSP)
        {
            // Bytes that are pushed, or memory of the stack that is allocated.
            let len = value.wrapping_neg();
            self.changed(Span::new(Address(top.wrapping_sub(len)), len));
        }
        self.pointers.forward(step, loaded, &self.known);
        step.effect.forward(step.writes, &mut self.known);
    }

    fn name(&mut self, operand: &Operand, distance: i32) {
        let Some((base, index, displacement)) = operand.sum() else {
            return;
        };
        let Some(slot) = self.pointers.sum(base, index, displacement, &self.known) else {
            return;
        };
        let mut near = self.out.near.iter_mut();
        let named = near.find(|n| n.distance == distance && !n.avoidable);
        if let Some(near) = named {
            near.through = Some(slot);
            self.named = true;
        }
    }

    /// Takes back slots that a store changes, also for accesses before it: a pointer that is
    /// advanced after each use is not where it was.
    fn changed(&mut self, span: Span) {
        let is_hit = |slot: &Slot| Span::new(slot.address, 8).overlaps(span);
        let mut held = self.pointers.held;
        while held != 0 {
            let index = held.trailing_zeros();
            held &= held - 1;
            if is_hit(&self.pointers.slots[index as usize]) {
                self.pointers.held &= !(1 << index);
            }
        }
        if self.named {
            for near in &mut self.out.near {
                near.through = near.through.filter(|slot| !is_hit(slot));
            }
        }
    }
}
