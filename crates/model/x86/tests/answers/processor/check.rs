//! Executes each form in several ways; [`super::compare`] compares the results with the answer
//! of [`sunder_x86::Manual`].
//!
//! - Two runs differ in everything that the answer does not list as read; nothing else may
//!   differ in their results.
//! - What the answer does not list as written must not change; what it lists as always written
//!   must not keep its old value.
//! - Each access is placed at one edge of a page without neighbours, and then at the other
//!   edge. Without its page the instruction must fault, if the access always happens.
//! - The new values of registers must be those that the answer computes.

use super::compare::{Execution, processors, wrong};
use super::place::{Edge, Placed, place};
use super::sandbox::{CODE, End, FLAGS, PAGE, REGIONS, Sandbox, State};
use iced_x86::{Mnemonic, Register};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::ptr;
use sunder_x86::{Action, Certainty, Control, Flags, Manual};

const READ: i32 = libc::PROT_READ;
const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let a = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let b = (a ^ a >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        b ^ b >> 31
    }

    /// An address at which there is no memory.
    fn address(&mut self) -> u64 {
        self.next() >> 18 | 0x0000_2000_0000_0000
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for eight in bytes.chunks_mut(8) {
            let number = self.next().to_le_bytes();
            eight.copy_from_slice(&number[..eight.len()]);
        }
    }
}

/// The result for one form.
enum Outcome {
    Passed,
    Skipped(&'static str),
    Failed(String),
}

/// Checks all forms in a child process, and fails if the answer is wrong for any.
pub fn all(forms: &[Vec<u8>]) {
    let mut ends = [0; 2];
    // SAFETY: the descriptors and the shared page are fresh; the child only runs the checks,
    // and never returns.
    let (child, mut pipe, at) = unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let shared = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let at = libc::mmap(ptr::null_mut(), PAGE as usize, rights, shared, -1, 0);
        assert!(at != libc::MAP_FAILED, "no memory");
        let at = at.cast::<usize>();
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let child = libc::fork();
        assert!(child >= 0, "no child");
        if child == 0 {
            libc::close(ends[0]);
            let report = report(forms, at);
            let mut out = std::fs::File::from_raw_fd(ends[1]);
            let done = out.write_all(report.as_bytes()).is_ok();
            libc::_exit(if done { 0 } else { 1 });
        }
        libc::close(ends[1]);
        (child, std::fs::File::from_raw_fd(ends[0]), at)
    };
    let mut report = String::new();
    pipe.read_to_string(&mut report).expect("a report");
    let mut status = 0;
    // SAFETY: the process is our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    println!("{report}");
    // SAFETY: the page was mapped above, and the child, which also had it, has ended.
    let last = unsafe { at.read() };
    assert_eq!(status, 0, "the child died of {:02x?}", forms.get(last));
    let failed = report
        .lines()
        .filter(|line| line.starts_with("WRONG"))
        .count();
    assert_eq!(failed, 0, "{failed} forms differ from the answer");
    let passed = report
        .lines()
        .find_map(|line| line.strip_suffix(" forms agree"));
    let passed: usize = passed.and_then(|n| n.parse().ok()).expect("a count");
    assert!(passed > 500, "only {passed} forms were compared");
}

/// Checks all forms and returns a report. Writes to `at` which form is being executed.
fn report(forms: &[Vec<u8>], at: *mut usize) -> String {
    let mut sandbox = Sandbox::new();
    let mut manual = Manual::new();
    let mut skipped: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
    let (mut passed, mut failed) = (0, String::new());
    for (number, bytes) in forms.iter().enumerate() {
        // SAFETY: `at` is a page that is shared with the parent.
        unsafe { at.write_volatile(number) };
        let i = iced_x86::Decoder::with_ip(64, bytes, CODE, 0).decode();
        match Check::new(&mut sandbox, &mut manual, bytes).run() {
            Outcome::Passed => passed += 1,
            Outcome::Skipped(why) => {
                let (count, names) = skipped.entry(why).or_default();
                *count += 1;
                let name = format!("{:?}", i.mnemonic()).to_lowercase();
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            Outcome::Failed(how) => {
                failed += &format!("WRONG {i} ({:?}) {bytes:02x?}: {how}\n", i.code());
            }
        }
    }
    let mut report = format!("{} forms\n{passed} forms agree\n", forms.len());
    for (why, (count, names)) in skipped {
        report += &format!("skipped {count}, {why}: {}\n", names.join(" "));
    }
    report + &failed
}

struct Check<'a> {
    sandbox: &'a mut Sandbox,
    manual: &'a mut Manual,
    bytes: &'a [u8],
    numbers: Numbers,
    /// Whether registers and memory hold small numbers.
    small: bool,
}

impl<'a> Check<'a> {
    fn new(sandbox: &'a mut Sandbox, manual: &'a mut Manual, bytes: &'a [u8]) -> Self {
        Self {
            sandbox,
            manual,
            bytes,
            numbers: Numbers(1),
            small: false,
        }
    }

