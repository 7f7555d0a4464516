//! Which kernel calls of a running program are led through hooks, and how: those of the C library,
//! and those of modules that make calls of their own (`own`). The plan is made from the files that the program has mapped. Called by `entry` and `inject`.

use super::calls::{needed, only_if_there_is_room};
use super::module::{KERNELS, Module};
use super::own;
use anyhow::{Context, Result, bail, ensure};
use sunder_access::{Address, Mapping, Mappings, ProcessId};
use sunder_hooking::{
    Own, RESTORES, are_apart, base, guards_work, is_covered, may_go_without_hook, restorers,
};
use sunder_observe::code::ModuleCode;
use sunder_observe::foreign::ForeignFiles;
use sunder_rewrite::is_harmless;
use sunder_rewrite::sites::{self, Entering, Function, Number, Want};
use sunder_stop::Gate;
use sunder_wire::sites::{BEFORE, Patch};

/// Modules within this distance of each other have their trampolines in one place.
const NEAR: u64 = 1 << 30;

/// Bytes before a call, in a loop, that are searched for its number.
const LOOP: u64 = 64;

/// How long hooks stay in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// They are taken out again, so no thread may wait inside a hook.
    ForAWhile,
    /// As long as the program runs.
    ToTheEnd,
}

/// The modules with hooks, and their patches; see the head of this file.
pub struct Plan {
    /// The C library, the dynamic linker and the vDSO, then modules that make calls of their own.
    pub modules: Vec<Module>,
    /// The modules that make calls of their own.
    own: Vec<Own>,
}

impl Plan {
    /// The plan for `process` with these mappings and with hooks for this `stay`; `own` are the
    /// modules that make calls of their own, and `known` what [`covered`] gave earlier.
    ///
    /// # Errors
    /// Says why there is no plan, as the second half of a sentence.
    pub fn new(
        process: ProcessId,
        mappings: &Mappings,
        stay: Stay,
        own: Vec<Own>,
        known: Vec<Module>,
    ) -> Result<Self> {
        let files = ForeignFiles::of(process);
        let code = || mappings.iter().filter(|m| m.execute && m.is_file());
        let mut modules = covered(process, mappings, stay, known)?;
        let has = |name: &str| modules.iter().any(|m| m.path.ends_with(name));
        ensure!(
            has("/libc.so.6"),
            "it does not use the C library that hooks are made for (it is linked statically, or \
             with another)"
        );
        for mapping in mappings.iter().filter(|m| m.execute && m.path == KERNELS) {
            modules.push(own::kernels(process, mapping)?);
        }
        for mapping in code() {
            let is_it = |o: &&Own| o.path == mapping.path && o.start == mapping.span.start.0;
            if own.iter().any(|o| is_it(&o)) {
                modules.push(own::module(&files, mapping)?);
            }
        }
        ensure!(
            modules.iter().filter(|m| m.may_go()).count() == own.len(),
            "a module of it that makes kernel calls of its own is gone"
        );
        Ok(Self { modules, own })
    }

    /// The modules other than the C library whose calls are led through hooks.
    pub fn own(&self) -> &[Own] {
        &self.own
    }

    /// The patches of modules that may be unloaded, each with its module's base address.
    pub fn own_patches(&self) -> impl Iterator<Item = (u64, &Patch)> {
        let own = self.modules.iter().filter(|m| m.may_go());
        own.flat_map(|m| m.patches.iter().map(|p| (m.base, p)))
    }

    /// Whether the process still has all modules of the plan at the same addresses.
    pub fn is_for(&self, mappings: &Mappings) -> bool {
        self.modules.iter().all(|module| {
            let (start, end) = module.code;
            mappings.at(Address(start)).is_some_and(|m| {
                m.execute
                    && m.path == module.path
                    && (m.span.start.0, m.span.end().0) == (start, end)
            })
        })
    }

