//! The arrangement of an object's bytes after a change: fields and elements on lines of their
//! own, the object's start and end aligned. Pure arithmetic on offsets; a layout of `replay`
//! says which object has which shape.

use std::ops::Range;

/// Fields keep their offsets modulo this, so that what follows a moved field stays aligned: the
/// alignment of `max_align_t` on x86-64.
const KEEPS: u64 = 16;

/// The length of an element of an object without elements: longer than any object.
const WHOLE: u64 = 1 << 62;

/// Maps offsets in an object to new offsets. The object is an array of elements that are all
/// changed alike; most objects have one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of an element before the change.
    element: u64,
    /// Bytes from one element to the next after the change.
    stride: u64,
    /// Runs of an element's bytes that stay together, ascending. The first begins at 0.
    runs: Vec<ByteRun>,
    /// The alignment of the object's start and end in bytes.
    align: u64,
    /// Free bytes before the object.
    lead: u64,
    /// The fields that have lines of their own.
    fields: Vec<Range<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ByteRun {
    from: u64,
    to: u64,
}

impl Shape {
    /// Unchanged inside; it starts and ends at multiples of `align`, a power of two.
    pub fn aligned(align: u64) -> Self {
        Self {
            element: WHOLE,
            stride: WHOLE,
            runs: vec![ByteRun { from: 0, to: 0 }],
            align,
            lead: 0,
            fields: Vec::new(),
        }
    }

    /// Elements of `bytes` bytes in which each of `fields` has lines of `line` bytes of its
    /// own, as has each element.
    pub fn fields(bytes: u64, fields: &[Range<u64>], line: u64) -> Self {
        let bytes = bytes.max(1);
        let mut fields: Vec<Range<u64>> = fields
            .iter()
            .map(|f| f.start.min(bytes)..f.end.min(bytes))
            .filter(|f| f.start < f.end)
            .collect();
        fields.sort_by_key(|f| f.start);
        let mut runs = vec![ByteRun { from: 0, to: 0 }];
        // The end of the last field, before and after the change.
        let (mut end, mut ends) = (0u64, 0u64);
        for field in &fields {
            // Overlapping fields (of a union) move as one.
            if field.start < end {
                continue;
            }
            if end > 0 && end < field.start {
                push(&mut runs, end, ends.next_multiple_of(line) + end % KEEPS);
            }
            let last = runs[runs.len() - 1];
            let start = if end == field.start {
                ends
            } else {
                last.to + (field.start - last.from)
            };
            let start = start.next_multiple_of(line);
            push(&mut runs, field.start, start);
            (end, ends) = (field.end, start + (field.end - field.start));
        }
        if end > 0 && end < bytes {
            push(&mut runs, end, ends.next_multiple_of(line) + end % KEEPS);
        }
        let last = runs[runs.len() - 1];
        Self {
            element: bytes,
            stride: (last.to + (bytes - last.from)).next_multiple_of(line),
            runs,
            fields,
            ..Self::aligned(line)
        }
    }

    /// The fields that have lines of their own.
    pub fn moved_fields(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.fields.iter().cloned()
    }

    /// The same shape, which also starts and ends at multiples of `align`.
    #[must_use]
    pub fn with_align(mut self, align: u64) -> Self {
        self.align = self.align.max(align);
        self
    }

    /// The same shape, which starts `lead` bytes after a multiple of its alignment.
    #[must_use]
    pub fn with_lead(mut self, lead: u64) -> Self {
        self.lead = lead;
        self
    }

    /// The alignment of the start, less [`Shape::lead`].
    pub const fn align(&self) -> u64 {
        self.align
    }

    /// The bytes that an object of `bytes` bytes takes, including the free bytes before it.
    pub fn size(&self, bytes: u64) -> u64 {
        let whole = (bytes / self.element).saturating_mul(self.stride);
        let rest = match bytes % self.element {
            0 => 0,
            rest => self.within(rest - 1) + 1,
        };
        let size = whole.saturating_add(rest).saturating_add(self.lead).max(1);
        size.checked_next_multiple_of(self.align).unwrap_or(size)
    }

    /// The new offset of the byte at `offset`, from the start of the space that the object
    /// takes.
    #[inline]
    pub fn offset(&self, offset: u64) -> u64 {
        let element = offset / self.element;
        let within = self.within(offset % self.element);
        self.lead
            .wrapping_add(element.wrapping_mul(self.stride))
            .wrapping_add(within)
    }

    fn within(&self, offset: u64) -> u64 {
        let run = self.runs[self.runs.partition_point(|r| r.from <= offset) - 1];
        run.to + (offset - run.from)
    }

