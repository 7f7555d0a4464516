//! Instructions for which two of our former answers differed, or all were wrong. The decoder,
//! the analysis of types, the rewriter, the emulator's plugin and the watcher each had an
//! answer of their own then. Each case has the bytes, the right answer, and which of them was
//! wrong. The right answers were checked on the processor (`processor.rs`).

use iced_x86::{Decoder, DecoderOptions, Instruction, RflagsBits};
use sunder_x86::register::{RAX, RBP, RCX, RSP};
use sunder_x86::{
    Access, Action, Certainty, Control, Does, Flags, Manual, Reach, Role, Rule, Source, Value,
    step_of_stack, values,
};

const AT: u64 = 0x1000;

fn decode(bytes: &[u8]) -> Instruction {
    Decoder::with_ip(64, bytes, AT, DecoderOptions::NONE).decode()
}

fn does(bytes: &[u8]) -> Does {
    Manual::new().does(&decode(bytes))
}

fn first(bytes: &[u8]) -> Option<Access> {
    does(bytes).accesses().next().copied()
}

fn value(bytes: &[u8]) -> Option<Value> {
    values(&decode(bytes), &does(bytes))[0]
}

const fn rule(register: u8, bits: u32, rule: Rule) -> Option<Value> {
    Some(Value {
        register,
        bits,
        rule,
    })
}

#[test]
fn instructions_that_only_name_an_address_access_no_memory() {
    for (name, bytes) in [
        ("lea rax,[rdi]", &[0x48, 0x8d, 0x07][..]),
        ("nop [rax]", &[0x0f, 0x1f, 0x00]),
        // The analysis of types reported an access.
        ("prefetcht0 [rdi]", &[0x0f, 0x18, 0x0f]),
        ("prefetchw [rdi]", &[0x0f, 0x0d, 0x0f]),
        // The watcher, the emulator's plugin and the rewriter reported a load.
        ("bndmov bnd0,[rbx]", &[0x66, 0x0f, 0x1a, 0x03]),
        // So did these and the analysis of types.
        ("ud1 eax,[rbx]", &[0x0f, 0xb9, 0x03]),
    ] {
        assert_eq!(first(bytes), None, "{name}");
    }
    // The watcher and the emulator's plugin reported a load. It faults like one.
    let clflush = first(&[0x0f, 0xae, 0x3b]).map(|access| access.action);
    assert_eq!(clflush, Some(Action::Flush));
}

#[test]
fn an_access_has_all_parts_of_its_address() {
    // The watcher and the analysis of types added all of rax.
    let xlatb = first(&[0xd7]).and_then(|a| a.place.index).map(|i| i.part);
    assert_eq!(xlatb.map(|p| (p.register, p.bits)), Some((RAX, 8)));
    // The watcher and the rewriter's search for stores took the operand's address for that of
    // the access.
    let bts = first(&[0x48, 0x0f, 0xab, 0x07]).map(|a| a.place.reach);
    assert_eq!(bts, Some(Reach::Bits(RAX)));
    // The rewriter treated it as unbounded; with a constant, the bit is within the operand.
    let by_constant = first(&[0x48, 0x0f, 0xba, 0x2f, 5]).map(|a| a.place.reach);
    assert_eq!(by_constant, Some(Reach::There));
    // The watcher did not truncate the sum; the rewriter and the decoder reported no address.
    let short = first(&[0x67, 0x88, 0x04, 0x0f]).map(|a| a.place);
    let sum = short.and_then(|p| p.address(|r| Some(if r == RCX { 0x8001 } else { 0xffff_ffff })));
    assert_eq!(sum, Some(0x8000));
    // The address of pop [rsp+8] is computed with rsp after the pop. The decoder left it out;
    // the analysis of types used rsp before the pop.
    let popped = first(&[0x8f, 0x44, 0x24, 0x08]).map(|a| a.place.displacement);
    assert_eq!(popped, Some(16));
}

#[test]
fn accesses_have_their_certainty() {
    // The watcher claimed all bytes of a masked store.
    let masked = first(&[0xc4, 0xe2, 0x71, 0x2e, 0x07]).map(|a| a.certainty);
    assert_eq!(masked, Some(Certainty::Masked));
    // The analysis of types overlooked a store through a register that is not an explicit
    // operand, and kept its knowledge of the frame.
    let stos = first(&[0xf3, 0x48, 0xab]).map(|a| (a.role, a.certainty, a.action));
    assert_eq!(
        stos,
        Some((Role::String, Certainty::Counted, Action::Write))
    );
    // A prefix that repeats nothing made the rewriter treat a call as unbounded.
    let bnd_call = first(&[0xf2, 0xe8, 0, 0, 0, 0]).map(|a| (a.role, a.certainty));
    assert_eq!(bnd_call, Some((Role::Stack, Certainty::Always)));
}

