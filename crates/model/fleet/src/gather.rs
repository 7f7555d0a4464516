//! Takes records one after another and keeps what the summary needs: tables of maxima, and of first and
//! last times. Nothing here depends on the order of records, or on how often one is read. All tables are
//! bounded; what they don't take is counted.

use crate::line::{Figures, Line, SeenFinding, Wrong};
use crate::names::{Names, shown};
use crate::summary::Reading;
use rustc_hash::FxHashMap;
use sunder_findings::{Happening, Sharing, WatchStatus};

/// The most machines.
const MOST_HOSTS: usize = 50_000;
/// The most watches, each from its beginning to its end.
const MOST_WATCHES: usize = 200_000;
/// The most objects.
const MOST_OBJECTS: usize = 20_000;
/// The most builds of all programs.
const MOST_BUILDS: usize = 20_000;
/// The most containers.
const MOST_CONTAINERS: usize = 200_000;
/// The most entries of each table of costs and sightings.
const MOST_ENTRIES: usize = 1_000_000;
/// Records that don't tell when their watch began belong to the one that began at this distance of their
/// own reckoning: a clock is set in small steps.
const SAME_BEGINNING_NS: u64 = 5_000_000_000;

/// Program, object and container, as figures are labelled.
pub type Labels = (String, String, String);

/// A watch of a machine, with its last counts.
#[derive(Debug, Default)]
pub struct Watch {
    pub host: u32,
    pub first_unix_ns: u64,
    pub last_unix_ns: u64,
    /// The last status; `None` if there were only records of findings or figures.
    pub status: WatchStatus,
    /// When that was told; 0 if there was none.
    pub status_unix_ns: u64,
    /// When the last status was told that lists the findings that are there.
    pub listed_unix_ns: u64,
}

/// An object.
#[derive(Debug, Default)]
pub struct Known {
    pub fingerprint: String,
    pub object: String,
    pub sharing: Sharing,
    pub place: Option<String>,
    pub advice: Option<String>,
    pub program: String,
    /// When what is above was told; 0: only by a status, which knows less.
    told_unix_ns: u64,
}

/// Identity of a build of a program: its id, wherever its file lies; without one, the file's path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Build {
    Id(String),
    Path(String),
}

/// Identity of a finding in a process of a watch, since it appeared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CostKey {
    pub watch: u32,
    pub object: u32,
    pub pid: u32,
    pub appeared_unix_ns: u64,
}

/// What it cost.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub lost_seconds: f64,
    pub build: u32,
    pub container: u32,
    pub program: u32,
    /// When a status listed it last.
    pub listed_unix_ns: u64,
}

/// An object in a build on a machine.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub first_unix_ns: u64,
    pub last_unix_ns: u64,
    /// The cost that was told last.
    pub cost_percent: f64,
}

/// Looks at a build by a watch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    pub looks: u64,
    pub first_unix_ns: u64,
    pub last_unix_ns: u64,
}

/// The number of a build or container that is not known.
pub const NONE: u32 = u32::MAX;

/// See the module's head.
#[derive(Debug)]
pub struct Gather {
    pub(crate) hosts: Names<String>,
    watches: Names<(u32, u64)>,
    pub(crate) of_watches: Vec<Watch>,
    /// The watches of a machine.
    by_host: FxHashMap<u32, Vec<u32>>,
    objects: Names<String>,
    pub(crate) known: Vec<Known>,
    pub(crate) builds: Names<Build>,
    /// The path of each build; its program's name if no path was told.
    pub(crate) paths: Vec<String>,
    /// The version of each build, as the newest record told it, and when that was.
    pub(crate) versions: FxHashMap<u32, (u64, String)>,
    pub(crate) containers: Names<String>,
    pub(crate) programs: Names<String>,
    pub(crate) costs: FxHashMap<CostKey, Cost>,
    /// By object, build and machine.
    pub(crate) seen: FxHashMap<(u32, u32, u32), Seen>,
    /// By build and watch.
    pub(crate) looks: FxHashMap<(u32, u32), Looks>,
    /// What the last record of a finding told of it, by machine, object and process: when, and whether it
    /// is there; and its build.
    pub(crate) events: FxHashMap<(u32, u32, u32), (u64, bool, u32)>,
    /// CPU seconds by watch and labels.
    pub(crate) figures: FxHashMap<u32, FxHashMap<Labels, f64>>,
    entries_of_figures: usize,
    pub(crate) reading: Reading,
}

impl Default for Gather {
    fn default() -> Self {
        Self::new()
    }
}

impl Gather {
    /// Nothing so far.
    pub fn new() -> Self {
        Self {
            hosts: Names::new(MOST_HOSTS),
            watches: Names::new(MOST_WATCHES),
            of_watches: Vec::new(),
            by_host: FxHashMap::default(),
            objects: Names::new(MOST_OBJECTS),
            known: Vec::new(),
            builds: Names::new(MOST_BUILDS),
            paths: Vec::new(),
            versions: FxHashMap::default(),
            containers: Names::new(MOST_CONTAINERS),
            programs: Names::new(MOST_BUILDS),
            costs: FxHashMap::default(),
            seen: FxHashMap::default(),
            looks: FxHashMap::default(),
            events: FxHashMap::default(),
            figures: FxHashMap::default(),
            entries_of_figures: 0,
            reading: Reading::default(),
        }
    }

