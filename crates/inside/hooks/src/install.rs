//! Carries out a plan: finds its modules, compares their code with it, writes trampolines, and only
//! then writes jumps into the code. Contexts: all, while no other thread runs; [`note_modules`]
//! normal.

use crate::area;
use crate::code::{Code, are};
use crate::enter::{self, Hooks};
use core::ffi::{CStr, c_int, c_void};
use core::mem::size_of;
use core::sync::atomic::{AtomicUsize, Ordering};
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::system::protect;
use sunder_wire::sites::{COPIED, MappedPlan, Patch, Patches, Plan};
use sunder_x86::jump::jump;
use sunder_x86::trampoline::{SIZE, Trampoline, overwritten};

const RUN: i32 = libc::PROT_READ | libc::PROT_EXEC;
const NOP: u8 = 0x90;

/// Why a plan was not carried out. The code is then unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The bytes are not a valid plan.
    NoPlan,
    /// A module of the plan is not loaded, or is another build.
    OtherModule,
    /// The code differs from what the plan was made for: something has changed it.
    OtherCode,
    /// No free memory near the code.
    NoRoom,
    /// The kernel does not allow code to be changed.
    Forbidden,
}

/// A loaded module of the plan.
#[derive(Clone, Copy)]
struct Module<'a> {
    base: usize,
    /// The start of its code.
    start: usize,
    end: usize,
    patches: Patches<'a>,
}

/// The most modules for which a plan has patches.
pub const MOST_MODULES: usize = 4;

/// Start and end of each area with trampolines of the plan that was carried out.
static AREAS: [[AtomicUsize; 2]; MOST_MODULES] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; MOST_MODULES];

/// The areas of trampolines, which is code that belongs to no file: start and end (exclusive) of
/// each; two zeroes where there is none.
pub fn areas() -> impl Iterator<Item = (usize, usize)> {
    AREAS
        .iter()
        .map(|[start, end]| (start.load(Ordering::Acquire), end.load(Ordering::Acquire)))
}

/// Leads the calls of the plan in `bytes` through `hooks`, and returns how many there are.
///
/// # Errors
/// The reason; nothing was changed then.
///
/// # Safety
/// No other thread runs in this address space, and no signal handler of this thread. No thread's
/// instruction pointer is inside the code that the plan's patches overwrite.
pub unsafe fn install(bytes: &[u8], hooks: Hooks) -> Result<usize, Refusal> {
    let plan = Plan::read(bytes).ok_or(Refusal::NoPlan)?;
    let mut modules: [Option<Module>; MOST_MODULES] = [None; MOST_MODULES];
    let mut areas = [(0, 0); MOST_MODULES];
    for (i, module) in plan.modules().enumerate() {
        let module_of_plan = modules.get_mut(i).ok_or(Refusal::NoPlan)?;
        *module_of_plan = Some(loaded(&module).ok_or(Refusal::OtherModule)?);
    }
    hooks.set();
    let mut count = 0;
    for (module, area) in modules.iter().flatten().zip(&mut areas) {
        match prepare(module) {
            Ok(prepared) => *area = prepared,
            Err(refusal) => {
                give_back(&areas);
                return Err(refusal);
            }
        }
        count += module.patches.into_iter().count();
    }
    let code = Code::open();
    let all = || modules.iter().flatten();
    let diverted = code.as_ref().is_some_and(|code| {
        // SAFETY: by this function's contract no thread runs there.
        all()
            .zip(areas)
            .all(|(module, area)| unsafe { divert(code, module, area.0) })
    });
    if !diverted {
        for module in all() {
            if let Some(code) = &code {
                // SAFETY: by this function's contract no thread runs there.
                unsafe { restore(code, module) };
            }
        }
        give_back(&areas);
        return Err(Refusal::Forbidden);
    }
    for (kept, (at, bytes)) in AREAS.iter().zip(areas) {
        kept[0].store(at, Ordering::Release);
        kept[1].store(at + bytes, Ordering::Release);
    }
    Ok(count)
}

/// The address and length of the plan that was carried out, which is never unmapped.
static PLAN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static BASES: [AtomicUsize; MOST_MODULES] = [const { AtomicUsize::new(0) }; MOST_MODULES];

