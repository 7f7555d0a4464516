//! The typed objects that the instructions of a function access: a forward data-flow analysis of
//! one function. Variables that the debug information has in registers and frame slots are followed
//! through moves, additions, spills and pointer loads, so that `mov rax,[rbp-8]; add qword
//! [rax+16],1` becomes "the field at offset 16 of the target of `args`". Called by
//! [`crate::names`]; pure except for look-ups of types and variables.
//!
//! An unknown result is better than a wrong one: where two paths into a block disagree, the value
//! is unknown.

mod effects;
mod takers;

pub(crate) use takers::{Argument, Call};

use crate::answer::Storage;
use crate::blocks::{Block, blocks};
use crate::die::StaticLocation;
use crate::image::Image;
use crate::locals::{Local, Location};
use crate::module::Debug;
use crate::types::{Shape, TypeId};
use crate::value::{NOWHERE, Origin, State, Touched, Value, gcd, unknown_of};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};
use std::collections::{HashMap, HashSet};
use sunder_access::LinkAddress;
use sunder_x86::{Action, Manual, Role};

const RAX: usize = 0;
const RCX: usize = 1;
const RSP: usize = 4;
const RBP: usize = 5;
const RSI: usize = 6;
const RDI: usize = 7;
/// Stands for no register in the name of an unknown.
const UNNAMED: usize = 15;
/// Executables that are not position-independent are linked above this.
const LOWEST_FIXED: i64 = 0x1_0000;
/// After this many visits the values of a block are given up.
const MAX_VISITS: u32 = 64;
/// The most instructions times variables of a function that is analysed; for larger functions
/// (generated code) it would take seconds, and their accesses stay untyped.
const MAX_WORK: usize = 200_000_000;
/// Names of chained pointers (`a->b->c`) are cut at this many bytes.
const MAX_NAME: usize = 60;

/// One function to be analysed.
pub(crate) struct Function<'a> {
    pub(crate) begin: u64,
    pub(crate) code: &'a [u8],
    pub(crate) locals: Vec<Local>,
    /// Addresses that the loader writes to pointers of the file, by the pointer's address.
    pub(crate) pointers: &'a HashMap<u64, u64>,
    /// Names of functions of other files, by the address of their pointer.
    pub(crate) imports: &'a HashMap<u64, String>,
    pub(crate) image: &'a Image,
    /// For executables, the distance from the start of their TLS block to the thread pointer.
    pub(crate) tls_size: Option<u64>,
    /// Whether the code is loaded at its link address, so that constants in it are addresses of
    /// variables.
    pub(crate) fixed: bool,
}

/// The accesses of all instructions of a function, and the names of origins.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) touched: HashMap<u64, Touched>,
    /// The types that results of calls point to, by the address after the call: known from the
    /// called function or from the variable that takes the result.
    pub(crate) results: HashMap<u64, TypeId>,
    /// The holders of these results, by the address after the call.
    pub(crate) calls: HashMap<u64, Call>,
    names: Vec<String>,
    /// The addresses of variables with static storage, by origin; `None` for a name that several
    /// have.
    statics: HashMap<u32, Option<u64>>,
}

impl Answers {
    /// The address of the variable with static storage that leads to the object, if it is only one.
    pub(crate) fn static_start(&self, origin: Origin) -> Option<u64> {
        self.statics.get(&origin.0).copied().flatten()
    }

    /// The name of the variable that leads to the object.
    pub(crate) fn name(&self, origin: Origin) -> Option<&str> {
        self.names
            .get(origin.0 as usize)
            .map(String::as_str)
            .filter(|n| !n.is_empty())
    }
}