    /// Takes a line of a file.
    ///
    /// # Errors
    /// If it is no record that can be used. Nothing of it is kept then; the caller counts it.
    pub fn line(&mut self, text: &[u8]) -> Result<(), Wrong> {
        let line = Line::parse(text)?;
        self.reading.records += 1;
        let taken = match line {
            Line::Finding(seen) => self.finding(*seen),
            Line::Status(status) => self.status(&status),
        };
        self.count(taken);
        Ok(())
    }

    /// Takes the figures that a watch sent.
    ///
    /// # Errors
    /// If one of them is impossible.
    pub fn figures(&mut self, figures: &Figures) -> Result<(), Wrong> {
        if !figures.is_possible() {
            return Err(Wrong::Damaged);
        }
        self.reading.records += 1;
        let taken = self.labelled(figures);
        self.count(taken);
        Ok(())
    }

    /// Counts a fact that found no room.
    fn count(&mut self, taken: Option<()>) {
        self.reading.left_out += u64::from(taken.is_none());
    }

    fn finding(&mut self, seen: SeenFinding) -> Option<()> {
        let (origin, now) = (&seen.origin, seen.time_unix_ns);
        let host = self.hosts.number(shown(&origin.host))?;
        let object = self.object(&seen.fingerprint)?;
        let build = self.build(
            &origin.program,
            origin.path.as_deref(),
            origin.build_id.as_deref(),
        );
        self.version(build, origin.version.as_deref(), now);
        let event = Self::room(
            self.events.len(),
            self.events.contains_key(&(host, object, origin.pid)),
        );
        if event {
            let there = seen.event != Happening::Gone;
            let last = self
                .events
                .entry((host, object, origin.pid))
                .or_insert((now, there, build));
            // Of two at one time, the finding is gone.
            if now > last.0 || now == last.0 && !there {
                *last = (now, there, build);
            }
        }
        let percent = seen.finding.cost_percent;
        let taken = self.sighting((object, build, host), now, percent);
        let known = &mut self.known[object as usize];
        if now >= known.told_unix_ns {
            known.told_unix_ns = now.max(1);
            known.sharing = seen.finding.sharing;
            known.program = shown(&origin.program);
            let (object, place, advice) = seen.finding.described();
            known.object = shown(&object);
            known.place = place.as_deref().map(shown);
            known.advice = advice.as_deref().map(shown);
        }
        taken.filter(|()| event)
    }

    fn status(&mut self, status: &WatchStatus) -> Option<()> {
        let now = status.time_unix_ns;
        let watch = self.watch(&status.host, status.begun_unix_ns, now, status.seconds)?;
        let host = self.of_watches[watch as usize].host;
        self.counts(watch, status, now);
        let of = &mut self.of_watches[watch as usize];
        of.listed_unix_ns = of.listed_unix_ns.max(now);
        let mut all = Some(());
        for looked in &status.looked {
            let build = self.build(
                &looked.program,
                looked.path.as_deref(),
                looked.build_id.as_deref(),
            );
            self.version(build, looked.version.as_deref(), looked.last_unix_ns);
            let key = (build, watch);
            if !Self::room(self.looks.len(), self.looks.contains_key(&key)) {
                all = None;
                continue;
            }
            let of = self.looks.entry(key).or_insert(Looks {
                first_unix_ns: looked.first_unix_ns,
                ..Looks::default()
            });
            of.looks = of.looks.max(looked.looks);
            of.first_unix_ns = of.first_unix_ns.min(looked.first_unix_ns);
            of.last_unix_ns = of.last_unix_ns.max(looked.last_unix_ns);
        }
        for one in &status.present {
            let Some(object) = self.object(&one.fingerprint) else {
                all = None;
                continue;
            };
            let program = self.programs.number(shown(&one.program)).unwrap_or(NONE);
            let known = &mut self.known[object as usize];
            if known.told_unix_ns == 0 {
                known.object = shown(&one.object);
                known.program = shown(&one.program);
            }
            // Without an id, the record of the finding tells the build: see `builds::resolved`.
            let build = match &one.build_id {
                Some(id) => self.build(&one.program, None, Some(id)),
                None => NONE,
            };
            let container = match &one.container {
                Some(container) => self.containers.number(shown(container)).unwrap_or(NONE),
                None => NONE,
            };
            let key = CostKey {
                watch,
                object,
                pid: one.pid,
                appeared_unix_ns: one.appeared_unix_ns,
            };
            let taken = self.cost(key, one.lost_seconds, [build, container, program], now);
            let seen = self.sighting((object, build, host), now, one.cost_percent);
            all = all.and(taken).and(seen);
        }
        all
    }

