//! Makes findings from samples and accesses, in one way for programs that are observed, files
//! that are imported, and traces that are replayed. Each of these is an [`Observer`], which hands
//! over what it saw to a [`Session`]. The session holds a [`Process`] for each program image: its
//! judge, its names, its threads and its heap, whose blocks come from a source of [`HeapBlocks`].
//!
//! Used by `live`, `replay`, and the remedies, which ask a process for its suspects. It must
//! not wait, print, start or stop anything, nor read more of a target than `/proc` shows.

mod assemble;
mod at_once;
mod beside;
mod blind;
mod blocks;
mod common_memory;
mod cpu_time;
mod files;
mod heap;
mod import;
mod kept;
mod latent;
mod locks;
mod moved;
mod naming;
mod observer;
mod pointers;
mod process;
mod processes;
mod recorded_heap;
mod recorded_stacks;
mod rejudge;
mod result;
mod runtimes;
mod session;
mod shape;
mod sharable;
mod shared;
mod shown;
mod slots;
mod stack_mappings;
mod threads;
mod told;
mod unattributed;
mod wanted;

pub use assemble::{Assembled, assemble};
pub use blind::Question;
pub use blocks::{FreedBlock, HeapBlocks, OwnerChange};
pub use cpu_time::{childrens_cpu_seconds, own_cpu_seconds};
pub use files::TargetFiles;
pub use heap::Heap;
pub use import::import;
pub use latent::show_sharing;
pub use moved::Moved;
pub use naming::{
    LineObjects, ObjectKey, Part, TypedPointer, at_frame, objects_on_line, read_ahead, user_frame,
};
pub use observer::{Observer, take, take_rest};
pub use process::{Figures, Process};
pub use recorded_heap::RecordedHeap;
pub use recorded_stacks::RecordedStacks;
pub use rejudge::{Rejudged, rejudge};
pub use result::{Building, Observed, show_machine};
pub use session::{CopiedCode, Follow, Session, judge_config};
pub use shape::Shape;
pub use shown::show_object;
pub use threads::Threads;
pub use wanted::Wanted;
