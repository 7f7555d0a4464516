//! Executes one instruction on given registers and memory, in this process. The handler of a
//! first trap puts the registers into the signal frame; the handler of the next trap or fault
//! takes them out. Only for a child process that was made for it, as its signal handlers are
//! replaced.

use std::arch::x86_64::__cpuid_count;
use std::ptr;

/// The address of the instruction, below 2 GiB, so that addresses of 32 bits reach all memory.
pub const CODE: u64 = 0x2000_0800;
/// The address of the data pages. On both sides of each there is an inaccessible page.
const DATA: u64 = 0x2100_0000;
/// The distance between data pages.
const STEP: u64 = 0x1_0000;
/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// The number of data pages.
pub const REGIONS: usize = 4;

/// The status flags, in the processor's numbering.
pub const FLAGS: u64 = 0x8d5;

/// The registers before or after a run.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub general: [u64; 16],
    pub flags: u64,
    pub vectors: [[u8; 64]; 32],
    pub masks: [u64; 8],
    /// Control, status and tags of the x87 unit, and its registers.
    pub x87: Vec<u8>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After the instruction.
    Done,
    /// With a signal: its number, code, and address.
    Signal(i32, i32, u64),
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Host,
    Test,
}

struct Exchange {
    phase: Phase,
    host_registers: [i64; 23],
    host_floats: Vec<u8>,
    input: Option<State>,
    output: Option<State>,
    ip: u64,
    end: End,
    /// The offset of each component of the extended state.
    offsets: [usize; 8],
    features: u64,
}

static mut EXCHANGE: *mut Exchange = ptr::null_mut();

/// The numbers of general registers in machine code, in the order of the signal frame.
const ORDER: [(libc::c_int, usize); 16] = [
    (libc::REG_RAX, 0),
    (libc::REG_RCX, 1),
    (libc::REG_RDX, 2),
    (libc::REG_RBX, 3),
    (libc::REG_RSP, 4),
    (libc::REG_RBP, 5),
    (libc::REG_RSI, 6),
    (libc::REG_RDI, 7),
    (libc::REG_R8, 8),
    (libc::REG_R9, 9),
    (libc::REG_R10, 10),
    (libc::REG_R11, 11),
    (libc::REG_R12, 12),
    (libc::REG_R13, 13),
    (libc::REG_R14, 14),
    (libc::REG_R15, 15),
];

/// The offsets of the size and of the component mask in the floating-point part of the signal
/// frame.
const SIZE_AT: usize = 480;
const FEATURES_AT: usize = 472;
const HEADER: usize = 512;

/// The sandbox of this process.
pub struct Sandbox {
    exchange: *mut Exchange,
}

