//! The registers of an interrupted thread, in its signal context. Contexts: signal.

use core::ffi::c_int;

/// General registers by number.
pub type General = [u64; 16];

/// The indices of the general registers in a context, in the order of their numbers.
const INDICES: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// The instruction pointer.
pub fn ip(state: &libc::ucontext_t) -> u64 {
    state
        .uc_mcontext
        .gregs
        .get(libc::REG_RIP as usize)
        .map_or(0, |&ip| ip as u64)
}

/// Sets the instruction pointer.
pub fn set_ip(state: &mut libc::ucontext_t, to: u64) {
    if let Some(ip) = state.uc_mcontext.gregs.get_mut(libc::REG_RIP as usize) {
        *ip = to as i64;
    }
}

/// The general registers.
pub fn general(state: &libc::ucontext_t) -> General {
    INDICES.map(|index| {
        let value = state.uc_mcontext.gregs.get(index as usize);
        value.map_or(0, |&v| v as u64)
    })
}

/// Sets the general registers.
pub fn set_general(state: &mut libc::ucontext_t, general: &General) {
    for (&index, &value) in INDICES.iter().zip(general) {
        if let Some(register) = state.uc_mcontext.gregs.get_mut(index as usize) {
            *register = value as i64;
        }
    }
}

/// Whether the thread's string instructions go downwards.
pub fn goes_downwards(state: &libc::ucontext_t) -> bool {
    const DIRECTION: i64 = 0x400;
    let flags = state.uc_mcontext.gregs.get(libc::REG_EFL as usize);
    flags.is_some_and(|flags| flags & DIRECTION != 0)
}

/// The stack pointer.
pub fn stack_pointer(state: &libc::ucontext_t) -> u64 {
    let [_, _, _, _, pointer, ..] = general(state);
    pointer
}
