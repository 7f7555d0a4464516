//! How to get from a stack frame to its caller's: reads the call-frame information of a loaded
//! object, in memory, for one instruction. Contexts: normal; nothing here allocates, locks or calls
//! other libraries.
//!
//! Only the rules that compilers use for ordinary functions are understood
//! (CFA from rsp or rbp, rbp saved on the stack or untouched); everything else
//! ends the walk. DWARF 5 section 6.4; the header's search table is described
//! in the Linux Standard Base, "Exception Frame Header".

/// How to get from a frame to its caller's. All offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether the CFA is relative to rbp; otherwise it is relative to rsp.
    pub from_bp: bool,
    /// Distance from that register to the CFA; the return address lies 8 bytes below the CFA.
    pub cfa: i32,
    /// Distance from the CFA to the saved rbp; `None` if rbp is the same as in the caller.
    pub saved_bp: Option<i32>,
}

const RSP: u64 = 7;
const RBP: u64 = 6;
const RA: u64 = 16;

/// Reads forward through memory that the dynamic linker mapped.
#[derive(Clone, Copy)]
struct Cursor(*const u8);

impl Cursor {
    /// # Safety
    /// `N` bytes are readable.
    unsafe fn take<const N: usize>(&mut self) -> [u8; N] {
        // SAFETY: by this function's contract.
        let bytes = unsafe { self.0.cast::<[u8; N]>().read_unaligned() };
        self.0 = self.0.wrapping_add(N);
        bytes
    }

    /// # Safety
    /// As [`Self::take`], for all bytes of the number.
    unsafe fn byte(&mut self) -> u8 {
        // SAFETY: by this function's contract.
        let [byte] = unsafe { self.take::<1>() };
        byte
    }

    /// # Safety
    /// As [`Self::byte`].
    unsafe fn uleb(&mut self) -> u64 {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            // SAFETY: by this function's contract.
            let byte = unsafe { self.byte() };
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    /// # Safety
    /// As [`Self::byte`].
    unsafe fn sleb(&mut self) -> i64 {
        let (mut value, mut shift) = (0i64, 0u32);
        loop {
            // SAFETY: by this function's contract.
            let byte = unsafe { self.byte() };
            value |= i64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                let sign = if byte & 0x40 == 0 { 0 } else { -1i64 };
                return value | sign.checked_shl(shift).unwrap_or(0);
            }
        }
    }
}

/// The contents of a common information entry.
struct Common {
    instructions: Cursor,
    end: Cursor,
    code_factor: u64,
    data_factor: i64,
    has_augmentation: bool,
}

/// The rule at `pc`, from the object whose exception-frame header lies at
/// `header`. `pc` is an address inside the calling instruction (the return
/// address less one).
///
/// # Safety
/// `header` is the mapped `PT_GNU_EH_FRAME` segment of the object that holds
/// `pc`, with the frame section that it describes.
pub unsafe fn rule(header: *const u8, pc: u64) -> Option<Rule> {
    // SAFETY: by this function's contract; the compiler wrote these tables and
    // their lengths.
    unsafe {
        let entry = search(header, pc)?;
        let mut at = Cursor(entry);
        let length = u32::from_le_bytes(at.take());
        if length == 0 || length == u32::MAX {
            return None;
        }
        let end = Cursor(at.0.wrapping_add(length as usize));
        let id_field = at.0;
        let back = u32::from_le_bytes(at.take());
        let common = common(id_field.wrapping_sub(back as usize))?;
        let field = at.0 as u64;
        let start = field.wrapping_add_signed(i32::from_le_bytes(at.take()).into());
        let size = u64::from(u32::from_le_bytes(at.take()));
        if pc.wrapping_sub(start) >= size {
            return None;
        }
        if common.has_augmentation {
            let skip = at.uleb();
            at.0 = at.0.wrapping_add(skip as usize);
        }
        let mut machine = Machine::new(&common, start, pc);
        machine.run(common.instructions, common.end)?;
        machine.initial = machine.row;
        machine.run(at, end)?;
        machine.row.rule()
    }
}

