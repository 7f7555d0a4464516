//! String instructions (`movs`, `stos`, `lods`, `cmps`, `scas`, with and without `rep`): which
//! memory they use, and how a copy redirects them. Called by the planner and by
//! [`crate::choose`]; it must not encode anything.
//!
//! Their addresses are in `rdi` and `rsi`, so a copy adds the distance of the moved bytes to
//! these registers, executes the instruction, and takes the distance off again. None of that
//! changes flags. A thread that is stopped in between goes on in the original with the distance
//! taken off ([`Shift`]): what the processor has done of a repeated instruction is in the
//! registers, so the original does the rest.
//!
//! In a loop all bytes that one execution can use must have moved by one distance, by facts or by a
//! guard. An instruction alone is divided where the distance changes: its registers are known.

use crate::bounds::{Alternative, Bound};
use crate::effects::State;
use crate::flow::Graph;
use crate::operand::Operand;
use crate::registers::{Register, Registers};
use crate::request::{MovedPage, Refusal, Relocation, Request, Rule, Seen, Shift};
use crate::values::Values;
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{Code, Instruction, OpKind, Register as Iced, RflagsBits};

/// The register of the count.
const COUNT: Register = Register(1);
/// The register of the source's address.
const SOURCE: Register = Register(6);
/// The register of the destination's address.
const DESTINATION: Register = Register(7);

/// The most parts into which one execution is divided; what is left faults again.
const MOST_PARTS: usize = 64;
/// The most distances for one guarded instruction.
const MOST_WAYS: usize = 4;
/// Longer executions are not guarded, in bytes: no group is as long.
const LONGEST: u64 = 1 << 16;

/// What a string instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StringOperation {
    /// Bytes of one element.
    width: u64,
    /// Whether it is done as often as `rcx` says.
    repeated: bool,
    /// Whether the flags may end it before that.
    ends_early: bool,
    /// Whether it uses memory at `rsi`, and at `rdi`.
    source: bool,
    destination: bool,
}

/// Registers for which a string instruction in a loop is right with one shift.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShiftedWay {
    /// The bounds, as a guard. Its displacement has no meaning.
    pub when: Alternative,
    /// What the copy takes off the registers after it, and a stopped thread before it goes on.
    pub shift: Shift,
}

/// How a string instruction is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StringPlan {
    /// Facts say that one shift is right.
    Direct(Shift),
    /// With a guard for each of these, tried in this order.
    Guarded(Vec<ShiftedWay>),
    /// One execution from exactly these registers, divided: the shift of each part.
    Parts(Vec<Bound>, Vec<Shift>),
}

impl StringOperation {
    /// `None` if it is no string instruction, or one whose addresses are not all of `rdi` and `rsi`.
    pub(crate) fn of(i: &Instruction) -> Option<Self> {
        use Code as C;
        let (width, source, destination, compares) = match i.code() {
            C::Movsb_m8_m8 => (1, true, true, false),
            C::Movsw_m16_m16 => (2, true, true, false),
            C::Movsd_m32_m32 => (4, true, true, false),
            C::Movsq_m64_m64 => (8, true, true, false),
            C::Stosb_m8_AL => (1, false, true, false),
            C::Stosw_m16_AX => (2, false, true, false),
            C::Stosd_m32_EAX => (4, false, true, false),
            C::Stosq_m64_RAX => (8, false, true, false),
            C::Lodsb_AL_m8 => (1, true, false, false),
            C::Lodsw_AX_m16 => (2, true, false, false),
            C::Lodsd_EAX_m32 => (4, true, false, false),
            C::Lodsq_RAX_m64 => (8, true, false, false),
            C::Cmpsb_m8_m8 => (1, true, true, true),
            C::Cmpsw_m16_m16 => (2, true, true, true),
            C::Cmpsd_m32_m32 => (4, true, true, true),
            C::Cmpsq_m64_m64 => (8, true, true, true),
            C::Scasb_AL_m8 => (1, false, true, true),
            C::Scasw_AX_m16 => (2, false, true, true),
            C::Scasd_EAX_m32 => (4, false, true, true),
            C::Scasq_RAX_m64 => (8, false, true, true),
            _ => return None,
        };
        let plain = (0..i.op_count()).all(|n| {
            matches!(
                i.op_kind(n),
                OpKind::Register | OpKind::MemorySegRSI | OpKind::MemoryESRDI
            )
        });
        if !plain || matches!(i.segment_prefix(), Iced::FS | Iced::GS) {
            return None;
        }
        let repeated = i.has_rep_prefix() || i.has_repe_prefix() || i.has_repne_prefix();
        Some(Self {
            width,
            repeated,
            ends_early: compares && repeated,
            source,
            destination,
        })
    }

