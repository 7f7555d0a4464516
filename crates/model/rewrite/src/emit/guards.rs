//! Emits guards: comparisons of registers with bounds, each followed by the operand at its new
//! place, and by the unchanged instruction if all comparisons fail.

use super::bits::Table;
use super::emitter::{Emitter, Target, displaced};
use super::runs::Runs;
use crate::bounds::{Alternative, Bound};
use crate::operand::Operand;
use crate::registers::Register;
use crate::version::CopyKind;
use iced_x86::{Code, FlowControl, Instruction, MemoryOperand, Register as Iced};
use sunder_x86::Manual;

impl Emitter<'_> {
    /// Emits the comparisons of registers with the bounds of an alternative.
    pub(super) fn guard(
        &mut self,
        way: CopyKind,
        n: usize,
        number: usize,
        alternative: &Alternative,
    ) {
        let ip = self.chosen.graph.nodes[n].instruction.ip();
        let failed = Target::Fails(way, n, number);
        let (ranged, plain) = match alternative.bounds.split_last() {
            Some((last, others)) if !alternative.ranges.is_empty() => (Some(last), others),
            _ => (None, alternative.bounds.as_slice()),
        };
        for bound in plain {
            let register = bound.register;
            if bound.low == bound.high && (bound.test_low || bound.test_high) {
                self.compare(register, bound.low, ip);
                self.branch(Code::Jne_rel32_64, failed, ip);
                continue;
            }
            if bound.low > 0 && bound.test_low {
                self.compare(register, bound.low, ip);
                self.branch(Code::Jb_rel32_64, failed, ip);
            }
            if bound.high < u64::MAX && bound.test_high {
                self.compare(register, bound.high, ip);
                self.branch(Code::Ja_rel32_64, failed, ip);
            }
        }
        if let Some(bound) = ranged {
            let ranges = &alternative.ranges;
            if self.measure((n, alternative), bound.register, failed)
                || self.look_up(bound.register, ranges, failed, ip)
            {
                return;
            }
            let hit = Target::Within(way, n, number);
            self.search(bound.register, ranges, (hit, failed), ip);
            self.label(hit);
        }
    }

    /// Compares what moved by one distance, from the operand's address on, with the operand's width, and
    /// goes to `failed` if it is less. False if the operand has more than a base, or there is no such
    /// table.
    fn measure(
        &mut self,
        (n, alternative): (usize, &Alternative),
        register: Register,
        failed: Target,
    ) -> bool {
        let instruction = self.chosen.graph.nodes[n].instruction;
        let operand = Operand::of(&instruction, &mut Manual::new());
        let (Some(operand), Some(low), Some(high)) = (
            operand.filter(|o| o.base == Some(register) && o.index.is_none()),
            alternative.ranges.first().map(|range| range.0),
            alternative.ranges.last().map(|range| range.1),
        ) else {
            return false;
        };
        let distance = alternative.displacement.wrapping_sub(operand.displacement) as i64;
        let Some(table) = Runs::of(self.moved, distance) else {
            return false;
        };
        let [first, last] = [low, high].map(|value| operand.address(value, 0));
        let Ok(width) = u32::try_from(operand.width) else {
            return false;
        };
        if !table.covers(first, last) || !self.has_room_for(&table.words) {
            return false;
        }
        let at = self.row(&table.words);
        let shift = at.wrapping_sub(table.first);
        let displacement = operand.displacement.wrapping_add(shift) as i64;
        if i32::try_from(displacement).is_err() {
            return false;
        }
        let ip = instruction.ip();
        self.compare(register, low, ip);
        self.branch(Code::Jb_rel32_64, failed, ip);
        self.compare(register, high, ip);
        self.branch(Code::Ja_rel32_64, failed, ip);
        let place = MemoryOperand::with_base_displ(register.iced(), displacement);
        self.put_made(Instruction::with2(Code::Cmp_rm8_imm8, place, width), ip);
        self.branch(Code::Jb_rel32_64, failed, ip);
        true
    }

    /// Looks the register's value up in a table with a bit for each value, and goes to `failed` if it
    /// is in none of the ranges. That takes the same time for each value, and no branch of it is hard
    /// to foresee; a search for random values takes ten times as long. False if the table would be too
    /// large.
    fn look_up(
        &mut self,
        register: Register,
        ranges: &[(u64, u64)],
        failed: Target,
        ip: u64,
    ) -> bool {
        let Some(table) = Table::of(ranges) else {
            return false;
        };
        self.compare(register, table.low, ip);
        self.branch(Code::Jb_rel32_64, failed, ip);
        self.compare(register, table.high, ip);
        self.branch(Code::Ja_rel32_64, failed, ip);
        let at = self.row(&table.words);
        // The instruction adds an eighth of the register's lower half, as a signed number.
        let bit_zero = at.wrapping_sub((i64::from(table.from) >> 3) as u64);
        let place = MemoryOperand::with_base_displ(Iced::RIP, bit_zero as i64);
        let half = register.iced().full_register32();
        self.put_made(Instruction::with2(Code::Bt_rm32_r32, place, half), ip);
        self.branch(Code::Jae_rel32_64, failed, ip);
        true
    }

    /// Finds the register's value in ascending ranges by halves, and goes to the first target if
    /// it is in one, else to the second.
    fn search(
        &mut self,
        register: Register,
        ranges: &[(u64, u64)],
        (hit, failed): (Target, Target),
        ip: u64,
    ) {
        match ranges {
            [] => self.branch(Code::Jmp_rel32_64, failed, ip),
            [(low, high)] => {
                self.compare(register, *low, ip);
                self.branch(Code::Jb_rel32_64, failed, ip);
                self.compare(register, *high, ip);
                self.branch(Code::Jbe_rel32_64, hit, ip);
                self.branch(Code::Jmp_rel32_64, failed, ip);
            }
            _ => {
                let (lower, upper) = ranges.split_at(ranges.len() / 2);
                let half = Target::Half(self.items.len());
                let first = upper.first().map_or(0, |range| range.0);
                self.compare(register, first, ip);
                self.branch(Code::Jae_rel32_64, half, ip);
                self.search(register, lower, (hit, failed), ip);
                self.label(half);
                self.search(register, upper, (hit, failed), ip);
            }
        }
    }

    /// The bound for a first comparison, if the operand is seldom on the page.
    pub(super) fn rare_bound<'b>(
        &self,
        way: CopyKind,
        n: usize,
        all: &'b [Alternative],
    ) -> Option<&'b Bound> {
        let [only] = all else { return None };
        if !only.ranges.is_empty() {
            return None;
        }
        if self.chosen.graph.nodes[n].instruction.flow_control() == FlowControl::IndirectCall {
            return None;
        }
        let bound = only.bounds.last()?;
        let says_something = bound.low == bound.high
            || bound.low > 0 && bound.test_low
            || bound.high < u64::MAX && bound.test_high;
        (says_something && self.plans(way).rare.contains(&n)).then_some(bound)
    }

    /// Branches to the guard unless one comparison shows that the operand is not on the page.
    pub(super) fn first_comparison(&mut self, way: CopyKind, n: usize, all: &[Alternative]) {
        let Some(bound) = self.rare_bound(way, n, all) else {
            return;
        };
        let ip = self.chosen.graph.nodes[n].instruction.ip();
        let (value, code) = if bound.low == bound.high {
            (bound.low, Code::Je_rel32_64)
        } else if bound.low > 0 && bound.test_low {
            (bound.low, Code::Jae_rel32_64)
        } else {
            (bound.high, Code::Jbe_rel32_64)
        };
        self.compare(bound.register, value, ip);
        self.branch(code, Target::Guard(way, n), ip);
    }

    /// Emits the other alternatives of a guard, and finally the unchanged instruction.
    pub(super) fn other_alternatives(
        &mut self,
        way: CopyKind,
        n: usize,
        alternatives: &[Alternative],
    ) {
        let instruction = self.chosen.graph.nodes[n].instruction;
        let done = usize::from(self.rare_bound(way, n, alternatives).is_none());
        for (number, alternative) in alternatives.iter().enumerate().skip(done) {
            self.label(match number.checked_sub(1) {
                Some(before) => Target::Fails(way, n, before),
                None => Target::Guard(way, n),
            });
            self.guard(way, n, number, alternative);
            self.put_here(displaced(instruction, alternative.displacement));
            self.rejoin(way, n);
        }
        self.label(Target::Fails(way, n, alternatives.len() - 1));
        self.put_here(instruction);
        self.rejoin(way, n);
    }

    fn put_here(&mut self, instruction: Instruction) {
        if instruction.flow_control() == FlowControl::IndirectCall {
            self.call_pointer(instruction);
        } else {
            self.put(instruction, instruction.ip());
        }
    }

    /// Continues after the first copy of `n`, with its check if it has one.
    pub(super) fn rejoin(&mut self, way: CopyKind, n: usize) {
        let node = &self.chosen.graph.nodes[n];
        if node.instruction.flow_control() != FlowControl::Next {
            return;
        }
        let after = node.instruction.next_ip();
        if self.labels.contains_key(&Target::Check(way, n)) {
            self.branch(Code::Jmp_rel32_64, Target::Check(way, n), after);
        } else {
            self.go_on(way, node.instance, after, None);
        }
    }
}
