//! String instructions: copies as text, and random ones executed by the processor, unchanged and with
//! a moved page that is divided at random. Registers, flags and memory must be the same.

use crate::differential::machine::{Conduct, Groups, compare_divided};
use crate::differential::program::{GROUP, GROUP_BYTES, LEAF, POOL, around};
use crate::support::{TEXT, ask, assemble, moved, registers_at, text};
use proptest::prelude::*;
use sunder_access::CodeAddress;
use sunder_rewrite::{Refusal, specialise, specialise_alone};

/// The instructions, with the bytes of an element.
const OPERATIONS: [(&str, i64); 20] = [
    ("movsb", 1),
    ("movsw", 2),
    ("movsd", 4),
    ("movsq", 8),
    ("stosb", 1),
    ("stosw", 2),
    ("stosd", 4),
    ("stosq", 8),
    ("lodsb", 1),
    ("lodsw", 2),
    ("lodsd", 4),
    ("lodsq", 8),
    ("cmpsb", 1),
    ("cmpsw", 2),
    ("cmpsd", 4),
    ("cmpsq", 8),
    ("scasb", 1),
    ("scasw", 2),
    ("scasd", 4),
    ("scasq", 8),
];

/// One string instruction of a loop, with what it is given.
#[derive(Clone, Debug)]
struct Use {
    operation: usize,
    repeated: usize,
    downwards: bool,
    /// From the page's start; the page's neighbours belong to the run too.
    to: i64,
    from: i64,
    /// Whether the source is not near the page.
    far: bool,
    count: i64,
    /// Whether the operands are loaded from memory in each round.
    loaded: bool,
    /// Whether flags live across it, or those that it leaves are used.
    flags: bool,
}

fn uses() -> impl Strategy<Value = Use> {
    let place = || {
        prop_oneof![
            8 => 0x20i64..0x140,
            2 => -0x40i64..0x40,
            1 => 0xfc0i64..0x1040,
        ]
    };
    let count = prop_oneof![6 => 0i64..10, 2 => 0i64..80, 1 => 0i64..700];
    let kind = (0..OPERATIONS.len(), 0usize..3, prop::bool::weighted(0.2));
    let rest = (
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.4),
        prop::bool::ANY,
    );
    (kind, place(), place(), count, rest).prop_map(|(kind, to, from, count, rest)| Use {
        operation: kind.0,
        repeated: kind.1,
        downwards: kind.2,
        to,
        from,
        far: rest.0,
        count,
        loaded: rest.1,
        flags: rest.2,
    })
}

impl Use {
    fn text(&self, number: usize) -> String {
        let (name, width) = OPERATIONS[self.operation];
        let prefix = match (&name[..4], self.repeated) {
            (_, 0) => "",
            ("cmps" | "scas", 1) => "repe ",
            ("cmps" | "scas", _) => "repne ",
            _ => "rep ",
        };
        // Downwards the last element comes first, so that the same bytes are used.
        let last = if self.downwards {
            (self.count - 1).max(0) * width
        } else {
            0
        };
        let (to, from) = (self.to + last, self.from + last);
        let source = if self.far { "rbx" } else { "page" };
        let slot = 8 * (3 * number as i64 + 1);
        let mut text = match self.far {
            true => format!("lea rsi, [rbx+{from}+0x800]\n"),
            false => format!("lea rsi, [rip+{source}+{from}]\n"),
        };
        text += &format!("lea rdi, [rip+page+{to}]\nmov ecx, {}\n", self.count);
        if self.loaded {
            let at = |n: i64| 0x800 + slot + 8 * n;
            for (n, register) in ["rsi", "rdi", "rcx"].iter().enumerate() {
                text += &format!("mov [rbp+{}], {register}\n", at(n as i64));
            }
            for (n, register) in ["rsi", "rdi", "rcx"].iter().enumerate() {
                text += &format!("mov {register}, [rbp+{}]\n", at(n as i64));
            }
        }
        if self.downwards {
            text += "std\n";
        }
        text += &format!("{prefix}{name}\n");
        if self.downwards {
            text += "cld\n";
        }
        if !self.flags {
            return text;
        }
        // The flags that it leaves, or that it must have kept.
        text + "setc r8b\n setz r9b\n add r10, r8\n add r10, r9\n add rax, r10\n"
    }
}

