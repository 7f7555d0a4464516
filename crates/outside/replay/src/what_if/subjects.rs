//! The memory of the findings, so that replays can count its misses separately and move it for
//! predictions.

use crate::simulate::layout::{Layout, Subject};
use crate::simulate::resolve::Program;
use std::collections::HashMap;
use std::sync::Arc;
use sunder_access::Span;
use sunder_findings::{Finding, Object, ObjectKind};
use sunder_pipeline::Shape;

/// The alignment of blocks with every allocator.
const BLOCK_STEP: u64 = 16;

/// The subjects of a set of findings.
#[derive(Default)]
pub struct Subjects {
    blocks: HashMap<(u32, u64), Subject>,
    statics: Vec<(Span, Subject)>,
    of_finding: Vec<Vec<Subject>>,
    /// Whether the object of each finding can be moved.
    movable: Vec<bool>,
    count: Subject,
}

impl Subjects {
    /// The memory of `findings`, whose lines have `line` bytes.
    pub fn of(findings: &[&Finding], program: &mut Program<'_>, line: u64) -> Self {
        let mut all = Self::default();
        for finding in findings {
            let mut subjects = all.add(&finding.object, program);
            if let Some(other) = &finding.neighbour {
                subjects.extend(all.add(other, program));
            }
            let known = !subjects.is_empty();
            if !known {
                for at in finding.lines.iter().map(|l| l.address) {
                    subjects.push(all.add_static(Span::new(at, line)));
                }
            }
            subjects.sort_unstable();
            subjects.dedup();
            all.of_finding.push(subjects);
            let kind = finding.object.kind;
            let moves = matches!(kind, ObjectKind::Heap | ObjectKind::Global);
            all.movable
                .push(known && finding.neighbour.is_none() && moves);
        }
        all
    }

    fn add(&mut self, object: &Object, program: &mut Program<'_>) -> Vec<Subject> {
        match object.kind {
            ObjectKind::Heap => {
                let keys = program.blocks_of(object);
                // All blocks of one call stack are one subject.
                let known = keys.iter().find_map(|key| self.blocks.get(key).copied());
                if keys.is_empty() {
                    return Vec::new();
                }
                let subject = known.unwrap_or_else(|| self.next());
                for key in keys {
                    self.blocks.insert(key, subject);
                }
                vec![subject]
            }
            ObjectKind::Global | ObjectKind::Tls | ObjectKind::Stack => {
                let Some(size) = object.size else {
                    return Vec::new();
                };
                vec![self.add_static(Span::new(object.address, size.max(1)))]
            }
            ObjectKind::Mapping | ObjectKind::Unknown => Vec::new(),
        }
    }

    fn add_static(&mut self, span: Span) -> Subject {
        let mut known = self.statics.iter().filter(|(s, _)| s.overlaps(span));
        if let Some(&(_, subject)) = known.next() {
            return subject;
        }
        let subject = self.next();
        self.statics.push((span, subject));
        subject
    }

    const fn next(&mut self) -> Subject {
        self.count = self.count.saturating_add(1);
        self.count
    }

    /// The subjects of the finding at `index`.
    pub fn of_finding(&self, index: usize) -> &[Subject] {
        self.of_finding.get(index).map_or(&[], Vec::as_slice)
    }

    /// The steps in which the object of the finding at `index` can be moved; `None` if it
    /// can't.
    pub fn step(&self, index: usize, object: &Object) -> Option<u64> {
        let movable = self.movable.get(index).copied().unwrap_or(false);
        movable.then_some(match object.kind {
            ObjectKind::Heap => BLOCK_STEP,
            _ => 1,
        })
    }

    /// Makes `layout` count them.
    pub fn count_in(&self, layout: &mut Layout) {
        layout.subjects.clone_from(&self.blocks);
        layout.static_subjects.clone_from(&self.statics);
    }

    /// The layout in which each of them has lines of `line` bytes of its own, and starts
    /// `offset` bytes into the first where it can.
    pub fn started_at(&self, offset: u64, line: u64) -> Layout {
        let mut layout = Layout::default();
        let shape = Arc::new(Shape::aligned(line).with_lead(offset));
        for &(span, _) in &self.statics {
            layout.statics.push((span, Arc::clone(&shape)));
        }
        if offset.is_multiple_of(BLOCK_STEP) {
            for &key in self.blocks.keys() {
                layout.blocks.insert(key, Arc::clone(&shape));
            }
        }
        self.count_in(&mut layout);
        layout
    }
}
