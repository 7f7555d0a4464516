//! The record of one line of memory: the threads that touched it, with which footprints and
//! instructions, and the sums over its finished stretches. Called by the judge for every touch.
//! It knows nothing about other lines.

use crate::activity::{Slots, Timeline};
use crate::apart::Apart;
use crate::config::{MAX_GAP_WINDOWS, MIN_GAP_WINDOWS};
use crate::footprint::{Footprint, Footprints};
use crate::pairs::Pairs;
use crate::running::Running;
use crate::scale::Scale;
use crate::site::{MAX_SITES, SiteRecord, record_site};
use crate::stretch::{self, ANY_CPU, Class, Context, Entry, Life};
use crate::tally::{BurstTally, FootprintUse, Tally, add_use};
use crate::touch::{QueuedTouch, Touch};
use sunder_access::ThreadId;

/// Visits after which a stretch is closed. The bound of a thread's loss is a minimum of two
/// counts, which noise can only lower: by 0.4 times the root of the visits. With 256 visits
/// that is 5% of the touches of each of two equal threads.
pub(crate) const STRETCH_VISITS: u32 = 256;

/// Entries after which a stretch is closed, to limit its memory.
const STRETCH_ENTRIES: usize = 512;

/// A line is judged alone if so many isolated visits are expected among its own: those of 64 visits
/// of two equal threads. Then the minimum of two counts is 5% low at most, as for a full stretch.
const JUDGED_ALONE: f64 = 16.0;

/// The same limit for a line on which only one thread was seen, and which may never be shared.
const ONE_THREAD_ENTRIES: usize = 16;

/// The most threads that are kept apart on a line.
const MAX_USERS: usize = 256;

/// The most other threads on a line that are checked for running, the latest first. Only on a
/// machine with more CPUs can a line have more users at once.
const MAX_RIVALS: usize = 64;

/// What one thread did on the line.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub thread: ThreadId,
    /// CPU time in samples that touch the line, ns.
    pub spent_ns: f64,
    /// Its part of the loss in the tally.
    pub lost_ns: f64,
    pub visits: u32,
    pub writes: u32,
    pub slots: Slots,
    /// When it first and last touched the line.
    pub first: u64,
    pub last: u64,
    /// The threads on the line that had ended when a sample first found it there; `None` before that.
    pub came_after: Option<Vec<ThreadId>>,
    pub last_exact: Option<u64>,
    pub uses: Vec<FootprintUse>,
    /// Whether it took part in the contention.
    pub involved: bool,
}

/// Touches of a complete stream that are queued and then taken in together. A line's record is
/// spread over several cache lines, which would be fetched anew for each single touch.
const QUEUE_LENGTH: usize = 16;

/// The record of one line.
///
/// The fields that every touch of a complete stream needs come first and lie together.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Line {
    queued: u8,
    /// Bytes that changed owner, and the time at which they did.
    barred: Option<(Footprint, u64)>,
    /// The latest touches, which are queued and not yet part of any field below.
    queue: [QueuedTouch; QUEUE_LENGTH],
    /// Changes when its memory changes owner.
    pub serial: u64,
    pub first: u64,
    pub last: u64,
    pub footprints: Footprints,
    pub users: Vec<User>,
    /// Threads that took part and were dropped to make room for others.
    pub departed: Vec<ThreadId>,
    pub sites: Vec<SiteRecord>,
    pub tally: Tally,
    pub bursts: BurstTally,
    pub pairs: Pairs,
    pub timeline: Timeline,
    /// SHERIFF's per-line status (section 4.3).
    pub last_writer: Option<ThreadId>,
    pub interleaved_writes: u64,
    open: Vec<Entry>,
    /// The latest visits, until there were so many that the line is judged alone.
    pub apart: Apart,
    open_visits: u32,
    disordered: bool,
    /// Running mean of the logarithm of the gaps between visits.
    log_gap: f32,
    gaps: u32,
}