    /// The number of all patches.
    pub fn count(&self) -> usize {
        self.modules.iter().map(|m| m.patches.len()).sum()
    }

    /// All patches, each with its module's base address.
    pub fn patches(&self) -> impl Iterator<Item = (u64, &Patch)> {
        let all = self.modules.iter();
        all.flat_map(|m| m.patches.iter().map(|p| (m.base, p)))
    }

    /// Start and end address of the code that lies near the C library.
    pub fn extent(&self) -> (u64, u64) {
        let near = self.modules.iter().filter(|m| !self.is_far(m));
        near.map(|m| m.code)
            .fold((u64::MAX, 0), |(s, e), (a, b)| (s.min(a), e.max(b)))
    }

    /// Whether jumps from a module may not reach trampolines beside the C library: the program's
    /// own code, or the vDSO.
    pub fn is_far(&self, module: &Module) -> bool {
        let may_be = !is_covered(&module.path);
        let mut first = self.modules.iter().filter(|m| is_covered(&m.path));
        may_be && first.any(|m| m.code.0.abs_diff(module.code.0) > NEAR)
    }

    /// Code through which a borrowed thread makes kernel calls, and which no patch changes.
    pub fn gate(&self) -> Option<Gate> {
        let restore = self.modules.iter().find_map(|m| m.restorers.first());
        Some(Gate {
            call: self.modules.iter().find_map(|m| m.call)?,
            restore: *restore?,
        })
    }

    /// Whether a thread at `ip` has left a hook and is about to make its call.
    pub fn is_before_a_call(&self, ip: u64) -> bool {
        self.patches()
            .any(|(base, p)| p.flags & BEFORE != 0 && base + p.entry == ip)
    }
}

/// The C library and the dynamic linker of `process`, which has these mappings: what takes longest of
/// a plan, and is the same for every program. Those among `known`, from an earlier call for the same
/// process, are not made again.
///
/// # Errors
/// Says why one of them can't have hooks, as the second half of a sentence.
pub fn covered(
    process: ProcessId,
    mappings: &Mappings,
    stay: Stay,
    mut known: Vec<Module>,
) -> Result<Vec<Module>> {
    let files = ForeignFiles::of(process);
    let covered = mappings
        .iter()
        .filter(|m| m.execute && m.is_file() && is_covered(&m.path));
    let of = |mapping: &Mapping| {
        let code = (mapping.span.start.0, mapping.span.end().0);
        let mut known = known.extract_if(.., |m| m.path == mapping.path && m.code == code);
        known
            .next()
            .map_or_else(|| module(&files, mapping, stay), Ok)
    };
    covered.map(of).collect()
}

