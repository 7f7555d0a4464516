//! Prediction: what would be falsely shared with other line sizes, if an object started
//! elsewhere in its line, or if threads ran at the same time that took turns, though today it is
//! not. It uses the same accesses as the verdicts but is coarser: threads count as simultaneous if they were active in the same time slots of the
//! run (1/32 of it or finer). The cost is an upper bound, because nothing tells how finely the
//! accesses interleave.

use crate::judge::Judge;
use crate::line::{Line, User};
use crate::verdict::{SiteUse, sites};
use sunder_access::{Address, Granule, Span, ThreadId};

/// The least touches for a use to count in a prediction: fewer say nothing about a rate.
const LEAST_TOUCHES: u32 = 4;

/// The least time slots in which both threads must have been active. Within a single slot they
/// may have run one after the other.
const LEAST_SLOTS: u32 = 2;

/// Lines that are separate today and that a larger line would join, or one line whose threads
/// took turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Latent {
    /// The size of the line that holds them.
    pub granule: Granule,
    /// The first byte of that line.
    pub base: Address,
    /// Today's lines whose users would conflict.
    pub lines: Vec<Address>,
    /// The conflicting words.
    pub words: Vec<LatentWord>,
    /// The threads, by number.
    pub threads: Vec<ThreadId>,
    /// Upper bound of the CPU time that would be lost, in ns.
    pub cost_ns: f64,
    /// That bound as a share (0 to 1) of these threads' CPU time.
    pub cost_share: f64,
}

/// A part of an 8-byte word that would take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatentWord {
    /// The bytes of the word that are used, from the first to the last one.
    pub bytes: Span,
    /// The threads that touch it, and whether they write.
    pub threads: Vec<(ThreadId, bool)>,
}

/// A start of an object within its line at which it would be falsely shared.
#[derive(Clone, Debug, PartialEq)]
pub struct LatentAlignment {
    /// The position of the object's first byte in its line that causes the sharing.
    pub offset: u32,
    /// The position that the first byte has today.
    pub today: u32,
    /// The words that would be on one line, at the addresses that they have today.
    pub words: Vec<LatentWord>,
    /// The threads, by number.
    pub threads: Vec<ThreadId>,
    /// Upper bound of the CPU time that would be lost, in ns.
    pub cost_ns: f64,
    /// That bound as a share (0 to 1) of these threads' CPU time.
    pub cost_share: f64,
}

/// Words that would conflict, and what that would cost each thread.
#[derive(Default)]
struct Clash {
    words: Vec<LatentWord>,
    /// By thread: the time lost at most, and the time spent on these words.
    costs: Vec<(ThreadId, f64, f64)>,
}

impl Clash {
    fn add_word(&mut self, used: &WordTime<'_>) {
        let (thread, writes) = (used.user.thread, used.writes);
        let is_same = |w: &&mut LatentWord| word_of(w.bytes.start) == used.address();
        let Some(word) = self.words.iter_mut().find(is_same) else {
            self.words.push(LatentWord {
                bytes: used.bytes,
                threads: vec![(thread, writes)],
            });
            return;
        };
        word.bytes = both(word.bytes, used.bytes);
        match word.threads.iter_mut().find(|t| t.0 == thread) {
            Some(t) => t.1 |= writes,
            None => word.threads.push((thread, writes)),
        }
    }

    fn add_cost(&mut self, thread: ThreadId, lost: f64, own: f64) {
        match self.costs.iter_mut().find(|c| c.0 == thread) {
            Some(c) => {
                c.1 += lost;
                c.2 = c.2.max(own);
            }
            None => self.costs.push((thread, lost, own)),
        }
    }

    /// The words and threads in order, and the cost, where no thread loses more than the time
    /// that it spends on the words.
    fn finish(mut self, judge: &Judge) -> Option<(Vec<LatentWord>, Vec<ThreadId>, f64, f64)> {
        let cost: f64 = self.costs.iter().map(|c| c.1.min(c.2)).sum();
        if cost <= 0.0 {
            return None;
        }
        self.words.sort_by_key(|w| w.bytes.start);
        for word in &mut self.words {
            word.threads.sort_unstable();
        }
        let mut threads: Vec<ThreadId> = self.costs.iter().map(|c| c.0).collect();
        threads.sort_unstable();
        let time: f64 = threads.iter().map(|&t| judge.time_of(t)).sum();
        let share = if time > 0.0 {
            (cost / time).min(1.0)
        } else {
            0.0
        };
        Some((self.words, threads, cost, share))
    }
}