    /// Whether it has a count.
    pub(crate) const fn is_repeated(&self) -> bool {
        self.repeated
    }

    fn uses(&self) -> impl Iterator<Item = Register> + use<> {
        let source = self.source.then_some(SOURCE);
        source
            .into_iter()
            .chain(self.destination.then_some(DESTINATION))
    }

    /// How many elements it uses with these registers.
    fn count(&self, general: &[u64; 16]) -> u64 {
        if self.repeated {
            general[COUNT.index()]
        } else {
            1
        }
    }

    /// The registers that matter, for later requests.
    pub(crate) fn seen(&self, request: &Request<'_>) -> Seen {
        let registers = &request.registers;
        Seen {
            ip: request.frame.ip,
            base: registers.get(DESTINATION),
            index: registers.get(SOURCE),
            count: self.count(&registers.general),
        }
    }

    /// Its memory at one of its registers, as an operand of `count` elements.
    fn operand(&self, register: Register, count: u64) -> Option<Operand> {
        Some(Operand {
            base: Some(register),
            index: None,
            scale: 1,
            displacement: 0,
            width: count
                .checked_mul(self.width)
                .filter(|&all| all <= LONGEST)?,
            relative: false,
        })
    }

    /// The memory of which a check of loaded pointers should tell where it is.
    pub(crate) fn checked(&self, moved: &MovedPage, seen: &[Seen]) -> Option<Operand> {
        let one = seen.first()?;
        let on_page = |register: &Register| {
            let address = value(one, *register);
            moved.relocation(address, self.width) != Relocation::Elsewhere
        };
        let register = self.uses().find(on_page)?;
        self.operand(register, one.count)
    }
}

/// What was in one of the two address registers.
const fn value(seen: &Seen, register: Register) -> u64 {
    if register.0 == SOURCE.0 {
        seen.index
    } else {
        seen.base
    }
}

/// The shift by these distances; `None` if an instruction can't add one of them.
fn shift(to: i64, from: i64, left: u64) -> Option<Shift> {
    Some(Shift {
        destination: i32::try_from(to).ok()?,
        source: i32::try_from(from).ok()?,
        count: i32::try_from(left).ok()?,
    })
}

/// Whether an instruction of the code may make string instructions go downwards.
pub(crate) fn may_go_downwards(graph: &Graph) -> bool {
    graph.nodes.iter().any(|node| {
        let i = &node.instruction;
        (i.rflags_set() | i.rflags_written() | i.rflags_undefined()) & RflagsBits::DF != 0
    })
}

/// The plan for a string instruction of a loop, and the registers whose facts it needs. `seen` are
/// its registers at faults, with `present` the one that asks first: without a way for that there is
/// no plan. Only for threads whose string instructions go upwards.
pub(crate) fn plan(
    moved: &MovedPage,
    operation: &StringOperation,
    state: &State,
    seen: &[Seen],
    present: bool,
) -> (Option<StringPlan>, u32) {
    let counted = state[COUNT.index()].filter(|_| operation.repeated);
    let most = match (operation.repeated, counted) {
        (false, _) => Some(1),
        (true, known) => known.map(|all| all.high),
    };
    let direct = most.and_then(|most| by_facts(moved, operation, state, most));
    let count_bit = if operation.repeated { COUNT.bit() } else { 0 };
    if let Some((shift, registers)) = direct {
        let moves = shift != Shift::default();
        let plan = moves.then_some(StringPlan::Direct(shift));
        return (plan, if moves { registers | count_bit } else { 0 });
    }
    let mut ways: Vec<ShiftedWay> = Vec::new();
    let mut used = 0;
    for (number, one) in seen.iter().enumerate() {
        let Some((way, registers)) = by_guard(moved, operation, state, most, one) else {
            if present && number == 0 {
                return (None, 0);
            }
            continue;
        };
        if ways.len() < MOST_WAYS && !ways.contains(&way) {
            ways.push(way);
            used |= registers;
        }
    }
    if ways.is_empty() {
        (None, 0)
    } else {
        (Some(StringPlan::Guarded(ways)), used)
    }
}