fn module(files: &ForeignFiles, mapping: &Mapping, stay: Stay) -> Result<Module> {
    let path = &mapping.path;
    let file = files.mapped(mapping).ok();
    let code = file
        .and_then(|file| ModuleCode::read(&file))
        .with_context(|| format!("the code of {path} can't be read"))?;
    ensure!(
        code.segments.len() == 1,
        "the code of {path} lies in several places"
    );
    let functions: Vec<Function> = code
        .functions
        .iter()
        .map(|&(start, end)| Function { start, end })
        .collect();
    let at = |address: u64| {
        let offset = usize::try_from(address.checked_sub(code.address)?).ok()?;
        code.bytes.get(offset..)
    };
    let entering = Entering::of(&code.bytes, code.address, &functions);
    let first = entering.plan(|_, number| needed(number));
    let mut reads = Vec::new();
    for refused in &first.refused {
        // `read` of a program with one thread; see docs/design/attach.md.
        let reads_alone = refused.number == Number::Always(libc::SYS_read as u32);
        if reads_alone && stay == Stay::ToTheEnd {
            reads.push(refused.entry);
        }
        let may_be_left = reads_alone
            || only_if_there_is_room(refused.number)
            || refused.number == Number::Always(libc::SYS_exit_group as u32)
            || matches!(refused.number, Number::Any | Number::In(_))
                && refused
                    .entry
                    .checked_sub(LOOP)
                    .and_then(at)
                    .is_some_and(|b| ends_it(&b[..LOOP as usize]));
        if !may_be_left {
            bail!(
                "a kernel call at {:#x} in {path} can't be led through a hook: {}",
                refused.entry,
                refused.reason
            );
        }
    }
    let ends_handler = |p: &&sites::Patch| {
        let before = p.entry.checked_sub(RESTORES.len() as u64 - 2);
        before
            .and_then(at)
            .is_some_and(|b| b.starts_with(&RESTORES))
    };
    let mut patches: Vec<sites::Patch> = first
        .patches
        .iter()
        .filter(|p| !ends_handler(p))
        .cloned()
        .collect();
    let second = entering.plan(|entry, number| {
        if reads.contains(&entry) {
            Want::Call
        } else if needed(number) == Want::Call || is_without_pointers(number) {
            Want::Nothing
        } else {
            Want::Result
        }
    });
    if let Some(read) = second.refused.iter().find(|r| reads.contains(&r.entry)) {
        let (entry, reason) = (read.entry, read.reason);
        bail!("`read` at {entry:#x} in {path} can't be led through a hook: {reason}");
    }
    for refused in &second.refused {
        let has_another = patches.iter().any(|p| p.entry == refused.entry);
        ensure!(
            has_another || may_go_without_hook(refused.number),
            "a kernel call at {:#x} in {path} can't be led through a hook: {}",
            refused.entry,
            refused.reason
        );
    }
    for patch in second.patches {
        if patches.iter().all(|other| are_apart(&patch, other)) && !ends_handler(&&patch) {
            patches.push(patch);
        } else {
            ensure!(
                !reads.contains(&patch.entry),
                "`read` at {:#x} in {path} can't be led through a hook",
                patch.entry
            );
        }
    }
    guards_work(&patches)?;
    let base = base(mapping, code.address).context("a library lies where it can't")?;
    let restorers = restorers(&code).map(|at| base + at).collect();
    let call = plain_call(&code, &patches).map(|at| base + at);
    Ok(Module {
        base,
        patches: patches.iter().map(Patch::from).collect(),
        restorers,
        call,
        path: path.clone(),
        code: (mapping.span.start.0, mapping.span.end().0),
    })
}

/// The address, as in the file, of a `syscall` instruction that is followed by a return, as in
/// `getpid`, and that no patch changes.
fn plain_call(code: &ModuleCode, patches: &[sites::Patch]) -> Option<u64> {
    const CALL_AND_RETURN: [u8; 3] = [0x0f, 0x05, 0xc3];
    let len = CALL_AND_RETURN.len() as u64;
    let is_patched = |at: u64| {
        let mut patches = patches.iter();
        patches.any(|p| p.from < at + len && at < p.from + p.length as u64)
    };
    let places = code.bytes.windows(CALL_AND_RETURN.len()).enumerate();
    places
        .filter(|(_, bytes)| *bytes == CALL_AND_RETURN)
        .map(|(i, _)| code.address + i as u64)
        .find(|&at| !is_patched(at))
}

/// Whether the call ends a thread or the program, in a loop: its number was loaded before. Such a
/// call needs no hook, as it uses no bytes that could be missed.
fn ends_it(before: &[u8]) -> bool {
    let constants = [libc::SYS_exit as u32, libc::SYS_exit_group as u32];
    let constants = constants.map(u32::to_le_bytes);
    before
        .windows(4)
        .any(|word| constants.iter().any(|c| c == word))
}

/// Whether a call takes no pointers. Copies of code make such calls too, and recognise a hook on
/// one only if it replaces a single instruction.
fn is_without_pointers(number: Number) -> bool {
    matches!(number, Number::Always(number) if is_harmless(number))
}
