//! Traps written by hand: code bytes, registers after the access, expected access.

use super::*;

/// Code at 0x1000 whose start is a boundary or not.
struct Fixed {
    bytes: Vec<u8>,
    boundary: bool,
}

impl CodeBefore for Fixed {
    fn code_before(&mut self, _: CodeAddress) -> Option<Code> {
        Some(Code {
            start: CodeAddress(0x1000),
            bytes: self.bytes.clone(),
            boundary: self.boundary,
        })
    }
}

const RAX: usize = 0;
const RCX: usize = 1;
const RSP: usize = 4;
const RSI: usize = 6;
const RDI: usize = 7;

fn decoded(
    bytes: &[u8],
    boundary: bool,
    ip: u64,
    word: u64,
    registers: &[(usize, u64)],
) -> Option<TrappedAccess> {
    let mut general = [0; 16];
    for &(number, value) in registers {
        general[number] = value;
    }
    let mut decoder = CodeDecoder::new(Fixed {
        bytes: bytes.to_vec(),
        boundary,
    });
    decoder.access_before(&Trap {
        thread: ThreadId(1),
        registers: Registers {
            general,
            ip: CodeAddress(ip),
        },
        word: Address(word),
    })
}

fn access(at: u64, address: u64, width: u8, kind: Kind, exact: bool) -> Option<TrappedAccess> {
    Some(TrappedAccess {
        instruction: CodeAddress(at),
        address: Address(address),
        width,
        kind,
        exact,
    })
}

#[test]
fn the_instruction_is_the_one_that_ends_at_the_instruction_pointer() {
    // xor eax,eax; mov [rdi+4],ecx; add qword [rdi+8],1; nop
    let code = [
        0x31, 0xc0, 0x89, 0x4f, 0x04, 0x48, 0x83, 0x47, 0x08, 0x01, 0x90,
    ];
    let registers = [(RDI, 0x8000)];
    assert_eq!(
        decoded(&code, true, 0x1005, 0x8000, &registers),
        access(0x1002, 0x8004, 4, Kind::Write, true)
    );
    assert_eq!(
        decoded(&code, true, 0x100a, 0x8008, &registers),
        access(0x1005, 0x8008, 8, Kind::Update, true)
    );
}

#[test]
fn locked_instructions_and_xchg_are_atomic() {
    // lock xadd [rdi],rax; xchg [rdi],rcx
    let code = [0xf0, 0x48, 0x0f, 0xc1, 0x07, 0x48, 0x87, 0x0f];
    let registers = [(RDI, 0x8000), (RAX, 5), (RCX, 6)];
    assert_eq!(
        decoded(&code, true, 0x1005, 0x8000, &registers),
        access(0x1000, 0x8000, 8, Kind::Atomic, true)
    );
    assert_eq!(
        decoded(&code, true, 0x1008, 0x8000, &registers),
        access(0x1005, 0x8000, 8, Kind::Atomic, true)
    );
}

#[test]
fn a_base_that_was_overwritten_leaves_the_word_and_the_offset() {
    // mov eax,[rax+4]: rax is overwritten by the loaded value.
    let code = [0x8b, 0x40, 0x04];
    assert_eq!(
        decoded(&code, true, 0x1003, 0x8000, &[(RAX, 0xdead)]),
        access(0x1000, 0x8004, 4, Kind::Read, false)
    );
    // mov rax,[rax]: the operand fills the word, so its position is certain.
    let code = [0x48, 0x8b, 0x00];
    assert_eq!(
        decoded(&code, true, 0x1003, 0x8000, &[(RAX, 0xdead)]),
        access(0x1000, 0x8000, 8, Kind::Read, false)
    );
    // mov eax,[rax+rcx*4+8]: rcx is still 1, so the offset is 12.
    let code = [0x8b, 0x44, 0x88, 0x08];
    assert_eq!(
        decoded(&code, true, 0x1004, 0x8008, &[(RAX, 0xdead), (RCX, 1)]),
        access(0x1000, 0x800c, 4, Kind::Read, false)
    );
}

