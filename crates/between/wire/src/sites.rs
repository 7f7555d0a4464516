//! The plan by which the target leads its kernel calls through hooks. It is a small read-only
//! file that the tool writes ([`write()`]) and a library inside the target reads and carries out
//! ([`Plan`]).
//!
//! The reader neither allocates nor trusts the file: a file that is damaged, truncated or of
//! another version gives no plan.

use core::mem::size_of;
pub use sunder_x86::patch::{
    ANY_NUMBER, BEFORE, CALL, COPIED, DISTANCES, IN_REGISTER, Patch, RETURNS, RUN,
};

/// The first eight bytes of every plan.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SUNDSITE");
/// The version of the format.
pub const VERSION: u32 = 4;
/// The most bytes of a build identifier.
pub const BUILD_ID: usize = 32;

/// The header of a plan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Header {
    magic: u64,
    version: u32,
    modules: u32,
}

/// The header of the plan for one module.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ModuleHeader {
    build_id: [u8; BUILD_ID],
    build_id_len: u32,
    patches: u32,
}

/// The plan for one module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModulePlan<B, P> {
    /// The module's build identifier. The plan is for no other file.
    pub build_id: B,
    /// The patches, by ascending address.
    pub patches: P,
}

/// The plan for one module as the target sees it.
pub type MappedPlan<'a> = ModulePlan<&'a [u8], Patches<'a>>;

/// The bytes of a plan. Modules whose build identifier is missing or too long are left out.
#[cfg(feature = "tool")]
#[must_use]
pub fn write(modules: &[ModulePlan<Vec<u8>, Vec<Patch>>]) -> Vec<u8> {
    let fits = |m: &&ModulePlan<Vec<u8>, Vec<Patch>>| (1..=BUILD_ID).contains(&m.build_id.len());
    let modules: Vec<_> = modules.iter().filter(fits).collect();
    let mut bytes = Vec::new();
    bytes.extend(MAGIC.to_le_bytes());
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((modules.len() as u32).to_le_bytes());
    for module in modules {
        let mut id = [0; BUILD_ID];
        id[..module.build_id.len()].copy_from_slice(&module.build_id);
        bytes.extend(id);
        bytes.extend((module.build_id.len() as u32).to_le_bytes());
        bytes.extend((module.patches.len() as u32).to_le_bytes());
        for patch in &module.patches {
            bytes.extend(patch.entry.to_le_bytes());
            bytes.extend(patch.from.to_le_bytes());
            bytes.extend(patch.number.to_le_bytes());
            bytes.extend([patch.flags, patch.head_len, patch.tail_len, 0]);
            bytes.extend(patch.head);
            bytes.extend(patch.tail);
            bytes.extend(patch.run);
            bytes.extend([patch.run_len]);
            bytes.extend(patch.distances);
        }
    }
    bytes
}

/// A plan that is mapped in memory.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    modules: u32,
    rest: &'a [u8],
}

impl<'a> Plan<'a> {
    /// The plan in `bytes`; `None` if that is not a complete plan of this version.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = take::<Header>(bytes)?;
        if header.magic != MAGIC || header.version != VERSION {
            return None;
        }
        let plan = Self {
            modules: header.modules,
            rest,
        };
        let mut left = rest;
        for _ in 0..header.modules {
            (_, left) = module(left)?;
        }
        left.is_empty().then_some(plan)
    }

    /// The plans of all modules.
    pub fn modules(self) -> impl Iterator<Item = MappedPlan<'a>> {
        let mut left = self.rest;
        (0..self.modules).map_while(move |_| {
            let (found, rest) = module(left)?;
            left = rest;
            Some(found)
        })
    }
}

/// The patches of a module, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patches<'a> {
    bytes: &'a [u8],
}

impl Iterator for Patches<'_> {
    type Item = Patch;

    fn next(&mut self) -> Option<Patch> {
        let (patch, rest) = take::<Patch>(self.bytes)?;
        self.bytes = rest;
        Some(patch)
    }
}

