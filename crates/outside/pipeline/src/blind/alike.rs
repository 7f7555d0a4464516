//! Threads that run the same code. With many threads on few processors, a burst sees few of them at a
//! place, and it takes long until each was seen there. What the others access is inferred from those
//! that were seen, where it can't be slots side by side: slots that fit into `n` lines for `n`
//! threads lie within `n` lines of each other, so if those that were seen lie further apart, theirs
//! are no such slots. What all threads only read may lie at one place. Used by `blind`; it must not
//! choose what a burst looks at.

use sunder_access::{CodeAddress, Span, ThreadId};

/// So many threads must have been seen at a place for the others to be taken to be like them.
const ENOUGH: usize = 3;

/// The bytes of the longest lines, with their neighbours, which are fetched in pairs.
const LINE: u64 = 128;

/// The most records of a place.
const MOST: usize = 256;

/// What a thread accessed at an instruction, as far as bursts saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The instruction.
    pub instruction: CodeAddress,
    /// From the lowest byte to the highest one.
    pub span: Span,
    /// Whether it writes there.
    pub writes: bool,
}

/// What the threads that were seen at a place accessed there.
#[derive(Debug, Default)]
pub(super) struct Alike(Vec<(ThreadId, Touched)>);

impl Alike {
    /// `thread` was seen to access this.
    pub(super) fn add(&mut self, thread: ThreadId, touched: Touched) {
        let known = |(of, known): &&mut (ThreadId, Touched)| {
            *of == thread && known.instruction == touched.instruction
        };
        if let Some((_, known)) = self.0.iter_mut().find(known) {
            let start = known.span.start.min(touched.span.start);
            let end = known.span.end().max(touched.span.end());
            known.span = Span::new(start, end.0 - start.0);
            known.writes |= touched.writes;
        } else if self.0.len() < MOST {
            self.0.push((thread, touched));
        }
    }

    /// Whether the threads that were not seen at a place can be taken not to share lines there: of
    /// `threads` threads in all, those for which `is_known` were seen in all that they do there.
    pub(super) fn tells(&self, threads: usize, is_known: impl Fn(ThreadId) -> bool) -> bool {
        let mut seen: Vec<ThreadId> = self.0.iter().map(|(thread, _)| *thread).collect();
        seen.sort_unstable();
        seen.dedup();
        if seen.iter().filter(|thread| is_known(**thread)).count() < ENOUGH || self.0.len() >= MOST
        {
            return false;
        }
        let apart = LINE.saturating_mul(threads as u64);
        let near = |a: Span, b: Span| {
            let (first, second) = if a.start <= b.start { (a, b) } else { (b, a) };
            second.start.0.saturating_sub(first.end().0) < apart
        };
        self.0.iter().enumerate().all(|(i, (thread, a))| {
            self.0[i + 1..].iter().all(|(other, b)| {
                thread == other || !(a.writes || b.writes) || !near(a.span, b.span)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Address;

    fn alike(touched: &[(u32, u64, bool)]) -> Alike {
        let mut alike = Alike::default();
        for &(thread, at, writes) in touched {
            let touched = Touched {
                instruction: CodeAddress(0x400),
                span: Span::new(Address(at), 8),
                writes,
            };
            alike.add(ThreadId(thread), touched);
        }
        alike
    }

    #[test]
    fn threads_far_apart_stand_for_the_others() {
        let apart = [
            (1, 0x1_0000, true),
            (2, 0x2_0000, true),
            (3, 0x3_0000, true),
        ];
        assert!(alike(&apart).tells(16, |_| true));
        assert!(!alike(&apart[..2]).tells(16, |_| true), "too few");
        assert!(
            !alike(&apart).tells(16, |t| t != ThreadId(2)),
            "one in part"
        );
        // A slot of 8 bytes each in an array: thread 1 and 2 are neighbours of others.
        let slots = [
            (1, 0x1_0000, true),
            (9, 0x1_0040, true),
            (16, 0x1_0078, true),
        ];
        assert!(!alike(&slots).tells(16, |_| true));
        // A table that all read is no slot.
        let read = slots.map(|(thread, at, _)| (thread, at, false));
        assert!(alike(&read).tells(16, |_| true));
        // With so many threads, slots may lie as far apart.
        assert!(!alike(&apart).tells(1024, |_| true));
    }

    #[test]
    fn what_a_thread_walks_over_counts_as_a_whole() {
        let walks = [
            (1, 0x1_0000, true),
            (2, 0x8_0000, true),
            (3, 0xf_0000, true),
            (1, 0x7_fff0, true),
        ];
        assert!(!alike(&walks).tells(4, |_| true));
        assert!(alike(&walks[..3]).tells(4, |_| true));
    }
}