/// The address of the word that holds this byte.
fn word_of(byte: Address) -> Address {
    Address(byte.0 / 8 * 8)
}

/// From the first to the last byte of two spans.
fn both(one: Span, other: Span) -> Span {
    let start = one.start.min(other.start);
    Span::new(start, one.end().max(other.end()).0 - start.0)
}

/// How a thread uses one word.
struct WordTime<'a> {
    /// The bytes of the word that it uses, from the first to the last one.
    bytes: Span,
    user: &'a User,
    writes: bool,
    /// The thread's CPU time spent on the word.
    spent_ns: f64,
}

impl WordTime<'_> {
    /// The word's address.
    fn address(&self) -> Address {
        word_of(self.bytes.start)
    }
}

impl Judge {
    /// The lines that larger lines, of any of `granules`, would join and have falsely shared:
    /// two threads use different lines of today at the same time, and one of them writes. The
    /// most expensive first.
    pub fn latent(&self, granules: &[Granule]) -> Vec<Latent> {
        self.caught_up().latent_on(granules)
    }

    /// The instructions that touched the line at `line`, contended or not, the busiest first.
    pub fn sites_on(&self, line: Address) -> Vec<SiteUse> {
        let line = self.lines.get(&line);
        line.map_or_else(Vec::new, |line| sites(line, |_| true))
    }

    fn latent_on(&self, granules: &[Granule]) -> Vec<Latent> {
        let mut all = Vec::new();
        for &granule in granules {
            if granule <= self.config().granule() {
                continue;
            }
            let mut bases: Vec<Address> = self.lines.keys().copied().collect();
            bases.sort_unstable();
            let same = |a: &Address, b: &Address| granule.base(*a) == granule.base(*b);
            for group in bases.chunk_by(same).filter(|g| g.len() > 1) {
                all.extend(self.latent_in(granule, group));
            }
        }
        all.sort_by(|a, b| {
            b.cost_ns
                .total_cmp(&a.cost_ns)
                .then((a.granule, a.base).cmp(&(b.granule, b.base)))
        });
        all
    }

    fn latent_in(&self, granule: Granule, group: &[Address]) -> Option<Latent> {
        let mut clash = Clash::default();
        let mut lines = Vec::new();
        for (i, first) in group.iter().enumerate() {
            for second in &group[i + 1..] {
                if self.clash_of_lines(*first, *second, &mut clash) {
                    lines.extend([*first, *second]);
                }
            }
        }
        lines.sort_unstable();
        lines.dedup();
        let (words, threads, cost_ns, cost_share) = clash.finish(self)?;
        Some(Latent {
            granule,
            base: granule.base(group[0]),
            lines,
            words,
            threads,
            cost_ns,
            cost_share,
        })
    }

    /// Whether users of one line would conflict with users of the other if both were one line.
    fn clash_of_lines(&self, first: Address, second: Address, clash: &mut Clash) -> bool {
        let (Some(a), Some(b)) = (self.lines.get(&first), self.lines.get(&second)) else {
            return false;
        };
        let mut any = false;
        for x in &a.users {
            for y in &b.users {
                // Two threads that both use both lines share these already.
                let both = a.has_user(y.thread) && b.has_user(x.thread);
                if both || !meet(x, y) || x.writes == 0 && y.writes == 0 {
                    continue;
                }
                any = true;
                let (x_ns, y_ns) = (self.spent(x), self.spent(y));
                add_costs(clash, (x, x_ns, x_ns), (y, y_ns, y_ns));
                for (base, line, user) in [(first, a, x), (second, b, y)] {
                    for word in self.word_times(base, line, user) {
                        clash.add_word(&word);
                    }
                }
            }
        }
        any
    }