    fn run(mut self) -> Outcome {
        use Mnemonic as M;
        let i = iced_x86::Decoder::with_ip(64, self.bytes, CODE, 0).decode();
        match Control::of(&i) {
            Control::Next => {}
            Control::Kernel => return Outcome::Skipped("enters the kernel"),
            Control::Nowhere => return Outcome::Skipped("always faults"),
            _ => return Outcome::Skipped("transfers control"),
        }
        if i.is_privileged() {
            return Outcome::Skipped("only for kernels");
        }
        match i.mnemonic() {
            M::Wrpkru | M::Wrfsbase | M::Wrgsbase | M::Xabort | M::Xend => {
                return Outcome::Skipped("changes what the test itself needs");
            }
            // It faults if nothing could be written at the stack's new end (Intel SDM, volume 2,
            // ENTER).
            M::Enter if u64::from(i.immediate16()) >= PAGE / 2 => {
                return Outcome::Skipped("makes a stack frame larger than the test's stack");
            }
            M::Lfs | M::Lgs | M::Lss => return Outcome::Skipped("uses a segment register"),
            M::Mov | M::Pop
                if i.op0_register().is_segment_register()
                    || i.op1_register().is_segment_register() =>
            {
                return Outcome::Skipped("uses a segment register");
            }
            _ => {}
        }
        match self.all() {
            Outcome::Skipped("general protection" | "an arithmetic fault") => {
                self.small = true;
                self.all()
            }
            done => done,
        }
    }

    fn all(&mut self) -> Outcome {
        let placed = match place(self.bytes, Edge::Start, self.manual) {
            Ok(placed) => placed,
            Err(why) => return Outcome::Skipped(why),
        };
        match self.compare(&placed) {
            Outcome::Passed => {}
            other => return other,
        }
        match self.edges(&placed) {
            Outcome::Passed => {}
            other => return other,
        }
        match place(self.bytes, Edge::End, self.manual) {
            Ok(placed) => {
                let (state, memory) = self.input(&placed);
                match self.execute(&placed, &state, &memory) {
                    Ok(_) => Outcome::Passed,
                    Err(Outcome::Failed(how)) => {
                        Outcome::Failed(format!("before the end of a page: {how}"))
                    }
                    Err(other) => other,
                }
            }
            Err(_) => Outcome::Passed,
        }
    }

    /// The registers and memory for a run.
    fn input(&mut self, placed: &Placed) -> (State, Vec<Vec<u8>>) {
        let mut x87 = vec![0; 6 + 128];
        x87[..2].copy_from_slice(&0x37fu16.to_le_bytes());
        let mut state = State {
            general: [0; 16],
            flags: self.numbers.next() & FLAGS,
            vectors: [[0; 64]; 32],
            masks: [u64::MAX; 8],
            x87,
        };
        for (n, value) in state.general.iter_mut().enumerate() {
            let any = if self.small {
                [3, 7, 0, 5, 9, 5, 6, 7][n & 7]
            } else {
                self.numbers.address()
            };
            *value = placed.fixed[n].unwrap_or(any);
        }
        for vector in &mut state.vectors {
            self.numbers.fill(vector);
        }
        self.prepare_elements(placed, &mut state);
        let mut memory = Vec::new();
        for _ in 0..REGIONS {
            let mut page = vec![0; PAGE as usize];
            if self.small {
                // A divisor in memory or in a register must not be zero.
                let divides = matches!(
                    placed.instruction.mnemonic(),
                    Mnemonic::Div | Mnemonic::Idiv
                );
                let step = if divides { 1 } else { 8 };
                page.iter_mut().step_by(step).for_each(|byte| *byte = 7);
            } else {
                self.numbers.fill(&mut page);
            }
            // The trap flag and the alignment check flag stay clear.
            if matches!(
                placed.instruction.mnemonic(),
                Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq
            ) {
                for eight in page.chunks_mut(8) {
                    eight.copy_from_slice(&0x8d7u64.to_le_bytes());
                }
            }
            memory.push(page);
        }
        if !self.sandbox.has_wide() {
            state.masks = [0; 8];
            for (n, vector) in state.vectors.iter_mut().enumerate() {
                let len = if n < 16 { self.sandbox.vector() } else { 0 };
                vector[len..].fill(0);
            }
        }
        (state, memory)
    }

    /// Makes all elements lie at the base, and masks none.
    fn prepare_elements(&self, placed: &Placed, state: &mut State) {
        let i = &placed.instruction;
        if !i.is_vsib() {
            return;
        }
        let number = |register: Register| register.number() & 31;
        if i.op_count() == 3 && i.op2_register().is_vector_register() {
            state.vectors[number(i.op2_register())] = [0xff; 64];
        }
        state.vectors[number(i.memory_index())] = [0; 64];
    }

