//! What the judge answers: suspects while a program runs, verdicts at its end. Lines are judged one
//! by one, and those that are visited too rarely for that as crowds. Nothing here changes the judge.

use crate::config::MAX_GAP_WINDOWS;
use crate::crowd::{Crowd, crowds};
use crate::hash::Map;
use crate::judge::Judge;
use crate::line::Line;
use crate::suspect::{self, Suspect};
use crate::verdict::{self, Verdict};
use sunder_access::{Address, ThreadId, Time};

/// The most lines of a crowd that are suspects at a time: enough for some rounds of bursts.
const MOST_SUSPECTS: usize = 64;

impl Judge {
    /// Whether any line would have a verdict.
    pub fn is_any_line_contended(&self) -> bool {
        let mut lines = self.lines.values().filter_map(|line| self.shared(line));
        !self.retired.is_empty() || lines.any(|line| verdict::evidence(&line) > 0)
    }

    /// Lines worth a watch burst at `now`: contended as far as seen, still in use, and not yet
    /// confirmed or of a kind in doubt. Lines that are not confirmed come first; within each
    /// group, those with the highest cost, and of these the least watched. Lines of a crowd have
    /// the cost of the crowd.
    pub fn suspects(&self, now: Time) -> Vec<Suspect> {
        let idle = MAX_GAP_WINDOWS * self.scale.window_ns;
        let mut all: Vec<Suspect> = self
            .lines
            .iter()
            .filter_map(|(&base, line)| Some((base, self.shared(line)?)))
            .filter(|(_, line)| now.nanoseconds_since(Time(line.last)) <= idle)
            .filter_map(|(base, line)| {
                let mut verdict = verdict::verdict(&line, base, self.scale.transfer_ns)?;
                self.finish(&mut verdict);
                suspect::suspect(&line, &verdict, |thread| self.threads.last_seen(thread))
            })
            .collect();
        for crowd in crowds(self.all_lines(), &self.scale) {
            if crowd.is_in_doubt() {
                self.add_suspects(&crowd, now, &mut all);
            }
        }
        all.sort_by(|a, b| {
            a.confirmed
                .cmp(&b.confirmed)
                .then(b.cost_ns.total_cmp(&a.cost_ns))
                .then((a.loud_bursts + a.quiet_bursts).cmp(&(b.loud_bursts + b.quiet_bursts)))
                .then(a.line.cmp(&b.line))
        });
        all
    }

    /// Adds lines of `crowd` that no burst has confirmed, the least watched of them, unless they are
    /// suspects by themselves that cost more.
    fn add_suspects(&self, crowd: &Crowd, now: Time, all: &mut Vec<Suspect>) {
        let idle = MAX_GAP_WINDOWS * self.scale.window_ns;
        let (cost_ns, spent) = (crowd.lost_ns(), self.time_of_all(crowd.threads()));
        let ran = |thread| self.threads.last_seen(thread);
        if cost_ns <= 0.0 {
            return;
        }
        let is_used = |line: &Line| now.nanoseconds_since(Time(line.last)) <= idle;
        let members = crowd.members.iter();
        let mut wanted: Vec<_> = members
            .filter(|(_, line)| is_used(line) && !line.bursts.confirms())
            .collect();
        wanted.sort_by_key(|(base, line)| (line.bursts.loud + line.bursts.quiet, *base));
        for (base, line) in wanted.into_iter().take(MOST_SUSPECTS) {
            let joined = crowd.accounted(line, &self.scale);
            let verdict = verdict::verdict(&joined, *base, self.scale.transfer_ns);
            let new = verdict.and_then(|verdict| suspect::suspect(&joined, &verdict, ran));
            let Some(mut new) = new else {
                continue;
            };
            (new.cost_ns, new.cost_share) = (cost_ns, cost_ns / spent.max(cost_ns));
            match all.iter_mut().find(|old| old.line == *base) {
                Some(old) if old.cost_ns < cost_ns => *old = new,
                Some(_) => {}
                None => all.push(new),
            }
        }
    }

    /// The verdicts on all contended lines, including those of memory that has changed owner
    /// since, the highest cost first. Weak verdicts are included: see [`Verdict::confidence`].
    pub fn verdicts(&self) -> Vec<Verdict> {
        self.verdicts.get_or_init(|| self.finished()).clone()
    }

    fn finished(&self) -> Vec<Verdict> {
        let mut all = self.unfinished();
        for verdict in &mut all {
            self.finish(verdict);
        }
        all.sort_by(|a, b| {
            b.cost_ns
                .total_cmp(&a.cost_ns)
                .then(a.line.cmp(&b.line))
                .then(a.owner.cmp(&b.owner))
        });
        all
    }

    /// The verdicts before they are held against the length of the run and the threads' time, in no
    /// order but that those of one line's earlier owners are in the order of time.
    pub(crate) fn unfinished(&self) -> Vec<Verdict> {
        let mut together = self.verdicts_of_crowds(self.all_lines());
        self.lines
            .iter()
            .filter_map(|(base, line)| {
                together.remove(base).or_else(|| {
                    let line = self.shared(line)?;
                    verdict::verdict(&line, *base, self.scale.transfer_ns)
                })
            })
            .chain(self.retired.iter().cloned())
            .collect()
    }

    /// The verdicts on those of the lines that belong to confirmed crowds.
    pub(crate) fn verdicts_of_crowds<'a>(
        &self,
        lines: impl Iterator<Item = (Address, &'a Line)> + Clone,
    ) -> Map<Address, Verdict> {
        let mut all = Map::default();
        for crowd in crowds(lines, &self.scale) {
            if !crowd.is_confirmed() {
                continue;
            }
            let alone = crowd.members.iter().filter_map(|(base, line)| {
                let mut verdict = verdict::verdict(line, *base, self.scale.transfer_ns)?;
                verdict.shrink(crowd.width);
                Some((*base, verdict))
            });
            let alone: Vec<_> = alone.collect();
            // Each account is low where it has little to go by, so the higher one counts.
            if crowd.lost_ns() > alone.iter().map(|(_, verdict)| verdict.cost_ns).sum() {
                let members = crowd.members.iter();
                all.extend(members.filter_map(|(base, line)| {
                    Some((*base, crowd.verdict(*base, line, &self.scale)?))
                }));
            } else {
                all.extend(alone);
            }
        }
        all
    }

    fn all_lines(&self) -> impl Iterator<Item = (Address, &Line)> + Clone {
        self.lines.iter().map(|(&base, line)| (base, &**line))
    }

    /// The line as it would be if its open stretch ended now; `None` unless several threads
    /// were seen on it.
    fn shared(&self, line: &Line) -> Option<Line> {
        let may_be = line.is_shared() || line.has_queued();
        let settled = may_be.then(|| line.settled(&self.scale));
        settled.filter(Line::is_shared)
    }

    /// The line as it would be if its open stretch ended now; `None` if it was touched less
    /// than twice.
    pub(crate) fn line_as_it_is(&self, base: Address) -> Option<Line> {
        self.lines.get(&base).map(|line| line.settled(&self.scale))
    }

    fn finish(&self, verdict: &mut Verdict) {
        let involved = self.time_of_all(verdict.all_threads());
        verdict::finish(verdict, self.seconds(), involved);
    }

    fn time_of_all(&self, threads: impl Iterator<Item = ThreadId>) -> f64 {
        threads.map(|thread| self.time_of(thread)).sum()
    }
}
