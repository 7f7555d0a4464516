//! The program's arguments and environment, which the kernel reads for `ps` and `/proc/PID/cmdline`
//! from private memory only. When the memory that holds them is made sharable, the kernel is given
//! the address of a private copy.
//!
//! Contexts: a thread in [`crate::convert`], while all other threads are stopped.

use crate::files;
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::system;

/// A longer argument area is not copied: the kernel itself normally accepts less.
const LARGEST: usize = 8 << 20;

/// The addresses of a program's parts, in the layout that `prctl(PR_SET_MM_MAP)` takes. Setting all
/// at once needs no privilege.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parts {
    start_code: u64,
    end_code: u64,
    start_data: u64,
    end_data: u64,
    start_brk: u64,
    brk: u64,
    start_stack: u64,
    arg_start: u64,
    arg_end: u64,
    env_start: u64,
    env_end: u64,
    /// 0: the auxiliary vector stays as it is.
    auxiliary: u64,
    auxiliary_bytes: u32,
    /// -1: the executable stays as it is.
    executable: i32,
}

impl Parts {
    /// Parses the text of `/proc/PID/stat` (see its manual page), which has every field but the
    /// break.
    fn parse(text: &[u8]) -> Option<Self> {
        // The name of the program, in parentheses, may hold anything.
        let behind = text.iter().rposition(|b| *b == b')')?;
        let rest = text.get(behind + 2..)?;
        let mut words = rest.split(|b| *b == b' ');
        let mut last = 2;
        // Fields are counted from 1, and the first here is the third.
        let mut field = |number: usize| {
            let skipped = number - last - 1;
            last = number;
            decimal(words.nth(skipped)?)
        };
        let parts = Self {
            start_code: field(26)?,
            end_code: field(27)?,
            start_stack: field(28)?,
            start_data: field(45)?,
            end_data: field(46)?,
            start_brk: field(47)?,
            arg_start: field(48)?,
            arg_end: field(49)?,
            env_start: field(50)?,
            env_end: field(51)?,
            executable: -1,
            ..Self::default()
        };
        let ordered = [
            parts.arg_start,
            parts.arg_end,
            parts.env_start,
            parts.env_end,
        ]
        .is_sorted();
        (ordered && parts.arg_start != 0).then_some(parts)
    }
}

fn decimal(word: &[u8]) -> Option<u64> {
    let digits = word.trim_ascii_end();
    let mut value = 0u64;
    for digit in digits {
        let digit = (*digit as char).to_digit(10)?;
        value = value.checked_mul(10)?.checked_add(digit.into())?;
    }
    (!digits.is_empty()).then_some(value)
}

/// Memory from `start` to `end` is about to become sharable: if the kernel reads the arguments
/// there, it reads a private copy from now on. If the kernel refuses the new address, `ps` shows no
/// arguments.
pub fn keep(start: usize, end: usize) {
    let Some(mut parts) = read() else {
        return;
    };
    let (from, to) = (parts.arg_start as usize, parts.env_end as usize);
    if from < start || to > end || to - from > LARGEST {
        return;
    }
    // The copy starts at the same offset within its page as the original, so that it needs no extra
    // page.
    let within = from % PAGE;
    let bytes = (within + (to - from)).next_multiple_of(PAGE);
    // SAFETY: the mapping is new and as long as what is copied into it; the kernel gets its address
    // only when the copy is complete.
    unsafe {
        parts.brk = system::call(libc::SYS_brk, [0; 6]) as u64;
        let own = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let copy = system::map(0, bytes, rights, own, -1, 0);
        if copy <= 0 {
            return;
        }
        let copy = copy as usize;
        core::ptr::copy_nonoverlapping(from as *const u8, (copy + within) as *mut u8, to - from);
        // Read-only memory is never made sharable, so the copy stays private.
        system::protect(copy, bytes, libc::PROT_READ);
        let moved = ((copy + within) as u64).wrapping_sub(parts.arg_start);
        for address in [
            &mut parts.arg_start,
            &mut parts.arg_end,
            &mut parts.env_start,
            &mut parts.env_end,
        ] {
            *address = address.wrapping_add(moved);
        }
        let what = libc::PR_SET_MM as usize;
        let map = libc::PR_SET_MM_MAP as usize;
        let at = &raw const parts as usize;
        let result = system::call(libc::SYS_prctl, [what, map, at, size_of::<Parts>(), 0, 0]);
        if result < 0 {
            system::unmap(copy, bytes);
        }
    }
}

/// Reads what the kernel knows now. It asks about the calling thread, because the process's first
/// thread may have ended.
fn read() -> Option<Parts> {
    let mut buffer = [0u8; 1024];
    // SAFETY: a C string.
    let fd = unsafe { files::open(c"/proc/thread-self/stat".as_ptr().cast(), false) }?;
    let length = usize::try_from(system::read(fd, &mut buffer)).unwrap_or(0);
    system::close(fd);
    Parts::parse(buffer.get(..length)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of `/proc/PID/stat` in which field `n` has the value `n`, up to the 52nd.
    fn line(name: &str) -> String {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        format!("1 ({name}) R {}\n", fields.join(" "))
    }

    #[test]
    fn fields_are_found_after_any_program_name() {
        for name in ["a", "a b", ") R 7 8 (", ""] {
            let parts = Parts::parse(line(name).as_bytes()).expect("a whole line");
            let expected = Parts {
                start_code: 26,
                end_code: 27,
                start_stack: 28,
                start_data: 45,
                end_data: 46,
                start_brk: 47,
                arg_start: 48,
                arg_end: 49,
                env_start: 50,
                env_end: 51,
                executable: -1,
                ..Parts::default()
            };
            assert_eq!(parts, expected, "{name}");
        }
    }

    #[test]
    fn truncated_or_unordered_fields_are_refused() {
        let whole = line("a");
        let cut = whole.find(" 51").expect("the text has field 51");
        assert_eq!(Parts::parse(&whole.as_bytes()[..cut]), None);
        for wrong in [
            whole.replace(" 49 ", " 47 "),
            whole.replace(" 48 ", " x "),
            whole.replace(" 51 ", " 99999999999999999999999 "),
            whole.replace(" 48 ", " 0 "),
            String::new(),
        ] {
            assert_eq!(Parts::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
