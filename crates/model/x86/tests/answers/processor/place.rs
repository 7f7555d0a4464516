//! Chooses registers so that each access of an instruction lies on a page of its own.

use super::sandbox::{CODE, PAGE, REGIONS, Sandbox};
use iced_x86::{Decoder, DecoderOptions, Instruction, Register};
use sunder_x86::register::RCX;
use sunder_x86::{Access, AddressForm, Certainty, Does, Manual, Part, Reach};

/// The number of repetitions of a string instruction.
const COUNT: u64 = 3;
/// Bytes for the processor's saved state, whose size only the processor knows.
const STATE: u64 = PAGE;

/// The edge of its page at which an access lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Directly after the page's beginning.
    Start,
    /// Directly before its end.
    End,
}

/// An instruction whose accesses have their pages.
pub struct Placed {
    pub bytes: Vec<u8>,
    pub instruction: Instruction,
    pub does: Does,
    /// The general registers that must have these values.
    pub fixed: [Option<u64>; 16],
    /// For each access, its page and the range of its bytes there.
    pub ranges: Vec<(usize, std::ops::Range<usize>)>,
}

fn decode(bytes: &[u8]) -> Instruction {
    Decoder::with_ip(64, bytes, CODE, DecoderOptions::NONE).decode()
}

/// The number of bytes that an access may touch.
fn extent(access: &Access) -> u64 {
    match (access.width, access.place.reach) {
        (0, Reach::Line) => 64,
        (0, _) => STATE,
        (width, _) if access.certainty == Certainty::Counted => COUNT * u64::from(width),
        (width, _) => width.into(),
    }
}

/// Gives each access of the instruction a page. The error says why that is not possible.
pub fn place(bytes: &[u8], edge: Edge, manual: &mut Manual) -> Result<Placed, &'static str> {
    let mut bytes = bytes.to_vec();
    let first = decode(&bytes);
    let does = manual.does(&first);
    if does.elsewhere {
        return Err("may access memory that is not told");
    }
    if does.accesses().count() > REGIONS {
        return Err("more accesses than pages");
    }
    if does.accesses().any(|a| a.place.segment.is_some()) {
        return Err("relative to a segment");
    }
    let has_operand = does.accesses().any(|a| a.role == sunder_x86::Role::Operand);
    let bare = matches!(
        first.memory_base(),
        Register::None | Register::RIP | Register::EIP
    ) && first.memory_index() == Register::None;
    if has_operand && bare {
        let operand = does.accesses().next().ok_or("no operand")?;
        relocate(&mut bytes, &first, target(operand, 0, edge, 1, 0))?;
    }
    let instruction = decode(&bytes);
    let does = manual.does(&instruction);
    let mut fixed = [None; 16];
    let mut ranges = Vec::new();
    if does.accesses().any(|a| a.certainty == Certainty::Counted) {
        fixed[usize::from(RCX)] = Some(COUNT);
    }
    for (region, access) in does.accesses().enumerate() {
        let start = solve(access, region, edge, &mut fixed)?;
        let from = start.wrapping_sub(Sandbox::page(region));
        let to = from + extent(access);
        if to > PAGE {
            return Err("registers are shared between accesses");
        }
        ranges.push((region, from as usize..to as usize));
    }
    Ok(Placed {
        bytes,
        instruction,
        does,
        fixed,
        ranges,
    })
}

/// Changes the displacement so that the operand lies at `to`.
fn relocate(bytes: &mut [u8], i: &Instruction, to: u64) -> Result<(), &'static str> {
    let mut decoder = Decoder::with_ip(64, bytes, CODE, DecoderOptions::NONE);
    let again = decoder.decode();
    let offsets = decoder.get_constant_offsets(&again);
    let (at, size) = (offsets.displacement_offset(), offsets.displacement_size());
    let relative = matches!(i.memory_base(), Register::RIP | Register::EIP);
    let value = if relative {
        to.wrapping_sub(again.next_ip())
    } else {
        to
    };
    let place = bytes.get_mut(at..at + size).ok_or("no displacement")?;
    if size < 4 {
        return Err("its displacement is too short");
    }
    place.copy_from_slice(&value.to_le_bytes()[..size]);
    Ok(())
}

