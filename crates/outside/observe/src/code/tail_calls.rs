//! Which indirect jumps of a function are calls of other functions, made as the last thing that it does
//! ("tail calls"): virtual calls, callbacks, the release of a shared pointer. A compiler writes them
//! like the jumps of a `switch` whose table can't be read. Used by [`super::entries`]; in doubt a jump
//! is no tail call.
//!
//! A jump leads back into its own function only to an address that something has. So a jump is taken
//! for a tail call if it goes where memory or the caller said, not where the function has computed,
//! and neither the function's instructions nor the file's data have an address inside the function.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use std::ops::Range;

/// Follows the instructions of one function, in their order.
pub(super) struct TailCalls {
    function: Range<u64>,
    /// The registers, by number, whose value the block has loaded from memory.
    loaded: u16,
    /// Registers that some instruction of the function writes.
    written: u16,
    /// Jumps to an address that the block has loaded.
    found: usize,
    /// Jumps by each other register, which is an argument if nothing writes it.
    by: [usize; 16],
    /// Whether an instruction has an address inside the function as its operand.
    names_inside: bool,
    used: InstructionInfoFactory,
}

impl TailCalls {
    pub(super) fn new(function: Range<u64>) -> Self {
        Self {
            function,
            loaded: 0,
            written: 0,
            found: 0,
            by: [0; 16],
            names_inside: false,
            used: InstructionInfoFactory::new(),
        }
    }

    /// Counts an indirect jump if it goes where memory or the caller said. To be called before
    /// [`Self::follow`] with the same instruction.
    pub(super) fn count(&mut self, jump: &Instruction) {
        // With control-flow enforcement, compilers mark the jumps of a `switch` by this prefix.
        if jump.segment_prefix() == Register::DS {
            return;
        }
        match jump.op0_kind() {
            OpKind::Memory => self.found += usize::from(jump.memory_index() == Register::None),
            OpKind::Register if self.loaded & bit(jump.op0_register()) != 0 => self.found += 1,
            OpKind::Register => {
                if let Some(jumps) = self.by.get_mut(jump.op0_register().number()) {
                    *jumps += 1;
                }
            }
            _ => {}
        }
    }

    /// How many jumps were counted. To be called when the whole function was followed.
    pub(super) fn found(&self) -> usize {
        let all = self.by.iter().enumerate();
        let by_caller = all.filter(|&(register, _)| self.written >> register & 1 == 0);
        self.found + by_caller.map(|(_, jumps)| jumps).sum::<usize>()
    }

    /// Whether there are addresses inside the function to which a counted jump may lead. `held` are
    /// those that the file's data have, ascending.
    pub(super) fn may_come_back(&self, held: &[u64]) -> bool {
        let after_start = held.partition_point(|&address| address <= self.function.start);
        let inside = |address: &u64| self.function.contains(address);
        self.names_inside || held.get(after_start).is_some_and(inside)
    }

    pub(super) fn follow(&mut self, instruction: &Instruction) {
        self.names_inside |= self.has_address_inside(instruction);
        let source = self.source(instruction);
        for used in self.used.info(instruction).used_registers() {
            if !matches!(used.access(), OpAccess::Read | OpAccess::CondRead) {
                let written = bit(used.register());
                self.written |= written;
                self.loaded &= !written;
            }
        }
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => {
                if source {
                    self.loaded |= bit(instruction.op0_register());
                }
            }
            FlowControl::Call | FlowControl::IndirectCall => {
                self.written = u16::MAX;
                self.loaded = 0;
            }
            // What comes next is reached from elsewhere, with registers from there.
            _ => self.loaded = 0,
        }
    }

    /// Whether the instruction puts into a register what memory has at one place, or what a register
    /// has that was loaded so.
    fn source(&self, instruction: &Instruction) -> bool {
        if instruction.mnemonic() != Mnemonic::Mov || instruction.op0_kind() != OpKind::Register {
            return false;
        }
        match instruction.op1_kind() {
            OpKind::Memory => instruction.memory_index() == Register::None,
            OpKind::Register => self.loaded & bit(instruction.op1_register()) != 0,
            _ => false,
        }
    }

    fn has_address_inside(&self, instruction: &Instruction) -> bool {
        // A jump or call says by itself where it goes.
        if instruction.flow_control() != FlowControl::Next {
            return false;
        }
        let inside = |address: u64| address > self.function.start && address < self.function.end;
        (0..instruction.op_count()).any(|operand| match instruction.op_kind(operand) {
            OpKind::Memory => {
                instruction.memory_base() == Register::RIP
                    && inside(instruction.ip_rel_memory_address())
                    || inside(instruction.memory_displacement64())
            }
            OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
                inside(instruction.immediate(operand))
            }
            _ => false,
        })
    }
}

