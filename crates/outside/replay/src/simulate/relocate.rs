//! Moves objects while a trace is replayed: it is fed the allocations, frees and accesses in
//! the order of the replay, and returns where each byte lies under a layout. The memory used
//! depends on the program's blocks, not on the length of the trace. It does not know what the
//! addresses are used for.

use super::layout::{Layout, Subject, page_for};
use super::steps::BlockRequest;
use std::sync::Arc;
use sunder_access::{Address, Span};
use sunder_pipeline::{Moved, Shape};
use sunder_placement::{PlacementError, Placer, Policy, Request, Reserve, Stats};
use sunder_trace::read::Blocks;

/// Changed variables are placed from here on: above all addresses of programs, below the
/// blocks.
pub const VARIABLES: u64 = 1 << 48;
/// Placed blocks lie from here on.
const HEAP: u64 = 1 << 50;
/// Placed blocks end below this.
const END: u64 = 1 << 62;

/// A layout that is being carried out.
pub struct Relocation<'l> {
    layout: &'l Layout,
    blocks: Blocks<Target>,
    shapes: Vec<Arc<Shape>>,
    placer: Placer,
    page: u64,
    figures: Figures,
    /// The bytes that live changed objects take in addition.
    grown: u64,
}

/// What the moves cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Blocks that could not be placed and stay where they were.
    pub unplaced: u64,
    /// The maximum of the bytes that changed objects take in addition.
    pub grown: u64,
}

/// Where a block lies.
#[derive(Clone, Copy, Debug)]
struct Target {
    start: u64,
    shape: u32,
    heap: bool,
    subject: Subject,
    /// The bytes that it takes in addition.
    grown: u64,
}

/// The number for no shape: the distances from the start are unchanged.
const PLAIN: u32 = u32::MAX;

/// Where an accessed byte lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Its address.
    pub address: Address,
    /// The number of bytes from there on that stay together.
    pub together: u64,
    /// Whether it is in a block of the heap.
    pub heap: bool,
    /// The subject that it is counted for.
    pub subject: Subject,
}

impl<'l> Relocation<'l> {
    /// Moves objects as `layout` says, on a machine with granules of `granule` bytes.
    ///
    /// # Errors
    /// If objects can't be placed on such a machine.
    pub fn new(layout: &'l Layout, granule: u64) -> Result<Self, PlacementError> {
        let page = page_for(granule);
        let line = granule.clamp(16, page);
        let space = Reserve::new(Address(HEAP), Address(END));
        let policy = layout.policy.unwrap_or(Policy::General);
        let mut new = Self {
            layout,
            blocks: Blocks::default(),
            shapes: Vec::new(),
            placer: Placer::with_arena(policy, page, line, space)?,
            page,
            figures: Figures::default(),
            grown: 0,
        };
        for moved in new.variables() {
            let shape = new.shape(moved.shape.as_ref());
            let grown = moved.to.len.saturating_sub(moved.from.len);
            new.figures.grown += grown;
            let counted = layout.static_subjects.iter();
            let mut counted = counted.filter(|(span, _)| span.overlaps(moved.from));
            let target = Target {
                start: moved.to.start.0,
                shape,
                heap: false,
                subject: counted.next().map_or(0, |(_, subject)| *subject),
                grown: 0,
            };
            let Span { start, len } = moved.from;
            new.blocks.insert(start.0, len, 0, target);
        }
        for &(span, subject) in &layout.static_subjects {
            if layout.statics.iter().any(|(moved, _)| moved.overlaps(span)) {
                continue;
            }
            let target = Target {
                start: span.start.0,
                shape: PLAIN,
                heap: false,
                subject,
                grown: 0,
            };
            new.blocks.insert(span.start.0, span.len, 0, target);
        }
        new.grown = new.figures.grown;
        Ok(new)
    }

    /// Where the variables of the layout lie: each on pages of its own, at its old offset into
    /// the first page as far as its alignment allows.
    pub fn variables(&self) -> Vec<Moved> {
        let mut next = VARIABLES;
        let place = |(from, shape): &(Span, Arc<Shape>)| {
            let start = next.next_multiple_of(self.page) + from.start.0 % self.page;
            let start = start.next_multiple_of(shape.align());
            let to = Span::new(Address(start), shape.size(from.len));
            next = to.end().0;
            Moved {
                from: *from,
                to,
                shape: Some(Arc::clone(shape)),
            }
        };
        self.layout.statics.iter().map(place).collect()
    }