    fn labelled(&mut self, figures: &Figures) -> Option<()> {
        let now = figures.time_unix_ns;
        let seconds = now.saturating_sub(figures.begun_unix_ns) as f64 / 1e9;
        let watch = self.watch(&figures.host, figures.begun_unix_ns, now, seconds)?;
        let status = WatchStatus {
            seconds,
            ..figures.status.clone()
        };
        self.counts(watch, &status, now);
        let mut all = Some(());
        for one in &figures.lost_seconds {
            let labels = (
                shown(&one.program),
                shown(&one.object),
                shown(&one.container),
            );
            let of = self.figures.entry(watch).or_default();
            if let Some(most) = of.get_mut(&labels) {
                *most = most.max(one.value);
            } else if self.entries_of_figures < MOST_ENTRIES {
                self.entries_of_figures += 1;
                of.insert(labels, one.value);
            } else {
                all = None;
            }
        }
        all
    }

    /// The counts of a watch, which only grow: the last ones hold.
    fn counts(&mut self, watch: u32, status: &WatchStatus, now: u64) {
        let of = &mut self.of_watches[watch as usize];
        if now >= of.status_unix_ns {
            of.status_unix_ns = now.max(1);
            of.status = WatchStatus {
                present: Vec::new(),
                looked: Vec::new(),
                host: String::new(),
                schema: String::new(),
                ..status.clone()
            };
        }
    }

    /// The number of a watch.
    fn watch(&mut self, host: &str, begun: u64, now: u64, seconds: f64) -> Option<u32> {
        let host = self.hosts.number(shown(host))?;
        let begun = match begun {
            0 => self.beginning(host, now.saturating_sub((seconds * 1e9) as u64)),
            told => told,
        };
        let watch = self.watches.number((host, begun))?;
        if watch as usize == self.of_watches.len() {
            self.of_watches.push(Watch {
                host,
                first_unix_ns: now,
                ..Watch::default()
            });
            self.by_host.entry(host).or_default().push(watch);
        }
        let of = &mut self.of_watches[watch as usize];
        of.first_unix_ns = of.first_unix_ns.min(now);
        of.last_unix_ns = of.last_unix_ns.max(now);
        Some(watch)
    }

    /// When a watch began that does not say so itself.
    fn beginning(&self, host: u32, reckoned: u64) -> u64 {
        let watches = self.by_host.get(&host).into_iter().flatten();
        let mut begun = watches.map(|&watch| self.watches.key(watch).1);
        begun
            .find(|&begun| begun.abs_diff(reckoned) <= SAME_BEGINNING_NS)
            // 0 stands for "not told".
            .unwrap_or(reckoned.max(1))
    }

    fn object(&mut self, fingerprint: &str) -> Option<u32> {
        let object = self.objects.number(shown(fingerprint))?;
        if object as usize == self.known.len() {
            self.known.push(Known {
                fingerprint: shown(fingerprint),
                ..Known::default()
            });
        }
        Some(object)
    }

    /// The number of a build, or [`NONE`].
    fn build(&mut self, program: &str, path: Option<&str>, id: Option<&str>) -> u32 {
        let path = shown(path.unwrap_or(program));
        let build = match id {
            Some(id) => Build::Id(shown(id)),
            None => Build::Path(path.clone()),
        };
        let Some(number) = self.builds.number(build) else {
            return NONE;
        };
        match self.paths.get_mut(number as usize) {
            None => self.paths.push(path),
            // Of several paths, a whole one, and whatever was read first, the same one.
            Some(known) => {
                let rank = |path: &str| (!path.contains('/'), path.to_owned());
                if rank(&path) < rank(known) {
                    *known = path;
                }
            }
        }
        number
    }

    fn version(&mut self, build: u32, version: Option<&str>, now: u64) {
        let Some(version) = version.filter(|_| build != NONE).map(shown) else {
            return;
        };
        let known = self.versions.entry(build).or_default();
        // Whatever is read first, the same one is kept.
        *known = (now, version).max(std::mem::take(known));
    }

    /// Whether a table of so many entries takes one, which may be known already.
    const fn room(entries: usize, is_known: bool) -> bool {
        is_known || entries < MOST_ENTRIES
    }

    fn cost(&mut self, key: CostKey, lost: f64, of: [u32; 3], now: u64) -> Option<()> {
        if !Self::room(self.costs.len(), self.costs.contains_key(&key)) {
            return None;
        }
        let [build, container, program] = of;
        let cost = self.costs.entry(key).or_insert(Cost {
            lost_seconds: 0.0,
            build,
            container,
            program,
            listed_unix_ns: now,
        });
        cost.lost_seconds = cost.lost_seconds.max(lost);
        cost.listed_unix_ns = cost.listed_unix_ns.max(now);
        Some(())
    }

    fn sighting(&mut self, key: (u32, u32, u32), now: u64, percent: f64) -> Option<()> {
        if !Self::room(self.seen.len(), self.seen.contains_key(&key)) {
            return None;
        }
        let seen = self.seen.entry(key).or_insert(Seen {
            first_unix_ns: now,
            last_unix_ns: now,
            cost_percent: percent,
        });
        seen.first_unix_ns = seen.first_unix_ns.min(now);
        if now >= seen.last_unix_ns {
            seen.last_unix_ns = now;
            seen.cost_percent = percent;
        }
        Some(())
    }
}
