//! The part of the judge that deals with instructions near a sample whose addresses the sample does
//! not tell. What execution bursts showed makes visits of them; what other samples showed makes time
//! only.

use crate::executed::Seen;
use crate::footprint::Footprint;
use crate::input::{Execution, Sample};
use crate::judge::Judge;
use crate::stretch::Class;
use crate::touch::Touch;
use sunder_access::{Access, Address, CodeAddress};

/// A sample visits a line that it probably touched: with a higher probability than this.
const LIKELY: f32 = 0.5;

/// A line that a sample probably touched.
struct Likely {
    instruction: CodeAddress,
    line: Address,
    footprint: Footprint,
    share: f32,
}

impl Judge {
    /// Takes what an execution burst saw of one thread. It tells where instructions access memory,
    /// and is no evidence of sharing by itself: its hits lie close together and say nothing about
    /// the order in which threads use a line at full speed.
    pub fn execution(&mut self, seen: &Execution<'_>) {
        self.verdicts.take();
        for &(instruction, executed) in seen.executed {
            let way = (seen.at, instruction);
            self.executed
                .passed(seen.thread, way, seen.passes, executed);
            let own = |access: &&Access| access.instruction == instruction;
            let accesses: Vec<Access> = seen.accesses.iter().filter(own).copied().collect();
            let mut places = Vec::with_capacity(accesses.len());
            for access in &accesses {
                for line in self.config().granule().bases(access.span()) {
                    let Some(footprint) = self.footprint(line, access) else {
                        continue;
                    };
                    let serial = self.open_line(line, seen.time);
                    places.push(Seen {
                        line,
                        serial,
                        footprint,
                    });
                }
            }
            if executed > 0 {
                let all = places.into_iter();
                self.executed.saw(seen.thread, instruction, executed, all);
            }
        }
    }

    /// Takes visits of the lines that the sample's instructions without addresses touch, as far as
    /// execution bursts showed them.
    pub(crate) fn take_executed(&mut self, sample: &Sample<'_>, cpu: u16) {
        for likely in self.likely(sample) {
            if self.touched.contains(&likely.line) {
                continue;
            }
            let touch = Touch {
                time: sample.time.0,
                thread: sample.thread,
                footprint: likely.footprint,
                instruction: likely.instruction,
                class: Class::Timed,
                spent_ns: likely.share * sample.period_ns as f32,
                count: 1,
                opens_visit: true,
                cpu,
            };
            if self.put(likely.line, &touch).is_ok() {
                self.touched.push(likely.line);
            }
        }
    }

    /// The lines that the sample more likely touched than not, each once.
    fn likely(&self, sample: &Sample<'_>) -> Vec<Likely> {
        let mut all: Vec<Likely> = Vec::new();
        let certain = sample.near.iter().map(|&instruction| (instruction, 1.0));
        let perhaps = sample.ways.into_iter().flat_map(|ways| {
            ways.perhaps.iter().map(move |&instruction| {
                let way = (ways.at, instruction);
                (instruction, self.executed.way(sample.thread, way))
            })
        });
        for (instruction, way) in certain.chain(perhaps) {
            for found in self.executed.candidates(sample.thread, instruction) {
                let share = found.share * way;
                let known = self.lines.get(&found.line);
                if share <= LIKELY || known.is_none_or(|line| line.serial != found.serial) {
                    continue;
                }
                match all.iter_mut().find(|likely| likely.line == found.line) {
                    Some(likely) => likely.share = likely.share.max(share),
                    None => all.push(Likely {
                        instruction,
                        line: found.line,
                        footprint: found.footprint,
                        share,
                    }),
                }
            }
        }
        all
    }

    /// Adds the time that the sample probably spent on lines that it has no address for.
    pub(crate) fn take_near(&mut self, sample: &Sample<'_>) {
        let mut best: Vec<(Address, f32)> = Vec::new();
        for &instruction in sample.near {
            for guess in self.near.guesses(sample.thread, instruction) {
                let known = self.lines.get(&guess.line);
                if self.touched.contains(&guess.line)
                    || known.is_none_or(|l| l.serial != guess.serial)
                {
                    continue;
                }
                match best.iter_mut().find(|b| b.0 == guess.line) {
                    Some(old) => old.1 = old.1.max(guess.share),
                    None => best.push((guess.line, guess.share)),
                }
            }
        }
        for (base, share) in best {
            if let Some(line) = self.lines.get_mut(&base) {
                let spent = share * sample.period_ns as f32;
                line.touch_near(
                    sample.thread,
                    sample.time.0,
                    spent,
                    &self.running,
                    &self.scale,
                );
            }
        }
    }
}
