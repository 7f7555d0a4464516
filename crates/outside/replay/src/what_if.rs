//! Replays a trace as it is, and then with changes that may take the falsely shared objects
//! apart. The result says what each change saves and costs. The same replays predict other line
//! sizes and other offsets of the objects in their lines.

mod batch;
mod candidates;
mod subjects;

use crate::memory;
use crate::options::{PlacementAsked, WhatIf};
use crate::simulate::changes::Changes;
use crate::simulate::layout::{Layout, page_for};
use crate::simulate::machine::Machine;
use crate::simulate::moved::moved_granules;
use crate::simulate::resolve::Program;
use crate::simulate::{Pass, attribute, join};
use anyhow::Result;
use batch::{Base, Counted, Wanted, replay_all};
use candidates::Candidate;
use std::time::Instant;
use subjects::Subjects;
use sunder_coherence::Config;
use sunder_findings as findings;
use sunder_findings::{AtStart, Finding, Findings, ObjectKind, OnLines, Predicted, Sharing, Tried};
use sunder_placement::Policy;
use sunder_trace::read::Trace;

/// The line sizes that are predicted: those of small cores (32), of today's processors (64), of
/// line pairs and Apple's processors (128), and of IBM's (256).
const LINE_SIZES: [u64; 4] = [32, 64, 128, 256];

/// The number of offsets in a line that are tried.
const STARTS: u64 = 8;
/// The least alignment of a variable that is worth a line of its own.
const START_STEP: u64 = 8;

/// Tries changes on the trace; the result says what each saves and costs.
///
/// # Errors
/// If the trace can't be read, or such a machine can't be.
pub fn what_if(options: &WhatIf) -> Result<Findings> {
    let asked = &options.base;
    let trace = memory::open(&asked.file, asked.memory)?;
    let machine = Machine::of(asked, &trace)?;
    let layout = Layout::default();
    let first = Pass::first(&trace, &machine, &layout)?;
    let moved = moved_granules(&first.replayed.outcome);
    let shares = attribute::attribute(&trace, &machine, &layout, &moved)?;
    let mut result = join(asked, &trace, &machine, &layout, &first, shares);
    let base = Base {
        misses: first.replayed.outcome.totals().into(),
        granules: first.replayed.outcome.touched(),
    };
    // The first pass's lines are no longer needed, and may be many.
    drop(first);
    Question {
        trace: &trace,
        machine: &machine,
        base,
    }
    .answer(&mut result, options.top)?;
    Ok(result)
}

struct Question<'a> {
    trace: &'a Trace,
    machine: &'a Machine,
    base: Base,
}

impl Question<'_> {
    /// Tries changes for the first `top` findings.
    fn answer(&self, result: &mut Findings, top: usize) -> Result<()> {
        let begin = Instant::now();
        let line = self.machine.config.granule;
        let asked: Vec<usize> = result
            .findings
            .iter()
            .enumerate()
            .filter(|(_, f)| !f.latent && f.sharing != Sharing::True)
            .map(|(index, _)| index)
            .take(top)
            .collect();
        let findings: Vec<&Finding> = asked.iter().map(|&i| &result.findings[i]).collect();
        let mut program = Program::read(self.trace);
        memory::check(self.trace)?;
        let subjects = Subjects::of(&findings, &mut program, line);
        let tries = self.tries(&findings, &mut program, &subjects);
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut tried: Vec<Candidate> = Vec::new();
        for (candidate, layout) in tries {
            tried.push(candidate);
            wanted.push(Wanted {
                config: self.machine.config,
                layout,
            });
        }
        let predicts = Predicts::of(&findings, self.machine.config);
        wanted.extend(predicts.wanted(&subjects));
        let counted = replay_all(self.trace, self.machine, &wanted, self.base)?;
        let (changes, predicted) = counted.split_at(tried.len());
        let mut changes: Vec<Tried> = self.changes(&tried, changes, &asked, result, &subjects);
        changes.sort_by_key(|c| (std::cmp::Reverse(c.misses_saved), c.bytes));
        let predictions: Vec<Predicted> = (0..asked.len())
            .map(|at| predicts.of_finding(at, &findings[at].object, &subjects, predicted))
            .collect();
        for (index, predicted) in asked.into_iter().zip(predictions) {
            result.findings[index].predicted = Some(predicted);
        }
        result.what_if = Some(findings::WhatIf {
            changes,
            replays: wanted.len() as u32,
            seconds: begin.elapsed().as_secs_f64(),
        });
        Ok(())
    }

    /// The changes to try, with their layouts. A change whose names are not found is left out.
    fn tries(
        &self,
        findings: &[&Finding],
        program: &mut Program<'_>,
        subjects: &Subjects,
    ) -> Vec<(Candidate, Layout)> {
        let line = self.machine.config.granule;
        let of_findings = findings
            .iter()
            .flat_map(|finding| candidates::of_finding(finding, line));
        let mut all: Vec<Candidate> = of_findings.collect();
        let on_heap = |f: &&Finding| {
            let mut objects = std::iter::once(&f.object).chain(&f.neighbour);
            objects.any(|o| o.kind == ObjectKind::Heap)
        };
        // Where no object has a name, as on pages, only the policies can be tried.
        if program.has_blocks() && (findings.is_empty() || findings.iter().any(on_heap)) {
            all.extend(candidates::of_heap());
        }
        let mut known: Vec<Changes> = Vec::new();
        let mut tries = Vec::new();
        for candidate in all {
            if known.contains(&candidate.asked) {
                continue;
            }
            known.push(candidate.asked.clone());
            if let Ok(mut layout) = program.layout(&candidate.asked, line)
                && !layout.is_actual()
            {
                subjects.count_in(&mut layout);
                tries.push((candidate, layout));
            }
        }
        tries
    }

    /// What the changes saved and cost.
    fn changes(
        &self,
        tried: &[Candidate],
        counted: &[Counted],
        asked: &[usize],
        result: &Findings,
        subjects: &Subjects,
    ) -> Vec<Tried> {
        let page = page_for(self.machine.config.granule);
        let reached = |c: &Counted| c.placed.map_or(0, |(stats, _)| stats.reached_pages);
        let policy = |c: &Candidate| match c.asked.placement {
            PlacementAsked::Policy(policy) => Some(policy),
            _ => None,
        };
        let one_heap = tried.iter().zip(counted);
        let one_heap = one_heap
            .filter(|(candidate, _)| policy(candidate) == Some(Policy::General))
            .map(|(_, counted)| reached(counted))
            .next()
            .unwrap_or(0);
        let saved = |before: u64, after: u64| before as i64 - after as i64;
        let one = |(candidate, counted): (&Candidate, &Counted)| {
            let at = asked
                .iter()
                .position(|&index| Some(result.findings[index].rank) == candidate.finding);
            let false_left = match at {
                Some(at) => {
                    let of = subjects.of_finding(at).iter();
                    of.map(|&s| counted.of_subject(s).falsely).sum()
                }
                None => counted.totals.falsely,
            };
            let grown = counted.placed.map_or(0, |(_, figures)| figures.grown);
            Tried {
                finding: candidate.finding,
                change: candidate.words.clone(),
                arguments: candidate.arguments(),
                misses_saved: saved(self.base.misses.all(), counted.totals.all()),
                false_saved: saved(self.base.misses.falsely, counted.totals.falsely),
                false_left,
                bytes: match policy(candidate) {
                    Some(_) => reached(counted).saturating_sub(one_heap) * page,
                    None => grown,
                },
            }
        };
        tried.iter().zip(counted).map(one).collect()
    }
}