fn module(bytes: &[u8]) -> Option<(MappedPlan<'_>, &[u8])> {
    let (header, rest) = take::<ModuleHeader>(bytes)?;
    let id = bytes.get(..header.build_id_len as usize)?;
    if id.is_empty() || id.len() > BUILD_ID {
        return None;
    }
    let len = (header.patches as usize).checked_mul(size_of::<Patch>())?;
    let (patches, rest) = rest.split_at_checked(len)?;
    let patches = Patches { bytes: patches };
    let sound = |p: Patch| {
        usize::from(p.head_len) <= COPIED
            && usize::from(p.tail_len) <= COPIED
            && usize::from(p.run_len) <= RUN
            && p.reserved == 0
    };
    let whole = ModulePlan {
        build_id: id,
        patches,
    };
    patches.into_iter().all(sound).then_some((whole, rest))
}

/// The first `T` of `bytes`, and what follows.
fn take<T: Plain>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let (first, rest) = bytes.split_at_checked(size_of::<T>())?;
    // SAFETY: `bytes` has that many bytes, any bytes are a valid `T`, and an unaligned read
    // needs no alignment.
    Some((unsafe { first.as_ptr().cast::<T>().read_unaligned() }, rest))
}

/// Types without padding of which any bytes are a value.
///
/// # Safety
/// The type must have no padding, and every bit pattern must be a valid value.
unsafe trait Plain: Copy {}
// SAFETY: integers and arrays of them, without gaps.
unsafe impl Plain for Header {}
// SAFETY: as above.
unsafe impl Plain for ModuleHeader {}
// SAFETY: as above; its fields fill its size.
unsafe impl Plain for Patch {}
const _: () = assert!(size_of::<Patch>() == 24 + 2 * COPIED + RUN + 1 + DISTANCES);

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(entry: u64) -> Patch {
        let mut patch = Patch {
            entry,
            from: entry - 5,
            number: 11,
            flags: CALL,
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

    fn plan() -> Vec<u8> {
        let module = |id: &[u8], patches: &[u64]| ModulePlan {
            build_id: id.to_vec(),
            patches: patches.iter().map(|&p| patch(p)).collect(),
        };
        write(&[
            module(&[1; 20], &[0x100, 0x200]),
            module(&[], &[0x300]),
            module(&[2; 8], &[0x400]),
        ])
    }

    #[test]
    fn a_written_plan_is_read_back() {
        let bytes = plan();
        let plan = Plan::read(&bytes).expect("whole");
        let modules: Vec<_> = plan.modules().collect();
        assert_eq!(
            modules.len(),
            2,
            "the one without an identifier is left out"
        );
        assert_eq!(modules[0].build_id, [1; 20]);
        assert_eq!(modules[1].build_id, [2; 8]);
        let patches: Vec<_> = modules[0].patches.collect();
        assert_eq!(patches, [patch(0x100), patch(0x200)]);
        assert_eq!(patches[0].head(), [0xb8, 11, 0, 0, 0]);
        assert!(patches[0].tail().is_empty());
    }

    #[test]
    fn a_damaged_plan_is_none() {
        let bytes = plan();
        for len in 0..bytes.len() {
            assert!(Plan::read(&bytes[..len]).is_none(), "{len}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Plan::read(&longer).is_none());
        // Offsets of the magic number, the version, the number of modules, and the two lengths.
        for at in [0, 8, 12, 16 + BUILD_ID, 16 + BUILD_ID + 4] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(Plan::read(&damaged).is_none(), "{at}");
        }
    }

    #[test]
    fn lengths_beyond_the_arrays_are_refused() {
        let mut bytes = plan();
        let head_len = 16 + size_of::<ModuleHeader>() + 21;
        assert_eq!(bytes[head_len], 5);
        bytes[head_len] = COPIED as u8 + 1;
        assert!(Plan::read(&bytes).is_none());
    }
}
