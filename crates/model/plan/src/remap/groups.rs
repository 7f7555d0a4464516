//! Bytes by who uses them, and what taking them apart is worth. Called with what was
//! seen of the contended lines of some pages. Pure: names no place and moves nothing.

use std::collections::{BTreeMap, BTreeSet};

/// Observed accesses of one thread to some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Those that only read.
    pub reads: u64,
    /// Those that write, or read and write.
    pub writes: u64,
    /// Of the latter, the locked ones.
    pub atomics: u64,
}

impl Count {
    const fn all(self) -> u64 {
        self.reads.saturating_add(self.writes)
    }

    /// What has come since it was `before`.
    #[must_use]
    pub const fn less(self, before: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            writes: self.writes.saturating_sub(before.writes),
            atomics: self.atomics.saturating_sub(before.atomics),
        }
    }

    const fn add(&mut self, other: Self) {
        self.reads = self.reads.saturating_add(other.reads);
        self.writes = self.writes.saturating_add(other.writes);
        self.atomics = self.atomics.saturating_add(other.atomics);
    }
}

/// Bytes that were seen in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Offset of the first from the start of the pages.
    pub offset: u64,
    /// How many.
    pub size: u64,
    /// By whom, and how.
    pub threads: BTreeMap<u32, Count>,
}

/// Bytes that move together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Offset of the first from the start of the pages.
    pub offset: u64,
    /// How many.
    pub size: u64,
    /// Who uses them.
    pub threads: BTreeSet<u32>,
}

impl Group {
    /// The first byte behind them.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.size)
    }
}

/// What goes to lines of its own, and what that is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouping {
    /// By ascending offset.
    pub groups: Vec<Group>,
    /// The share (0 to 1) of the interleavings of different threads that are between
    /// bytes which come apart; the rest remains, for these threads use the same bytes.
    pub apart: f64,
}

/// Why nothing is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmoved {
    /// There is nothing to take apart: all that is used is used by the same threads, or
    /// nobody writes.
    OneGroup,
    /// The bytes of different threads overlap or alternate too finely.
    TooMany,
}

impl Unmoved {
    /// The reason, as a sentence goes on after "because".
    pub const fn why(self) -> &'static str {
        match self {
            Self::OneGroup => "its bytes are those of one group of threads",
            Self::TooMany => "it would fall into too many pieces",
        }
    }
}

/// Who uses a byte less than once while the busiest uses it so often does not count as
/// one of its users: a queue's other side that looks when the queue seems full, a
/// thread that reads all results at the end.
const SELDOM: u64 = 16;

/// So many accesses, and of what is written so many writes, tell what kind bytes of
/// several threads are; with fewer, a writer or a reader may not have been seen.
const ENOUGH: u64 = 8;

/// With fewer, bytes that one thread was seen to use may be of several who share those
/// beside them: a burst sees the one that holds the lock.
const FEW: u64 = 32;

/// Bytes a line has.
const LINE: u64 = 64;

/// What bytes are to the threads that use them. Bytes of several threads that differ in
/// this are different variables, which Plastic does not tell apart: each has the same
/// accessors as the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Nobody writes them, or hardly ever.
    Read,
    /// One thread's own, or written by one and read by the others.
    Of(u32),
    /// Written by several, mostly by locked instructions: a lock, a count of references.
    Locked,
    /// Written by several.
    Plain,
    /// Of several threads, and seen too seldom to tell; whether a write was seen.
    Unclear(bool),
}

/// Whose bytes are: the same in all bytes of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    threads: BTreeSet<u32>,
    role: Role,
}

impl Use {
    fn total(&self) -> Count {
        let mut total = Count::default();
        self.threads.values().for_each(|&count| total.add(count));
        total
    }

    /// Takes in more accesses of a thread.
    pub fn add(&mut self, thread: u32, count: Count) {
        self.threads.entry(thread).or_default().add(count);
    }

    /// How often they were seen in use.
    pub fn accesses(&self) -> u64 {
        self.total().all()
    }

    /// Who uses them more than seldom.
    pub fn users(&self) -> BTreeSet<u32> {
        most(self.threads.iter().map(|(&thread, c)| (thread, c.all())))
    }

