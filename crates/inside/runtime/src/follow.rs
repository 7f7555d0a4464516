//! A segment for every process image: claims one from the registry when a
//! program loads the runtime and, if children are followed, when a process is
//! forked. Contexts: normal (before `main`), post-fork.
//!
//! A failure here only loses the names of one image's heap objects. A process that has confined
//! itself is left alone ([`CONFINEMENT`]).

use crate::state::CONFINEMENT;
use crate::{local, segment, state, tables, thread};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use sunder_guest::system;
use sunder_wire::layout::View;
use sunder_wire::registry::{BYTES, OPTION_FOLLOW, RegistryView};

/// The registry's address; null if there is none.
static REGISTRY: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// The id of the process that owns this memory. A vforked child has another one.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The number of this image plus 1.
static IMAGE: AtomicU32 = AtomicU32::new(0);
/// The epoch that the latest fork began.
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// The registry, if there is one.
pub fn registry() -> Option<RegistryView> {
    let base = NonNull::new(REGISTRY.load(Ordering::Acquire))?;
    // SAFETY: stored after it was mapped, and it is never unmapped.
    Some(unsafe { RegistryView::new(base) })
}

/// Whether children are followed.
pub fn follows(registry: RegistryView) -> bool {
    registry.header().options.load(Ordering::Relaxed) & OPTION_FOLLOW != 0
}

/// The program is about to confine itself. The first look-up of a function makes a system call, so all
/// are looked up here.
#[cfg(not(test))]
pub fn confine() {
    use crate::timer;
    if CONFINEMENT.is_closed() {
        return;
    }
    sunder_guest::allocator::real::look_up_all();
    sunder_guest::exec::real::look_up_all();
    crate::real::look_up_all();
    timer::end();
    CONFINEMENT.close();
}

/// The program has confined itself, which the tool is to know.
#[cfg(not(test))]
pub fn confined() {
    if let Some(view) = state::segment() {
        view.status().confined.store(1, Ordering::Relaxed);
    }
}

/// Records the calling process as the owner of this memory.
pub fn own() {
    PROCESS.store(system::process_id(), Ordering::Relaxed);
}

/// Whether the calling process borrows another one's memory (vfork), or is a
/// child that the C library does not know.
#[cfg(not(test))]
pub fn is_guest() -> bool {
    PROCESS.load(Ordering::Relaxed) != system::process_id()
}

/// Whether a program that this process executes may load the runtime.
#[cfg(not(test))]
pub fn passes_on() -> bool {
    if CONFINEMENT.is_closed() {
        return false;
    }
    let Some(registry) = registry() else {
        // A single segment, without a registry, belongs to one process.
        return state::segment().is_some_and(|view| {
            view.status().process.load(Ordering::Relaxed) == system::process_id()
        });
    };
    let root = registry.header().root.load(Ordering::Relaxed);
    follows(registry) || root == system::process_id()
}

/// Whether a program that a child of this process executes may load the runtime.
#[cfg(not(test))]
pub fn passes_to_children() -> bool {
    registry().is_some_and(follows) && passes_on()
}

/// Maps the registry in `fd`, and claims the segment of a new program.
pub fn begin(fd: i32) -> Option<View> {
    let base = system::map_shared(fd, BYTES, libc::MAP_NORESERVE)?;
    REGISTRY.store(base.as_ptr(), Ordering::Release);
    let registry = registry()?;
    own();
    let process = system::process_id();
    if !follows(registry) && registry.header().root.load(Ordering::Acquire) != process {
        return None;
    }
    claim(registry, 0, 0)
}

/// From here on forked children get segments of their own, or are counted.
pub fn prepare() {
    if registry().is_some_and(follows) {
        // SAFETY: functions of the demanded types in a library that is never unloaded.
        unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_child)) };
    } else {
        // SAFETY: as above.
        unsafe { libc::pthread_atfork(None, Some(count_fork), None) };
    }
}

/// Runs in the parent of a forked child that is not followed. The parent may end before it, as one does
/// that becomes a daemon.
extern "C" fn count_fork() {
    if let Some(view) = state::segment() {
        view.status().forks.fetch_add(1, Ordering::Relaxed);
    }
}