#[test]
fn the_stack_pointer_moves_as_the_processor_moves_it() {
    // The analysis of types lost rsp.
    assert_eq!(step_of_stack(&decode(&[0x9c])), Some(-8), "pushfq");
    // All assumed 8 bytes, or ignored the size.
    assert_eq!(step_of_stack(&decode(&[0x66, 0x50])), Some(-2), "push ax");
    assert_eq!(step_of_stack(&decode(&[0x66, 0x58])), Some(2), "pop ax");
    // The rewriter gave up here.
    assert_eq!(step_of_stack(&decode(&[0xc2, 8, 0])), Some(16), "ret 8");
    // The decoder and the rewriter only looked for changes of rsp by a constant, and the
    // watcher for none: here rsp gets the loaded value.
    assert_eq!(step_of_stack(&decode(&[0x5c])), None, "pop rsp");
    assert_eq!(step_of_stack(&decode(&[0x66, 0x5c])), None, "pop sp");
    // All took it for the 64-bit `leave`, which leaves rsp above rbp.
    assert_eq!(value(&[0x66, 0xc9]), None, "leave of 16 bits");
    let leave = rule(
        RSP,
        64,
        Rule::Add(Source::Register(RBP), Source::Constant(8)),
    );
    assert_eq!(value(&[0xc9]), leave);
}

#[test]
fn registers_get_the_values_that_the_processor_computes() {
    let own = Source::Register(RAX);
    let either = Rule::Either(own, Source::Register(RCX));
    // The rewriter only knew twelve of the sixteen conditions.
    assert_eq!(
        value(&[0x48, 0x0f, 0x4a, 0xc1]),
        rule(RAX, 64, either),
        "cmovp"
    );
    // The rewriter had a list of instructions that clear the upper half.
    let cleared = Rule::Low(Source::Unknown, 32);
    let popcnt = [0xf3, 0x0f, 0xb8, 0xc1];
    assert_eq!(value(&popcnt), rule(RAX, 32, cleared), "popcnt");
    // A scan writes nothing if no bit is set, so it must not be on such a list.
    assert_eq!(value(&[0x0f, 0xbc, 0xc1]), None, "bsf");
    // Without shadow stacks it writes nothing, although iced reports a write.
    let rdsspq = does(&[0xf3, 0x48, 0x0f, 0x1e, 0xc8]).registers;
    assert_eq!((rdsspq.written, rdsspq.replaced), (1 << RAX, 0));
    // The decoder and the rewriter gave up at an address of 32 bits.
    let lea = Rule::Address {
        base: Some(RCX),
        index: None,
        displacement: 4,
    };
    assert_eq!(value(&[0x67, 0x48, 0x8d, 0x41, 4]), rule(RAX, 32, lea));
    // The analysis of types took a shift count of 33 literally for 32-bit operands.
    let shl = Rule::Left(own, 1);
    assert_eq!(value(&[0xc1, 0xe0, 33]), rule(RAX, 32, shl));
    // The analysis of types and the search for numbers of kernel calls only knew `xor`.
    let zero = Rule::Copy(Source::Constant(0));
    assert_eq!(value(&[0x29, 0xc0]), rule(RAX, 32, zero), "sub eax,eax");
    // `imul al` writes all 16 bits of ax, and an exchange of al and ah both of its halves.
    assert_eq!(value(&[0xf6, 0xe8]), rule(RAX, 64, Rule::Part(16)));
    assert_eq!(value(&[0x86, 0xe0]), rule(RAX, 64, Rule::Part(16)));
}

#[test]
fn kernel_calls_change_three_registers() {
    // The analysis of types kept the call's number as its result.
    let syscall = does(&[0x0f, 0x05]);
    assert_eq!(syscall.registers.written, 0b1000_0000_0011);
    assert!(syscall.elsewhere);
    assert_eq!(Control::of(&decode(&[0x0f, 0x05])), Control::Kernel);
}

#[test]
fn flags_stay_where_the_count_may_be_zero() {
    let all = Flags::of(&decode(&[0x48, 0xd3, 0xe0]));
    assert_eq!(all.replaced, 0, "shl rax,cl");
    assert_ne!(all.changed, 0);
    // A rotation of a byte by nine bits through the carry flag changes nothing but the overflow
    // flag. The rewriter assumed that all flags are kept.
    let rcl = Flags::of(&decode(&[0xc0, 0xd0, 9]));
    assert_eq!(
        (rcl.changed, rcl.replaced),
        (RflagsBits::CF | RflagsBits::OF, 0)
    );
    // The rewriter assumed that flags are kept because of a prefix that repeats nothing.
    let add = Flags::of(&decode(&[0xf2, 0x48, 0x01, 0xc8]));
    assert_eq!(add.replaced, add.changed, "repne add rax,rcx");
}