/// A general register's bit; 0 for others.
fn bit(register: Register) -> u16 {
    let full = register.full_register();
    if full.is_gpr64() {
        1 << full.number()
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::super::entries::jump_tables;
    use super::super::segments::{Data, Segment, Segments};

    /// Code at 0x1000, data at 0x2000.
    fn known(code: &[u8], words: &[u64]) -> bool {
        let mut bytes = code.to_vec();
        bytes.resize(0x100, 0xcc);
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let part = |address, file_offset, len, execute| Segment {
            address,
            file_offset,
            len,
            execute,
        };
        let all = vec![
            part(0x1000, 0, 0x100, true),
            part(0x2000, 0x100, 8 * words.len() as u64, false),
        ];
        let segments = Segments::new(Data::Memory(bytes), all);
        let held = segments.code_addresses().expect("the bytes are there");
        let mut entries = Vec::new();
        jump_tables(code, 0x1000, &segments, || Some(&held), &mut entries)
    }

    /// `mov rax, [rdi]`, `jmp [rax + 16]`: a virtual call.
    const VIRTUAL: [u8; 6] = [0x48, 0x8b, 0x07, 0xff, 0x60, 0x10];
    /// `mov rax, [rdi + 8]`, `test rax, rax`, `je +2`, `jmp rax`, `ret`.
    const CHECKED: [u8; 12] = [
        0x48, 0x8b, 0x47, 0x08, 0x48, 0x85, 0xc0, 0x74, 0x02, 0xff, 0xe0, 0xc3,
    ];

    #[test]
    fn virtual_calls_and_callbacks_lead_out_of_their_function() {
        // Addresses that are no code, of another function, and of this one's start.
        for words in [&[][..], &[7, 0x2000], &[0x1000, 0x1050]] {
            assert!(known(&VIRTUAL, words), "{words:?}");
            assert!(known(&CHECKED, words), "{words:?}");
        }
        // `add dword ptr [rsi], 1`, `jmp rdi`: the address is an argument.
        assert!(known(&[0x83, 0x06, 0x01, 0xff, 0xe7], &[]));
        // `mov r11, [rdi]`, `mov rax, r11`, `jmp rax`.
        assert!(known(
            &[0x4c, 0x8b, 0x1f, 0x4c, 0x89, 0xd8, 0xff, 0xe0],
            &[]
        ));
    }

    #[test]
    fn a_function_of_which_an_inner_address_is_held_may_be_entered_there() {
        assert!(!known(&VIRTUAL, &[0x2008, 0x1003]));
        assert!(!known(&CHECKED, &[0x100b]));
        // `lea rcx, [rip - 7]` of the function's own second instruction, before the virtual call.
        let mut own = vec![0x90, 0x48, 0x8d, 0x0d, 0xf9, 0xff, 0xff, 0xff];
        own.extend(VIRTUAL);
        assert!(!known(&own, &[]));
    }

    #[test]
    fn addresses_that_the_function_computes_may_lead_anywhere() {
        // `mov rax, [rdi]`, `add rax, rdx`, `jmp rax`.
        assert!(!known(
            &[0x48, 0x8b, 0x07, 0x48, 0x01, 0xd0, 0xff, 0xe0],
            &[]
        ));
        // `jmp [rax + rdx * 8]`, and `mov rax, [rax + rdx * 8]`, `jmp rax`.
        assert!(!known(&[0xff, 0x24, 0xd0], &[]));
        assert!(!known(&[0x48, 0x8b, 0x04, 0xd0, 0xff, 0xe0], &[]));
        // `mov rax, [rdi]`, `call rsi`, `jmp rax`: the result of the call.
        assert!(!known(&[0x48, 0x8b, 0x07, 0xff, 0xd6, 0xff, 0xe0], &[]));
        // `jmp rdi`, where a part that is reached later writes the register: `add rdi, rsi`, `jmp -7`.
        assert!(!known(&[0xff, 0xe7, 0x48, 0x01, 0xf7, 0xeb, 0xf9], &[]));
        // `mov rax, [rdi]`, `notrack jmp rax`: the compiler says that it is a `switch`.
        assert!(!known(&[0x48, 0x8b, 0x07, 0x3e, 0xff, 0xe0], &[]));
    }
}
