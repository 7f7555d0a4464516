//! Where control flow goes after an instruction.

use iced_x86::{Code, FlowControl, Instruction, OpKind};

/// Where control flow goes after an instruction that does not fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// To the next instruction.
    Next,
    /// To this address.
    Jump(u64),
    /// To this address or to the next instruction. Also the begin of a transaction (`xbegin`),
    /// which continues at the address if it is aborted.
    Branch(u64),
    /// To an address in a register or in memory.
    JumpThrough,
    /// To the function at this address, and then to the next instruction.
    Call(u64),
    /// To a function whose address is in a register or in memory, and then to the next
    /// instruction.
    CallThrough,
    /// To the return address of a call or of an interrupt.
    Return,
    /// To the kernel, and then to the next instruction.
    Kernel,
    /// Nowhere: the instruction always faults, or the bytes are not an instruction.
    Nowhere,
}

impl Control {
    /// Where control flow goes after `i`.
    #[must_use]
    pub fn of(i: &Instruction) -> Self {
        if i.is_invalid() {
            return Self::Nowhere;
        }
        let target = || {
            let near = matches!(
                i.op0_kind(),
                OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
            );
            (i.op_count() > 0 && near).then(|| i.near_branch_target())
        };
        match i.flow_control() {
            FlowControl::Next => Self::Next,
            FlowControl::UnconditionalBranch => target().map_or(Self::JumpThrough, Self::Jump),
            FlowControl::ConditionalBranch => target().map_or(Self::JumpThrough, Self::Branch),
            // `xabort` and `xend` have no target of their own: the transaction's begin has it.
            FlowControl::XbeginXabortXend => target().map_or(Self::Next, Self::Branch),
            FlowControl::IndirectBranch => Self::JumpThrough,
            FlowControl::Call if is_kernel_call(i) => Self::Kernel,
            FlowControl::Call => target().map_or(Self::CallThrough, Self::Call),
            FlowControl::IndirectCall => Self::CallThrough,
            FlowControl::Return => Self::Return,
            FlowControl::Interrupt => Self::Kernel,
            FlowControl::Exception => Self::Nowhere,
        }
    }

    /// The address in the instruction to which control may go.
    #[must_use]
    pub const fn target(self) -> Option<u64> {
        match self {
            Self::Jump(to) | Self::Branch(to) | Self::Call(to) => Some(to),
            _ => None,
        }
    }

    /// The same, without the targets of calls, which return.
    #[must_use]
    pub const fn jump_target(self) -> Option<u64> {
        match self {
            Self::Jump(to) | Self::Branch(to) => Some(to),
            _ => None,
        }
    }

    /// Whether the next instruction may be executed after this one, perhaps after a call
    /// returns.
    #[must_use]
    pub const fn goes_on(self) -> bool {
        matches!(
            self,
            Self::Next | Self::Branch(_) | Self::Call(_) | Self::CallThrough | Self::Kernel
        )
    }
}

/// The kernel calls among what iced classifies as calls.
fn is_kernel_call(i: &Instruction) -> bool {
    matches!(
        i.code(),
        Code::Syscall | Code::Sysenter | Code::Vmcall | Code::Vmmcall
    )
}
