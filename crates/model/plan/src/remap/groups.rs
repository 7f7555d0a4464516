//! Groups of bytes by the threads that use them, and what separating the groups is worth.
//! Called with what was seen of the contended lines of some pages. Pure: it chooses no
//! addresses and moves nothing.

use std::collections::{BTreeMap, BTreeSet};
use sunder_access::LINE;

/// Observed accesses of one thread to some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Accesses that only read.
    pub reads: u64,
    /// Accesses that write, or read and write.
    pub writes: u64,
    /// The locked ones among the writes.
    pub atomics: u64,
}

impl Count {
    const fn all(self) -> u64 {
        self.reads.saturating_add(self.writes)
    }

    /// The accesses since `before` was counted.
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
    /// Offset of the first byte from the start of the pages.
    pub offset: u64,
    /// The number of bytes.
    pub size: u64,
    /// The accesses of each thread.
    pub threads: BTreeMap<u32, Count>,
}

/// Bytes that move together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Offset of the first byte from the start of the pages.
    pub offset: u64,
    /// The number of bytes.
    pub size: u64,
    /// The threads that use them.
    pub threads: BTreeSet<u32>,
}

impl Group {
    /// Offset of the first byte after them.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.size)
    }
}

/// The bytes that go to lines of their own, and what that is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouping {
    /// By ascending offset.
    pub groups: Vec<Group>,
    /// The share (0 to 1) of the interleavings that is between bytes of different groups. The
    /// rest remains, because these threads use the same bytes.
    pub apart: f64,
}

/// Why nothing is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmoved {
    /// There is nothing to separate: the same threads use all bytes, or no thread writes.
    OneGroup,
    /// There would be more groups than allowed: different threads' bytes overlap or alternate
    /// too finely.
    TooMany,
}

impl Unmoved {
    /// The reason, as a clause after "because".
    pub const fn why(self) -> &'static str {
        match self {
            Self::OneGroup => {
                "the same threads use all of its bytes, so that there is nothing to take apart (tasks or \
                 fibers may have changed their threads)"
            }
            Self::TooMany => "it would fall into too many pieces",
        }
    }
}

/// A thread that uses bytes less than once in this many uses by their busiest thread does not
/// count as one of their users. Such are the other side of a queue, which looks when the queue
/// seems full, and a thread that reads all results at the end.
const SELDOM: u64 = 16;

/// The number of accesses, and for written bytes also of writes, that tells the role of bytes
/// that several threads use. With fewer, a writer or a reader may have been missed.
const ENOUGH: u64 = 8;

/// Bytes with fewer accesses, all by one thread, may be used by all threads that share the
/// bytes beside them: a burst sees only the thread that holds the lock.
const FEW: u64 = 32;

/// So large a part of the elements of an array that were seen more than once must have been seen with
/// several threads for the others to be taken for theirs, too. Of an array in which each thread has
/// elements of its own, none is seen with several.
const SLOTS_ARE_ONE_IN: usize = 4;

/// What bytes are to the threads that use them. Bytes that several threads use in different
/// roles are different variables. Plastic does not separate these, because they have the same
/// accessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// No thread writes them, or hardly ever.
    Read,
    /// They are one thread's own, or one thread writes them and the others read them.
    Of(u32),
    /// Several threads write them, mostly by locked instructions: a lock, a reference count.
    Locked,
    /// Several threads write them.
    Plain,
    /// They are elements of an array that threads use one after the other; see [`join_slots`].
    Slots,
    /// Several threads use them, but too few accesses were seen to tell the role. The value
    /// tells whether one of these was a write.
    Unclear(bool),
}

/// The users and the role of bytes, which are the same for all bytes of a group.
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

    /// Adds accesses of a thread.
    pub fn add(&mut self, thread: u32, count: Count) {
        self.threads.entry(thread).or_default().add(count);
    }

    /// The number of observed accesses.
    pub fn accesses(&self) -> u64 {
        self.total().all()
    }

    /// The threads that use them more than seldom.
    pub fn users(&self) -> BTreeSet<u32> {
        most(self.threads.iter().map(|(&thread, c)| (thread, c.all())))
    }

    /// Whether one of their users writes them; if there are several, more than seldom.
    pub fn is_written(&self) -> bool {
        let users = self.users();
        let counts = users.iter().filter_map(|user| self.threads.get(user));
        let writes = counts.fold(0, |all: u64, count| all.saturating_add(count.writes));
        writes > 0 && (users.len() == 1 || writes.saturating_mul(SELDOM) >= self.accesses())
    }

    /// Whether several threads were seen to read them often enough to tell that none of these writes
    /// them more than seldom.
    pub(super) fn is_only_read(&self) -> bool {
        let users = self.users();
        users.len() > 1 && self.role(&users) == Role::Read
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
            _ if total.atomics >= total.writes.div_ceil(2) => Role::Locked,
            _ => Role::Plain,
        }
    }

    /// Offset of the first byte after them.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.size)
    }
}

/// The threads whose count is more than seldom, compared with the largest count.
fn most(all: impl Iterator<Item = (u32, u64)> + Clone) -> BTreeSet<u32> {
    let busiest = all.clone().map(|(_, count)| count).max().unwrap_or(0);
    all.filter(|(_, count)| count.saturating_mul(SELDOM) >= busiest)
        .map(|(thread, _)| thread)
        .collect()
}

/// Adjacent bytes with one owner.
struct ByteRun {
    group: Group,
    role: Role,
}

