//! Compares two runs of an instruction with the answer of [`sunder_x86::Manual`]. It executes
//! nothing.

use super::place::Placed;
use super::sandbox::State;
use iced_x86::{Mnemonic, RflagsBits};
use sunder_x86::{Certainty, Flags, Rule, Source, Value, values};

/// Memory and registers before and after a run.
pub struct Execution {
    pub before: (State, Vec<Vec<u8>>),
    pub after: (State, Vec<Vec<u8>>),
}

/// The first error of the answer that two runs show. They must differ in everything that it
/// does not list as read.
pub fn wrong(placed: &Placed, a: &Execution, b: &Execution) -> Option<String> {
    written(placed, a)
        .or_else(|| written(placed, b))
        .or_else(|| same(placed, a, b))
        .or_else(|| computed(placed, a))
        .or_else(|| computed(placed, b))
}

/// Converts flags from iced's numbering to the processor's.
pub fn processors(flags: u32) -> u64 {
    [
        (RflagsBits::CF, 0x1),
        (RflagsBits::PF, 0x4),
        (RflagsBits::AF, 0x10),
        (RflagsBits::ZF, 0x40),
        (RflagsBits::SF, 0x80),
        (RflagsBits::OF, 0x800),
    ]
    .iter()
    .filter(|(bit, _)| flags & bit != 0)
    .fold(0, |all, (_, bit)| all | bit)
}

/// Finds a write that the answer does not list.
fn written(placed: &Placed, run: &Execution) -> Option<String> {
    let registers = placed.does.registers;
    let (before, after) = (&run.before.0, &run.after.0);
    for n in 0..16 {
        let (old, new) = (before.general[n], after.general[n]);
        let bit = |mask: u16| mask >> n & 1 != 0;
        if old != new && !bit(registers.written) {
            return Some(format!("register {n} is written: {old:#x} {new:#x}"));
        }
        if bit(registers.cleared) && new >> 32 != 0 {
            return Some(format!("register {n} is not cleared: {new:#x}"));
        }
        if bit(registers.kept) && old >> 16 != new >> 16
            || bit(registers.bytes) && old >> 8 != new >> 8
        {
            return Some(format!("register {n} is not kept: {old:#x} {new:#x}"));
        }
    }
    let changed = processors(Flags::of(&placed.instruction).changed);
    if (before.flags ^ after.flags) & !changed != 0 {
        return Some(format!("flags: {:#x} {:#x}", before.flags, after.flags));
    }
    for n in 0..32 {
        if before.vectors[n] != after.vectors[n] && registers.vectors_written >> n & 1 == 0 {
            return Some(format!("vector {n} is written"));
        }
    }
    for n in 0..8 {
        if before.masks[n] != after.masks[n] && registers.masks_written >> n & 1 == 0 {
            return Some(format!("mask {n} is written"));
        }
    }
    if before.x87 != after.x87 && !registers.others {
        return Some("registers of the x87 unit are written".to_owned());
    }
    let may = |region: usize, at: usize| {
        let mut all = placed.does.accesses().zip(&placed.ranges);
        all.any(|(access, (of, range))| {
            access.action.writes() && *of == region && range.contains(&at)
        })
    };
    for (region, (old, new)) in run.before.1.iter().zip(&run.after.1).enumerate() {
        let mut bytes = old.iter().zip(new).enumerate();
        if let Some((at, _)) = bytes.find(|(at, (old, new))| old != new && !may(region, *at)) {
            return Some(format!("byte {at} of page {region} is written"));
        }
    }
    None
}

/// Instructions whose results differ between runs with the same input.
fn is_fickle(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Rdtsc
            | M::Rdtscp
            | M::Rdrand
            | M::Rdseed
            | M::Cpuid
            | M::Rdpid
            | M::Rdpru
            | M::Xgetbv
            | M::Xsave
            | M::Xsave64
            | M::Xsavec
            | M::Xsavec64
            | M::Xsaveopt
            | M::Xsaveopt64
    )
}

/// Finds a result that depends on something that the answer does not list as read, or that is
/// not written although the answer lists it.
fn same(placed: &Placed, a: &Execution, b: &Execution) -> Option<String> {
    if is_fickle(placed.instruction.mnemonic()) {
        return None;
    }
    let registers = placed.does.registers;
    for n in 0..16 {
        let new = (a.after.0.general[n], b.after.0.general[n]);
        let old = (a.before.0.general[n], b.before.0.general[n]);
        let may_stay = registers.replaced >> n & 1 == 0;
        let both =
            [(new.0, new.1), (old.0, old.1)].map(|(a, b)| (a.to_le_bytes(), b.to_le_bytes()));
        if !alike(&both[0], &both[1], may_stay) {
            return Some(format!("register {n}: {old:x?} become {new:x?}"));
        }
    }
    for n in 0..32 {
        let new = (a.after.0.vectors[n], b.after.0.vectors[n]);
        let old = (a.before.0.vectors[n], b.before.0.vectors[n]);
        if !alike(&new, &old, true) {
            return Some(format!("vector {n} depends on what is not read"));
        }
    }
    for n in 0..8 {
        let new = (a.after.0.masks[n], b.after.0.masks[n]);
        let old = (a.before.0.masks[n], b.before.0.masks[n]);
        if new.0 != new.1 && new != old {
            return Some(format!("mask {n} depends on what is not read"));
        }
    }
    let undefined = processors(placed.instruction.rflags_undefined());
    let flags = Flags::of(&placed.instruction);
    let differ = (a.after.0.flags ^ b.after.0.flags) & !undefined;
    let kept = !(a.before.0.flags ^ a.after.0.flags) & !(b.before.0.flags ^ b.after.0.flags);
    let may_stay = kept & !processors(flags.replaced);
    if differ & !may_stay != 0 {
        return Some(format!("flags {differ:#x} depend on what is not read"));
    }
    for (access, (region, range)) in placed.does.accesses().zip(&placed.ranges) {
        let certain = access.certainty == Certainty::Always && access.width <= 64;
        if !access.action.writes() || access.width == 0 {
            continue;
        }
        let slice = |pages: &[Vec<u8>]| pages[*region][range.clone()].to_vec();
        let new = (slice(&a.after.1), slice(&b.after.1));
        let old = (slice(&a.before.1), slice(&b.before.1));
        if !alike(
            &(&new.0[..], &new.1[..]),
            &(&old.0[..], &old.1[..]),
            !certain,
        ) {
            return Some(format!("page {region} depends on what is not read"));
        }
    }
    None
}