    /// Executes the instruction with all pages accessible.
    fn execute(
        &mut self,
        placed: &Placed,
        state: &State,
        memory: &[Vec<u8>],
    ) -> Result<Execution, Outcome> {
        for (region, page) in memory.iter().enumerate() {
            self.sandbox.allow(region, BOTH);
            self.sandbox.put(region, page);
            if region >= placed.ranges.len() {
                self.sandbox.allow(region, libc::PROT_NONE);
            }
        }
        let (end, output) = self.sandbox.run(&placed.bytes, state);
        for region in 0..REGIONS {
            self.sandbox.allow(region, READ);
        }
        let after = (0..REGIONS).map(|n| self.sandbox.bytes(n)).collect();
        match end {
            End::Done => Ok(Execution {
                before: (state.clone(), memory.to_vec()),
                after: (output, after),
            }),
            End::Signal(libc::SIGILL, ..) => {
                Err(Outcome::Skipped("this processor does not have it"))
            }
            End::Signal(libc::SIGFPE, ..) => Err(Outcome::Skipped("an arithmetic fault")),
            End::Signal(libc::SIGSEGV, 0x80, _) => Err(Outcome::Skipped("general protection")),
            other => Err(Outcome::Failed(format!("it ended with {other:?}"))),
        }
    }

    /// The instruction must fault without the page of an access, and without the right to write
    /// for a store.
    fn edges(&mut self, placed: &Placed) -> Outcome {
        let is_perhaps = |certainty| certainty != Certainty::Always;
        let counted = placed
            .does
            .accesses()
            .any(|a| a.certainty == Certainty::Counted);
        let (mut state, memory) = self.input(placed);
        for (n, access) in placed.does.accesses().enumerate() {
            if is_perhaps(access.certainty) || access.action == Action::Flush {
                continue;
            }
            for rights in [libc::PROT_NONE, READ] {
                if rights == READ && !access.action.writes() {
                    continue;
                }
                for (region, page) in memory.iter().enumerate() {
                    self.sandbox.allow(region, BOTH);
                    self.sandbox.put(region, page);
                }
                self.sandbox.allow(n, rights);
                let (end, _) = self.sandbox.run(&placed.bytes, &state);
                let page = Sandbox::page(n)..Sandbox::page(n) + PAGE;
                let faults = matches!(end, End::Signal(libc::SIGSEGV, _, at) if page.contains(&at));
                if !faults {
                    return Outcome::Failed(format!("access {n} does not happen: {end:?}"));
                }
            }
        }
        if counted {
            state.general[1] = 0;
            for region in 0..REGIONS {
                self.sandbox.allow(region, libc::PROT_NONE);
            }
            let (end, _) = self.sandbox.run(&placed.bytes, &state);
            if end != End::Done {
                return Outcome::Failed(format!("no repetitions: {end:?}"));
            }
        }
        Outcome::Passed
    }

    /// Compares two runs that differ in everything that the answer does not list as read.
    fn compare(&mut self, placed: &Placed) -> Outcome {
        let (state, memory) = self.input(placed);
        let a = match self.execute(placed, &state, &memory) {
            Ok(run) => run,
            Err(outcome) => return outcome,
        };
        let (other, pages) = self.changed(placed, &state, &memory);
        let b = match self.execute(placed, &other, &pages) {
            Ok(run) => run,
            Err(Outcome::Skipped(why)) => {
                return Outcome::Failed(format!("what is not read makes it fault: {why}"));
            }
            Err(outcome) => return outcome,
        };
        match wrong(placed, &a, &b) {
            Some(wrong) => Outcome::Failed(wrong),
            None => Outcome::Passed,
        }
    }

    /// A second input with other values for everything that the answer does not list as read.
    fn changed(
        &mut self,
        placed: &Placed,
        state: &State,
        memory: &[Vec<u8>],
    ) -> (State, Vec<Vec<u8>>) {
        let registers = placed.does.registers;
        let mut other = state.clone();
        for n in 0..16 {
            if registers.read >> n & 1 == 0 && placed.fixed[n].is_none() {
                other.general[n] = self.numbers.address();
            }
        }
        let read = processors(Flags::of(&placed.instruction).read);
        other.flags ^= FLAGS & !read;
        for n in 0..32 {
            if registers.vectors_read >> n & 1 == 0 && state.vectors[n] != [0; 64] {
                self.numbers.fill(&mut other.vectors[n]);
            }
        }
        if self.sandbox.has_wide() {
            for n in 0..8 {
                if registers.masks_read >> n & 1 == 0 {
                    other.masks[n] = self.numbers.next();
                }
            }
        } else {
            for vector in other.vectors.iter_mut().take(16) {
                vector[self.sandbox.vector()..].fill(0);
            }
        }
        let mut pages = memory.to_vec();
        for (n, page) in pages.iter_mut().enumerate() {
            let old = page.clone();
            self.numbers.fill(page);
            for (access, (region, range)) in placed.does.accesses().zip(&placed.ranges) {
                if *region == n && access.action.reads() {
                    page[range.clone()].copy_from_slice(&old[range.clone()]);
                }
            }
        }
        (other, pages)
    }
}