/// The groups of `uses` that are to be moved, at most `most`. A group is a run of bytes with
/// the same owner of which a thread writes some. All other bytes stay where they are, together.
/// Bytes between two uses of one owner belong to its group, so that wider accesses stay in one
/// piece.
///
/// Bytes that several threads share truly are a group like others: they move together for all
/// threads, and the true sharing remains.
///
/// # Errors
/// If moving would not help, or would need more than `most` groups.
pub fn groups(uses: &[Use], most: usize) -> Result<Grouping, Unmoved> {
    let mut uses: Vec<&Use> = uses.iter().collect();
    uses.sort_by_key(|u| (u.offset, u.size));
    let mut runs: Vec<ByteRun> = Vec::new();
    // The index of each use's run.
    let mut of = Vec::with_capacity(uses.len());
    for (one, owner) in uses.iter().zip(owners(&uses)) {
        match runs.last_mut() {
            Some(last) if last.is_of(&owner) => last.take_in(one, owner.role),
            Some(last) if one.offset < last.group.end() => {
                return Err(Unmoved::TooMany);
            }
            _ => runs.push(ByteRun {
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
    // Bytes that stay remain on their lines together, whichever threads read them.
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

/// The owner of each of `uses`, in the same order. A use with few accesses, all by one thread,
/// gets its neighbour's owner if that thread is one of several who share the neighbour: it may
/// be an element of an array that another thread uses next.
fn owners(uses: &[&Use]) -> Vec<Owner> {
    let mut all: Vec<Owner> = uses
        .iter()
        .map(|one| {
            let threads = one.users();
            let role = one.role(&threads);
            Owner { threads, role }
        })
        .collect();
    join_slots(uses, &mut all);
    // A lock beside the data is the less likely neighbour, so it is tried last.
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

/// Makes the elements of an array that threads use one after the other, as the slots of a queue, the
/// bytes of all these threads. Each of them is seen so seldom that some are seen with one thread
/// only, and others with several. They have one size, and their users have threads in common. More of
/// them than there are threads were seen with several: where each thread has an element at which its
/// neighbour looks, there are as many.
fn join_slots(uses: &[&Use], all: &mut [Owner]) {
    let is_slot = |n: usize, size: u64| uses[n].size == size && uses[n].accesses() < FEW;
    let mut after = 0;
    for first in 0..uses.len() {
        let size = uses[first].size;
        if first < after || all[first].threads.len() < 2 || !is_slot(first, size) {
            continue;
        }
        let mut threads = all[first].threads.clone();
        let mut several = 1;
        let mut to = first + 1;
        while to < uses.len() && is_slot(to, size) {
            let here = &all[to].threads;
            if here.len() > 1 && !here.is_disjoint(&threads) {
                threads.extend(here);
                several += 1;
            } else if !here.is_subset(&threads) {
                break;
            }
            to += 1;
        }
        let before = (after..first).rev();
        let before = before.take_while(|&n| is_slot(n, size) && all[n].threads.is_subset(&threads));
        let from = before.last().unwrap_or(first);
        let again = uses[from..to].iter().filter(|slot| slot.accesses() > 1);
        if several > threads.len() && several * SLOTS_ARE_ONE_IN >= again.count() {
            let slots = &mut all[from..to];
            let role = match slots.iter().any(Owner::is_written) {
                true => Role::Slots,
                false => Role::Read,
            };
            slots.fill(Owner { threads, role });
            after = to;
        }
    }
}

/// Whether bytes with few accesses, all by one thread, are taken as part of the bytes of
/// several threads beside them.
fn is_of_an_array((one, owner): (&Use, &Owner), (beside, several): (&Use, &Owner)) -> bool {
    let enough = match several.role {
        Role::Locked => ENOUGH,
        _ => FEW,
    };
    let seldom = one.accesses() < enough && one.accesses() < beside.accesses();
    let is_one_of = owner.threads.len() == 1 && several.threads.is_superset(&owner.threads);
    // Bytes that one thread writes beside those of which another is the only writer are no element of
    // the same array: the two sides of a queue.
    let has_other_writer = match several.role {
        Role::Of(writer) => one.is_written() && !owner.threads.contains(&writer),
        _ => false,
    };
    seldom && is_one_of && !has_other_writer && several.threads.len() > 1 && several.is_written()
}

impl Owner {
    const fn is_written(&self) -> bool {
        !matches!(self.role, Role::Read | Role::Unclear(false))
    }
}

impl ByteRun {
    /// The bytes of one thread are one group whether the thread reads or writes them. Bytes of
    /// unclear role go with their neighbours, but bytes that were written never with those that
    /// several threads only read: each write would take these from the readers. Nor do they go with an
    /// array beside them.
    fn is_of(&self, owner: &Owner) -> bool {
        let unclear = |role: Role| matches!(role, Role::Unclear(_));
        let differ = |unclear, clear| {
            matches!(
                (unclear, clear),
                (Role::Unclear(true), Role::Read) | (Role::Unclear(_), Role::Slots)
            )
        };
        let differ = differ(self.role, owner.role) || differ(owner.role, self.role);
        self.group.threads == owner.threads
            && (self.role == owner.role
                || owner.threads.len() == 1
                || !differ && (unclear(self.role) || unclear(owner.role)))
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

/// The share of the interleavings on each line that is between different groups, if accesses
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

/// As [`Grouping::apart`], for `groups` that were not made of these `uses`. Uses that are in
/// none of the groups stay together.
pub fn apart_by(uses: &[Use], groups: &[Group]) -> f64 {
    let of = |one: &Use| {
        let mut all = groups.iter();
        let found = all.position(|group| group.offset < one.end() && one.offset < group.end());
        found.unwrap_or(groups.len())
    };
    apart(uses.iter().map(|one| (one, of(one))))
}

/// The number of pairs of accesses by different threads, without the pairs of two reads.
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
