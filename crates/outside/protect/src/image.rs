//! The program's mapped files: which code isolated threads may execute, where global variables lie,
//! and reasons against isolating anything. Called by the keeper and by `target`. Reads `/proc` and
//! the mapped files; must not touch the program.

use super::functions::Functions;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind, SymbolKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use sunder_access::{Address, Mappings, PAGE, ProcessId, ThreadId};
use sunder_hooking::Calls;
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::proc::{self, Fields, Folder};
use sunder_rewrite::OrderingCode;
use sunder_rewrite::sites::Number;

/// What is known of a mapped file.
#[derive(Debug, Default)]
struct Module {
    /// Pages of code without an instruction that orders memory: address ranges as in the file.
    code: Vec<[u64; 2]>,
    /// Those of them that have no loop that waits for another thread by plain loads, either.
    without_waits: Vec<[u64; 2]>,
    /// Global variables by name: address in the file and size; the size is 0 if different variables
    /// share the name.
    globals: BTreeMap<String, [u64; 2]>,
    /// Where the dynamic linker stores function addresses at their first call (`.got.plt`).
    lazy: Option<[u64; 2]>,
    /// Address of the segment at file offset 0.
    first: u64,
}

/// The mapped files. Each is read once.
#[derive(Debug, Default)]
pub struct Images {
    modules: BTreeMap<PathBuf, Module>,
}

fn mappings(process: i32) -> Mappings {
    let process = ProcessId(process.unsigned_abs());
    proc::mappings_in(Folder::Process(process)).unwrap_or_default()
}

/// Whether a file belongs to the C library or the dynamic linker. Threads synchronise there, so
/// they must be native in it.
pub fn is_systems(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [
        "libc.so",
        "libc-",
        "ld-linux",
        "libpthread",
        "librt",
        "libnptl",
    ]
    .iter()
    .any(|start| name.starts_with(start))
}

/// Which code isolated threads may execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// All mapped code.
    All,
    /// Pages without instructions that order memory. It suffices where all memory that threads share is
    /// private: then what they hand over by plain stores and what it is about become visible together.
    WithoutOrder,
    /// Those of them without loops that wait by plain loads.
    WithoutWaits,
}

impl Images {
    /// Address ranges, in whole pages, of the code that isolated threads may execute.
    pub fn code(&mut self, process: i32, allowed: Allowed) -> Vec<[u64; 2]> {
        let mut ranges = Vec::new();
        let mut firsts: BTreeMap<String, u64> = BTreeMap::new();
        for mapping in mappings(process).iter() {
            let (start, end) = (mapping.span.start.0, mapping.span.end().0);
            if mapping.file_offset == 0 {
                firsts.insert(mapping.path.clone(), start);
            }
            let path = Path::new(&mapping.path);
            // Our own code is never among it: a thread there enters or leaves an episode.
            let ours = mapping.path.starts_with("/memfd:");
            let is_code = mapping.read && !mapping.write && mapping.execute;
            if !is_code || !path.is_absolute() || ours {
                continue;
            }
            if allowed == Allowed::All {
                ranges.push([start, end]);
                continue;
            }
            if is_systems(path) {
                continue;
            }
            let Some(first) = firsts.get(&mapping.path) else {
                continue;
            };
            let module = self.module(process, path);
            let bias = first.wrapping_sub(module.first & !(PAGE - 1));
            let code = match allowed {
                Allowed::WithoutWaits => &module.without_waits,
                _ => &module.code,
            };
            for [from, to] in code {
                let (from, to) = (from.wrapping_add(bias), to.wrapping_add(bias));
                let (from, to) = (from.max(start), to.min(end));
                if from < to {
                    ranges.push([from, to]);
                }
            }
        }
        ranges
    }

