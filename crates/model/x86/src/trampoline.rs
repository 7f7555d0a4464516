//! Makes the code of one trampoline: the overwritten instructions around a kernel call, and a
//! call of a hook. Used by the library inside the target, and by the tool for a program that is
//! already running. It must not know what the hooks do.

use crate::jump::{LENGTH, jump};
use crate::patch::{BEFORE, CALL, GUARDED, Patch, RETURNS};

/// The size of a trampoline's slot in bytes.
pub const SIZE: usize = 128;

/// Skips the red zone: a function may use up to 128 bytes below the stack pointer.
const LEAVE_RED_ZONE: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x80]; // lea rsp, [rsp-128]
const BACK_OVER_RED_ZONE: [u8; 8] = [0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]; // lea rsp, [rsp+128]

/// The kernel's error number for memory that it can't use.
const EFAULT: u8 = 14;

/// The addresses of the hooks' entries in the target.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    /// For a hook in place of a call.
    pub instead: usize,
    /// For a hook after a call that failed.
    pub failed: usize,
    /// For a hook before a call.
    pub before: usize,
}

/// A trampoline's code.
#[derive(Clone, Copy, Debug)]
pub struct Trampoline {
    /// All bytes of the slot; those after the code trap.
    pub bytes: [u8; SIZE],
    len: usize,
    at: usize,
}

impl Trampoline {
    /// Makes the trampoline at the address `at` for `patch`. `base` is the difference between
    /// the module's addresses in the target and in its file. `None` if the code does not fit or
    /// a jump would be too long.
    #[must_use]
    pub fn new(patch: &Patch, base: usize, at: usize, hooks: Entries) -> Option<Self> {
        let mut code = Self {
            bytes: [0xcc; SIZE],
            len: 0,
            at,
        };
        let next = base.wrapping_add(overwritten(patch)?.1);
        match patch.flags & (CALL | BEFORE) {
            0 if patch.flags & GUARDED != 0 => code.guarded(patch, base, next, hooks.failed)?,
            0 => code.behind(patch, base, next, hooks.failed)?,
            CALL if patch.run().is_none() => {
                code.put(patch.head())?;
                code.enter(hooks.instead)?;
                code.put(patch.tail())?;
                code.leave(patch, next)?;
            }
            BEFORE => {
                code.copy(patch, base, patch.head())?;
                code.enter(hooks.before)?;
                code.jump(next)?;
            }
            _ => return None,
        }
        Some(code)
    }

    /// After a kernel call `rcx` may be used, and this code leaves the flags alone.
    fn behind(&mut self, patch: &Patch, base: usize, next: usize, failed: usize) -> Option<()> {
        self.put(&[0x48, 0x8d, 0x48, EFAULT])?; // lea rcx, [rax+EFAULT]
        self.put(&[0xe3, 0])?; // jrcxz
        let branch = self.len;
        self.copy(patch, base, patch.tail())?;
        self.leave(patch, next)?;
        self.lead_here(branch)?;
        self.number(patch)?;
        self.enter(failed)?;
        self.jump(self.at + branch)
    }

    /// As [`Self::behind`], where control also comes from elsewhere: then all registers may be in
    /// use. From the entry it comes with the address behind it in `rcx`, which the processor puts
    /// there (AMD64 Architecture Programmer's Manual, volume 3, `SYSCALL`), and from elsewhere
    /// with that address only by intent.
    fn guarded(&mut self, patch: &Patch, base: usize, next: usize, failed: usize) -> Option<()> {
        self.put(&LEAVE_RED_ZONE)?;
        self.put(&[0x51])?; // push rcx
        self.put(&[0x48, 0x8d, 0x48, EFAULT])?; // lea rcx, [rax+EFAULT]
        self.put(&[0xe3, 0])?; // jrcxz
        let fails = self.len;
        self.put(&[0x59])?; // pop rcx
        self.put(&BACK_OVER_RED_ZONE)?;
        let goes_on = self.len;
        self.copy(patch, base, patch.tail())?;
        self.leave(patch, next)?;
        self.lead_here(fails)?;
        // The flags may be in use, too, so the comparison is made by `lea` and `not`.
        self.put(&[0x48, 0x8b, 0x0c, 0x24])?; // mov rcx, [rsp]
        self.put(&[0x52])?; // push rdx
        self.put(&[0x48, 0x8d, 0x15])?; // lea rdx, [rip+distance]
        let behind = base.wrapping_add(usize::try_from(patch.from).ok()?);
        let here = self.at.wrapping_add(self.len + 4);
        let distance = i32::try_from(behind.wrapping_sub(here) as isize).ok()?;
        self.put(&distance.to_le_bytes())?;
        self.put(&[0x48, 0xf7, 0xd2])?; // not rdx
        self.put(&[0x48, 0x8d, 0x4c, 0x11, 1])?; // lea rcx, [rcx+rdx+1]
        self.put(&[0x5a])?; // pop rdx
        self.put(&[0xe3, 2])?; // jrcxz over the jump
        let back = i8::try_from(fails as isize - (self.len + 2) as isize).ok()?;
        self.put(&[0xeb, back as u8])?; // jmp to `pop rcx`
        self.put(&[0x59])?; // pop rcx
        self.number(patch)?;
        self.call(failed)?;
        self.jump(self.at + goes_on)
    }

    /// Lets the short branch that ends at `end` lead to the present end of the code.
    fn lead_here(&mut self, end: usize) -> Option<()> {
        self.bytes[end - 1] = i8::try_from(self.len - end).ok()? as u8;
        Some(())
    }

