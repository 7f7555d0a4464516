//! Where records go: standard output, files, Prometheus, and collectors of OpenTelemetry.

use crate::args::Watch;
use crate::destination::print_to_reader;
use crate::output::{complain, note};
use crate::watch::appended::Appended;
use anyhow::{Context, Result, bail};
use std::borrow::Cow;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use sunder_export::{
    Ended, Metrics, Otlp, Place, Profile, Server, Signal, Spool, Target, page, write_page,
    write_pprof,
};
use sunder_findings::{Happening, Record, escaped_json};
use sunder_report::watched_text;

/// How long the end waits for collectors.
const LAST: Duration = Duration::from_secs(5);

/// All places.
pub struct Told {
    once: bool,
    quiet: bool,
    /// Whether people read standard output.
    terminal: bool,
    /// Whether nobody reads standard output any more.
    unread: bool,
    files: Vec<Appended>,
    metrics: Metrics,
    server: Option<Server>,
    prom_file: Option<Rewritten>,
    profile: Option<(Rewritten, Profile)>,
    otlp: Option<Otlp>,
    findings: u64,
    /// Records that a file did not take.
    unwritten: u64,
    last_status: Option<Record>,
    /// Whether something could not be written.
    pub failed: bool,
}

/// A file that is written anew each time, by a file beside it.
struct Rewritten {
    path: PathBuf,
    place: Place,
}

impl Rewritten {
    fn wrong(&self) -> String {
        format!("cannot write to {}", self.path.display())
    }
}

fn rewritten(path: &Option<PathBuf>) -> Result<Option<Rewritten>> {
    let Some(path) = path else { return Ok(None) };
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let shown = path.display();
    if folder.is_some_and(|it| !it.is_dir()) {
        bail!("cannot write to {shown}: there is no such folder");
    }
    let place = Place::of(path).with_context(|| format!("cannot write to {shown}"))?;
    let path = path.to_owned();
    Ok(Some(Rewritten { path, place }))
}

impl Told {
    /// Opens all.
    ///
    /// # Errors
    /// If a file can't be opened, an address can't be listened at, or a variable can't be followed.
    pub fn open(options: &Watch) -> Result<Self> {
        let files = options.json.iter().map(|path| Appended::open(path));
        if options.otlp {
            let profiles = options.otlp_profiles.then_some(Signal::Profiles);
            for signal in [Signal::Metrics, Signal::Logs].into_iter().chain(profiles) {
                Target::of(signal, &variable)?;
            }
        }
        // Before the other files are made.
        let (prom_file, pprof) = (rewritten(&options.prom_file)?, rewritten(&options.pprof)?);
        Ok(Self {
            once: options.once.is_some(),
            quiet: options.quiet,
            terminal: std::io::stdout().is_terminal(),
            unread: false,
            files: files.collect::<Result<_>>()?,
            metrics: Metrics::default(),
            server: options.listen.as_deref().map(Server::listen).transpose()?,
            prom_file,
            profile: pprof.map(|file| (file, Profile::default())),
            otlp: None,
            findings: 0,
            unwritten: 0,
            last_status: None,
            failed: false,
        })
    }

    /// Begins to answer and to send, on threads of its own.
    ///
    /// # Errors
    /// If there can be no further threads, or the spool can't be used.
    pub fn start(&mut self, options: &Watch, host: &str) -> Result<()> {
        if let Some(server) = &self.server {
            server.start()?;
        }
        if options.otlp {
            let most = options.spool_size.saturating_mul(1 << 20);
            let spool = |name: &str| match &options.spool {
                Some(folder) => {
                    let folder = folder.join(name);
                    let wrong = || format!("cannot keep what waits in {}", folder.display());
                    Spool::in_folder(&folder, most).with_context(wrong)
                }
                None => Ok(Spool::in_memory(most)),
            };
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.map_or(0, |now| now.as_nanos() as u64);
            let profiles = options.otlp_profiles;
            self.otlp = Some(Otlp::start(host, now, profiles, &variable, &spool)?);
        }
        Ok(())
    }

    /// Opens the files anew: somebody may have moved them away. A signal that a collector did not want may be
    /// wanted by now.
    pub fn open_anew(&mut self) {
        if let Some(otlp) = &self.otlp {
            otlp.switch_on();
        }
        for one in &mut self.files {
            if let Err(error) = one.open_anew() {
                complain(&error);
                self.failed = true;
            }
        }
    }