    /// Address and size of a global variable in a mapped file, or in the first file that has the
    /// name if `file` is `None`.
    pub fn global(&mut self, process: i32, file: Option<&str>, name: &str) -> Option<[u64; 2]> {
        for mapping in mappings(process).iter() {
            let path = Path::new(&mapping.path);
            let is_wanted = file.is_none_or(|file| file == mapping.path);
            if mapping.file_offset != 0 || !path.is_absolute() || !is_wanted || is_systems(path) {
                continue;
            }
            let module = self.module(process, path);
            if let Some([address, size]) = module.globals.get(name)
                && *size > 0
            {
                let start = mapping.span.start.0;
                let bias = start.wrapping_sub(module.first & !(PAGE - 1));
                return Some([address.wrapping_add(bias), *size]);
            }
        }
        None
    }

    /// The bytes on the pages of `[from, to)` that the dynamic linker writes at the first calls of
    /// functions. They may be private: a thread that sees such a write late only has the function
    /// looked up again.
    pub fn lazy(&mut self, process: i32, [from, to]: [u64; 2]) -> Option<[u64; 2]> {
        let all = mappings(process);
        let (from, to) = (from & !(PAGE - 1), to.next_multiple_of(PAGE));
        let on = all.at(Address(from))?;
        let path = Path::new(&on.path);
        let mut same = all.iter().filter(|m| m.path == on.path);
        let first = same.find(|m| m.file_offset == 0)?;
        let module = path.is_absolute().then(|| self.module(process, path))?;
        let bias = first.span.start.0.wrapping_sub(module.first & !(PAGE - 1));
        let [start, end] = module.lazy?.map(|a| a.wrapping_add(bias));
        let (start, end) = (start.max(from), end.min(to));
        (start < end).then_some([start, end])
    }

    fn module(&mut self, process: i32, path: &Path) -> &Module {
        self.modules
            .entry(path.to_owned())
            .or_insert_with(|| read(process, path).unwrap_or_default())
    }
}

/// All of a file; `None` if it has more than `most` bytes.
fn contents(mut file: &File, most: u64) -> Option<Vec<u8>> {
    // The length of a sparse file says how much memory it would take, and not how much it holds.
    if file.metadata().ok()?.len() > most {
        return None;
    }
    let mut bytes = Vec::new();
    file.by_ref().take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

fn read(process: i32, path: &Path) -> Option<Module> {
    let files = ForeignFiles::of(ProcessId(process.unsigned_abs()));
    let bytes = contents(&files.open(path).ok()?, LARGEST)?;
    let file = object::File::parse(bytes.as_slice()).ok()?;
    let mut module = Module::default();
    for segment in file.segments() {
        if segment.file_range().0 == 0 {
            module.first = segment.address();
            break;
        }
    }
    let lazy = file.section_by_name(".got.plt");
    module.lazy = lazy.map(|s| [s.address(), s.address().saturating_add(s.size())]);
    // Restartable sequences (rseq) depend on the thread's CPU.
    let restarts = file.section_by_name("__rseq_cs").is_some();
    if !restarts {
        [module.code, module.without_waits] = quiet_code(&file);
    }
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if symbol.kind() != SymbolKind::Data || !symbol.is_definition() || symbol.size() == 0 {
            continue;
        }
        let Ok(name) = symbol.name() else { continue };
        let place = [symbol.address(), symbol.size()];
        let known = module.globals.entry(name.to_owned()).or_insert(place);
        if *known != place {
            // Different variables have this name.
            known[1] = 0;
        }
    }
    Some(module)
}

/// Pages of code without an instruction that orders memory, and those of them that have no loop that waits by
/// plain loads, either.
fn quiet_code(file: &object::File<'_>) -> [Vec<[u64; 2]>; 2] {
    let mut pages: BTreeSet<u64> = BTreeSet::new();
    let mut loud: BTreeSet<u64> = BTreeSet::new();
    let mut waits: BTreeSet<u64> = BTreeSet::new();
    let functions = Functions::of(file);
    let mut left = LARGEST;
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let start = section.address();
        let Ok(code) = section.data() else { continue };
        // Sections of a damaged file may overlap, so that all of them have more code than the file.
        match left.checked_sub(code.len() as u64) {
            Some(rest) => left = rest,
            None => return Default::default(),
        }
        let ordering = OrderingCode::of(code, start);
        loud.extend(ordering.pages);
        waits.extend(functions.waiting_pages(code, start, &ordering.loops));
        pages.extend(code_pages(start, code.len() as u64));
    }
    waits.extend(&loud);
    [loud, waits].map(|without| ranges(pages.difference(&without)))
}