impl Line {
    pub fn new(serial: u64, time: u64, scale: &Scale) -> Self {
        Self {
            serial,
            first: time,
            last: time,
            footprints: Footprints::default(),
            // Most lines never have more than one of each.
            users: Vec::with_capacity(1),
            departed: Vec::new(),
            sites: Vec::with_capacity(1),
            tally: Tally::default(),
            bursts: BurstTally::default(),
            pairs: Pairs::default(),
            timeline: Timeline::new(scale.origin),
            last_writer: None,
            interleaved_writes: 0,
            open: Vec::new(),
            apart: Apart::default(),
            open_visits: 0,
            disordered: false,
            log_gap: 0.0,
            gaps: 0,
            barred: None,
            queue: [QueuedTouch::NONE; QUEUE_LENGTH],
            queued: 0,
        }
    }

    /// Takes in the queued touches. Every other access to the line's record must call this
    /// first, except [`Line::touch`].
    pub fn catch_up(&mut self, scale: &Scale) {
        let queued = std::mem::take(&mut self.queued);
        for place in 0..usize::from(queued) {
            let touch = self.queue[place].touch();
            self.open_visit(touch.time, touch.class, scale);
            if let Some((thread, footprint)) = self.note(&touch, scale) {
                self.enter(&touch, thread, footprint, 0.0);
            }
        }
    }

    /// Whether touches are queued.
    pub const fn has_queued(&self) -> bool {
        self.queued > 0
    }

    /// Whether a second thread was ever seen.
    pub const fn is_shared(&self) -> bool {
        self.users.len() > 1 || !self.departed.is_empty()
    }

    /// Takes one touch. `false` if it is too late: its bytes have changed owner since.
    pub fn touch(&mut self, touch: &Touch, running: &Running, scale: &Scale) -> bool {
        if let Some(queued) = QueuedTouch::of(touch) {
            if self.is_barred(touch) {
                return false;
            }
            self.queue[usize::from(self.queued)] = queued;
            self.queued += 1;
            if usize::from(self.queued) == QUEUE_LENGTH {
                self.catch_up(scale);
            }
            return true;
        }
        self.catch_up(scale);
        if touch.opens_visit && !self.is_barred(touch) {
            self.open_visit(touch.time, touch.class, scale);
        }
        let Some((thread, footprint)) = self.note(touch, scale) else {
            return false;
        };
        self.look_back(thread, touch, running);
        let at_stake = self.at_stake(touch.thread, touch.time, touch.spent_ns, running);
        self.enter(touch, thread, footprint, at_stake);
        true
    }

    /// Notes which threads had ended when the first sample finds a thread here.
    fn look_back(&mut self, user: u16, touch: &Touch, running: &Running) {
        let user = usize::from(user);
        if touch.class != Class::Timed || self.users[user].came_after.is_some() {
            return;
        }
        let others = self.users.iter().map(|other| other.thread);
        let gone = others.filter(|&other| running.has_ended(other, touch.time));
        self.users[user].came_after = Some(gone.collect());
    }

    /// Adds a touch that [`Line::note`] has counted to the open stretch.
    fn enter(&mut self, touch: &Touch, thread: u16, footprint: u16, at_stake: f32) {
        self.disordered |= self.open.last().is_some_and(|e| e.time > touch.time);
        self.open.push(Entry {
            time: touch.time,
            thread,
            footprint,
            class: touch.class,
            spent_ns: at_stake,
            count: touch.count,
            cpu: touch.cpu,
        });
    }

    /// Counts a touch for its thread, footprint and instruction, and returns the indices of the
    /// first two; `None` if the touch is too late.
    pub fn note(&mut self, touch: &Touch, scale: &Scale) -> Option<(u16, u16)> {
        if self.is_barred(touch) {
            return None;
        }
        let user = self.user(touch.thread, scale);
        let footprint = self.footprints.intern(touch.footprint);
        self.count(user, footprint, touch, scale);
        record_site(&mut self.sites, touch);
        Some((user, footprint))
    }

    fn is_barred(&self, touch: &Touch) -> bool {
        self.barred
            .is_some_and(|(bytes, at)| touch.time < at && bytes.overlaps(touch.footprint))
    }

