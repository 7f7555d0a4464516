//! Where control goes after an instruction.

use iced_x86::{Code, FlowControl, Instruction, OpKind};

/// Where control goes after an instruction, if it does not fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// To the next instruction.
    Next,
    /// To this address.
    Jump(u64),
    /// To this address or to the next instruction. The processor begins a transaction so
    /// too, which may end at the address.
    Branch(u64),
    /// To an address that a register or memory holds.
    JumpThrough,
    /// To the function at this address, and then to the next instruction.
    Call(u64),
    /// To a function whose address a register or memory holds, and then to the next
    /// instruction.
    CallThrough,
    /// To where a caller, or what was interrupted, goes on.
    Return,
    /// To the kernel, and then to the next instruction.
    Kernel,
    /// To nowhere: the instruction always faults, or is none.
    Nowhere,
}

impl Control {
    /// Where control goes after `i`.
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
            // `xabort` and `xend` go to where the transaction began.
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

    /// The address that the instruction names and control may go to.
    #[must_use]
    pub const fn target(self) -> Option<u64> {
        match self {
            Self::Jump(to) | Self::Branch(to) | Self::Call(to) => Some(to),
            _ => None,
        }
    }

    /// The same without calls, which come back.
    #[must_use]
    pub const fn jump_target(self) -> Option<u64> {
        match self {
            Self::Jump(to) | Self::Branch(to) => Some(to),
            _ => None,
        }
    }

    /// Whether the next instruction may be executed after it, perhaps after a call.
    #[must_use]
    pub const fn goes_on(self) -> bool {
        matches!(
            self,
            Self::Next | Self::Branch(_) | Self::Call(_) | Self::CallThrough | Self::Kernel
        )
    }
}

/// iced calls these calls.
fn is_kernel_call(i: &Instruction) -> bool {
    matches!(
        i.code(),
        Code::Syscall | Code::Sysenter | Code::Vmcall | Code::Vmmcall
    )
}
