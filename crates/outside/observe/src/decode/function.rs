//! A function that is decoded once: its instructions in order, with what the walks need to know
//! about each.

use super::effect::{Effect, RBP, RSP};
use super::flags::Flags;
use super::instruction;
use super::operand::{self, Operand, Operands, Site};
use super::range::CodeRange;
use iced_x86::{ConditionCode, Decoder, DecoderOptions, Instruction};
use sunder_access::CodeAddress;
use sunder_x86::Manual;

/// One decoded instruction.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The offset in the range.
    pub offset: u32,
    len: u8,
    /// Whether control may go elsewhere than to the next instruction.
    pub ends_block: bool,
    /// Whether the next instruction may be executed after this one without a call in between.
    pub falls_through: bool,
    /// Whether control may come from elsewhere than the instruction before.
    pub entry: bool,
    /// Whether that may be from a place that this function's direct jumps do not tell.
    pub entered_from_elsewhere: bool,
    /// Whether the bytes are not an instruction.
    pub invalid: bool,
    pub segment_relative: u8,
    /// Whether its single memory operand may go through a pointer that the block loads.
    pub through: bool,
    /// General registers that it may change, one bit each.
    pub writes: u16,
    pub effect: Effect,
    pub flags: Flags,
    /// The condition of a conditional jump.
    pub condition: Option<ConditionCode>,
    first_operand: u32,
    operands: u8,
}

impl Step {
    /// Whether it has memory operands, those relative to a segment included.
    pub(super) const fn accesses_memory(&self) -> bool {
        self.operands > 0 || self.segment_relative > 0
    }
}

/// Decoded code.
#[derive(Debug, Default)]
pub(super) struct Function {
    /// Its address in the process.
    pub start: u64,
    pub steps: Vec<Step>,
    operands: Vec<Operand>,
    /// The stores to its frame and to globals, sorted: the place, the width, and a count. An
    /// update, and an instruction that makes a pointer to the place, count as more than one
    /// store.
    stores: Vec<(Site, u8, u8)>,
    /// Whether control may come to any instruction, through jump tables that have not been
    /// read.
    pub entries_unknown: bool,
    /// Its direct jumps, sorted: the offset of the target, and the index of the jump.
    jumps: Vec<(u32, u32)>,
}

impl Function {
    /// The index of the step that begins at `offset`.
    pub(super) fn index_of(&self, offset: u32) -> Option<usize> {
        let found = self.steps.binary_search_by_key(&offset, |step| step.offset);
        found.ok().filter(|&index| !self.steps[index].invalid)
    }

    /// The address of the step at `index`.
    pub(super) fn address_of(&self, index: usize) -> CodeAddress {
        CodeAddress(self.start + u64::from(self.steps[index].offset))
    }

    /// Whether control may come to the step at `index` from a place that is not known.
    pub(super) fn has_unknown_ways_to(&self, index: usize) -> bool {
        self.entries_unknown || self.steps[index].entered_from_elsewhere
    }

    /// The indices of the steps that jump to the step at `index`.
    pub(super) fn jumps_to(&self, index: usize) -> impl Iterator<Item = usize> {
        let offset = self.steps[index].offset;
        let first = self.jumps.partition_point(|jump| jump.0 < offset);
        let all = self.jumps[first..].iter();
        all.take_while(move |jump| jump.0 == offset)
            .map(|jump| jump.1 as usize)
    }

    /// The operands of a step.
    pub(super) fn operands(&self, step: &Step) -> &[Operand] {
        let first = step.first_operand as usize;
        &self.operands[first..first + usize::from(step.operands)]
    }

    /// Whether at most one plain store of this function writes to the 8 bytes at `site`. A
    /// pointer that the function advances (`p++`, `n = n->next`) has two: its first value and
    /// the next. The same value at two times would not show that it did not change in between:
    /// it may rest at its end, where nothing is accessed.
    pub(super) fn is_steady(&self, site: Site) -> bool {
        let reach = |by| Site {
            displacement: site.displacement.saturating_add(by),
            ..site
        };
        // A store has at most 64 bytes.
        let first = self.stores.partition_point(|store| store.0 < reach(-63));
        let near = self.stores[first..].iter();
        let changes: u32 = near
            .take_while(|store| store.0 < reach(8))
            .filter(|store| store.0.displacement + i64::from(store.1) > site.displacement)
            .map(|store| u32::from(store.2))
            .sum();
        changes <= 1
    }

    fn find_stores(&mut self) {
        for step in &self.steps {
            if let Effect::Sum {
                base: Some(base @ (RSP | RBP)),
                index: None,
                displacement,
                ..
            } = step.effect
            {
                let site = Site {
                    base: Some(base),
                    displacement: displacement as i64,
                };
                self.stores.push((site, 1, 2));
            }
            let first = step.first_operand as usize;
            for operand in &self.operands[first..first + usize::from(step.operands)] {
                if let Some(site) = operand.site()
                    && operand.kind.writes()
                {
                    let changes = if operand.kind.reads() { 2 } else { 1 };
                    self.stores.push((site, operand.width, changes));
                }
            }
        }
        self.stores.sort_unstable();
    }