    /// Adds time that a sample of `thread` probably spent on this line.
    pub fn touch_near(
        &mut self,
        thread: ThreadId,
        time: u64,
        spent_ns: f32,
        running: &Running,
        scale: &Scale,
    ) {
        self.catch_up(scale);
        let user = self.user(thread, scale);
        self.users[usize::from(user)].spent_ns += f64::from(spent_ns);
        if self.is_shared() {
            let at_stake = self.at_stake(thread, time, spent_ns, running);
            self.disordered |= self.open.last().is_some_and(|e| e.time > time);
            self.open.push(Entry {
                time,
                thread: user,
                footprint: 0,
                class: Class::Near,
                spent_ns: at_stake,
                count: 0,
                cpu: ANY_CPU,
            });
        }
    }

    /// The part of a thread's time on the line that contention can take. All of it, if another
    /// of the line's threads may run at that moment, or if there is no other thread yet. At
    /// most [`MAX_RIVALS`] other threads are checked.
    fn at_stake(&self, thread: ThreadId, time: u64, spent_ns: f32, running: &Running) -> f32 {
        let others = self.users.iter().filter(|u| u.thread != thread);
        let mut others = others.rev().take(MAX_RIVALS).peekable();
        let may_lose = spent_ns > 0.0
            && (others.peek().is_none() || others.any(|u| running.may_run(u.thread, time)));
        if may_lose { spent_ns } else { 0.0 }
    }

    /// Begins a visit, and closes the open stretch first if the visit does not belong to it.
    fn open_visit(&mut self, time: u64, class: Class, scale: &Scale) {
        let gap = time.saturating_sub(self.last);
        if self.gaps > 0 && class == Class::Timed {
            let weight = (1.0 / self.gaps as f32).max(1.0 / 16.0);
            self.log_gap += weight * ((gap as f32 + 1.0).ln() - self.log_gap);
        }
        self.gaps = self.gaps.saturating_add(1);
        let full = self.open_visits >= STRETCH_VISITS || self.open.len() >= STRETCH_ENTRIES;
        let may_be_long = gap > MIN_GAP_WINDOWS * scale.window_ns;
        if may_be_long && gap > self.longest_gap(scale) || full && self.is_shared() {
            self.settle(scale);
        } else if self.open.len() >= ONE_THREAD_ENTRIES && !self.is_shared() {
            // Only the last visit can be adjacent to another thread's.
            self.open.retain(|e| e.time >= self.last);
            self.open_visits = 1;
        }
        self.open_visits += 1;
        self.last = self.last.max(time);
    }

    /// Visits further apart than this are not simultaneous. It is two windows, or nine times
    /// the geometric mean of this line's gaps. The geometric mean of exponentially distributed
    /// gaps is 0.56 of their mean, so this is five times their mean: 99% of such gaps are
    /// shorter, and pauses between phases are longer.
    fn longest_gap(&self, scale: &Scale) -> u64 {
        let own = 9.0 * self.log_gap.exp();
        (own as u64).clamp(
            MIN_GAP_WINDOWS * scale.window_ns,
            MAX_GAP_WINDOWS * scale.window_ns,
        )
    }

    /// The index of `thread` on this line.
    fn user(&mut self, thread: ThreadId, scale: &Scale) -> u16 {
        if let Some(i) = self.users.iter().position(|u| u.thread == thread) {
            return i as u16;
        }
        let new = User {
            thread,
            spent_ns: 0.0,
            lost_ns: 0.0,
            visits: 0,
            writes: 0,
            slots: Slots::default(),
            first: u64::MAX,
            last: 0,
            came_after: None,
            last_exact: None,
            uses: Vec::with_capacity(1),
            involved: false,
        };
        if self.users.len() < MAX_USERS {
            self.users.push(new);
            return (self.users.len() - 1) as u16;
        }
        self.settle(scale);
        // The touches that are kept refer to users by index.
        self.open.clear();
        self.apart.clear();
        let oldest = (0..MAX_USERS).min_by_key(|&i| self.users[i].last);
        let place = oldest.unwrap_or(0);
        let old = std::mem::replace(&mut self.users[place], new);
        if old.involved && !self.departed.contains(&old.thread) {
            self.departed.push(old.thread);
        }
        place as u16
    }