    fn shape(&mut self, shape: Option<&Arc<Shape>>) -> u32 {
        let Some(shape) = shape else { return PLAIN };
        let known = self.shapes.iter().position(|s| Arc::ptr_eq(s, shape));
        let number = known.unwrap_or_else(|| {
            self.shapes.push(Arc::clone(shape));
            self.shapes.len() - 1
        });
        number as u32
    }

    /// A block was allocated at `start`; returns where it lies. A block that can't be placed
    /// stays where it was.
    pub fn allocated(&mut self, start: Address, request: BlockRequest, ticks: u64) -> Moved {
        let layout = self.layout;
        let from = Span::new(start, request.size);
        let stack = request.stack;
        let shape = layout.block(stack, from.len);
        let mut moved = Moved {
            from,
            to: from,
            shape: None,
        };
        let mut target = Target {
            start: from.start.0,
            shape: PLAIN,
            heap: true,
            subject: layout.subject(stack, from.len),
            grown: 0,
        };
        if layout.policy.is_some() || shape.is_some() {
            let origin = layout.origin(stack);
            let size = shape.map_or(from.len, |shape| shape.size(from.len));
            let align = request.align.unwrap_or(origin.align);
            let align = shape.map_or(1, |shape| shape.align()).max(align);
            let request = Request {
                thread: request.thread,
                size,
                align,
                site: origin.site,
            };
            match self.placer.place(request) {
                Ok(placed) => {
                    moved.to = Span::new(placed.address, size);
                    moved.shape = shape.cloned();
                    target = Target {
                        start: placed.address.0,
                        shape: self.shape(shape),
                        grown: size.saturating_sub(from.len),
                        ..target
                    };
                    self.grown += target.grown;
                    self.figures.grown = self.figures.grown.max(self.grown);
                }
                Err(_) => self.figures.unplaced += 1,
            }
        }
        self.blocks.insert(from.start.0, from.len, ticks, target);
        moved
    }

    /// The block that starts at `start` was freed; returns where it starts in the replay.
    /// Where nothing is moved, that is `start` in any case.
    pub fn freed(&mut self, start: Address, ticks: u64) -> Option<Address> {
        let Some(target) = self.blocks.free(start.0, ticks) else {
            return self.layout.is_actual().then_some(start);
        };
        if target.start >= HEAP {
            self.grown -= target.grown;
            // Placed blocks are live until here, so this can't fail.
            let _ = self.placer.free(Address(target.start));
        }
        Some(Address(target.start))
    }

    /// Where the byte at `address` lies, which was accessed at `ticks`.
    #[inline]
    pub fn locate(&mut self, address: Address, ticks: u64) -> Location {
        let Some((start, target)) = self.blocks.find(address.0, ticks) else {
            return Location {
                address,
                together: u64::MAX,
                heap: false,
                subject: 0,
            };
        };
        let offset = address.0 - start;
        let mut location = Location {
            address: Address(target.start + offset),
            together: u64::MAX,
            heap: target.heap,
            subject: target.subject,
        };
        if target.shape != PLAIN {
            let shape = &self.shapes[target.shape as usize];
            location.address = Address(target.start + shape.offset(offset));
            location.together = shape.together(offset);
        }
        location
    }

    /// Calls `each` with the place and width of each part of an access whose bytes stay
    /// together.
    ///
    /// # Errors
    /// The first error of `each`.
    #[inline]
    pub fn parts<E>(
        &mut self,
        address: Address,
        width: u32,
        ticks: u64,
        mut each: impl FnMut(Location, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let location = self.locate(address, ticks);
        if location.together >= u64::from(width) {
            return each(location, width);
        }
        let mut done = 0;
        while done < width {
            let location = self.locate(address.offset(i64::from(done)), ticks);
            let part = u64::from(width - done).min(location.together).max(1) as u32;
            each(location, part)?;
            done += part;
        }
        Ok(())
    }

    /// The statistics of the placement.
    pub fn stats(&self) -> Stats {
        self.placer.stats()
    }

    /// The counts of unplaced blocks and additional bytes.
    pub const fn figures(&self) -> Figures {
        self.figures
    }
}
