// Prints a stack frame of `main` as frames.c does, without its CFA, for which Rust
// has no function.
use std::arch::global_asm;
use std::hint::black_box;

global_asm!(
    ".globl here",
    "here:",
    "mov rax, [rsp]",
    "mov [rdi], rax",
    "lea rax, [rsp + 8]",
    "mov [rdi + 8], rax",
    "mov [rdi + 16], rbp",
    "ret",
);

unsafe extern "C" {
    fn here(registers: *mut [u64; 3]);
}

struct Slot {
    hits: u64,
    tag: u64,
}

fn main() {
    let mut registers = [0u64; 3];
    let slots = [const { Slot { hits: 1, tag: 2 } }; 4];
    let slots = black_box(&slots);
    let totals = [1u64, 2, 3];
    let totals = black_box(&totals);
    unsafe { here(&mut registers) };
    let [ret, sp, bp] = registers;
    println!("frame main {ret:#x} {sp:#x} {bp:#x} 0x0");
    println!("at slots[2].hits {:p}", &slots[2].hits);
    println!("at slots[3].tag {:p}", &slots[3].tag);
    println!("at totals[1] {:p}", &totals[1]);
    print!("{}", std::fs::read_to_string("/proc/self/maps").expect("readable"));
}