/// The replays that make predictions.
struct Predicts {
    config: Config,
    sizes: Vec<u64>,
    starts: Vec<u64>,
}

impl Predicts {
    /// For objects on lines; nothing is predicted for pages.
    fn of(findings: &[&Finding], config: Config) -> Self {
        let line = config.granule;
        let predicts = !findings.is_empty() && LINE_SIZES.contains(&line);
        let step = (line / STARTS).clamp(START_STEP, 2 * START_STEP);
        Self {
            config,
            sizes: LINE_SIZES.into_iter().filter(|_| predicts).collect(),
            starts: (0..line / step)
                .map(|i| i * step)
                .filter(|_| predicts)
                .collect(),
        }
    }

    fn wanted(&self, subjects: &Subjects) -> Vec<Wanted> {
        let sizes = self.sizes.iter().map(|&size| {
            let mut layout = Layout::default();
            subjects.count_in(&mut layout);
            Wanted {
                config: Config {
                    protocol: self.config.protocol,
                    ..Config::new(size, self.config.nodes)
                },
                layout,
            }
        });
        let starts = self.starts.iter().map(|&offset| Wanted {
            config: self.config,
            layout: subjects.started_at(offset, self.config.granule),
        });
        sizes.chain(starts).collect()
    }

    /// The predictions for the finding at `index`, from `counted`, the results of
    /// [`Predicts::wanted`].
    fn of_finding(
        &self,
        index: usize,
        object: &findings::Object,
        subjects: &Subjects,
        counted: &[Counted],
    ) -> Predicted {
        let (sizes, starts) = counted.split_at(self.sizes.len().min(counted.len()));
        let misses = |counted: &Counted| {
            let of = subjects.of_finding(index).iter();
            of.map(|&subject| counted.of_subject(subject))
                .fold((0, 0), |sum, m| (sum.0 + m.truly, sum.1 + m.falsely))
        };
        let line_sizes = self.sizes.iter().zip(sizes).map(|(&size, counted)| {
            let (true_sharing, false_sharing) = misses(counted);
            OnLines {
                line_size: size as u32,
                true_sharing,
                false_sharing,
            }
        });
        let step = subjects.step(index, object);
        let can_be = |offset: u64| step.is_some_and(|step| offset.is_multiple_of(step));
        let starts = self.starts.iter().zip(starts);
        let starts = starts.filter(|(offset, _)| can_be(**offset));
        let starts = starts.map(|(&offset, counted)| {
            let (true_sharing, false_sharing) = misses(counted);
            AtStart {
                offset: offset as u32,
                true_sharing,
                false_sharing,
            }
        });
        Predicted {
            line_sizes: line_sizes.collect(),
            starts: starts.collect(),
        }
    }
}