    /// Hands a record to all.
    pub fn tell(&mut self, record: &Record) {
        let mut record = Cow::Borrowed(record);
        if let (Record::Status(status), 1..) = (&*record, self.unwritten) {
            let mut status = status.clone();
            status.records_dropped += self.unwritten;
            record = Cow::Owned(Record::Status(status));
        }
        let record = &*record;
        if let Record::Finding(finding) = record {
            self.findings += u64::from(finding.event != Happening::Gone);
        } else {
            self.last_status = Some(record.clone());
        }
        self.metrics.add(record);
        self.profile(record);
        self.send(record);
        if matches!(record, Record::Status(_)) {
            self.tell_metrics();
        }
        let Ok(mut line) = serde_json::to_string(record) else {
            self.failed = true;
            return;
        };
        line = escaped_json(line);
        line.push('\n');
        for one in &mut self.files {
            if let Err(error) = one.add(line.as_bytes()) {
                complain(&error);
                self.failed = true;
                self.unwritten += 1;
            }
        }
        if self.quiet {
            return;
        }
        let printed = match record {
            Record::Finding(watched) if self.terminal => print_to_reader(&watched_text(watched)),
            Record::Status(_) if self.terminal => Ok(true),
            _ => print_to_reader(&line),
        };
        match printed {
            Ok(is_read) => self.unread |= !is_read,
            Err(error) => {
                complain(&error);
                self.failed = true;
            }
        }
    }

    /// Whether whoever read standard output has gone, and there is no other place.
    pub fn is_for_nobody(&self) -> bool {
        let others = self.prom_file.is_some() || self.profile.is_some();
        let others = others || self.server.is_some() || self.otlp.is_some();
        self.unread && self.files.is_empty() && !others
    }

    /// Adds a record to the profile, and writes that with each status.
    fn profile(&mut self, record: &Record) {
        let Some((file, profile)) = &mut self.profile else {
            return;
        };
        profile.add(record);
        if matches!(record, Record::Status(_))
            && let Err(error) = write_pprof(&file.place, profile).with_context(|| file.wrong())
        {
            complain(&error);
            self.failed = true;
        }
    }

    /// Hands a record to what sends it, and says what hinders that.
    fn send(&mut self, record: &Record) {
        let Some(otlp) = &mut self.otlp else {
            return;
        };
        otlp.notes().iter().for_each(|why| note(why));
        self.metrics.sinks.extend(otlp.sinks());
        otlp.tell(record, &self.metrics);
    }

    fn tell_metrics(&mut self) {
        let page = page(&self.metrics);
        if let Some(file) = &self.prom_file
            && let Err(error) = write_page(&file.place, &page).with_context(|| file.wrong())
        {
            complain(&error);
            self.failed = true;
        }
        if let Some(server) = &self.server {
            server.set(page);
        }
    }

    /// Sends what waits, and says what there was after a single look.
    pub fn end(&mut self) {
        if let Some(otlp) = self.otlp.take() {
            let (ended, notes) = otlp.end(LAST);
            notes.iter().for_each(|why| note(why));
            for one in ended.iter().filter(|one| one.left.batches > 0) {
                note(&left(one));
                // A watch that goes on has done what it could.
                self.failed |= self.once && one.left.kept < one.left.batches;
            }
            for one in ended.iter().filter(|one| one.lost > 0) {
                let (sink, lost) = (one.sink, one.lost);
                let (es, were) = if lost == 1 {
                    ("", "was")
                } else {
                    ("es", "were")
                };
                note(&format!(
                    "{sink}: {lost} batch{es} {were} lost: refused, or too large for the room there is"
                ));
                self.failed |= self.once;
            }
        }
        if self.once && !self.quiet {
            summary(self.findings, self.last_status.as_ref());
        }
    }
}

/// What became of a queue that was not empty at the end.
fn left(one: &Ended) -> String {
    let (batches, kept) = (one.left.batches, one.left.kept);
    let (es, are) = if batches == 1 {
        ("", "is")
    } else {
        ("es", "are")
    };
    let fate = match batches - kept {
        0 => "; the next watch with this spool sends what waits".into(),
        lost if lost == batches => format!(" and {are} lost"),
        lost => format!(", of which {kept} wait in the spool, and {lost} are lost"),
    };
    format!("{}: {batches} batch{es} could not be sent{fate}", one.sink)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Words about the end of a single look.
fn summary(records: u64, status: Option<&Record>) {
    let Some(Record::Status(status)) = status else {
        return;
    };
    let looks = sunder_live::counted(status.looks as usize, "close look");
    let found = sunder_live::counted(records as usize, "finding");
    let mut text = format!(
        "{found}; {} samples of all processes in {:.0} s, ",
        status.samples, status.seconds
    );
    text.push_str(&match status.looks {
        0 => "which show no process with threads on two CPUs at once: none was looked at closely"
            .to_owned(),
        _ => format!("{looks} at processes with threads on two CPUs at once"),
    });
    if status.looks_failed > 0 {
        text.push_str(&format!("; {} looks failed", status.looks_failed));
    }
    if status.looks_by_symbols > 0 {
        text.push_str(&format!(
            "; what {} found is named by symbols, since debug information took too much time or memory",
            sunder_live::counted(status.looks_by_symbols as usize, "look")
        ));
    }
    note(&text);
}