/// The shift that is right for all registers that the facts allow, and the address registers that it
/// rests on.
fn by_facts(
    moved: &MovedPage,
    operation: &StringOperation,
    state: &State,
    most: u64,
) -> Option<(Shift, u32)> {
    let mut distances = [0; 2];
    let mut registers = 0;
    for register in operation.uses() {
        let operand = operation.operand(register, most)?;
        let place = match operand.addresses(state) {
            _ if operand.width == 0 => Relocation::Elsewhere,
            Some(all) => moved.relocation_of_each(all, operand.width),
            None => return None,
        };
        match place {
            Relocation::Elsewhere => {}
            Relocation::In(rule) => {
                distances[usize::from(register == SOURCE)] = rule.delta;
                registers |= register.bit();
            }
            Relocation::Straddles => return None,
        }
    }
    Some((shift(distances[0], distances[1], 0)?, registers))
}

/// The bounds around registers that were seen within which one shift is right, and the registers
/// whose facts they leave out.
fn by_guard(
    moved: &MovedPage,
    operation: &StringOperation,
    state: &State,
    most: Option<u64>,
    seen: &Seen,
) -> Option<(ShiftedWay, u32)> {
    // Registers that the facts exclude are those of an execution that had been interrupted.
    let fits = operation
        .uses()
        .all(|register| allows(state, register, value(seen, register)));
    if !fits || operation.repeated && !allows(state, COUNT, seen.count) {
        return None;
    }
    let count = most.map_or(seen.count, |most| most.min(seen.count));
    let (mut bounds, mut distances, mut used) = (Vec::new(), [0; 2], 0);
    let mut add = |bound: Bound| {
        if !bound.test_low || !bound.test_high {
            used |= bound.register.bit();
        }
        if bound.test_low || bound.test_high {
            bounds.push(bound);
        }
    };
    for register in operation.uses() {
        let operand = operation.operand(register, count).filter(|o| o.width > 0)?;
        match moved.relocation(value(seen, register), operand.width) {
            // If that changes, the access faults.
            Relocation::Elsewhere => {}
            Relocation::In(rule) => {
                distances[usize::from(register == SOURCE)] = rule.delta;
                let (low, high) = starts(&rule, operand.width)?;
                add(Bound::of(register, low, high, state));
            }
            Relocation::Straddles => return None,
        }
    }
    if operation.repeated {
        add(Bound::of(COUNT, 0, count, state));
    }
    let shift = shift(distances[0], distances[1], 0).filter(|s| *s != Shift::default())?;
    let when = Alternative {
        bounds,
        ranges: Vec::new(),
        displacement: 0,
    };
    Some((ShiftedWay { when, shift }, used))
}

/// Whether the register may have this value.
fn allows(state: &State, register: Register, value: u64) -> bool {
    state[register.index()].is_none_or(|known| known.low <= value && value <= known.high)
}

/// The first and the last address at which so many bytes are all in the rule.
fn starts(rule: &Rule, width: u64) -> Option<(u64, u64)> {
    let first = rule.bytes.start.0;
    let last = first.checked_add(rule.bytes.len.checked_sub(width)?)?;
    Some((first, last))
}