/// The frame description of the last function that starts before or at `pc`.
///
/// # Safety
/// As [`rule`].
unsafe fn search(header: *const u8, pc: u64) -> Option<*const u8> {
    // SAFETY: by this function's contract.
    unsafe {
        let mut at = Cursor(header);
        // Version 1; frame pointer pc-relative, count 4 bytes, table relative
        // to the header: what every linker writes.
        let [version, frame, count, table] = at.take::<4>();
        if (version, frame, count, table) != (1, 0x1b, 0x03, 0x3b) {
            return None;
        }
        at.take::<4>();
        let count = u32::from_le_bytes(at.take()) as usize;
        let row = |i: usize| -> (u64, u64) {
            let mut row = Cursor(at.0.wrapping_add(i.wrapping_mul(8)));
            let base = header as u64;
            let start = i32::from_le_bytes(row.take());
            let entry = i32::from_le_bytes(row.take());
            (
                base.wrapping_add_signed(start.into()),
                base.wrapping_add_signed(entry.into()),
            )
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if row(middle).0 <= pc {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(row(low.checked_sub(1)?).1 as *const u8)
    }
}

/// # Safety
/// `entry` is a common information entry.
unsafe fn common(entry: *const u8) -> Option<Common> {
    // SAFETY: by this function's contract.
    unsafe {
        let mut at = Cursor(entry);
        let length = u32::from_le_bytes(at.take());
        let end = Cursor(at.0.wrapping_add(length as usize));
        let id = u32::from_le_bytes(at.take());
        let version = at.byte();
        if id != 0 || (version != 1 && version != 3) {
            return None;
        }
        let mut names = at;
        while at.byte() != 0 {}
        let code_factor = at.uleb();
        let data_factor = at.sleb();
        if version == 1 {
            at.byte();
        } else {
            at.uleb();
        }
        let has_augmentation = names.byte() == b'z';
        let mut after = at;
        if has_augmentation {
            let skip = at.uleb();
            after = Cursor(at.0.wrapping_add(skip as usize));
            loop {
                match names.byte() {
                    0 => break,
                    // pc-relative, 4 bytes: the only form that `rule` reads.
                    b'R' => {
                        if at.byte() != 0x1b {
                            return None;
                        }
                    }
                    b'L' => {
                        at.byte();
                    }
                    b'P' => {
                        // The personality's address has a 4-byte or an 8-byte form.
                        let bytes = if at.byte() & 0x0f == 0x0b { 4 } else { 8 };
                        at.0 = at.0.wrapping_add(bytes);
                    }
                    // 'S' is a signal frame: the walk ends there.
                    _ => return None,
                }
            }
        }
        Some(Common {
            instructions: after,
            end,
            code_factor,
            data_factor,
            has_augmentation,
        })
    }
}

/// The unwind rules at one instruction.
#[derive(Clone, Copy)]
struct Row {
    register: u64,
    cfa: i64,
    known: bool,
    saved_bp: Option<i64>,
    bp_lost: bool,
    outermost: bool,
}

impl Row {
    fn rule(&self) -> Option<Rule> {
        let from_bp = self.register == RBP;
        if !self.known || self.bp_lost || self.outermost || !(from_bp || self.register == RSP) {
            return None;
        }
        Some(Rule {
            from_bp,
            cfa: i32::try_from(self.cfa).ok()?,
            saved_bp: match self.saved_bp {
                Some(at) => Some(i32::try_from(at).ok()?),
                None => None,
            },
        })
    }

    fn set(&mut self, register: u64, saved: Option<i64>, lost: bool) {
        if register == RBP {
            self.saved_bp = saved;
            self.bp_lost = lost;
        }
    }
}

struct Machine<'a> {
    common: &'a Common,
    location: u64,
    pc: u64,
    row: Row,
    initial: Row,
    kept: [Row; 8],
    depth: usize,
}

impl<'a> Machine<'a> {
    const fn new(common: &'a Common, start: u64, pc: u64) -> Self {
        let row = Row {
            register: RSP,
            cfa: 8,
            known: true,
            saved_bp: None,
            bp_lost: false,
            outermost: false,
        };
        Self {
            common,
            location: start,
            pc,
            row,
            initial: row,
            kept: [row; 8],
            depth: 0,
        }
    }

    const fn scaled(&self, factored: i64) -> i64 {
        factored.wrapping_mul(self.common.data_factor)
    }

    /// Advances the location; returns whether the rows that follow are still at or before the
    /// instruction.
    const fn advance(&mut self, by: u64) -> bool {
        self.location = self
            .location
            .wrapping_add(by.wrapping_mul(self.common.code_factor));
        self.location <= self.pc
    }

    /// Runs until the row for the instruction is complete; `None` at an unknown call-frame
    /// instruction.
    ///
    /// # Safety
    /// `at..end` is a sequence of call-frame instructions.
    unsafe fn run(&mut self, mut at: Cursor, end: Cursor) -> Option<()> {
        while at.0 < end.0 {
            // SAFETY: the sequence is well-formed, as compilers write it.
            if !unsafe { self.step(&mut at) }? {
                break;
            }
        }
        Some(())
    }

    /// # Safety
    /// As [`Self::run`].
    unsafe fn step(&mut self, at: &mut Cursor) -> Option<bool> {
        // SAFETY: by this function's contract.
        unsafe {
            let op = at.byte();
            let low = u64::from(op & 0x3f);
            match op >> 6 {
                1 => return Some(self.advance(low)),
                2 => {
                    let offset = at.uleb() as i64;
                    self.row.set(low, Some(self.scaled(offset)), false);
                    return Some(true);
                }
                3 => {
                    self.restore(low);
                    return Some(true);
                }
                _ => {}
            }
            match op {
                0x00 => {}
                0x02 => return Some(self.advance(at.byte().into())),
                0x03 => return Some(self.advance(u16::from_le_bytes(at.take()).into())),
                0x04 => return Some(self.advance(u32::from_le_bytes(at.take()).into())),
                0x05 => {
                    let register = at.uleb();
                    let offset = at.uleb() as i64;
                    self.row.set(register, Some(self.scaled(offset)), false);
                }
                0x06 => {
                    let register = at.uleb();
                    self.restore(register);
                }
                0x07 => {
                    let register = at.uleb();
                    self.row.outermost |= register == RA;
                    self.row.set(register, None, true);
                }
                0x08 => {
                    let register = at.uleb();
                    self.row.set(register, None, false);
                }
                0x09 => {
                    let register = at.uleb();
                    at.uleb();
                    self.row.set(register, None, true);
                }
                0x0a => {
                    *self.kept.get_mut(self.depth)? = self.row;
                    self.depth += 1;
                }
                0x0b => {
                    self.depth = self.depth.checked_sub(1)?;
                    self.row = *self.kept.get(self.depth)?;
                }
                0x0c => {
                    self.row.register = at.uleb();
                    self.row.cfa = at.uleb() as i64;
                    self.row.known = true;
                }
                0x0d => self.row.register = at.uleb(),
                0x0e => self.row.cfa = at.uleb() as i64,
                0x0f => {
                    let skip = at.uleb();
                    at.0 = at.0.wrapping_add(skip as usize);
                    self.row.known = false;
                }
                0x10 | 0x16 => {
                    let register = at.uleb();
                    let skip = at.uleb();
                    at.0 = at.0.wrapping_add(skip as usize);
                    self.row.set(register, None, true);
                }
                0x11 => {
                    let register = at.uleb();
                    let offset = at.sleb();
                    self.row.set(register, Some(self.scaled(offset)), false);
                }
                0x12 => {
                    self.row.register = at.uleb();
                    let offset = at.sleb();
                    self.row.cfa = self.scaled(offset);
                    self.row.known = true;
                }
                0x13 => {
                    let offset = at.sleb();
                    self.row.cfa = self.scaled(offset);
                }
                // DW_CFA_GNU_args_size
                0x2e => {
                    at.uleb();
                }
                _ => return None,
            }
            Some(true)
        }
    }

    fn restore(&mut self, register: u64) {
        self.row
            .set(register, self.initial.saved_bp, self.initial.bp_lost);
    }
}