/// The number of the kernel call whose instruction ends at `next`; `None` if no plan has it. May be
/// called in a signal handler.
pub fn number_before(next: usize) -> Option<u32> {
    let [at, len] = [
        PLAN[0].load(Ordering::Acquire),
        PLAN[1].load(Ordering::Relaxed),
    ];
    if at == 0 {
        return None;
    }
    // SAFETY: `remember` stored this range; its caller guaranteed that it is never unmapped.
    let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
    let modules = Plan::read(bytes)?.modules().zip(&BASES);
    modules
        .flat_map(|(module, base)| {
            let base = base.load(Ordering::Relaxed);
            module.patches.into_iter().map(move |patch| (base, patch))
        })
        .find(|(base, patch)| base.wrapping_add(patch.entry as usize + 2) == next)
        .and_then(|(_, patch)| u32::try_from(patch.number).ok())
}

/// From here on [`number_before`] finds the calls of this plan, which was carried out.
///
/// # Safety
/// The bytes are never unmapped or changed.
pub unsafe fn remember(bytes: &[u8]) {
    let Some(plan) = Plan::read(bytes) else {
        return;
    };
    for (module, base) in plan.modules().zip(&BASES) {
        base.store(loaded(&module).map_or(0, |m| m.base), Ordering::Relaxed);
    }
    PLAN[1].store(bytes.len(), Ordering::Relaxed);
    PLAN[0].store(bytes.as_ptr() as usize, Ordering::Release);
}

/// Unmaps memory for trampolines to which no jump leads.
fn give_back(areas: &[(usize, usize)]) {
    for &(at, bytes) in areas.iter().filter(|a| a.1 > 0) {
        // SAFETY: no jump leads there.
        unsafe { area::give_back(at, bytes) };
    }
}

/// Writes the module's trampolines; returns their address and their size in bytes.
fn prepare(module: &Module) -> Result<(usize, usize), Refusal> {
    let count = module.patches.into_iter().count();
    let bytes = (count * SIZE).next_multiple_of(PAGE).max(PAGE);
    if !module
        .patches
        .into_iter()
        .all(|p| is_as_planned(module, &p))
    {
        return Err(Refusal::OtherCode);
    }
    let at = area::near(module.start, module.end, bytes).ok_or(Refusal::NoRoom)?;
    let hooks = enter::entries();
    for (i, patch) in module.patches.enumerate() {
        let address = at + i * SIZE;
        let Some(trampoline) = Trampoline::new(&patch, module.base, address, hooks) else {
            // SAFETY: no jump leads there.
            unsafe { area::give_back(at, bytes) };
            return Err(Refusal::NoPlan);
        };
        // SAFETY: the address is within the new pages.
        unsafe { (address as *mut [u8; SIZE]).write(trampoline.bytes) };
    }
    // SAFETY: our own new pages, which are not in use yet.
    if unsafe { protect(at, bytes, RUN) } == 0 {
        Ok((at, bytes))
    } else {
        // SAFETY: no jump leads there.
        unsafe { area::give_back(at, bytes) };
        Err(Refusal::Forbidden)
    }
}

/// Whether the module's code at the patch is the code for which the plan was made.
fn is_as_planned(module: &Module, patch: &Patch) -> bool {
    let Some((start, end)) = overwritten(patch) else {
        return false;
    };
    let entry = module.base.wrapping_add(patch.entry as usize);
    let (start, end) = (
        module.base.wrapping_add(start),
        module.base.wrapping_add(end),
    );
    if start.min(entry) < module.start || end > module.end {
        return false;
    }
    // SAFETY: the range is within the module's code, which is readable.
    unsafe {
        are(entry, &[0x0f, 0x05])
            && are(entry + 2, patch.tail())
            && are(entry - patch.head().len(), patch.head())
    }
}

/// Writes the jumps.
///
/// # Safety
/// As [`install`].
unsafe fn divert(code: &Code, module: &Module, area: usize) -> bool {
    module.patches.enumerate().all(|(i, patch)| {
        let Some((start, end)) = overwritten(&patch) else {
            return false;
        };
        let (start, end) = (module.base + start, module.base + end);
        let Some(jump) = jump(start, area + i * SIZE) else {
            return false;
        };
        let mut bytes = [NOP; 2 * COPIED + 2];
        let Some(bytes) = bytes.get_mut(..end - start) else {
            return false;
        };
        for (to, byte) in bytes.iter_mut().zip(jump) {
            *to = byte;
        }
        // SAFETY: by this function's contract no thread executes it.
        unsafe { code.write(start, bytes) }
    })
}

/// Restores the module's own instructions.
///
/// # Safety
/// As [`install`].
unsafe fn restore(code: &Code, module: &Module) {
    for patch in module.patches {
        let entry = module.base + patch.entry as usize;
        // SAFETY: by this function's contract no thread executes it.
        unsafe {
            code.write(entry, &[0x0f, 0x05]);
            code.write(entry + 2, patch.tail());
            code.write(entry - patch.head().len(), patch.head());
        }
    }
}