    /// Whether one of their users writes them; several, more than seldom.
    pub fn is_written(&self) -> bool {
        let users = self.users();
        let counts = users.iter().filter_map(|user| self.threads.get(user));
        let writes: u64 = counts.map(|count| count.writes).sum();
        writes > 0 && (users.len() == 1 || writes.saturating_mul(SELDOM) >= self.accesses())
    }

    fn role(&self, users: &BTreeSet<u32>) -> Role {
        let total = self.total();
        let written = self.is_written();
        if let (Some(&only), 1, true) = (users.first(), users.len(), written) {
            return Role::Of(only);
        }
        if users.len() > 1 && (total.all() < ENOUGH || written && total.writes < ENOUGH) {
            return Role::Unclear(written);
        }
        if !written {
            return Role::Read;
        }
        let writers = self.threads.iter().map(|(&thread, c)| (thread, c.writes));
        let writers = most(writers.filter(|w| w.1 > 0));
        match (writers.first(), writers.len()) {
            (Some(&only), 1) => Role::Of(only),
            _ if 2 * total.atomics >= total.writes => Role::Locked,
            _ => Role::Plain,
        }
    }

    /// The first byte behind them.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.size)
    }
}

/// The threads that do something more than seldom.
fn most(all: impl Iterator<Item = (u32, u64)> + Clone) -> BTreeSet<u32> {
    let busiest = all.clone().map(|(_, count)| count).max().unwrap_or(0);
    all.filter(|(_, count)| count.saturating_mul(SELDOM) >= busiest)
        .map(|(thread, _)| thread)
        .collect()
}

/// A run of bytes of one owner.
struct Run {
    group: Group,
    role: Role,
}

/// What is to be taken apart of `uses`, in at most `most` pieces: runs of bytes with the
/// same owner, of which somebody writes. Others stay where they are, together. Bytes
/// between two uses of one owner belong to it, so that wider accesses stay whole.
///
/// Bytes that several threads share truly are a group like others: they move together
/// for all threads, and what these do to each other remains.
///
/// # Errors
/// If moving would not help, or there would be more than `most`.
pub fn groups(uses: &[Use], most: usize) -> Result<Grouping, Unmoved> {
    let mut uses: Vec<&Use> = uses.iter().collect();
    uses.sort_by_key(|u| (u.offset, u.size));
    let mut runs: Vec<Run> = Vec::new();
    // The run of each use.
    let mut of = Vec::with_capacity(uses.len());
    for (one, owner) in uses.iter().zip(owners(&uses)) {
        match runs.last_mut() {
            Some(last) if last.is_of(&owner) => last.take_in(one, owner.role),
            Some(last) if one.offset < last.group.offset + last.group.size => {
                return Err(Unmoved::TooMany);
            }
            _ => runs.push(Run {
                group: Group {
                    offset: one.offset,
                    size: one.size,
                    threads: owner.threads,
                },
                role: owner.role,
            }),
        }
        of.push(runs.len() - 1);
    }
    // What stays is together on its lines, whoever reads it.
    let stays = runs.len();
    let of = of.iter().map(|&run| match runs[run].stays() {
        true => stays,
        false => run,
    });
    let apart = apart(uses.iter().copied().zip(of));
    let moved: Vec<Group> = runs
        .into_iter()
        .filter(|run| !run.stays())
        .map(|run| run.group)
        .collect();
    if moved.len() > most {
        return Err(Unmoved::TooMany);
    }
    if apart <= 0.0 {
        return Err(Unmoved::OneGroup);
    }
    Ok(Grouping {
        groups: moved,
        apart,
    })
}

/// Whose each of `uses` is, in their order. One that was seldom seen, and with one thread
/// only, is its neighbours' if that thread is one of several who share these: an element
/// of an array that another will use next.
fn owners(uses: &[&Use]) -> Vec<Owner> {
    let mut all: Vec<Owner> = uses
        .iter()
        .map(|one| {
            let threads = one.users();
            let role = one.role(&threads);
            Owner { threads, role }
        })
        .collect();
    // A lock beside data is the lesser guess.
    for locks in [false, true] {
        let pairs = (1..all.len()).map(|n| (n, n - 1));
        let back = (1..all.len()).rev().map(|n| (n - 1, n));
        for (n, beside) in pairs.chain(back) {
            let may = locks || all[beside].role != Role::Locked;
            if may && is_of_an_array((uses[n], &all[n]), (uses[beside], &all[beside])) {
                all[n] = all[beside].clone();
            }
        }
    }
    all
}