impl Sandbox {
    /// Replaces the process's signal handlers.
    pub fn new() -> Self {
        let offset = |n: u32| {
            // SAFETY: all processors of this architecture have `cpuid`.
            #[allow(unused_unsafe, reason = "only older compilers demand it")]
            let leaf = unsafe { __cpuid_count(0xd, n) };
            leaf.ebx as usize
        };
        let exchange = Box::into_raw(Box::new(Exchange {
            phase: Phase::Host,
            host_registers: [0; 23],
            host_floats: Vec::with_capacity(1 << 16),
            input: None,
            output: None,
            ip: 0,
            end: End::Done,
            offsets: [0, 0, offset(2), 0, 0, offset(5), offset(6), offset(7)],
            features: 0,
        }));
        // SAFETY: nothing traps yet; the memory is fresh, at addresses that this child does not
        // use; the handler runs on the stack that is given to it.
        unsafe {
            EXCHANGE = exchange;
            map(
                CODE & !(PAGE - 1),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            );
            map(DATA, STEP * REGIONS as u64, libc::PROT_NONE);
            let stack = libc::mmap(
                ptr::null_mut(),
                1 << 18,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            let mut alternative: libc::stack_t = std::mem::zeroed();
            alternative.ss_sp = stack;
            alternative.ss_size = 1 << 18;
            assert_eq!(
                libc::sigaltstack(&raw const alternative, ptr::null_mut()),
                0
            );
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            for signal in [
                libc::SIGTRAP,
                libc::SIGSEGV,
                libc::SIGBUS,
                libc::SIGILL,
                libc::SIGFPE,
            ] {
                assert_eq!(
                    libc::sigaction(signal, &raw const action, ptr::null_mut()),
                    0
                );
            }
        }
        let mut sandbox = Self { exchange };
        // The first trap shows which components of the state the processor has.
        let nothing = State {
            general: [0; 16],
            flags: 0,
            vectors: [[0; 64]; 32],
            masks: [0; 8],
            x87: vec![0; 6 + 128],
        };
        let (end, _) = sandbox.run(&[0x90], &nothing);
        assert_eq!(end, End::Done, "a nop");
        sandbox
    }

    /// The address of a page of data.
    pub const fn page(region: usize) -> u64 {
        DATA + STEP * region as u64 + PAGE
    }

    /// Allows or forbids access to a data page.
    pub fn allow(&mut self, region: usize, rights: i32) {
        // SAFETY: our own page.
        let done = unsafe { libc::mprotect(Self::page(region) as *mut _, PAGE as usize, rights) };
        assert_eq!(done, 0);
    }

    /// The bytes of a page of data, which must be readable.
    pub fn bytes(&self, region: usize) -> Vec<u8> {
        // SAFETY: our own page.
        unsafe {
            std::slice::from_raw_parts(Self::page(region) as *const u8, PAGE as usize).to_vec()
        }
    }

    /// Writes the bytes to a data page, which must be writable.
    pub fn put(&mut self, region: usize, bytes: &[u8]) {
        assert_eq!(bytes.len() as u64, PAGE);
        // SAFETY: our own page.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), Self::page(region) as *mut u8, bytes.len())
        }
    }

    /// Executes the instruction with this encoding.
    pub fn run(&mut self, code: &[u8], input: &State) -> (End, State) {
        // SAFETY: the code page is ours; from here to the end only the handler, on this thread,
        // uses the exchange, and it restores all registers.
        unsafe {
            ptr::write_bytes(CODE as *mut u8, 0xcc, 64);
            ptr::copy_nonoverlapping(code.as_ptr(), CODE as *mut u8, code.len());
            (*self.exchange).input = Some(input.clone());
            (*self.exchange).phase = Phase::Host;
            std::arch::asm!("int3");
            let end = match (*self.exchange).end {
                End::Signal(libc::SIGTRAP, _, _)
                    if (*self.exchange).ip == CODE + code.len() as u64 + 1 =>
                {
                    End::Done
                }
                other => other,
            };
            let output = (*self.exchange).output.take();
            (end, output.expect("the handler has run"))
        }
    }

    /// Bytes of this processor's vectors.
    pub fn vector(&self) -> usize {
        // SAFETY: as in `run`.
        let has_upper = unsafe { (*self.exchange).features & 4 != 0 };
        match (self.has_wide(), has_upper) {
            (true, _) => 64,
            (_, true) => 32,
            _ => 16,
        }
    }

    /// Whether this processor has vectors of 64 bytes and masks.
    pub fn has_wide(&self) -> bool {
        // SAFETY: as in `run`.
        unsafe { (*self.exchange).features & 0xe0 == 0xe0 }
    }
}

unsafe fn map(at: u64, bytes: u64, rights: i32) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: upheld by the caller.
    let got = unsafe { libc::mmap(at as *mut _, bytes as usize, rights, flags, -1, 0) };
    assert_eq!(got as u64, at, "the addresses are free");
}

