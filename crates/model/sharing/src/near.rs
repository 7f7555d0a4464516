//! Which line an instruction probably touches when a sample does not tell its address. This is
//! learned per thread from the samples that do. Called by the judge only.

use crate::hash::Map;
use sunder_access::{Address, CodeAddress, ThreadId};

/// The most lines remembered for an instruction of a thread.
const LINES: usize = 4;

/// Decodes after which all counts are halved, so that a later phase of the
/// program outweighs an earlier one.
const HALVE_AT: u16 = 256;

/// Guesses below this probability are ignored: such an instruction spreads its accesses over so
/// many lines that none of them matters.
const LEAST_SHARE: f32 = 1.0 / 8.0;

/// The most pairs of an instruction and a thread that are remembered.
const MAX_SITES: usize = 1 << 16;

/// A line that an instruction was seen to touch.
#[derive(Clone, Copy, Debug)]
struct Seen {
    line: Address,
    serial: u64,
    count: u16,
}

#[derive(Clone, Debug, Default)]
struct Habits {
    decodes: u16,
    lines: Vec<Seen>,
}

/// What was learned about all instructions, by thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Near {
    habits: Map<(ThreadId, CodeAddress), Habits>,
}

/// A line that an undecoded instruction touches with probability `share`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Guess {
    pub line: Address,
    /// The line's serial when this was learned. If the line now has another one, another object
    /// lies there.
    pub serial: u64,
    pub share: f32,
}

impl Near {
    /// `thread`'s `instruction` was decoded and touched `line`.
    pub fn learn(
        &mut self,
        thread: ThreadId,
        instruction: CodeAddress,
        line: Address,
        serial: u64,
    ) {
        if self.habits.len() >= MAX_SITES {
            self.habits.retain(|_, h| h.decodes >= 8);
            if self.habits.len() >= MAX_SITES {
                self.habits.clear();
            }
        }
        let habits = self.habits.entry((thread, instruction)).or_default();
        habits.decodes += 1;
        if habits.decodes >= HALVE_AT {
            habits.halve();
        }
        habits.see(line, serial);
    }

    /// The lines that `thread`'s `instruction` is likely to touch. One line that was never seen
    /// is always allowed for, so a single decode gives a probability of one half.
    pub fn guesses(
        &self,
        thread: ThreadId,
        instruction: CodeAddress,
    ) -> impl Iterator<Item = Guess> + '_ {
        self.habits
            .get(&(thread, instruction))
            .into_iter()
            .flat_map(|h| {
                h.lines.iter().map(|s| Guess {
                    line: s.line,
                    serial: s.serial,
                    share: f32::from(s.count) / (f32::from(h.decodes) + 1.0),
                })
            })
            .filter(|g| g.share >= LEAST_SHARE)
    }
}

impl Habits {
    fn halve(&mut self) {
        self.decodes /= 2;
        for seen in &mut self.lines {
            seen.count /= 2;
        }
        self.lines.retain(|s| s.count > 0);
    }

    fn see(&mut self, line: Address, serial: u64) {
        if let Some(seen) = self.lines.iter_mut().find(|s| s.line == line) {
            if seen.serial == serial {
                seen.count += 1;
            } else {
                *seen = Seen {
                    line,
                    serial,
                    count: 1,
                };
            }
            return;
        }
        let new = Seen {
            line,
            serial,
            count: 1,
        };
        if self.lines.len() < LINES {
            self.lines.push(new);
        } else if let Some(least) = self.lines.iter_mut().min_by_key(|s| s.count) {
            // An instruction that walks over memory replaces its own entries and leaves those of
            // lines that it returns to.
            if least.count <= 1 {
                *least = new;
            } else {
                least.count -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: ThreadId = ThreadId(1);
    const I: CodeAddress = CodeAddress(0x400);

    #[test]
    fn an_instruction_that_stays_on_a_line_has_that_guess() {
        let mut near = Near::default();
        for _ in 0..9 {
            near.learn(T, I, Address(64), 1);
        }
        let all: Vec<_> = near.guesses(T, I).collect();
        assert_eq!(all.len(), 1);
        assert!((all[0].share - 0.9).abs() < 1e-6);
        assert_eq!(near.guesses(ThreadId(2), I).count(), 0);
    }

    #[test]
    fn an_instruction_that_touches_many_lines_has_no_guess() {
        let mut near = Near::default();
        for i in 0..1000 {
            near.learn(T, I, Address(i * 64), i);
        }
        assert_eq!(near.guesses(T, I).count(), 0);
    }

    #[test]
    fn a_line_with_another_owner_is_learned_afresh() {
        let mut near = Near::default();
        for serial in [1, 1, 1, 2] {
            near.learn(T, I, Address(64), serial);
        }
        let all: Vec<_> = near.guesses(T, I).collect();
        assert_eq!((all[0].serial, all.len()), (2, 1));
        assert!((all[0].share - 0.2).abs() < 1e-6);
    }
}