    fn clear(&mut self, start: u64) {
        self.start = start;
        self.steps.clear();
        self.operands.clear();
        self.stores.clear();
        self.jumps.clear();
        self.entries_unknown = false;
    }

    /// Marks that control may come to `offset`, `from_elsewhere` if not only by the function's
    /// direct jumps. If the target is within an instruction (a jump over a lock prefix), the next
    /// instruction is marked too, as on that path another instruction comes before it.
    fn mark_entry(&mut self, offset: u32, from_elsewhere: bool) {
        let after = self.steps.partition_point(|step| step.offset <= offset);
        let Some(index) = after.checked_sub(1) else {
            return;
        };
        let step = &mut self.steps[index];
        step.entry = true;
        step.entered_from_elsewhere |= from_elsewhere;
        if step.offset != offset
            && let Some(next) = self.steps.get_mut(after)
        {
            next.entry = true;
            next.entered_from_elsewhere = true;
        }
    }
}

/// Decodes functions, and keeps its buffers for reuse.
#[derive(Debug, Default)]
pub(super) struct Builder {
    manual: Manual,
    collected: Operands,
    /// The direct jumps: the target's address, and the index of the jump.
    targets: Vec<(u64, u32)>,
    /// Registers that hold values that the block has loaded.
    loaded: u16,
}

impl Builder {
    /// Decodes all of `range`, which begins with an instruction.
    pub(super) fn whole(&mut self, range: &CodeRange, out: &mut Function) {
        out.clear(range.start.0);
        self.loaded = 0;
        self.targets.clear();
        let mut decoder = Decoder::with_ip(64, &range.bytes, range.start.0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut anywhere = false;
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            anywhere |= instruction::jumps_anywhere(&instruction);
            let target = instruction::jump_target(&instruction);
            self.targets
                .extend(target.map(|target| (target, out.steps.len() as u32)));
            self.push(&instruction, out);
        }
        out.find_stores();
        out.entries_unknown = anywhere && !range.tables_known;
        for &(target, jump) in &self.targets {
            if let Some(offset) = range.offset_of(CodeAddress(target)) {
                out.mark_entry(offset, false);
                out.jumps.push((offset, jump));
            }
        }
        out.jumps.sort_unstable();
        for &entry in &range.entries {
            if let Some(offset) = range.offset_of(entry) {
                out.mark_entry(offset, true);
            }
        }
    }

    /// Decodes at most `most` instructions from `offset` on, up to the end of the block.
    pub(super) fn window(
        &mut self,
        range: &CodeRange,
        offset: u32,
        most: usize,
        out: &mut Function,
    ) {
        out.clear(range.start.0);
        self.loaded = 0;
        let bytes = range.bytes.get(offset as usize..).unwrap_or(&[]);
        let ip = range.start.0 + u64::from(offset);
        let mut decoder = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() && out.steps.len() < most {
            decoder.decode_out(&mut instruction);
            self.push(&instruction, out);
            if instruction::ends_block(&instruction) {
                break;
            }
        }
    }

    fn push(&mut self, instruction: &Instruction, out: &mut Function) {
        let mut step = Step {
            offset: (instruction.ip() - out.start) as u32,
            len: instruction.len() as u8,
            ends_block: instruction::ends_block(instruction),
            falls_through: instruction::falls_through(instruction),
            entry: false,
            entered_from_elsewhere: false,
            invalid: instruction.is_invalid(),
            segment_relative: 0,
            through: false,
            writes: 0,
            effect: Effect::Opaque,
            flags: Flags::Unknown,
            condition: None,
            first_operand: out.operands.len() as u32,
            operands: 0,
        };
        if !step.invalid {
            let does = self.manual.does(instruction);
            step.writes = does.registers.written;
            step.effect = instruction::effect(instruction, &does);
            step.flags = Flags::of(instruction);
            step.condition = instruction::jump_condition(instruction);
            operand::collect(&does, &mut self.collected);
            step.operands = self.collected.known.len() as u8;
            step.segment_relative = self.collected.segment_relative;
            if let [operand] = self.collected.known.as_slice() {
                step.through = operand.registers() & self.loaded != 0;
            }
            self.loaded = step.effect.loaded(step.writes, self.loaded);
            out.operands.append(&mut self.collected.known);
        }
        if step.ends_block {
            self.loaded = 0;
        }
        debug_assert!(
            out.steps
                .last()
                .is_none_or(|last| last.offset + u32::from(last.len) == step.offset)
        );
        out.steps.push(step);
    }
}
