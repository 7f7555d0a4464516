//! The slow model, which derives everything from the trace. Used by the property tests.

use std::collections::{BTreeMap, BTreeSet};
use sunder_coherence::{CacheSize, Caches, Config, Counts, End, Kind, MissKind, Protocol, Source};

/// One access of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub node: u32,
    pub address: u64,
    pub width: u32,
    pub kind: Kind,
}

/// The part of an access in one granule; all of them are kept.
struct Reference {
    node: u32,
    line: u64,
    words: BTreeSet<u64>,
    write: bool,
}

/// One miss and the lifetime that it began. Times are indices into the list of references.
struct Lifetime {
    node: u32,
    line: u64,
    from: usize,
    to: usize,
    /// How and when the previous copy was lost.
    lost: Option<(End, usize)>,
    source: Source,
    end: End,
    tag: u32,
}

/// A reported miss: tag, line, node, kind, write, source, end.
pub type ReportedMiss = (u32, u64, u32, MissKind, bool, Source, End);

/// The results of the model.
pub struct Found {
    pub nodes: Vec<Counts>,
    pub lines: Vec<(u64, u32, Counts)>,
    pub misses: Vec<ReportedMiss>,
    pub hits: u64,
}

/// A cache as a list of sets, each with the most recently used line first.
struct Cache {
    ways: usize,
    sets: Vec<Vec<u64>>,
}

impl Cache {
    fn new(size: CacheSize, granule: u64) -> Self {
        let sets = size.bytes / granule / u64::from(size.ways);
        Self {
            ways: size.ways as usize,
            sets: vec![Vec::new(); sets as usize],
        }
    }

    fn set(&mut self, line: u64) -> &mut Vec<u64> {
        let index = line % self.sets.len() as u64;
        &mut self.sets[index as usize]
    }

    fn has(&mut self, line: u64) -> bool {
        self.set(line).contains(&line)
    }

    fn drop(&mut self, line: u64) {
        self.set(line).retain(|&other| other != line);
    }

    /// Moves `line` to the front, and returns the line that is replaced.
    fn use_line(&mut self, line: u64) -> Option<u64> {
        let ways = self.ways;
        let set = self.set(line);
        set.retain(|&other| other != line);
        set.insert(0, line);
        if set.len() > ways { set.pop() } else { None }
    }
}

/// The state of the model.
pub struct Slow {
    config: Config,
    trace: Vec<Reference>,
    /// The letter of each valid copy's state: S, F, E, M.
    states: BTreeMap<(u64, u32), char>,
    open: BTreeMap<(u64, u32), Lifetime>,
    closed: Vec<Lifetime>,
    losses: BTreeMap<(u64, u32), (End, usize)>,
    caches: Vec<Vec<Cache>>,
    nodes: Vec<Counts>,
    lines: BTreeMap<u64, Counts>,
    hits: u64,
}

impl Slow {
    pub fn run(config: Config, steps: &[Step]) -> Found {
        let caches = match config.caches {
            Caches::Private { l1, l2 } => [Some(l1), l2].into_iter().flatten().collect(),
            _ => Vec::new(),
        };
        let cache = |size: &CacheSize| Cache::new(*size, config.granule);
        let mut slow = Self {
            config,
            trace: Vec::new(),
            states: BTreeMap::new(),
            open: BTreeMap::new(),
            closed: Vec::new(),
            losses: BTreeMap::new(),
            caches: (0..config.nodes)
                .map(|_| caches.iter().map(cache).collect())
                .collect(),
            nodes: vec![Counts::default(); config.nodes as usize],
            lines: BTreeMap::new(),
            hits: 0,
        };
        for (tag, step) in steps.iter().enumerate() {
            slow.step(step, tag as u32);
        }
        slow.finish()
    }

    fn step(&mut self, step: &Step, tag: u32) {
        let mut pieces: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for byte in step.address..step.address + u64::from(step.width) {
            pieces
                .entry(byte / self.config.granule)
                .or_default()
                .insert(byte / u64::from(self.config.word));
        }
        for (line, words) in pieces {
            self.trace.push(Reference {
                node: step.node,
                line,
                words,
                write: step.kind != Kind::Read,
            });
            self.reference(line, step.node, step.kind != Kind::Read, tag);
        }
    }

    fn count(&mut self, line: u64, node: u32, add: impl Fn(&mut Counts)) {
        add(&mut self.nodes[node as usize]);
        add(self.lines.entry(line).or_default());
    }

    fn reference(&mut self, line: u64, node: u32, write: bool, tag: u32) {
        self.count(line, node, |c| c.references += 1);
        self.touch_caches(line, node);
        let state = self.states.get(&(line, node)).copied();
        match (state, write) {
            (None, _) => self.miss(line, node, write, tag),
            (Some('S' | 'F'), true) => {
                self.count(line, node, |c| c.upgrades += 1);
                self.invalidate_others(line, node);
                self.states.insert((line, node), 'M');
            }
            (Some('E'), true) => {
                self.hits += 1;
                self.states.insert((line, node), 'M');
            }
            _ => self.hits += 1,
        }
    }

    fn touch_caches(&mut self, line: u64, node: u32) {
        let levels = &mut self.caches[node as usize];
        let gone = match levels.as_mut_slice() {
            [] => None,
            [only] => {
                let had = only.has(line);
                let gone = only.use_line(line);
                self.nodes[node as usize].first_level += u64::from(had);
                gone
            }
            [first, second, ..] => {
                if first.has(line) {
                    self.nodes[node as usize].first_level += 1;
                    first.use_line(line);
                    None
                } else {
                    let gone = second.use_line(line);
                    if let Some(gone) = gone {
                        first.drop(gone);
                    }
                    first.use_line(line);
                    gone
                }
            }
        };
        if let Some(gone) = gone {
            if self.states[&(gone, node)] == 'M' {
                self.count(gone, node, |c| c.write_backs += 1);
            }
            self.lose(gone, node, End::Replaced);
        }
    }

