//! The hooks in the program's code: jumps to the trampolines, written while all threads are stopped.

use super::Inside;
use anyhow::{Context, Result, ensure};
use sunder_access::Address;
use sunder_observe::proc;
use sunder_wire::sites::{COPIED, Patch};
use sunder_x86::jump::jump;
use sunder_x86::trampoline::overwritten;

/// The instruction that fills what a jump does not take of the overwritten bytes.
const NOP: u8 = 0x90;

impl Inside {
    /// Writes jumps to the trampolines into the program's code.
    pub(super) fn divert(&self) -> Result<()> {
        for (i, (base, patch)) in self.plan.patches().enumerate() {
            let (at, bytes) = self.hook(i, base, patch)?;
            self.memory
                .write(at, &bytes)
                .context("the code of its C library can't be changed")?;
        }
        Ok(())
    }

    /// Address and bytes of the hook for the patch of this number.
    fn hook(&self, number: usize, base: u64, patch: &Patch) -> Result<(u64, Vec<u8>)> {
        let (start, end) = overwritten(patch).context("a plan contradicts itself")?;
        let at = base + start as u64;
        let to = jump(at as usize, self.trampoline(number) as usize);
        let mut bytes = vec![NOP; end - start];
        bytes[..5].copy_from_slice(&to.context("its C library is out of reach")?);
        Ok((at, bytes))
    }

    /// Whether the hook for the patch of this number is in the code. Where nothing is mapped, none
    /// is.
    fn has_hook(&self, number: usize, base: u64, patch: &Patch) -> Result<bool> {
        let (at, bytes) = self.hook(number, base, patch)?;
        match self.memory.read(at, bytes.len()) {
            Ok(found) => Ok(found == bytes),
            Err(error) => {
                let mappings = proc::mappings(self.process)?;
                let is_mapped = mappings.at(Address(at)).is_some();
                ensure!(!is_mapped, "its code can't be read: {error}");
                Ok(false)
            }
        }
    }

    /// Whether all modules that may be unloaded still have their hooks: one may have been unloaded
    /// and loaded anew.
    pub(super) fn has_own_hooks(&self) -> bool {
        let of_its_own = self.plan.own_patches().count();
        let all = self.plan.patches().enumerate();
        let mut own = all.skip(self.plan.count() - of_its_own);
        own.all(|(i, (base, patch))| self.has_hook(i, base, patch).is_ok_and(|has| has))
    }

    /// Addresses and bytes of the original code where hooks are: a module may have been unloaded,
    /// and something else may lie there.
    pub(super) fn hooks_there(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut there = Vec::new();
        for (i, (base, patch)) in self.plan.patches().enumerate() {
            if self.has_hook(i, base, patch)? {
                there.push(original(base, patch));
            }
        }
        Ok(there)
    }

    /// Writes the original code back. After an error some hooks are still there.
    pub(super) fn restore(&self, hooks: &[(u64, Vec<u8>)]) -> Result<()> {
        hooks.iter().try_for_each(|(at, bytes)| {
            let written = self.memory.write(*at, bytes);
            written.context("the code of its C library can't be changed back")
        })
    }
}

/// Address and bytes of the code that a patch overwrites.
fn original(base: u64, patch: &Patch) -> (u64, Vec<u8>) {
    const _: () = assert!(COPIED >= 5);
    let at = base + patch.entry - patch.head().len() as u64;
    (at, [patch.head(), &[0x0f, 0x05], patch.tail()].concat())
}