    fn count(&mut self, user: u16, footprint: u16, touch: &Touch, scale: &Scale) {
        let writes = touch.footprint.kind.writes();
        let u = &mut self.users[usize::from(user)];
        u.spent_ns += f64::from(touch.spent_ns);
        u.visits += u32::from(touch.opens_visit);
        let by_diff = scale.diff_interval_ns.is_some() && touch.class == Class::Exact;
        self.tally.stays += u64::from(by_diff && touch.time != u.last);
        u.writes += u32::from(writes);
        u.first = u.first.min(touch.time);
        u.last = u.last.max(touch.time);
        u.slots.mark(touch.time.saturating_sub(scale.origin.0));
        add_use(&mut u.uses, footprint, touch.count, 0);
        // Where pages are compared, commits show all writes; samples show some of them again.
        if writes && (by_diff || scale.diff_interval_ns.is_none()) {
            let other = self.last_writer.is_some_and(|w| w != touch.thread);
            self.interleaved_writes += u64::from(other);
            self.last_writer = Some(touch.thread);
        }
    }

    /// Closes the open stretch and adds its account.
    pub fn settle(&mut self, scale: &Scale) {
        let mut entries = std::mem::take(&mut self.open);
        self.open_visits = 0;
        if std::mem::take(&mut self.disordered) {
            entries.sort_by_key(|e| e.time);
        }
        if self.is_shared() && entries.len() > 1 && !is_of_one(&entries) {
            self.add_stretch(&entries, scale);
        }
        if self.is_judged_alone() {
            self.apart.clear();
        } else {
            self.apart.keep(&entries, self.is_shared());
        }
        let is_exact = |e: &&Entry| matches!(e.class, Class::Exact | Class::Seed);
        for e in entries.iter().filter(is_exact) {
            self.users[usize::from(e.thread)].last_exact = Some(e.time);
        }
        let seed = entries.iter().rev().find(is_exact).copied();
        // The allocation is kept only where the next stretch will need it again.
        if self.is_shared() {
            entries.clear();
            self.open = entries;
        }
        self.open.extend(seed.map(|e| Entry {
            class: Class::Seed,
            spent_ns: 0.0,
            ..e
        }));
    }

    fn add_stretch(&mut self, entries: &[Entry], scale: &Scale) {
        let last_exact: Vec<_> = self.users.iter().map(|u| u.last_exact).collect();
        let lives = self.users.iter().map(|user| Life {
            thread: user.thread,
            first: user.first,
            last: user.last,
            came_after: user.came_after.as_deref().unwrap_or_default(),
        });
        let lives: Vec<_> = lives.collect();
        let account = stretch::account(
            entries,
            &Context {
                footprints: &self.footprints,
                threads: self.users.len(),
                granule: scale.granule,
                absence_ns: scale.absence_ns(),
                last_exact: &last_exact,
                lives: &lives,
            },
        );
        for (user, a) in self.users.iter_mut().zip(&account.threads) {
            user.lost_ns += a.lost_ns;
            user.involved |= a.conflicting;
        }
        for (e, _) in entries.iter().zip(&account.active).filter(|(_, a)| **a) {
            add_use(
                &mut self.users[usize::from(e.thread)].uses,
                e.footprint,
                0,
                e.count,
            );
        }
        let mut times = entries.iter().filter(|e| e.class != Class::Seed);
        let begin = times.next().map_or(0, |e| e.time);
        let end = times.next_back().map_or(begin, |e| e.time);
        let changes = (account.lost_ns() / scale.transfer_ns)
            .max(account.exact_changes as f64 + account.counted_changes);
        if changes > 0.0 {
            self.timeline.add(begin, end, changes);
        }
        for &((a, b), changes, separate) in &account.pairs {
            let threads = (self.thread(a), self.thread(b));
            self.pairs.add_sampled(threads, changes, separate);
        }
        self.tally.add(&account);
        if scale.diff_interval_ns.is_none() {
            self.tally.returns += u64::from(account.isolated);
        }
    }

    /// The thread with this index.
    pub fn thread(&self, user: u16) -> ThreadId {
        self.users[usize::from(user)].thread
    }