/// An address in the region whose distance from `from` is a multiple of `step`.
fn target(access: &Access, region: usize, edge: Edge, step: u64, from: u64) -> u64 {
    const ALIGNED: u64 = 64;
    let page = Sandbox::page(region);
    let mut at = match edge {
        Edge::Start => page,
        Edge::End => page + PAGE - extent(access),
    };
    for _ in 0..step {
        if at.wrapping_sub(from) % step == 0 {
            break;
        }
        at = match edge {
            Edge::Start => at + ALIGNED,
            Edge::End => at - ALIGNED,
        };
    }
    at
}

/// Chooses the registers of an access. Returns the address of its first byte.
fn solve(
    access: &Access,
    region: usize,
    edge: Edge,
    fixed: &mut [Option<u64>; 16],
) -> Result<u64, &'static str> {
    const SHARED: &str = "registers are shared between accesses";
    let place = access.place;
    let width = u64::from(access.width);
    // The distance of the access from the sum.
    let beyond = match place.reach {
        Reach::Bits(number) => {
            let number = usize::from(number);
            if place.registers() >> number & 1 != 0 {
                return Err("a bit's number is also its address");
            }
            fixed[number] = Some(8 * width + 3);
            width
        }
        Reach::Line => 8u64.wrapping_neg(),
        Reach::There | Reach::Elements => 0,
    };
    let displacement = place.displacement.wrapping_add(beyond);
    let get = |part: Part, fixed: &[Option<u64>; 16]| {
        fixed[usize::from(part.register)].map(|v| part.of(v))
    };
    match (place.base, place.index) {
        (None, None) => {}
        (Some(base), Some(index)) if base.register == index.part.register => {
            let step = 1 + u64::from(index.scale);
            let at = target(access, region, edge, step, displacement);
            let distance = at.wrapping_sub(displacement) as i64;
            if distance % step as i64 != 0 || get(base, fixed).is_some() {
                return Err(SHARED);
            }
            set(base, (distance / step as i64) as u64, fixed);
        }
        (Some(base), index) => {
            let other = match index {
                Some(index) => {
                    if get(index.part, fixed).is_none() {
                        set(index.part, 16, fixed);
                    }
                    get(index.part, fixed)
                        .unwrap_or(0)
                        .wrapping_mul(index.scale.into())
                }
                None => 0,
            };
            if get(base, fixed).is_none() {
                let at = target(access, region, edge, 1, 0);
                let value = at.wrapping_sub(displacement).wrapping_sub(other);
                set(base, value, fixed);
            }
        }
        (None, Some(index)) => {
            let step = u64::from(index.scale);
            let at = target(access, region, edge, step, displacement);
            if get(index.part, fixed).is_some() {
                return Err(SHARED);
            }
            let distance = at.wrapping_sub(displacement) as i64;
            set(index.part, (distance / step as i64) as u64, fixed);
        }
    }
    let sum = sum(&place, fixed).ok_or("a register is not known")?;
    let start = sum.wrapping_add(beyond);
    let page = Sandbox::page(region);
    if (page..page + PAGE).contains(&start) {
        Ok(start)
    } else {
        Err(SHARED)
    }
}

fn sum(place: &AddressForm, fixed: &[Option<u64>; 16]) -> Option<u64> {
    place.sum(|register| fixed[usize::from(register)])
}

/// Fixes a part of a register; its other bits must not matter.
fn set(part: Part, value: u64, fixed: &mut [Option<u64>; 16]) {
    const OTHERS: u64 = 0x0000_5bad_0bad_0b00;
    let others = match part.bits {
        64 => 0,
        32 => OTHERS & !0xffff_ffff,
        _ => OTHERS & !0xff,
    };
    fixed[usize::from(part.register)] = Some(part.of(value) | others);
}