/// Analyses `function`.
pub(crate) fn analyse(
    function: &Function<'_>,
    debug: &mut Debug,
    limits: &mut Vec<String>,
) -> Answers {
    let decoder = Decoder::with_ip(64, function.code, function.begin, DecoderOptions::NONE);
    let instructions: Vec<Instruction> = decoder.into_iter().collect();
    if instructions.len().saturating_mul(function.locals.len()) > MAX_WORK {
        return Answers::default();
    }
    let mut analysis = Analysis {
        function,
        debug,
        limits,
        manual: Manual::new(),
        answers: Answers::default(),
        returns: HashMap::new(),
        calls: HashMap::new(),
        noting: false,
    };
    let last_calls = analysis.last_calls(&instructions);
    let blocks = blocks(&instructions, &last_calls);
    let states = analysis.fixpoint(&instructions, &blocks);
    analysis.noting = true;
    for (block, state) in blocks.iter().zip(states) {
        let Some(mut state) = state else { continue };
        for instruction in &instructions[block.first..block.last] {
            analysis.learn(instruction.ip(), &mut state);
            if let Some(touched) = analysis.touched(instruction, &state) {
                analysis.answers.touched.insert(instruction.ip(), touched);
            }
            if instruction.flow_control() == FlowControl::Return {
                analysis.note_return(&state);
            }
            if analysis.is_tail_call(instruction) {
                analysis.note_call(instruction, &state);
            }
            analysis.execute(instruction, &mut state);
        }
        // Paths to one return may return different values, so they differ at the return.
        for end in block.next.iter().map(|&n| &blocks[n]) {
            analysis.note_way_out(&instructions[end.first..end.last], &state);
        }
    }
    analysis.answers
}

struct Analysis<'a> {
    function: &'a Function<'a>,
    debug: &'a mut Debug,
    limits: &'a mut Vec<String>,
    manual: Manual,
    answers: Answers,
    /// What called functions return, by their address.
    returns: HashMap<u64, Option<Value>>,
    /// Results of calls that are still unknown: the address after the call.
    calls: HashMap<u64, u64>,
    /// Whether the values are settled.
    noting: bool,
}