/// Pages as ranges of addresses.
fn ranges<'a>(pages: impl Iterator<Item = &'a u64>) -> Vec<[u64; 2]> {
    let mut ranges: Vec<[u64; 2]> = Vec::new();
    for page in pages {
        match ranges.last_mut() {
            Some(last) if last[1] == *page => last[1] = page.saturating_add(PAGE),
            _ => ranges.push([*page, page.saturating_add(PAGE)]),
        }
    }
    ranges
}

/// The pages with the `size` bytes of code at `start`; those beyond the end of the address space
/// are left out.
fn code_pages(start: u64, size: u64) -> impl Iterator<Item = u64> {
    let first = start & !(PAGE - 1);
    (first..start.saturating_add(size)).step_by(PAGE as usize)
}

/// Whether all calls that make processes or change mappings pass through functions or hooks of the
/// library inside. A process that was made by an unseen call would share memory that it must not
/// share.
///
/// # Errors
/// Says which calls would not be seen.
fn calls_are_seen(process: i32, hooks: &[[u64; 2]]) -> Result<(), String> {
    const HARMFUL: [libc::c_long; 14] = [
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_munmap,
        libc::SYS_brk,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_shmat,
        libc::SYS_shmdt,
        libc::SYS_remap_file_pages,
        libc::SYS_pkey_mprotect,
        libc::SYS_clone,
        libc::SYS_fork,
        libc::SYS_vfork,
        libc::SYS_clone3,
    ];
    let process = ProcessId(process.unsigned_abs());
    let mappings = proc::mappings(process).map_err(|e| e.to_string())?;
    let harmful = |number| match number {
        Number::Always(number) => HARMFUL.contains(&number.into()),
        Number::Any | Number::In(_) => true,
    };
    let mut calls = Calls::new(harmful);
    calls.set_files(Arc::new(ForeignFiles::of(process)));
    calls.know(hooks);
    calls.all_seen(&mappings)
}

/// Why the process must not be converted, if there is a reason or it can't be told. `hooks` are the
/// address ranges of our hooks' code. Timers of CPU time with `our_signal` are no reason, as they
/// take samples for us; 0 if there are none.
pub fn hindrance(process: i32, hooks: &[[u64; 2]], our_signal: u32) -> Option<String> {
    let unknown =
        |what: &str, error: std::io::Error| Some(format!("its {what} can't be read: {error}"));
    let id = ProcessId(process.unsigned_abs());
    let status = match Fields::read(Folder::Process(id)) {
        Ok(status) => status,
        Err(error) => return unknown("state", error),
    };
    if status.kibibytes("VmLck").is_some_and(|k| k > 0) {
        return Some("the program has locked memory".into());
    }
    let free = proc::available_memory();
    let resident = status.kibibytes("RssAnon").unwrap_or(0);
    if free.is_some_and(|free| free < LEAST_FREE) || resident > LARGEST_KILOBYTES {
        return Some(format!(
            "{} MiB of memory are too much to convert",
            resident >> 10
        ));
    }
    match proc::file_size_is_unlimited(id) {
        Ok(true) => {}
        Ok(false) => return Some("the size of files is limited".into()),
        Err(error) => return unknown("limits", error),
    }
    if mappings(process)
        .iter()
        .any(|m| m.path.starts_with("/[aio]"))
    {
        return Some("the program uses asynchronous input and output".into());
    }
    if let Err(why) = calls_are_seen(process, hooks) {
        return Some(why);
    }
    let limited = match proc::cpu_time_is_unlimited(id) {
        Ok(unlimited) => !unlimited,
        Err(error) => return unknown("limits", error),
    };
    if limited || has_cpu_timers(process, our_signal) {
        return Some(
            "the program has timers or a limit of CPU time, which isolated threads do not use"
                .into(),
        );
    }
    let mut links = match proc::links(id) {
        Ok(links) => links,
        Err(error) => return unknown("open files", error),
    };
    let bad = |link: PathBuf| {
        let link = link.to_string_lossy();
        ["io_uring", "userfaultfd", "kvm"]
            .iter()
            .any(|kind| link.contains(kind))
    };
    links
        .any(bad)
        .then(|| "the kernel writes to the program's memory by itself (io_uring or alike)".into())
}