/// The modules for which plans exist, as [`note_modules`] found them: for each, its base address,
/// the address of its program headers, and their number.
static NOTED: [[AtomicUsize; 3]; MOST_MODULES] =
    [const { [const { AtomicUsize::new(0) }; 3] }; MOST_MODULES];

/// Keeps where the C library and the dynamic linker are loaded, so that [`install`] need not ask
/// the dynamic linker: its lock may be held by a stopped thread. Their addresses do not change.
pub fn note_modules() {
    let mut count = 0usize;
    let data = (&raw mut count).cast::<c_void>();
    // SAFETY: `note` gets the data that it expects, and `count` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), data) };
}

unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes `info`, and the data is our own count.
    let (info, count) = unsafe { (&*info, &mut *data.cast::<usize>()) };
    if info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: the dynamic linker passes a C string.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    if !name.ends_with(b"/libc.so.6") && !name.ends_with(b"/ld-linux-x86-64.so.2") {
        return 0;
    }
    let Some([base, headers, len]) = NOTED.get(*count) else {
        return 1;
    };
    *count += 1;
    base.store(info.dlpi_addr as usize, Ordering::Relaxed);
    len.store(info.dlpi_phnum.into(), Ordering::Relaxed);
    headers.store(info.dlpi_phdr as usize, Ordering::Release);
    0
}

/// The module of the plan, as it is loaded; `None` if it is not.
fn loaded<'a>(plan: &MappedPlan<'a>) -> Option<Module<'a>> {
    let mut search = Search {
        build_id: plan.build_id,
        found: None,
    };
    let mut noted = NOTED
        .iter()
        .map(|note| note.each_ref().map(|word| word.load(Ordering::Acquire)))
        .filter(|note| note[1] != 0)
        .peekable();
    if noted.peek().is_none() {
        let data = (&raw mut search).cast::<c_void>();
        // SAFETY: `look` gets the data that it expects, and `search` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(look), data) };
    }
    for [base, headers, len] in noted {
        // SAFETY: the dynamic linker reported these headers, of modules that are never unloaded.
        let headers = unsafe { core::slice::from_raw_parts(headers as *const _, len) };
        look_at(base, headers, &mut search);
    }
    let (base, start, end) = search.found?;
    Some(Module {
        base,
        start,
        end,
        patches: plan.patches,
    })
}

struct Search<'a> {
    build_id: &'a [u8],
    found: Option<(usize, usize, usize)>,
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes `info`, and the data is our own search.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the dynamic linker reports so many headers.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    c_int::from(look_at(info.dlpi_addr as usize, headers, search))
}

/// Whether this is the module that is searched.
fn look_at(base: usize, headers: &[libc::Elf64_Phdr], search: &mut Search<'_>) -> bool {
    let is_it = headers
        .iter()
        .filter(|h| h.p_type == libc::PT_NOTE)
        // SAFETY: the notes are loaded with the module.
        .any(|h| unsafe { has_build_id(base, h, search.build_id) });
    let mut code = headers
        .iter()
        .filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0);
    let (Some(code), None, true) = (code.next(), code.next(), is_it) else {
        return false;
    };
    let start = base.wrapping_add(code.p_vaddr as usize);
    search.found = Some((base, start, start.wrapping_add(code.p_memsz as usize)));
    true
}

/// Whether the notes of `header` contain this build identifier.
///
/// # Safety
/// The notes are mapped and readable.
unsafe fn has_build_id(base: usize, header: &libc::Elf64_Phdr, wanted: &[u8]) -> bool {
    const NT_GNU_BUILD_ID: u32 = 3;
    let start = base.wrapping_add(header.p_vaddr as usize);
    let end = start.wrapping_add(header.p_memsz as usize);
    let mut at = start;
    while at + 3 * size_of::<u32>() <= end {
        // SAFETY: the range is within the notes.
        let [name, len, kind] = unsafe { (at as *const [u32; 3]).read_unaligned() };
        let name_at = at + 12;
        let desc = name_at + (name as usize).next_multiple_of(4);
        let next = desc + (len as usize).next_multiple_of(4);
        if next > end {
            return false;
        }
        let same = kind == NT_GNU_BUILD_ID && name == 4 && len as usize == wanted.len();
        // SAFETY: the ranges are within the notes.
        if same && unsafe { are(name_at, b"GNU\0") && are(desc, wanted) } {
            return true;
        }
        at = next;
    }
    false
}