    /// The line as it would be if the open stretch ended now.
    pub fn settled(&self, scale: &Scale) -> Self {
        let mut line = self.clone();
        line.catch_up(scale);
        line.settle(scale);
        line
    }

    /// Whether the open stretch has any touch.
    pub const fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Releases the spare memory of a line that is no longer touched.
    pub fn shrink(&mut self) {
        self.open.shrink_to_fit();
    }

    /// Whether a thread touched any of `bytes`.
    pub fn uses(&self, bytes: Footprint) -> bool {
        let touched = |u: &FootprintUse| self.footprints.get(u.footprint).overlaps(bytes);
        self.users.iter().any(|u| u.uses.iter().any(touched))
    }

    /// Whether any of `bytes` took part in contention.
    pub fn is_contended_in(&self, bytes: Footprint) -> bool {
        let touched =
            |u: &FootprintUse| u.shared > 0 && self.footprints.get(u.footprint).overlaps(bytes);
        self.users.iter().any(|u| u.uses.iter().any(touched))
    }

    /// Forgets what was seen of `bytes`, which changed owner at `at`. The open stretch must
    /// have been settled before.
    pub fn forget(&mut self, bytes: Footprint, at: u64, serial: u64) {
        let footprints = &self.footprints;
        for user in &mut self.users {
            user.uses
                .retain(|u| !footprints.get(u.footprint).overlaps(bytes));
        }
        let mask = bytes.mask();
        self.sites.retain(|s| !s.bytes.overlaps(mask));
        // A seed would connect the new owner's first touch with the old owner's last.
        self.open.clear();
        self.apart.clear();
        self.serial = serial;
        self.bar(bytes, at);
    }

    /// From now on ignores touches of `bytes` that are older than `at`.
    pub const fn bar(&mut self, bytes: Footprint, at: u64) {
        self.barred = Some((bytes, at));
    }

    /// Whether nothing is known about the line any more.
    pub fn is_blank(&self) -> bool {
        self.users.iter().all(|u| u.uses.is_empty()) && !self.is_contended()
    }

    /// Whether its own visits are enough to judge it; see [`JUDGED_ALONE`].
    pub fn is_judged_alone(&self) -> bool {
        self.tally.isolated_expected >= JUDGED_ALONE
    }

    /// Whether any stretch or burst showed contention.
    pub fn is_contended(&self) -> bool {
        self.tally.isolated > 0
            || self.tally.exact_changes > 0
            || self.bursts.changes > 0
            || self.tally.lost_ns > 0.0
    }

    pub fn check_invariants(&self, scale: &Scale) {
        assert!(usize::from(self.queued) < QUEUE_LENGTH);
        assert!(self.users.len() <= MAX_USERS);
        assert!(self.sites.len() <= MAX_SITES);
        assert!(self.tally.bytes.is_empty() || self.tally.bytes.len() == scale.granule);
        for e in &self.open {
            assert!(usize::from(e.thread) < self.users.len());
            assert!(e.class == Class::Near || usize::from(e.footprint) < self.footprints.len());
        }
        for u in &self.users {
            assert!(u.lost_ns <= u.spent_ns * (1.0 + 1e-6) + 1.0, "{u:?}");
            for used in &u.uses {
                let f = self.footprints.get(used.footprint);
                assert!(usize::from(f.end()) <= scale.granule);
            }
        }
        let lost: f64 = self.users.iter().map(|u| u.lost_ns).sum();
        assert!(lost <= self.tally.lost_ns * (1.0 + 1e-6) + 1.0);
        assert!(self.tally.lost_ns >= 0.0 && self.tally.lost_ns.is_finite());
    }
}

/// Whether one thread made all entries of a complete sequence. Then there is no contention to
/// account for.
fn is_of_one(entries: &[Entry]) -> bool {
    let thread = entries.first().map(|e| e.thread);
    let same = |e: &Entry| Some(e.thread) == thread;
    let exact = |e: &Entry| matches!(e.class, Class::Exact | Class::Seed);
    entries.iter().all(|e| same(e) && exact(e))
}