#[test]
fn thread_local_operands_have_an_unknown_base() {
    // add dword fs:[0xfffffffffffffffc],1
    let code = [0x64, 0x83, 0x04, 0x25, 0xfc, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(
        decoded(&code, true, 0x1009, 0x7ff8, &[]),
        access(0x1000, 0x7ffc, 4, Kind::Update, false)
    );
}

#[test]
fn operands_relative_to_the_instruction_are_exact() {
    // mov [rip+0x100],eax at 0x1000, 6 bytes long: 0x1106.
    let code = [0x89, 0x05, 0x00, 0x01, 0x00, 0x00];
    assert_eq!(
        decoded(&code, true, 0x1006, 0x1100, &[]),
        access(0x1000, 0x1106, 4, Kind::Write, true)
    );
}

#[test]
fn pushes_and_string_instructions_are_undone() {
    // push rax: the stack pointer is now on the word.
    assert_eq!(
        decoded(&[0x50], true, 0x1001, 0x7000, &[(RSP, 0x7000)]),
        access(0x1000, 0x7000, 8, Kind::Write, true)
    );
    // pop rax
    assert_eq!(
        decoded(&[0x58], true, 0x1001, 0x7000, &[(RSP, 0x7008)]),
        access(0x1000, 0x7000, 8, Kind::Read, true)
    );
    // stosd
    assert_eq!(
        decoded(&[0xab], true, 0x1001, 0x8000, &[(RDI, 0x8008)]),
        access(0x1000, 0x8004, 4, Kind::Write, true)
    );
    // rep movsq with the instruction pointer still on it: the store was to
    // 0x8000, the load from 0x9000.
    let code = [0xf3, 0x48, 0xa5, 0x90];
    let registers = [(RDI, 0x8008), (RSI, 0x9008), (RCX, 3)];
    assert_eq!(
        decoded(&code, true, 0x1000, 0x8000, &registers),
        access(0x1000, 0x8000, 8, Kind::Write, true)
    );
    assert_eq!(
        decoded(&code, true, 0x1000, 0x9000, &registers),
        access(0x1000, 0x9000, 8, Kind::Read, true)
    );
}

#[test]
fn without_a_boundary_only_an_exact_operand_convinces() {
    // ... mov rcx,[rdi]: also `mov ecx,[rdi]` without its first byte; the
    // longer one is taken.
    let code = [0x48, 0x8b, 0x0f];
    assert_eq!(
        decoded(&code, false, 0x1003, 0x8000, &[(RDI, 0x8000)]),
        access(0x1000, 0x8000, 8, Kind::Read, true)
    );
    // mov rax,[rax] would be a guess based on a guess.
    let code = [0x48, 0x8b, 0x00];
    assert_eq!(decoded(&code, false, 0x1003, 0x8000, &[(RAX, 1)]), None);
}

#[test]
fn accesses_to_other_words_are_not_taken_for_the_trap() {
    // mov [rdi],eax with rdi elsewhere: the instruction that trapped jumped here.
    let code = [0x89, 0x07];
    assert_eq!(decoded(&code, true, 0x1002, 0x8000, &[(RDI, 0x9000)]), None);
    // jmp [rdi] cannot end here.
    let code = [0xff, 0x27];
    assert_eq!(decoded(&code, true, 0x1002, 0x8000, &[(RDI, 0x8000)]), None);
    // The instruction pointer before the code, and far after it.
    assert_eq!(decoded(&[0x50], true, 0xfff, 0x8000, &[]), None);
    assert_eq!(decoded(&[0x50], true, 0x2000, 0x8000, &[]), None);
}

#[test]
fn an_access_over_a_border_is_found_from_both_words() {
    // mov [rdi],rax at 0x8004: 4 bytes in either word.
    let code = [0x48, 0x89, 0x07];
    for word in [0x8000, 0x8008] {
        assert_eq!(
            decoded(&code, true, 0x1003, word, &[(RDI, 0x8004)]),
            access(0x1000, 0x8004, 8, Kind::Write, true)
        );
    }
}

#[test]
fn code_comes_from_the_function_of_the_byte_before() {
    use crate::CodeRange;
    use std::sync::Arc;

    /// Two functions next to each other: one ends at 0x1002 with a store, the
    /// other begins there.
    struct Two(Vec<Arc<CodeRange>>);
    impl CodeSource for Two {
        fn function(&mut self, process: ProcessId, at: CodeAddress) -> Option<Arc<CodeRange>> {
            assert_eq!(process, ProcessId(7));
            let holds = |range: &&Arc<CodeRange>| {
                (range.start.0..range.start.0 + range.bytes.len() as u64).contains(&at.0)
            };
            self.0.iter().find(holds).cloned()
        }
    }
    // mov [rdi],eax | ret
    let mut source = Two(vec![
        Arc::new(CodeRange::new(CodeAddress(0x1000), vec![0x89, 0x07], true)),
        Arc::new(CodeRange::new(CodeAddress(0x1002), vec![0xc3], true)),
    ]);
    let mut decoder = CodeDecoder::new(ProcessCode {
        process: ProcessId(7),
        source: &mut source,
    });
    let mut registers = Registers {
        ip: CodeAddress(0x1002),
        ..Registers::default()
    };
    registers.general[RDI] = 0x8000;
    let found = decoder.access_before(&Trap {
        thread: ThreadId(1),
        registers,
        word: Address(0x8000),
    });
    assert_eq!(found, access(0x1000, 0x8000, 4, Kind::Write, true));
}

/// Each was answered wrongly here while this module had an answer of its own.
#[test]
fn operand_addresses_follow_the_processors_rules() {
    // xlatb adds the lowest byte of rax, not all of it; rax has another one behind it.
    assert_eq!(
        decoded(&[0xd7], true, 0x1001, 0x8000, &[(3, 0x8000), (RAX, 0x55)]),
        access(0x1000, 0x8000, 1, Kind::Read, false)
    );
    // bts [rdi],rax reaches the word that the bit's number says: 0x8008 for 70.
    let code = [0x48, 0x0f, 0xab, 0x07];
    assert_eq!(
        decoded(&code, true, 0x1004, 0x8008, &[(RDI, 0x8000), (RAX, 70)]),
        access(0x1000, 0x8008, 8, Kind::Update, false)
    );
    // mov [edi+ecx],al: the sum is cut off to 32 bits.
    let code = [0x67, 0x88, 0x04, 0x0f];
    let registers = [(RDI, 0xffff_ffff), (RCX, 0x8001)];
    assert_eq!(
        decoded(&code, true, 0x1004, 0x8000, &registers),
        access(0x1000, 0x8000, 1, Kind::Write, true)
    );
    // pop rsp leaves what it loaded, from which nothing follows.
    assert_eq!(
        decoded(&[0x5c], true, 0x1001, 0x7000, &[(RSP, 0x7008)]),
        access(0x1000, 0x7000, 8, Kind::Read, false)
    );
    // vmaskmovps [rdi],xmm1,xmm0 writes what the mask says. Some processors trap at what the mask cuts
    // off, so only the first word counts.
    let code = [0xc4, 0xe2, 0x71, 0x2e, 0x07];
    assert_eq!(
        decoded(&code, true, 0x1005, 0x8000, &[(RDI, 0x8000)]),
        access(0x1000, 0x8000, 8, Kind::Write, false)
    );
    assert_eq!(decoded(&code, true, 0x1005, 0x8008, &[(RDI, 0x8000)]), None);
    // From the middle of a word on, up to its end.
    assert_eq!(
        decoded(&code, true, 0x1005, 0x8000, &[(RDI, 0x8004)]),
        access(0x1000, 0x8004, 4, Kind::Write, false)
    );
}