    /// The nodes that hold the line, with their states.
    fn holders(&self, line: u64) -> Vec<(u32, char)> {
        let range = (line, 0)..=(line, u32::MAX);
        let found = self.states.range(range);
        found.map(|(&(_, node), &state)| (node, state)).collect()
    }

    fn miss(&mut self, line: u64, node: u32, write: bool, tag: u32) {
        let holders = self.holders(line);
        let dirty = holders.iter().find(|(_, state)| *state == 'M');
        let clean = holders.iter().find(|(_, state)| matches!(state, 'E' | 'F'));
        let forwards = self.config.protocol == Protocol::Mesif;
        let source = match (dirty, clean) {
            (Some(&(owner, _)), _) => {
                self.count(line, node, |c| c.hitm += 1);
                if !write {
                    self.count(line, owner, |c| c.write_backs += 1);
                }
                Source::Dirty(owner)
            }
            (None, Some(&(holder, _))) if forwards => {
                self.count(line, node, |c| c.forwards += 1);
                Source::Clean(holder)
            }
            _ => Source::Memory,
        };
        for &(holder, _) in &holders {
            self.states.insert((line, holder), 'S');
        }
        if write {
            self.count(line, node, |c| c.write_misses += 1);
            self.invalidate_others(line, node);
        }
        let state = match self.config.protocol {
            _ if write => 'M',
            Protocol::Msi => 'S',
            _ if holders.is_empty() => 'E',
            Protocol::Mesif => 'F',
            _ => 'S',
        };
        self.states.insert((line, node), state);
        let lifetime = Lifetime {
            node,
            line,
            from: self.trace.len() - 1,
            to: 0,
            lost: self.losses.get(&(line, node)).copied(),
            source,
            end: End::Finished,
            tag,
        };
        self.open.insert((line, node), lifetime);
    }

    fn invalidate_others(&mut self, line: u64, node: u32) {
        for (holder, _) in self.holders(line) {
            if holder != node {
                self.count(line, node, |c| c.invalidations += 1);
                for cache in &mut self.caches[holder as usize] {
                    cache.drop(line);
                }
                self.lose(line, holder, End::Invalidated);
            }
        }
    }

    fn lose(&mut self, line: u64, node: u32, end: End) {
        self.states.remove(&(line, node));
        let now = self.trace.len() - 1;
        self.losses.insert((line, node), (end, now));
        if let Some(mut lifetime) = self.open.remove(&(line, node)) {
            lifetime.to = now;
            lifetime.end = end;
            self.closed.push(lifetime);
        }
    }

    /// Whether another node wrote a word of reference `of` at or after `from` and before `to`.
    fn others_wrote(&self, of: &Reference, from: usize, to: usize) -> bool {
        let between = self.trace.iter().take(to).skip(from);
        between
            .filter(|r| r.write && r.line == of.line && r.node != of.node)
            .any(|r| !r.words.is_disjoint(&of.words))
    }

    /// The definition, literally.
    fn classify(&self, lifetime: &Lifetime, last_essential: usize) -> MissKind {
        match lifetime.lost {
            None => return MissKind::Cold,
            Some((End::Replaced, _)) => return MissKind::Replacement,
            Some(_) => {}
        }
        let uses = self
            .trace
            .iter()
            .take(lifetime.to)
            .skip(lifetime.from)
            .filter(|r| r.node == lifetime.node && r.line == lifetime.line);
        for reference in uses {
            if self.others_wrote(reference, last_essential, lifetime.from) {
                return MissKind::TrueSharing;
            }
        }
        MissKind::FalseSharing
    }

    fn finish(mut self) -> Found {
        let end = self.trace.len();
        for (_, mut lifetime) in std::mem::take(&mut self.open) {
            lifetime.to = end;
            self.closed.push(lifetime);
        }
        let mut closed = std::mem::take(&mut self.closed);
        closed.sort_by_key(|lifetime| (lifetime.tag, lifetime.line));
        let mut last_essential: BTreeMap<(u64, u32), usize> = BTreeMap::new();
        let mut misses = Vec::new();
        let mut touchers: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for lifetime in &closed {
            let at = (lifetime.line, lifetime.node);
            let last = last_essential.get(&at).copied().unwrap_or(0);
            let kind = self.classify(lifetime, last);
            if kind != MissKind::FalseSharing {
                last_essential.insert(at, lifetime.from);
            }
            if let Some((End::Invalidated, lost)) = lifetime.lost {
                let missing = &self.trace[lifetime.from];
                if !self.others_wrote(missing, lost, lifetime.from) {
                    self.count(at.0, at.1, |c| c.false_by_first_access += 1);
                }
            }
            self.count(at.0, at.1, |c| match kind {
                MissKind::Cold => c.cold += 1,
                MissKind::Replacement => c.replacement += 1,
                MissKind::TrueSharing => c.true_sharing += 1,
                MissKind::FalseSharing => c.false_sharing += 1,
            });
            touchers.entry(at.0).or_default().insert(at.1);
            misses.push((
                lifetime.tag,
                at.0 * self.config.granule,
                at.1,
                kind,
                self.trace[lifetime.from].write,
                lifetime.source,
                lifetime.end,
            ));
        }
        let lines = self.lines.iter().map(|(line, counts)| {
            let nodes = touchers[line].len() as u32;
            (line * self.config.granule, nodes, *counts)
        });
        Found {
            lines: lines.collect(),
            nodes: self.nodes,
            misses,
            hits: self.hits,
        }
    }
}