    /// Today's lines that would be falsely shared if all of their threads ran at the same time:
    /// two threads use different words of the line in the same time slots, one of them writes,
    /// and they took turns on a processor, so that `met` is false of them. The most expensive
    /// first.
    pub fn latent_turns(&self, met: impl Fn(ThreadId, ThreadId) -> bool) -> Vec<Latent> {
        self.caught_up().turns_on_lines(met)
    }

    fn turns_on_lines(&self, met: impl Fn(ThreadId, ThreadId) -> bool) -> Vec<Latent> {
        let granule = self.config().granule();
        let mut all = Vec::new();
        for (&base, line) in &self.lines {
            if users_in_force(line).nth(1).is_none() {
                continue;
            }
            let of_user = |user| self.word_times(base, line, user);
            let mut words: Vec<WordTime<'_>> = users_in_force(line).flat_map(of_user).collect();
            words.sort_by_key(|w| (w.address(), w.user.thread));
            let clash = clash_of_words(&words, granule, |x, y| {
                x.address() != y.address() && !met(x.user.thread, y.user.thread)
            });
            if let Some((words, threads, cost_ns, cost_share)) = clash.finish(self) {
                all.push(Latent {
                    granule,
                    base,
                    lines: vec![base],
                    words,
                    threads,
                    cost_ns,
                    cost_share,
                });
            }
        }
        all.sort_by(|a, b| b.cost_ns.total_cmp(&a.cost_ns).then(a.base.cmp(&b.base)));
        all
    }

    /// The start within its line at which false sharing would cost `object` most, among the
    /// multiples of `alignment` bytes, at which it always starts, and at least of 8. Only words that
    /// are on different lines today count. `None` if there is no such start.
    pub fn latent_alignment(&self, object: Span, alignment: u64) -> Option<LatentAlignment> {
        self.caught_up().latent_start(object, alignment)
    }

    fn latent_start(&self, object: Span, alignment: u64) -> Option<LatentAlignment> {
        let granule = self.config().granule();
        let mut words = self.words_of(object);
        words.sort_by_key(|w| (w.address(), w.user.thread));
        let mut best: Option<LatentAlignment> = None;
        // An object that does not start at such a multiple today may start anywhere.
        let whole = alignment.max(8);
        let step = match object.start.0.is_multiple_of(whole) {
            true => whole,
            false => 8,
        };
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        for shift in (0..granule.bytes()).step_by(step).skip(1) {
            let moved = |w: &WordTime<'_>| granule.base(w.address().offset(shift as i64));
            let clash = clash_of_words(&words, granule, |x, y| {
                granule.base(x.address()) != granule.base(y.address()) && moved(x) == moved(y)
            });
            let Some((words, threads, cost_ns, cost_share)) = clash.finish(self) else {
                continue;
            };
            if best.as_ref().is_none_or(|b| cost_ns > b.cost_ns) {
                let start = object.start.offset(shift as i64);
                best = Some(LatentAlignment {
                    offset: granule.offset(start) as u32,
                    today: granule.offset(object.start) as u32,
                    words,
                    threads,
                    cost_ns,
                    cost_share,
                });
            }
        }
        best
    }