    /// Puts the kernel call's number into `r11`.
    fn number(&mut self, patch: &Patch) -> Option<()> {
        if let Some(register) = patch.register() {
            let (high, low) = (register >> 3, register & 7);
            self.put(&[0x41 | high << 2, 0x89, 0xc3 | low << 3]) // mov r11d, register
        } else {
            self.put(&[0x49, 0xbb])?; // mov r11, number
            self.put(&i64::from(patch.number).to_le_bytes())
        }
    }

    /// Adds the overwritten instructions, or the code that replaces them here.
    fn copy(&mut self, patch: &Patch, base: usize, overwritten: &[u8]) -> Option<()> {
        let Some(run) = patch.run() else {
            return self.put(overwritten);
        };
        let from = self.len;
        self.put(run)?;
        let entry = base.wrapping_add(usize::try_from(patch.entry).ok()?);
        for place in patch.distances() {
            let bytes = self.bytes.get_mut(from + place..from + place + 4)?;
            let distance = i32::from_le_bytes(bytes.try_into().ok()?);
            let to = entry.wrapping_add_signed(distance as isize);
            let here = self.at.wrapping_add(from + place + 4);
            let distance = i32::try_from(to.wrapping_sub(here) as isize).ok()?;
            for (byte, new) in bytes.iter_mut().zip(distance.to_le_bytes()) {
                *byte = new;
            }
        }
        Some(())
    }

    /// Leaves the red zone and adds a call of `hook`.
    fn enter(&mut self, hook: usize) -> Option<()> {
        self.put(&LEAVE_RED_ZONE)?;
        self.call(hook)
    }

    /// Adds a call of `hook`, whose address is stored in the code, and goes back over the red zone.
    fn call(&mut self, hook: usize) -> Option<()> {
        self.put(&[0xff, 0x15, 2, 0, 0, 0])?; // call [rip+2]
        self.put(&[0xeb, 8])?; // jmp over the address
        self.put(&hook.to_le_bytes())?;
        self.put(&BACK_OVER_RED_ZONE)
    }

    fn leave(&mut self, patch: &Patch, next: usize) -> Option<()> {
        if patch.flags & RETURNS == 0 {
            self.jump(next)?;
        }
        Some(())
    }

    fn jump(&mut self, to: usize) -> Option<()> {
        let jump = jump(self.at + self.len, to)?;
        self.put(&jump)
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        for (place, &byte) in self.bytes.get_mut(self.len..end)?.iter_mut().zip(bytes) {
            *place = byte;
        }
        self.len = end;
        Some(())
    }
}

/// The first and the last (exclusive) file address that `patch` overwrites; `None` if the patch
/// contradicts itself.
#[must_use]
pub fn overwritten(patch: &Patch) -> Option<(usize, usize)> {
    let entry = usize::try_from(patch.entry).ok()?;
    let behind = entry.checked_add(2)?;
    let end = behind.checked_add(patch.tail().len())?;
    let (start, end) = match patch.flags & (CALL | BEFORE) {
        0 if patch.head().is_empty() => (behind, end),
        CALL => (entry.checked_sub(patch.head().len())?, end),
        BEFORE if patch.tail().is_empty() => (entry.checked_sub(patch.head().len())?, entry),
        _ => return None,
    };
    (patch.from == start as u64 && end - start >= LENGTH).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::{ANY_NUMBER, COPIED, DISTANCES, RUN};

    const AT: usize = 0x7000_0000;
    const BASE: usize = 0x7001_0000;
    const HOOKS: Entries = Entries {
        instead: 1,
        failed: 2,
        before: 3,
    };

    /// A patch of a call at 0x105 with `mov eax, 11` before it.
    fn patch(flags: u8) -> Patch {
        let mut patch = Patch {
            entry: 0x105,
            from: 0x100,
            number: ANY_NUMBER,
            flags,
            head_len: 5,
            tail_len: 0,
            reserved: 0,
            head: [0; COPIED],
            tail: [0; COPIED],
            run: [0; RUN],
            run_len: 0,
            distances: [RUN as u8; DISTANCES],
        };
        patch.head[..5].copy_from_slice(&[0xb8, 11, 0, 0, 0]);
        patch
    }

    #[test]
    fn overwritten_instructions_run_before_the_hook_and_the_entry() {
        let before = patch(BEFORE);
        assert_eq!(overwritten(&before), Some((0x100, 0x105)));
        let code = Trampoline::new(&before, BASE, AT, HOOKS).expect("it fits");
        assert!(code.bytes.starts_with(&before.head[..5]));
        let jump = jump(AT + code.len - LENGTH, BASE + 0x105).expect("it is near");
        assert_eq!(code.bytes[code.len - LENGTH..code.len], jump);
        // The rest of the slot traps.
        assert!(code.bytes[code.len..].iter().all(|&byte| byte == 0xcc));
    }

    #[test]
    fn an_entry_is_overwritten_where_the_hook_makes_the_call() {
        assert_eq!(overwritten(&patch(CALL)), Some((0x100, 0x107)));
        let code = Trampoline::new(&patch(CALL), BASE, AT, HOOKS).expect("it fits");
        let jump = jump(AT + code.len - LENGTH, BASE + 0x107).expect("it is near");
        assert_eq!(code.bytes[code.len - LENGTH..code.len], jump);
    }

    #[test]
    fn inconsistent_or_distant_patches_give_no_trampoline() {
        // A patch with its hook after the call must not overwrite anything before it.
        assert_eq!(overwritten(&patch(0)), None);
        let other = Patch {
            from: 0x101,
            ..patch(CALL)
        };
        assert_eq!(overwritten(&other), None);
        let far = BASE + (1 << 32);
        assert!(Trampoline::new(&patch(BEFORE), far, AT, HOOKS).is_none());
    }
}