unsafe extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's frame; the exchange is only used by this thread, which stands in
    // `run` or in the instruction.
    unsafe {
        let exchange = &mut *EXCHANGE;
        let context = &mut *context.cast::<libc::ucontext_t>();
        let registers = &mut context.uc_mcontext.gregs;
        let floats = context.uc_mcontext.fpregs.cast::<u8>();
        let size = floats.add(SIZE_AT).cast::<u32>().read_unaligned() as usize;
        exchange.features = floats.add(FEATURES_AT).cast::<u64>().read_unaligned();
        let floats = std::slice::from_raw_parts_mut(floats, size.max(HEADER));
        match exchange.phase {
            Phase::Host => {
                exchange.host_registers = *registers;
                exchange.host_floats.clear();
                exchange.host_floats.extend_from_slice(floats);
                if let Some(input) = exchange.input.take() {
                    for (place, number) in ORDER {
                        registers[place as usize] = input.general[number] as i64;
                    }
                    registers[libc::REG_RIP as usize] = CODE as i64;
                    registers[libc::REG_EFL as usize] = (input.flags & FLAGS | 0x202) as i64;
                    exchange.put_floats(&input, floats);
                }
                exchange.phase = Phase::Test;
            }
            Phase::Test => {
                exchange.ip = registers[libc::REG_RIP as usize] as u64;
                exchange.end = End::Signal(signal, (*info).si_code, (*info).si_addr() as u64);
                let mut general = [0; 16];
                for (place, number) in ORDER {
                    general[number] = registers[place as usize] as u64;
                }
                let flags = registers[libc::REG_EFL as usize] as u64 & FLAGS;
                exchange.output = Some(exchange.take_floats(general, flags, floats));
                *registers = exchange.host_registers;
                let len = exchange.host_floats.len().min(floats.len());
                floats[..len].copy_from_slice(&exchange.host_floats[..len]);
                exchange.phase = Phase::Host;
            }
        }
    }
}

impl Exchange {
    fn has(&self, component: usize) -> bool {
        self.features >> component & 1 != 0
    }

    fn put_floats(&self, input: &State, floats: &mut [u8]) {
        floats[..2].copy_from_slice(&input.x87[..2]);
        floats[2..6].copy_from_slice(&input.x87[2..6]);
        floats[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
        floats[32..160].copy_from_slice(&input.x87[6..]);
        for (n, vector) in input.vectors.iter().enumerate() {
            if n < 16 {
                floats[160 + 16 * n..][..16].copy_from_slice(&vector[..16]);
            }
            if n < 16 && self.has(2) {
                floats[self.offsets[2] + 16 * n..][..16].copy_from_slice(&vector[16..32]);
            }
            if n < 16 && self.has(6) {
                floats[self.offsets[6] + 32 * n..][..32].copy_from_slice(&vector[32..]);
            }
            if n >= 16 && self.has(7) {
                floats[self.offsets[7] + 64 * (n - 16)..][..64].copy_from_slice(vector);
            }
        }
        if self.has(5) {
            for (n, mask) in input.masks.iter().enumerate() {
                floats[self.offsets[5] + 8 * n..][..8].copy_from_slice(&mask.to_le_bytes());
            }
        }
        if floats.len() >= HEADER + 8 {
            let used = number(floats, HEADER) | self.features & 0xe7;
            floats[HEADER..HEADER + 8].copy_from_slice(&used.to_le_bytes());
        }
    }

    fn take_floats(&self, general: [u64; 16], flags: u64, floats: &[u8]) -> State {
        let used = if floats.len() >= HEADER + 8 {
            number(floats, HEADER)
        } else {
            3
        };
        let has = |component: usize| self.has(component) && used >> component & 1 != 0;
        let mut vectors = [[0; 64]; 32];
        for (n, vector) in vectors.iter_mut().enumerate() {
            if n < 16 && has(1) {
                vector[..16].copy_from_slice(&floats[160 + 16 * n..][..16]);
            }
            if n < 16 && has(2) {
                vector[16..32].copy_from_slice(&floats[self.offsets[2] + 16 * n..][..16]);
            }
            if n < 16 && has(6) {
                vector[32..].copy_from_slice(&floats[self.offsets[6] + 32 * n..][..32]);
            }
            if n >= 16 && has(7) {
                vector.copy_from_slice(&floats[self.offsets[7] + 64 * (n - 16)..][..64]);
            }
        }
        let mut masks = [0; 8];
        if has(5) {
            for (n, mask) in masks.iter_mut().enumerate() {
                *mask = number(floats, self.offsets[5] + 8 * n);
            }
        }
        let mut x87 = floats[..6].to_vec();
        x87.extend_from_slice(&floats[32..160]);
        State {
            general,
            flags,
            vectors,
            masks,
            x87,
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}