/// The execution that faulted, divided where distances change.
///
/// # Errors
/// If an element has bytes of two groups, or none is on the page.
pub(crate) fn parts(
    request: &Request<'_>,
    operation: &StringOperation,
) -> Result<StringPlan, Refusal> {
    let ip = request.frame.ip;
    let mut now: Registers = request.registers;
    let mut bounds = vec![];
    let exactly = |register: Register| {
        let value = now.get(register);
        Bound {
            register,
            low: value,
            high: value,
            test_low: true,
            test_high: true,
        }
    };
    bounds.extend(operation.uses().map(exactly));
    if operation.repeated {
        bounds.push(exactly(COUNT));
    }
    let step = if request.downwards {
        operation.width.wrapping_neg()
    } else {
        operation.width
    };
    let mut left = operation.count(&now.general);
    let mut parts = Vec::new();
    while left > 0 && parts.len() < MOST_PARTS {
        let (mut done, mut distances) = (left, [0; 2]);
        for register in operation.uses() {
            let address = now.get(register);
            let (delta, elements) =
                alike(request, address, operation.width).ok_or(Refusal::Straddles(ip))?;
            distances[usize::from(register == SOURCE)] = delta;
            done = done.min(elements);
        }
        left -= done;
        let shift = shift(distances[0], distances[1], left).ok_or(Refusal::OutOfReach(ip))?;
        if parts.is_empty() && distances == [0; 2] {
            return Err(Refusal::Elsewhere(ip));
        }
        parts.push(shift);
        if operation.ends_early && left > 0 {
            // Behind the first part nothing would tell whether the flags have ended it.
            return Err(Refusal::Straddles(ip));
        }
        for register in operation.uses() {
            let value = &mut now.general[register.index() & 15];
            *value = value.wrapping_add(step.wrapping_mul(done));
        }
    }
    if parts.is_empty() {
        return Err(Refusal::Elsewhere(ip));
    }
    Ok(StringPlan::Parts(bounds, parts))
}

/// The distance by which the element at `address` has moved, and for how many elements from there on,
/// in the direction of the request, that is so. `None` if the element is in two places.
fn alike(request: &Request<'_>, address: u64, width: u64) -> Option<(i64, u64)> {
    let moved = request.moved;
    match moved.relocation(address, width) {
        Relocation::In(rule) => {
            let (first, last) = starts(&rule, width)?;
            let room = if request.downwards {
                address - first
            } else {
                last - address
            };
            Some((rule.delta, 1 + room / width))
        }
        Relocation::Straddles => None,
        Relocation::Elsewhere => {
            let page = moved.page;
            // The bytes between the element and the page.
            let room = if request.downwards {
                address.checked_sub(page.start.0.checked_add(page.len)?)
            } else {
                page.start.0.checked_sub(address.checked_add(width)?)
            };
            Some((0, room.map_or(u64::MAX, |room| 1 + room / width)))
        }
    }
}

impl StringPlan {
    /// The bounds under which a thread may enter at the instruction; several for several ways.
    pub(crate) fn entries(&self) -> Vec<Vec<Bound>> {
        match self {
            Self::Direct(_) => vec![Vec::new()],
            Self::Guarded(ways) => ways.iter().map(|way| way.when.bounds.clone()).collect(),
            Self::Parts(bounds, _) => vec![bounds.clone()],
        }
    }

    /// Whether it needs no comparison.
    pub(crate) const fn is_direct(&self) -> bool {
        matches!(self, Self::Direct(_))
    }
}

/// The string instruction's memory where the thread is on its way through a round, if it is on the
/// page: for what is foreseen.
pub(crate) fn foreseen(
    moved: &MovedPage,
    operation: &StringOperation,
    i: &Instruction,
    state: &State,
) -> Option<Seen> {
    let get = |register: Register| state[register.index()].and_then(Values::only);
    let used = |register: Register, uses: bool| if uses { get(register) } else { Some(0) };
    let seen = Seen {
        ip: sunder_access::CodeAddress(i.ip()),
        base: used(DESTINATION, operation.destination)?,
        index: used(SOURCE, operation.source)?,
        count: used(COUNT, operation.repeated)?.max(u64::from(!operation.repeated)),
    };
    let moves = operation.uses().any(|register| {
        let address = value(&seen, register);
        matches!(
            moved.relocation(address, operation.width),
            Relocation::In(_)
        )
    });
    (moves && seen.count > 0).then_some(seen)
}