/// Claims a segment and maps it.
fn claim(registry: RegistryView, origin: u32, epoch: u32) -> Option<View> {
    let header = registry.header();
    let process = system::process_id();
    if process_in_proc() != Some(process) {
        header.foreign.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    let image = registry.claim()?;
    let entry = registry.entry(image);
    let tool = header.tool.load(Ordering::Relaxed);
    let path = descriptor_path(tool, entry.descriptor.load(Ordering::Relaxed));
    // SAFETY: the path ends with a zero byte.
    let view =
        unsafe { system::open(libc::AT_FDCWD, path.as_ptr(), libc::O_RDWR) }.and_then(|fd| {
            let view = segment::map(fd);
            system::close(fd);
            view
        });
    entry.origin.store(origin, Ordering::Relaxed);
    entry.epoch.store(epoch, Ordering::Relaxed);
    entry
        .refused
        .store(u32::from(view.is_none()), Ordering::Relaxed);
    entry.parent.store(system::parent_id(), Ordering::Relaxed);
    let now = system::clock(libc::CLOCK_MONOTONIC);
    entry.time.store(now, Ordering::Relaxed);
    entry.process.store(process, Ordering::Release);
    let view = view?;
    IMAGE.store(image.wrapping_add(1), Ordering::Relaxed);
    if follows(registry) {
        // The mapping is not inherited by a child that is forked without the C library's knowledge.
        // SAFETY: the mapping is ours, and its contents do not change.
        unsafe {
            system::advise(
                view.base().as_ptr() as usize,
                sunder_wire::layout::TOTAL,
                libc::MADV_DONTFORK,
            )
        };
    }
    Some(view)
}

/// The id of the calling process as `/proc` shows it, which is that of the namespace for which
/// `/proc` was mounted.
fn process_in_proc() -> Option<u32> {
    let mut name = [0u8; 12];
    let length = system::read_link(c"/proc/self", &mut name);
    let digits = name.get(..length).filter(|digits| !digits.is_empty())?;
    digits.iter().try_fold(0u32, |number, &digit| {
        let digit = (digit as char).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Runs before a fork, on the forking thread.
extern "C" fn before_fork() {
    if let Some(view) = state::segment().filter(|_| !CONFINEMENT.is_closed()) {
        let now = system::clock(libc::CLOCK_MONOTONIC);
        // If two threads fork at once, either one's number serves both: each epoch began before the
        // memory was copied from which it is read.
        EPOCH.store(view.fork_epoch(now), Ordering::Relaxed);
    }
}

/// Runs in a forked child, on its only thread, before the program continues.
extern "C" fn in_child() {
    sunder_guest::next::forget_look_ups();
    tables::forget_others();
    if CONFINEMENT.is_closed() {
        IMAGE.store(0, Ordering::Relaxed);
        return;
    }
    let was_recorded = PROCESS.swap(system::process_id(), Ordering::Relaxed) != 0;
    let Some(registry) = registry().filter(|_| was_recorded) else {
        return;
    };
    let origin = IMAGE.swap(0, Ordering::Relaxed);
    if let Some(view) = claim(registry, origin, EPOCH.load(Ordering::Relaxed)) {
        segment::record(view, false);
        // The kernel has wiped the tables of the thread.
        let local = local::local();
        // SAFETY: the thread's own words.
        unsafe { (*local).thread = null_mut() };
        thread::register(view, local);
    }
}

/// `/proc/TOOL/fd/DESCRIPTOR`, with a final zero byte.
fn descriptor_path(tool: u32, descriptor: u32) -> [u8; 40] {
    let mut path = [0; 40];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        for &byte in bytes {
            if let Some(entry) = path.get_mut(at) {
                *entry = byte;
                at += 1;
            }
        }
    };
    put(b"/proc/");
    put(decimal(tool, &mut [0; 10]));
    put(b"/fd/");
    put(decimal(descriptor, &mut [0; 10]));
    path
}

/// The digits of `number`.
fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut first = digits.len();
    for (i, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        first = i;
        if number == 0 {
            break;
        }
    }
    digits.get(first..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_descriptor_is_text() {
        let path = descriptor_path(4_194_303, 7);
        assert_eq!(&path[..19], b"/proc/4194303/fd/7\0");
        let longest = descriptor_path(u32::MAX, u32::MAX);
        assert_eq!(&longest[..31], b"/proc/4294967295/fd/4294967295\0");
        assert_eq!(decimal(0, &mut [0; 10]), b"0");
    }
}