/// Groups of random lengths at random distances, each with a distance of its own.
fn groups() -> impl Strategy<Value = Groups> {
    prop::collection::vec((0u64..6, 1u64..10, 0u64..8), 1..9).prop_map(|all| {
        let mut at = 0x20;
        let mut groups = Groups::new();
        for (number, (gap, len, odd)) in all.into_iter().enumerate() {
            // Most groups begin at words, as variables do.
            at += 8 * gap + if odd == 0 { 3 } else { 0 };
            let len = 8 * len + if odd == 1 { 5 } else { 0 };
            groups.push((at, len, POOL + 0x3000 * number as u64 + at));
            at += len;
        }
        groups
    })
}

fn source(uses: &[Use], rounds: u32) -> String {
    let mut text = format!("mov r15, {rounds}\n lea rbx, [rsi]\n.Lagain:\n");
    for (number, one) in uses.iter().enumerate() {
        text += &one.text(number);
    }
    around(&format!("{text}sub r15, 1\n jnz .Lagain\n jmp .Lend\n"))
}

fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(160)
}

const fn conduct(thrown: Option<(u64, u32)>) -> Conduct {
    Conduct {
        goes_back: true,
        thrown,
        is_far: false,
        compares_all: false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn string_instructions_have_the_same_result(all in prop::collection::vec(uses(), 1..4), groups in groups(), rounds in 1u32..5) {
        if compare_divided(&source(&all, rounds), LEAF, groups, conduct(None)).is_none() {
            println!("SKIP: there is no assembler");
        }
    }

    /// A thread that a signal stops anywhere in a copy does the rest in the original.
    #[test]
    fn string_instructions_that_are_interrupted_have_the_same_result(all in prop::collection::vec(uses(), 1..3), groups in groups(), each in 1u64..9) {
        if compare_divided(&source(&all, 3), LEAF, groups, conduct(Some((each, 40)))).is_none() {
            println!("SKIP: there is no assembler");
        }
    }
}

/// The shifts: the group moves by 0x101000, the rest of the page by 0x100000. rdi points to the
/// group, rsi next to the page.
#[test]
fn string_instructions_read_as_expected() {
    let moves = "lea rdi,[rdi+0x101000]|rep stosq|lea rdi,[rdi-0x101000]";
    for (what, source, at, wanted) in [
        (
            "all of it in the group, by facts",
            "1: mov rdi, r12\n mov ecx, 4\n rep stosq\n sub rdx, 1\n jne 1b\n ret",
            8,
            format!("mov rdi,r12|mov ecx,4|{moves}|sub rdx,1|jne 0x0000000000500000|jmp 0x0000000000400011"),
        ),
        (
            "a count that varies: as many as were seen, which leaves room for one address",
            "1: mov rdi, r12\n mov rcx, [rsi]\n rep stosq\n sub rdx, 1\n jne 1b\n ret",
            6,
            format!("mov rdi,r12|mov rcx,[rsi]|cmp rcx,4|ja 0x0000000000500028|{moves}|sub rdx,1|jne 0x0000000000500000|jmp 0x000000000040000f|rep stosq|jmp 0x000000000050001d"),
        ),
        (
            "one without a count",
            "1: mov rdi, r12\n stosd\n sub rdx, 1\n jne 1b\n ret",
            3,
            "mov rdi,r12|lea rdi,[rdi+0x101000]|stosd|lea rdi,[rdi-0x101000]|sub rdx,1|jne 0x0000000000500000|jmp 0x000000000040000a".into(),
        ),
        (
            "a copy onto itself: both move",
            "1: mov rdi, r12\n mov rsi, r12\n mov ecx, 2\n rep movsq\n sub rdx, 1\n jne 1b\n ret",
            11,
            "mov rdi,r12|mov rsi,r12|mov ecx,2|lea rdi,[rdi+0x101000]|lea rsi,[rsi+0x101000]|rep movsq|lea rsi,[rsi-0x101000]|lea rdi,[rdi-0x101000]|sub rdx,1|jne 0x0000000000500000|jmp 0x0000000000400014".into(),
        ),
        (
            "without a loop, from before the group into it: divided, and the count with it",
            "rep stosb\n ret",
            0,
            "lea rdi,[rdi+0x100000]|lea rcx,[rcx-4]|rep stosb|lea rcx,[rcx+4]|lea rdi,[rdi-0x100000]|lea rdi,[rdi+0x101000]|rep stosb|lea rdi,[rdi-0x101000]|jmp 0x0000000000400002".into(),
        ),
    ] {
        let Some(code) = assemble(source) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let page = moved();
        let group = crate::support::GROUP.0;
        let to = if at == 0 { group - 8 } else { group };
        let count = if at == 0 { 12 } else if source.contains("movsq") { 2 } else { 4 };
        let registers = registers_at(at, &[(1, count), (4, 0x7000), (6, if source.contains("mov rsi") { group } else { 0x9000 }), (7, to), (12, group)]);
        let block = specialise(&ask(&code, registers, &page, &[]));
        let block = block.unwrap_or_else(|e| panic!("{what}: {e}"));
        let shown = text(&block);
        let got: Vec<&str> = shown
            .lines()
            .filter_map(|l| l.split(": ").nth(1))
            .collect();
        let got = got.join("|");
        // The formatter writes operands that the instruction only implies.
        let got = [" [rdi],[rsi]", " [rdi],eax", " [rdi],al", " [rdi]"]
            .iter()
            .fold(got, |got, implied| got.replace(implied, ""));
        assert_eq!(got, wanted, "{what}");
    }
}

#[test]
fn string_instructions_that_cannot_be_redirected_are_refused_with_a_reason() {
    let at = CodeAddress(TEXT);
    let group = crate::support::GROUP.0;
    for (source, to, count, wanted) in [
        ("rep movsb", group, 0, Refusal::Elsewhere(at)),
        ("rep movsb", 0x1000, 4, Refusal::Elsewhere(at)),
        // An element with bytes of two groups.
        ("stosq", group - 4, 1, Refusal::Straddles(at)),
        ("rep stosq", group + 4, 8, Refusal::Straddles(at)),
        // One that the flags may end in the first group: its copy would not know where it is.
        ("repne scasb", group, 0x40, Refusal::Straddles(at)),
        ("movsb es:[edi], ds:[esi]", group, 1, Refusal::Operand(at)),
        ("rep lods byte ptr fs:[rsi]", group, 1, Refusal::Operand(at)),
    ] {
        let Some(code) = assemble(&format!("{source}\n ret")) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let page = moved();
        let registers = registers_at(0, &[(1, count), (4, 0x7000), (6, 0x9000), (7, to)]);
        let got = specialise_alone(&ask(&code, registers, &page, &[]));
        assert_eq!(got.err(), Some(wanted), "{source}");
    }
}

/// What a loop does upwards is not what it does with the direction flag set.
#[test]
fn loops_that_may_go_downwards_have_no_shifts() {
    for (source, downwards, is_loop) in [
        (
            "1: mov rdi, r12\n mov ecx, 4\n rep stosq\n sub rdx, 1\n jne 1b\n ret",
            false,
            true,
        ),
        (
            "1: mov rdi, r12\n mov ecx, 4\n rep stosq\n sub rdx, 1\n jne 1b\n ret",
            true,
            false,
        ),
        (
            "1: mov rdi, r12\n mov ecx, 4\n rep stosq\n sub rdx, 1\n jne 1b\n std\n jmp 1b\n ret",
            false,
            false,
        ),
    ] {
        let Some(code) = assemble(source) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let page = moved();
        let group = crate::support::GROUP.0;
        let registers = registers_at(8, &[(1, 4), (4, 0x7000), (7, group), (12, group)]);
        let mut request = ask(&code, registers, &page, &[]);
        request.downwards = downwards;
        let block = specialise(&request).expect("a copy");
        assert_eq!(block.is_loop, is_loop, "{source}");
    }
}

#[test]
fn a_loop_that_clears_its_group_faults_once() {
    let one = Use {
        operation: 7,
        repeated: 1,
        downwards: false,
        to: GROUP as i64,
        from: 0,
        far: true,
        count: GROUP_BYTES as i64 / 8,
        loaded: false,
        flags: false,
    };
    let loaded = Use {
        loaded: true,
        ..one
    };
    for one in [one, loaded] {
        let groups = vec![(GROUP, GROUP_BYTES, POOL + 0x3000)];
        let Some(faults) = compare_divided(&source(&[one], 300), LEAF, groups, Conduct::default())
        else {
            println!("SKIP: there is no assembler");
            return;
        };
        assert_eq!(faults, 1);
    }
}