/// Whether the process has a timer of CPU time, other than those that take samples for us.
fn has_cpu_timers(process: i32, our_signal: u32) -> bool {
    let ours = format!("{our_signal}/");
    let timers = proc::timers(ProcessId(process.unsigned_abs()));
    timers.iter().any(|timer| {
        // Clocks of a single process or thread have negative numbers; 2 and 3 are the caller's own
        // (`CLOCK_PROCESS_CPUTIME_ID`, `CLOCK_THREAD_CPUTIME_ID`).
        let is_cpu = timer.clock.starts_with('-') || timer.clock == "2" || timer.clock == "3";
        is_cpu && !(our_signal != 0 && timer.signal.starts_with(&ours))
    })
}

/// How much seccomp confines a thread: its mode and its filters, of which kernels before 5.9 do not
/// report the number.
fn confinement(folder: Folder) -> Option<u32> {
    let status = Fields::read(folder).ok()?;
    Some(status.number("Seccomp_filters").unwrap_or(0) + status.number("Seccomp")?)
}

/// How much seccomp confined this process when it was first asked. The program is confined as much, if it
/// does nothing; this process may confine itself further.
pub fn own_confinement() -> u32 {
    static OWN: OnceLock<u32> = OnceLock::new();
    *OWN.get_or_init(|| confinement(Folder::OwnThread).unwrap_or(0))
}

/// Whether seccomp confines a thread more than it confined us at the start: by its mode or by more
/// filters. A system call of the library could then kill the thread.
pub fn is_confined(process: i32, thread: i32) -> bool {
    let thread = Folder::Thread(
        ProcessId(process.unsigned_abs()),
        ThreadId(thread.unsigned_abs()),
    );
    confinement(thread).is_none_or(|filters| filters > own_confinement())
}

/// Larger files, in bytes, are not read: nothing is known of them. Sparse files can have any length.
const LARGEST: u64 = 512 << 20;

/// With less free memory than this, in bytes, no memory is made sharable.
const LEAST_FREE: u64 = 64 << 20;

/// A program with more anonymous memory than this, in KiB, is not converted: that would stop it for
/// too long.
const LARGEST_KILOBYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_a_length() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(20).expect("a sparse file");
        assert_eq!(contents(&file, 20), Some(vec![0; 20]));
        assert_eq!(contents(&file, 19), None);
        file.set_len(8 << 40).expect("a sparse file");
        assert_eq!(contents(&file, LARGEST), None);
    }

    #[test]
    fn code_at_the_end_of_the_address_space_has_the_pages_before_it() {
        let last = !(PAGE - 1);
        let pages = |start, size| code_pages(start, size).collect::<Vec<u64>>();
        assert_eq!(pages(last + 8, u64::MAX), [last]);
        assert_eq!(pages(0x1ff8, 16), [0x1000, 0x2000]);
        assert!(pages(0x1000, 0).is_empty());
    }

    #[test]
    fn a_program_whose_state_can_t_be_read_is_not_isolated() {
        let said = hindrance(i32::MAX, &[], 0);
        assert!(said.is_some_and(|why| why.starts_with("its state can't be read: ")));
    }
}