    /// The number of bytes from `offset` on, this one included, that stay together.
    #[inline]
    pub fn together(&self, offset: u64) -> u64 {
        let within = offset % self.element;
        let next = self.runs.partition_point(|r| r.from <= within);
        let end = self.runs.get(next).map_or(self.element, |run| run.from);
        end - within
    }

    /// The old offset of the byte at the new `offset`; in a gap, that of the last byte before
    /// it.
    pub fn original(&self, offset: u64) -> u64 {
        let offset = offset.saturating_sub(self.lead);
        let (element, within) = (offset / self.stride, offset % self.stride);
        let next = self.runs.partition_point(|r| r.to <= within).max(1);
        let run = self.runs[next - 1];
        let end = self.runs.get(next).map_or(self.element, |run| run.from);
        let byte = (run.from + within.saturating_sub(run.to)).min(end - 1);
        element.saturating_mul(self.element).saturating_add(byte)
    }
}

/// Adds a run. If it begins where the last one does, it replaces that.
fn push(runs: &mut Vec<ByteRun>, from: u64, to: u64) {
    if runs.last().is_some_and(|last| last.from == from) {
        runs.pop();
    }
    runs.push(ByteRun { from, to });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two `long`s side by side, the second moved: it starts a line, and the
    /// struct is two lines long.
    #[test]
    fn the_last_field_starts_a_line() {
        let shape = Shape::fields(16, std::slice::from_ref(&(8..16)), 64);
        assert_eq!((shape.offset(0), shape.offset(7)), (0, 7));
        assert_eq!((shape.offset(8), shape.offset(15)), (64, 71));
        assert_eq!(shape.size(16), 128);
        // The second element of an array.
        assert_eq!((shape.offset(16), shape.offset(24)), (128, 192));
        assert_eq!(shape.size(32), 256);
    }

    /// The first field keeps its place. What follows begins on the next line, at its old offset
    /// modulo 16.
    #[test]
    fn what_follows_a_field_starts_a_line_too() {
        let shape = Shape::fields(24, std::slice::from_ref(&(0..8)), 64);
        assert_eq!(shape.offset(0), 0);
        assert_eq!((shape.offset(8), shape.offset(16)), (64 + 8, 64 + 16));
        assert_eq!(shape.size(24), 128);
    }

    #[test]
    fn several_fields_have_a_line_each() {
        let shape = Shape::fields(32, &[8..16, 0..8, 16..24], 64);
        let moved: Vec<u64> = [0, 8, 16, 24].map(|o| shape.offset(o)).into();
        assert_eq!(moved, [0, 64, 128, 192 + 8]);
        assert_eq!(shape.size(32), 256);
    }

    #[test]
    fn elements_start_lines() {
        let shape = Shape::fields(24, &[], 64);
        assert_eq!((shape.offset(23), shape.offset(24)), (23, 64));
        assert_eq!(shape.offset(49), 128 + 1);
        assert_eq!(shape.size(72), 192);
        // Half an element at the end of a block.
        assert_eq!(shape.size(60), 192);
    }

    #[test]
    fn an_access_that_spans_runs_is_cut_there() {
        let shape = Shape::fields(16, std::slice::from_ref(&(8..16)), 64);
        assert_eq!((shape.together(0), shape.together(5)), (8, 3));
        assert_eq!((shape.together(8), shape.together(20)), (8, 4));
        assert!(Shape::aligned(64).together(1000) > 1 << 40);
    }

    #[test]
    fn each_byte_is_found_again() {
        let shapes = [
            Shape::aligned(128),
            Shape::fields(24, &[], 64),
            Shape::fields(40, &[8..16, 30..33], 64),
            Shape::fields(8, &[], 64).with_lead(24),
            Shape::fields(16, std::slice::from_ref(&(0..16)), 64).with_align(128),
        ];
        for shape in shapes {
            let mut taken = std::collections::BTreeSet::new();
            for offset in 0..400 {
                let moved = shape.offset(offset);
                assert!(taken.insert(moved), "{shape:?} {offset}");
                assert_eq!(shape.original(moved), offset, "{shape:?}");
                assert!(moved < shape.size(offset + 1), "{shape:?} {offset}");
            }
        }
    }

    #[test]
    fn an_object_ends_where_its_alignment_says() {
        assert_eq!(Shape::aligned(128).size(130), 256);
        assert_eq!(Shape::aligned(128).size(0), 128);
        assert_eq!(Shape::fields(8, &[], 64).with_align(256).size(24), 256);
        assert_eq!(Shape::aligned(64).with_lead(16).size(64), 128);
    }
}