/// Whether bytes that were seldom seen, and with one thread, are taken for those of
/// several beside them.
fn is_of_an_array((one, owner): (&Use, &Owner), (beside, several): (&Use, &Owner)) -> bool {
    let enough = match several.role {
        Role::Locked => ENOUGH,
        _ => FEW,
    };
    let seldom = one.accesses() < enough && one.accesses() < beside.accesses();
    let is_one_of = owner.threads.len() == 1 && several.threads.is_superset(&owner.threads);
    seldom && is_one_of && several.threads.len() > 1 && several.is_written()
}

impl Owner {
    const fn is_written(&self) -> bool {
        !matches!(self.role, Role::Read | Role::Unclear(false))
    }
}

impl Run {
    /// One thread's bytes are one group whether it reads or writes them, and what was
    /// seldom seen goes with its neighbours.
    fn is_of(&self, owner: &Owner) -> bool {
        let unclear = |role: Role| matches!(role, Role::Unclear(_));
        self.group.threads == owner.threads
            && (self.role == owner.role
                || owner.threads.len() == 1
                || unclear(self.role)
                || unclear(owner.role))
    }

    fn take_in(&mut self, one: &Use, role: Role) {
        let size = one.end() - self.group.offset;
        self.group.size = self.group.size.max(size);
        self.role = match (self.role, role) {
            (Role::Unclear(before), Role::Unclear(now)) => Role::Unclear(before || now),
            (Role::Unclear(_), clear) => clear,
            (Role::Read, now) if self.group.threads.len() == 1 => now,
            (before, _) => before,
        };
    }

    const fn stays(&self) -> bool {
        matches!(self.role, Role::Read | Role::Unclear(false))
    }
}

/// The share of interleavings on lines that are between different groups, if accesses
/// come in random order: pairs of accesses by different threads of which one writes.
fn apart<'a>(uses: impl Iterator<Item = (&'a Use, usize)>) -> f64 {
    let mut lines: BTreeMap<u64, BTreeMap<usize, BTreeMap<u32, Count>>> = BTreeMap::new();
    for (one, group) in uses {
        let groups = lines.entry(one.offset / LINE).or_default();
        let threads = groups.entry(group).or_default();
        for (&thread, &count) in &one.threads {
            threads.entry(thread).or_default().add(count);
        }
    }
    let (mut all, mut within) = (0.0, 0.0);
    for groups in lines.values() {
        let mut together: BTreeMap<u32, Count> = BTreeMap::new();
        for threads in groups.values() {
            within += conflicts(threads);
            for (&thread, &count) in threads {
                together.entry(thread).or_default().add(count);
            }
        }
        all += conflicts(&together);
    }
    if all > 0.0 {
        (1.0 - within / all).clamp(0.0, 1.0)
    } else {
        0.0
    }
}

/// As [`Grouping::apart`], for what was seen of `uses` and groups that were made of
/// something else; what is in none of them stays together.
pub fn apart_by(uses: &[Use], groups: &[Group]) -> f64 {
    let of = |one: &Use| {
        let mut all = groups.iter();
        let found = all.position(|group| group.offset < one.end() && one.offset < group.end());
        found.unwrap_or(groups.len())
    };
    apart(uses.iter().map(|one| (one, of(one))))
}

/// Pairs of accesses by different threads, less those that both read.
fn conflicts(threads: &BTreeMap<u32, Count>) -> f64 {
    let pairs = |of: &dyn Fn(&Count) -> u64| {
        let counts = threads.values().map(|c| of(c) as f64);
        let sum: f64 = counts.clone().sum();
        let same: f64 = counts.map(|c| c * c).sum();
        (sum * sum - same) / 2.0
    };
    pairs(&|c| c.all()) - pairs(&|c| c.reads)
}

#[cfg(test)]
mod tests;
