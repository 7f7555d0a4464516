//! Lines that were touched once. Programs that walk over memory touch millions of lines once
//! each. Such a touch is kept here in little space until a second one shows that the line is
//! worth a record of its own. Called by the judge only.

use crate::hash::Map;
use crate::touch::Touch;
use sunder_access::{Address, Span};

/// Touches in a generation. When the young generation is full, the old one is dropped as a
/// whole, so that eviction has no cost per line.
const GENERATION: usize = 1 << 15;

/// The first touches, by line.
#[derive(Clone, Debug, Default)]
pub(crate) struct SingleTouches {
    young: Map<Address, Touch>,
    old: Map<Address, Touch>,
}

impl SingleTouches {
    /// Remembers the first touch of a line.
    pub fn put(&mut self, line: Address, touch: Touch) {
        if self.young.len() >= GENERATION {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(line, touch);
    }

    /// Takes out the first touch of `line`, if there was one.
    pub fn take(&mut self, line: Address) -> Option<Touch> {
        self.young.remove(&line).or_else(|| self.old.remove(&line))
    }

    /// Forgets the touches that overlap `span`. `bases` are the lines to look at; without it,
    /// all lines are looked at.
    pub fn retire(&mut self, span: Span, bases: Option<&[Address]>) {
        let inside = |base: Address, touch: &Touch| {
            let start = base.offset(touch.footprint.start.into());
            span.overlaps(Span::new(start, touch.footprint.len.into()))
        };
        for generation in [&mut self.young, &mut self.old] {
            match bases {
                _ if generation.is_empty() => {}
                Some(bases) => {
                    for &base in bases {
                        if generation.get(&base).is_some_and(|t| inside(base, t)) {
                            generation.remove(&base);
                        }
                    }
                }
                None => generation.retain(|&base, touch| !inside(base, touch)),
            }
        }
    }

    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footprint::Footprint;
    use crate::stretch::Class;
    use sunder_access::{CodeAddress, Kind, ThreadId};

    fn touch(start: u16) -> Touch {
        Touch {
            time: 0,
            thread: ThreadId(1),
            footprint: Footprint {
                start,
                len: 8,
                kind: Kind::Read,
            },
            instruction: CodeAddress(0),
            class: Class::Timed,
            spent_ns: 1.0,
            count: 1,
            opens_visit: true,
            cpu: 0,
        }
    }

    #[test]
    fn the_latest_generation_is_kept_and_no_more_than_two() {
        let mut singles = SingleTouches::default();
        for i in 0..10 * GENERATION as u64 {
            singles.put(Address(i * 64), touch(0));
            assert!(singles.len() <= 2 * GENERATION);
        }
        assert!(singles.take(Address(0)).is_none());
        let latest = Address((9 * GENERATION as u64) * 64);
        assert!(singles.take(latest).is_some());
        assert!(singles.take(latest).is_none(), "it is taken out");
    }

    #[test]
    fn retiring_removes_only_touches_of_those_bytes() {
        for named in [false, true] {
            let mut singles = SingleTouches::default();
            singles.put(Address(0), touch(0));
            singles.put(Address(64), touch(32));
            let bases = [Address(0), Address(64)];
            // Bytes 4 to 95. The second touch begins at byte 96.
            let span = Span::new(Address(4), 92);
            singles.retire(span, named.then_some(&bases[..]));
            assert!(singles.take(Address(0)).is_none());
            assert!(singles.take(Address(64)).is_some());
        }
    }
}