/// Whether both new values are the same, or, byte by byte, both are the old ones.
fn alike<T: AsRef<[u8]>>(new: &(T, T), old: &(T, T), may_stay: bool) -> bool {
    let new = new.0.as_ref().iter().zip(new.1.as_ref());
    let old = old.0.as_ref().iter().zip(old.1.as_ref());
    new.zip(old)
        .all(|(new, old)| new.0 == new.1 || may_stay && new == old)
}

/// Finds a register whose value is not the one that the answer computes.
fn computed(placed: &Placed, run: &Execution) -> Option<String> {
    let (before, after) = (&run.before.0.general, &run.after.0.general);
    for value in values(&placed.instruction, &placed.does).iter().flatten() {
        let new = after[usize::from(value.register)];
        let expected = expected(value, placed, run);
        if !expected.is_empty() && !expected.contains(&new) {
            let old = before[usize::from(value.register)];
            return Some(format!(
                "{value:x?}: {old:#x} becomes {new:#x}, not {expected:x?}"
            ));
        }
        if let Rule::Part(bits) = value.rule
            && (before[usize::from(value.register)] ^ new) >> bits != 0
        {
            return Some(format!("{value:?}: {new:#x}"));
        }
    }
    None
}

/// The values that the register may have; empty if any value is allowed.
fn expected(value: &Value, placed: &Placed, run: &Execution) -> Vec<u64> {
    let cut = |all: u64, bits: u32| all & u64::MAX >> (64 - bits);
    let bits = value.bits;
    let loaded = || {
        let mut all = placed.does.accesses().zip(&placed.ranges);
        let (access, (region, range)) = all.find(|(access, _)| access.action.reads())?;
        let width = usize::from(access.width).min(8);
        let bytes = run.before.1[*region][range.start..range.start + width].iter();
        Some(bytes.rev().fold(0, |all, &b| all << 8 | u64::from(b)))
    };
    let whole = |source| match source {
        Source::Register(n) => Some(run.before.0.general[usize::from(n)]),
        Source::Constant(value) => Some(value),
        Source::Memory => loaded(),
        Source::Unknown => None,
    };
    let get = |source| whole(source).map(|all| cut(all, bits));
    let two = |a, b, f: &dyn Fn(u64, u64) -> u64| Some(f(get(a)?, get(b)?));
    let one = match value.rule {
        Rule::Copy(a) => get(a),
        Rule::Add(a, b) => two(a, b, &u64::wrapping_add),
        Rule::Address {
            base,
            index,
            displacement,
        } => {
            let register = |n: u8| run.before.0.general[usize::from(n)];
            let index = index.map_or(0, |(n, scale)| register(n).wrapping_mul(scale.into()));
            Some(
                base.map_or(0, register)
                    .wrapping_add(index)
                    .wrapping_add(displacement),
            )
        }
        Rule::Minus(a, b) => two(a, b, &u64::wrapping_sub),
        Rule::And(a, b) => two(a, b, &|a, b| a & b),
        Rule::Or(a, b) => two(a, b, &|a, b| a | b),
        Rule::Xor(a, b) => two(a, b, &|a, b| a ^ b),
        Rule::Not(a) => get(a).map(|a| !a),
        Rule::Times(a, b) => two(a, b, &u64::wrapping_mul),
        Rule::HighTimes(a, b) => two(a, b, &|a, b| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        Rule::Below(a) => get(a).map(|above| {
            let new = cut(run.after.0.general[usize::from(value.register)], bits);
            if new < above { new } else { !new }
        }),
        Rule::Left(a, by) => get(a).map(|a| a << by),
        Rule::Right(a, by) => get(a).map(|a| a >> by),
        Rule::Arithmetic(a, by) => {
            get(a).map(|a| ((a << (64 - bits)) as i64 >> (64 - bits + by)) as u64)
        }
        Rule::Low(Source::Unknown, 32) => {
            let new = run.after.0.general[usize::from(value.register)];
            Some(cut(new, 32))
        }
        Rule::Low(a, low) => whole(a).map(|a| cut(a, low)),
        Rule::Signed(a, low) => whole(a).map(|a| ((a << (64 - low)) as i64 >> (64 - low)) as u64),
        Rule::Either(a, b) => {
            return [get(a), get(b)].into_iter().flatten().collect();
        }
        Rule::Part(_) => None,
    };
    one.map(|value| cut(value, bits)).into_iter().collect()
}