    fn words_of(&self, object: Span) -> Vec<WordTime<'_>> {
        let granule = self.config().granule();
        let mut all = Vec::new();
        let mut add = |base: Address, line| {
            let inside = |w: &WordTime<'_>| object.overlaps(Span::new(w.address(), 8));
            for user in users_in_force(line) {
                all.extend(self.word_times(base, line, user).into_iter().filter(inside));
            }
        };
        if object.len / granule.bytes() > self.lines.len() as u64 {
            for (&base, line) in &self.lines {
                add(base, line);
            }
        } else {
            for base in granule.bases(object) {
                if let Some(line) = self.lines.get(&base) {
                    add(base, line);
                }
            }
        }
        all
    }

    /// The words of a line that `user` touches often enough, with its time
    /// divided by the number of its touches. An access over a word's border
    /// counts for the word in which it begins.
    fn word_times<'a>(&self, base: Address, line: &Line, user: &'a User) -> Vec<WordTime<'a>> {
        let total: u32 = user.uses.iter().map(|u| u.count).sum();
        let mut all: Vec<(WordTime<'a>, u32)> = Vec::new();
        for used in &user.uses {
            let f = line.footprints.get(used.footprint);
            let start = base.offset(i64::from(f.start));
            let address = word_of(start);
            let room = address.0 + 8 - start.0;
            let bytes = Span::new(start, u64::from(f.len).min(room));
            let part = f64::from(used.count) / f64::from(total.max(1));
            let spent_ns = self.spent(user) * part;
            let writes = f.kind.writes();
            match all.iter_mut().find(|(w, _)| w.address() == address) {
                Some((w, count)) => {
                    w.bytes = both(w.bytes, bytes);
                    w.writes |= writes;
                    w.spent_ns += spent_ns;
                    *count += used.count;
                }
                None => all.push((
                    WordTime {
                        bytes,
                        user,
                        writes,
                        spent_ns,
                    },
                    used.count,
                )),
            }
        }
        all.into_iter()
            .filter(|(_, count)| *count >= LEAST_TOUCHES)
            .map(|(w, _)| w)
            .collect()
    }

    /// The time that a thread spent on a line. For streams without time, the price of its
    /// accesses if each of them had to wait for the line.
    fn spent(&self, user: &User) -> f64 {
        if user.spent_ns > 0.0 {
            user.spent_ns
        } else {
            let count: f64 = user.uses.iter().map(|u| f64::from(u.count)).sum();
            count * self.scale.transfer_ns
        }
    }
}

impl Line {
    fn has_user(&self, thread: ThreadId) -> bool {
        users_in_force(self).any(|u| u.thread == thread)
    }
}

fn users_in_force(line: &Line) -> impl Iterator<Item = &User> {
    line.users.iter().filter(|u| u.visits >= LEAST_TOUCHES)
}

/// Whether the two uses are simultaneous and frequent enough to count.
fn meet(x: &User, y: &User) -> bool {
    x.thread != y.thread
        && x.visits >= LEAST_TOUCHES
        && y.visits >= LEAST_TOUCHES
        && x.slots.common(y.slots).0 >= LEAST_SLOTS
}

/// Adds what two threads can lose to each other. Each is given with its time at stake and the
/// most that it can lose in all.
fn add_costs(clash: &mut Clash, x: (&User, f64, f64), y: (&User, f64, f64)) {
    let common_x = x.0.slots.common(y.0.slots).1 * x.1;
    let common_y = y.0.slots.common(x.0.slots).1 * y.1;
    let lost = common_x.min(common_y);
    clash.add_cost(x.0.thread, lost, x.2);
    clash.add_cost(y.0.thread, lost, y.2);
}

/// The conflicts of those words, in the order of their addresses, that are less than `granule`
/// apart and that `would_share` one.
fn clash_of_words(
    words: &[WordTime<'_>],
    granule: Granule,
    would_share: impl Fn(&WordTime<'_>, &WordTime<'_>) -> bool,
) -> Clash {
    let mut clash = Clash::default();
    for (i, x) in words.iter().enumerate() {
        let near = words[i + 1..]
            .iter()
            .take_while(|y| y.address().0 - x.address().0 < granule.bytes());
        for y in near {
            if !(x.writes || y.writes)
                || !meet(x.user, y.user)
                || !would_share(x, y)
                || shares_both(words, x, y)
            {
                continue;
            }
            add_costs(
                &mut clash,
                (x.user, x.spent_ns, x.user.spent_ns.max(x.spent_ns)),
                (y.user, y.spent_ns, y.user.spent_ns.max(y.spent_ns)),
            );
            clash.add_word(x);
            clash.add_word(y);
        }
    }
    clash
}

/// Whether both threads use both words. Then they conflict already, and separating the words
/// does not help.
fn shares_both(words: &[WordTime<'_>], x: &WordTime<'_>, y: &WordTime<'_>) -> bool {
    let uses = |at: Address, who: ThreadId| {
        words
            .iter()
            .any(|w| w.address() == at && w.user.thread == who)
    };
    uses(x.address(), y.user.thread) && uses(y.address(), x.user.thread)
}