impl Analysis<'_> {
    /// The calls that never return. The instruction after such a call is reached from elsewhere,
    /// with other values.
    fn last_calls(&mut self, instructions: &[Instruction]) -> HashSet<u64> {
        let mut known: HashMap<u64, bool> = HashMap::new();
        let mut found = HashSet::new();
        for instruction in instructions {
            if instruction.is_ip_rel_memory_operand()
                && instruction.flow_control() == FlowControl::IndirectCall
                && self.is_last_import(instruction.ip_rel_memory_address())
            {
                found.insert(instruction.ip());
            }
            let Some(target) = self.call_target(instruction) else {
                continue;
            };
            let by_stub = self.stub(target);
            let (debug, limits) = (&mut *self.debug, &mut *self.limits);
            let last = *known
                .entry(target)
                .or_insert_with(|| by_stub || debug.never_returns(LinkAddress(target), limits));
            if last {
                found.insert(instruction.ip());
            }
        }
        found
    }

    /// Whether `target` is a linker's stub that jumps to a function of another file that never
    /// returns.
    fn stub(&self, target: u64) -> bool {
        /// A stub is at most a landing pad and a jump.
        const STUB_BYTES: u64 = 16;
        let code = self.function.image.bytes(LinkAddress(target), STUB_BYTES);
        let decoder = Decoder::with_ip(64, &code, target, DecoderOptions::NONE);
        let jump = decoder.into_iter().take(2).find(|i| {
            i.flow_control() == FlowControl::IndirectBranch && i.is_ip_rel_memory_operand()
        });
        jump.is_some_and(|jump| self.is_last_import(jump.ip_rel_memory_address()))
    }

    /// Whether the pointer at `place` leads to a function of another file that never returns,
    /// according to its documentation.
    fn is_last_import(&self, place: u64) -> bool {
        const LAST: [&str; 13] = [
            "abort",
            "exit",
            "_exit",
            "quick_exit",
            "pthread_exit",
            "longjmp",
            "siglongjmp",
            "__stack_chk_fail",
            "__assert_fail",
            "_Unwind_Resume",
            "_ZSt9terminatev",
            "__cxa_rethrow",
            "__chk_fail",
        ];
        self.function.imports.get(&place).is_some_and(|name| {
            LAST.contains(&name.as_str())
                || name.starts_with("__cxa_throw")
                || (name.starts_with("_ZSt") && name.contains("__throw_"))
        })
    }

    /// The function that `instruction` calls, directly or through the global
    /// offset table.
    fn call_target(&self, instruction: &Instruction) -> Option<u64> {
        match instruction.flow_control() {
            FlowControl::Call => Some(instruction.near_branch_target()),
            FlowControl::IndirectCall if instruction.is_ip_rel_memory_operand() => self
                .function
                .pointers
                .get(&instruction.ip_rel_memory_address())
                .copied(),
            _ => None,
        }
    }

    /// The state at the start of each block.
    fn fixpoint(&mut self, instructions: &[Instruction], blocks: &[Block]) -> Vec<Option<State>> {
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
    fn learn(&mut self, ip: u64, state: &mut State) {
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

    /// The value `new`, which describes the address `old` better, marked as the result of the
    /// same call.
    fn tagged(&self, new: Value, old: Value) -> Value {
        let call = match old {
            Value::Inside(old) => Some(old.call),
            _ => old.as_unknown().and_then(|u| self.calls.get(&u).copied()),
        };
        new.returned_before(call.unwrap_or(0))
    }

    /// Records that `value` points to a `ty`, if it is the result of a call.
    fn note_result(&mut self, value: Value, ty: TypeId) {
        let Some(&after) = value.as_unknown().and_then(|u| self.calls.get(&u)) else {
            return;
        };
        let known = self.answers.results.get(&after).copied();
        if known.is_none_or(|old| self.is_record(ty) && !self.is_record(old)) {
            self.answers.results.insert(after, ty);
        }
    }

    /// Whether the type of a variable is preferred to `old`. A value that was followed here is
    /// as good, unless it is less specific: the address of a plain number where the variable's
    /// type is a record.
    fn is_better(&self, new: &Touched, old: Value) -> bool {
        match old {
            Value::Number(n) => !n.is_constant(),
            Value::Frame(_) => false,
            Value::Inside(old) if old.ty == new.ty => {
                old.origin == NOWHERE && old.modulo >= new.modulo
            }
            Value::Inside(old) => self.is_record(new.ty) && !self.is_record(old.ty),
        }
    }

    /// The address of an object of type `ty` that `name` leads to.
    fn start_of(&mut self, ty: TypeId, name: &str, storage: Storage) -> Value {
        let origin = self.origin(name);
        Value::Inside(Touched {
            ty,
            offset: 0,
            modulo: 0,
            storage,
            origin,
            call: 0,
        })
    }

    /// The value of a register that holds the pointer `local` minus `sum`.
    fn pointer_in(&mut self, local: &Local, sum: i64) -> Option<Value> {
        let leaf = self.debug.types.leaf(local.ty, local.piece)?;
        let target = self.debug.types.pointee(&mut self.debug.info, leaf)?;
        let start = self.start_of(target, local.name, Storage::Pointer);
        Some(start.plus(sum.wrapping_neg()))
    }

    fn is_record(&self, ty: TypeId) -> bool {
        let types = &self.debug.types;
        matches!(
            types.get(types.plain(ty)).map(|t| &t.shape),
            Some(Shape::Record { .. })
        )
    }

    fn origin(&mut self, name: &str) -> Origin {
        if name.is_empty() {
            return NOWHERE;
        }
        let names = &mut self.answers.names;
        let at = names.iter().position(|n| n == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        Origin(at as u32)
    }

    /// The typed object that the explicit memory operand of `instruction` accesses.
    fn touched(&mut self, instruction: &Instruction, state: &State) -> Option<Touched> {
        let does = self.manual.does(instruction);
        let mut accesses = does.accesses().filter(|a| a.action != Action::Flush);
        let address = accesses.find_map(|access| match (access.role, access.place.base) {
            (Role::Operand, _) => {
                let sum = self.sum(instruction, access.place.displacement, state);
                Some(self.in_segment(instruction, sum))
            }
            (Role::String, Some(base)) => Some(state.registers[usize::from(base.register)]),
            _ => None,
        })?;
        match address {
            // An access of more than a byte through a pointer to bytes is to raw memory of another
            // type.
            Value::Inside(touched)
                if instruction.memory_size().size() > 1
                    && self.debug.types.size(touched.ty) == Some(1) =>
            {
                None
            }
            Value::Inside(touched) => Some(touched),
            Value::Frame(offset) => self.frame_variable(offset, instruction.ip(), state),
            Value::Number(_) => None,
        }
    }

    /// The local variable at `offset` from the frame address.
    fn frame_variable(&mut self, offset: i64, ip: u64, state: &State) -> Option<Touched> {
        let function = self.function;
        let types = &self.debug.types;
        let (local, at) = function.locals_at(ip).find_map(|l| {
            let start = match l.place {
                Location::Frame(start) => start,
                Location::Memory(r, more) => match state.registers[r] {
                    Value::Frame(base) => base.wrapping_add(more),
                    _ => return None,
                },
                _ => return None,
            };
            let at = offset.checked_sub(start)?.checked_add(l.piece as i64)?;
            let size = i64::try_from(types.size(l.ty)?).ok()?;
            (at >= l.piece as i64 && at < size).then_some((l, at))
        })?;
        match self.start_of(local.ty, local.name, Storage::Frame).plus(at) {
            Value::Inside(touched) => Some(touched),
            _ => None,
        }
    }

    /// The address of the memory operand.
    fn address(&mut self, instruction: &Instruction, state: &State) -> Value {
        let sum = self.sum(instruction, instruction.memory_displacement64(), state);
        self.in_segment(instruction, sum)
    }

    /// The address for a sum of registers and displacement, in the operand's segment.
    fn in_segment(&mut self, instruction: &Instruction, sum: Value) -> Value {
        match instruction.memory_segment() {
            _ if instruction.is_ip_rel_memory_operand() => sum,
            Register::FS => self.thread_local(sum),
            Register::GS => Value::unknown(unknown_of(instruction.ip(), UNNAMED)),
            _ => sum,
        }
    }

    /// The sum of the memory operand's registers and the displacement. `lea` computes the same,
    /// as it ignores segments.
    fn sum(&mut self, instruction: &Instruction, displacement: u64, state: &State) -> Value {
        let ip = instruction.ip();
        if instruction.is_ip_rel_memory_operand() {
            let address = instruction.ip_rel_memory_address();
            let found = self.variable(StaticLocation::Address(address), address);
            return found.unwrap_or(Value::constant(address as i64));
        }
        let unknown = unknown_of(ip, UNNAMED);
        let part = |register: Register| match number(register) {
            // `xlatb` adds the lowest byte.
            Some(_) if register.is_gpr8() => Value::unknown(unknown),
            Some(r) => state.registers[r],
            None => Value::constant(0),
        };
        let scale = i64::from(instruction.memory_index_scale());
        let index = part(instruction.memory_index()).times(scale, unknown);
        let base = part(instruction.memory_base()).plus(displacement as i64);
        match instruction.memory_segment() {
            Register::FS if instruction.mnemonic() != Mnemonic::Lea => base.add(index, unknown),
            _ => self.total(base, index, ip, state),
        }
    }

    /// The sum of two values, and the variable that it lies in if it is a fixed
    /// address or a place in an array of the frame.
    fn total(&mut self, a: Value, b: Value, ip: u64, state: &State) -> Value {
        let unknown = unknown_of(ip, UNNAMED);
        if let (Value::Frame(at), Value::Number(n)) | (Value::Number(n), Value::Frame(at)) = (a, b)
            && n.factor != 0
        {
            return match self.frame_variable(at.wrapping_add(n.plus), ip, state) {
                Some(touched) => Value::Inside(Touched {
                    modulo: gcd(touched.modulo, n.factor.unsigned_abs()),
                    ..touched
                }),
                None => Value::unknown(unknown),
            };
        }
        let sum = a.add(b, unknown);
        match sum {
            Value::Number(n) if self.function.fixed && n.plus >= LOWEST_FIXED => {
                let found = self.variable(StaticLocation::Address(n.plus as u64), n.plus as u64);
                match found {
                    Some(Value::Inside(t)) => Value::Inside(Touched {
                        modulo: n.factor.unsigned_abs(),
                        ..t
                    }),
                    _ => sum,
                }
            }
            _ => sum,
        }
    }

    /// The variable of the executable at a distance from the thread pointer.
    fn thread_local(&mut self, distance: Value) -> Value {
        let (Value::Number(n), Some(size)) = (distance, self.function.tls_size) else {
            return distance;
        };
        let offset = size.wrapping_add_signed(n.plus);
        match self.variable(StaticLocation::Tls(offset), offset) {
            Some(Value::Inside(t)) => Value::Inside(Touched {
                modulo: n.factor.unsigned_abs(),
                ..t
            }),
            _ => distance,
        }
    }

    fn variable(&mut self, place: StaticLocation, at: u64) -> Option<Value> {
        let variable = self.debug.variable(place, self.limits)?;
        let start = self.start_of(variable.ty, &variable.name, Storage::Global);
        if let (Value::Inside(touched), StaticLocation::Address(_)) = (start, place) {
            let known = self.answers.statics.entry(touched.origin.0);
            let known = known.or_insert(Some(variable.start));
            *known = known.filter(|&start| start == variable.start);
        }
        Some(start.plus((at - variable.start) as i64))
    }

    /// The 8 bytes at `address`, if they are a pointer.
    fn load(&mut self, address: Value, ip: u64, state: &State) -> Option<Value> {
        match address {
            Value::Inside(touched) => self.follow(&touched),
            Value::Frame(offset) => {
                if let Some(indirect) = self.indirect(offset, ip) {
                    return Some(indirect);
                }
                let typed = self
                    .frame_variable(offset, ip, state)
                    .and_then(|t| self.follow(&t));
                match (typed, state.slots.get(&offset).copied()) {
                    (Some(typed), Some(held)) => Some(self.tagged(typed, held)),
                    (typed, held) => typed.or(held),
                }
            }
            Value::Number(_) => None,
        }
    }

    /// The address of a variable passed by reference, which a frame slot holds.
    fn indirect(&mut self, offset: i64, ip: u64) -> Option<Value> {
        let function = self.function;
        let local = function
            .locals_at(ip)
            .find(|l| l.place == Location::FrameIndirect(offset))?;
        Some(self.start_of(local.ty, local.name, Storage::Pointer))
    }

    /// The target of the pointer at `touched`.
    fn follow(&mut self, touched: &Touched) -> Option<Value> {
        let types = &self.debug.types;
        let offset = types.known_offset(touched.ty, touched.offset, touched.modulo)?;
        let leaf = types.leaf(touched.ty, offset)?;
        let target = self.debug.types.pointee(&mut self.debug.info, leaf)?;
        let field = crate::path::path(&self.debug.types, touched.ty, offset, touched.modulo == 0);
        let name = self.chained(touched, &field);
        Some(self.start_of(target, &name, Storage::Pointer))
    }

    /// The name of a chain of pointers: `n` and `.next` give `n->next` through a pointer, else
    /// `n.next`.
    fn chained(&self, touched: &Touched, field: &str) -> String {
        let variable = self.answers.name(touched.origin).unwrap_or("");
        let name = match (touched.storage, field.strip_prefix('.')) {
            (_, Some(field)) if variable.is_empty() => field.to_owned(),
            (Storage::Pointer, Some(field)) => format!("{variable}->{field}"),
            _ => format!("{variable}{field}"),
        };
        // The name of a list that is walked by its links would grow without bound.
        if name.len() > MAX_NAME {
            field.trim_start_matches('.').to_owned()
        } else {
            name
        }
    }
}

impl Function<'_> {
    fn locals_at(&self, ip: u64) -> impl Iterator<Item = &Local> {
        self.locals
            .iter()
            .filter(move |l| l.begin <= ip && ip < l.end)
    }
}

/// Whether a block has no effect: it fills the space before an aligned one.
fn is_padding(block: &[Instruction]) -> bool {
    block
        .iter()
        .all(|i| matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3))
}

/// The encoding number of a general register of any width.
fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}
