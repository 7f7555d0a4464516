//! What a run could not see: one variant for each limit, with the sentence that
//! reports show. A file holds the sentences, so that any reader can show them;
//! what is read from a file is [`Limit::Text`]. A decision that depends on a
//! limit matches on the variant, never on the sentence.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Something that a run could not see. `Display` gives the sentence.
///
/// `why` is always the end of a sentence, without the full stop.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Limit {
    /// A sentence from a file.
    Text(String),
    /// What the names of one file, or of many, lack.
    Names(String),

    /// Nothing sampled the program.
    NoSamples {
        /// What refused it.
        why: String,
    },
    /// There were too few samples to find much.
    FewSamples(u64),
    /// The kernel or the observer dropped samples.
    LostSamples {
        /// Dropped.
        lost: u64,
        /// Taken or dropped.
        all: u64,
    },
    /// Samples of programs whose code is not decoded.
    SamplesOf32BitPrograms(u64),
    /// Samples of a recorded file that lack fields.
    SamplesWithoutFields(u64),
    /// Threads for which there were no file descriptors.
    UnobservedThreads(usize),
    /// The timer observer was taken in place of perf.
    TimersForPerf {
        /// What refused perf.
        why: String,
    },
    /// Threads without a timer of the timer observer.
    ThreadsWithoutTimer(u64),
    /// The program took the signal of the timer observer.
    SignalTaken,
    /// The program confined itself (seccomp).
    Confined,
    /// The target's memory could not be read.
    UnreadMemory {
        /// What refused it.
        why: String,
    },
    /// Watchpoints could not be set.
    NoWatchpoints {
        /// What refused them.
        why: String,
    },
    /// For much of the time, the addresses of accesses are not known.
    Unattributed {
        /// The share of the time, 0 to 100.
        percent: f64,
        /// The functions with most of it, and their shares.
        functions: Vec<(String, f64)>,
    },
    /// What a fix gains could not be measured.
    GainNotMeasured {
        /// What prevented it.
        why: String,
    },
    /// Some findings rest on samples alone.
    Unconfirmed,
    /// So many objects had too few accesses for a verdict.
    Coincidences(usize),

    /// The program started other processes, and the command can't follow them.
    ProcessesLeftOut,
    /// The program started other processes, and the user did not ask to follow them.
    ProcessesNotFollowed,
    /// The timer observer can't see processes without the runtime library.
    ProcessesWithoutTimer,
    /// Processes were started faster than their heaps could be recorded.
    ProcessesMissed(u32),
    /// Heaps in another process namespace.
    ForeignProcesses,
    /// Followed processes went on when the program itself had ended, and were not looked at any more.
    ProcessesGoOn {
        /// Some of them, by number and name.
        named: Vec<String>,
        /// How many there are beside these.
        more: usize,
    },
    /// Processes whose heaps were not recorded.
    ProcessesWithoutHeap {
        /// Some of them, by number and name.
        named: Vec<String>,
        /// How many there are beside these.
        more: usize,
    },

    /// The heap was not recorded: nothing could be preloaded.
    NothingPreloaded {
        /// What hindered it.
        why: String,
    },
    /// The heap was not recorded: no segment could be made.
    NoSegment {
        /// What refused it.
        why: String,
    },
    /// The heap was not recorded: the runtime library did not work.
    NoRuntime {
        /// Why.
        why: String,
    },
    /// The heap was recorded, and nothing was allocated on it.
    NoHeapObject,
    /// The runtime library's table of threads was full.
    ThreadsBeyondTable(u64),
    /// The runtime library's table of heap blocks was full.
    BlocksBeyondTable(u64),
    /// The runtime library's table of call stacks was full.
    StacksBeyondTable(u64),
    /// A recorded file has no heap.
    RecordedFile,
    /// A kept run was judged with lines of another size than those of the run, which had so many
    /// bytes.
    OtherLineSize(u64),
    /// An attached process has no recorded heap.
    Attached,
    /// The attached process ended too early.
    EndedEarly,

    /// The isolate observer sees no readers.
    WritesOnly,
    /// The isolate observer saw nothing.
    NothingIsolated {
        /// What refused it; none if there was nothing to isolate.
        why: Option<String>,
    },
    /// The isolate observer stopped.
    IsolationEnded {
        /// What ended it.
        why: String,
    },
    /// The isolate observer left the program native for some seconds, since isolation took too much.
    IsolationPaused {
        /// How often.
        times: usize,
        /// The share of the threads' time that it took the last time, 0 to 100.
        percent: u64,
    },
    /// The isolate observer's tables of pages were full.
    PagesBeyondTable(u64),
    /// So many pages stayed shared under the isolate observer, because threads hand data over on them by
    /// plain loads and stores.
    PagesHandedOver(u64),
    /// The isolate observer lost changes.
    ChangesLost(u64),

    /// The trace is not whole.
    PartialTrace {
        /// What it lacks.
        why: String,
    },
    /// On pages: objects that seldom missed.
    FewMisses {
        /// So many are left out.
        objects: usize,
        /// What makes fewer misses than this is left out.
        least: u64,
    },
    /// On pages: objects beyond the most findings that a result has.
    MoreObjects {
        /// So many are left out.
        objects: usize,
        /// Their useless misses.
        misses: u64,
    },
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(sentence) | Self::Names(sentence) => f.write_str(sentence),

            Self::NoSamples { why } => write!(f, "No samples were taken: {why}."),
            Self::FewSamples(0) => f.write_str(
                "No samples were taken; a longer run or a higher --frequency sees more.",
            ),
            Self::FewSamples(few) => write!(
                f,
                "Only {few} samples were taken; a longer run or a higher --frequency sees more."
            ),
            Self::LostSamples { lost, all } => write!(
                f,
                "{lost} of {all} samples were lost; costs may be underestimated."
            ),
            Self::SamplesOf32BitPrograms(samples) => write!(
                f,
                "{samples} samples were of 32-bit programs, which are not decoded."
            ),
            Self::SamplesWithoutFields(samples) => write!(
                f,
                "{samples} samples had been recorded without the fields that are needed."
            ),
            Self::UnobservedThreads(threads) => write!(
                f,
                "{threads} threads could not be observed for want of file descriptors; raise \
                 `ulimit -n`."
            ),
            Self::TimersForPerf { why } => write!(
                f,
                "Samples were taken by timers inside the program, because perf was refused: {why}."
            ),
            Self::ThreadsWithoutTimer(threads) => {
                write!(f, "{threads} threads got no timer and gave no samples.")
            }
            Self::SignalTaken => f.write_str(
                "The program took the signal of the timer observer; sampling stopped there.",
            ),
            Self::Confined => f.write_str(
                "The program confined itself (seccomp): from then on new threads and memory have no \
                 call stacks, and timers take no samples.",
            ),
            Self::UnreadMemory { why } => write!(
                f,
                "Accesses through pointers that unoptimised code keeps in memory are missing, \
                 because the program's memory cannot be read: {why}."
            ),
            Self::NoWatchpoints { why } => {
                write!(f, "Watchpoints confirmed nothing (more): {why}.")
            }
            Self::Unattributed { percent, functions } => {
                write!(
                    f,
                    "For {percent:.0} % of the time the addresses of accesses are not known"
                )?;
                for (number, (function, percent)) in functions.iter().enumerate() {
                    let before = if number == 0 { ":" } else { "," };
                    write!(f, "{before} {function} ({percent:.0} %)")?;
                }
                f.write_str("; false sharing there is not found.")
            }
            Self::GainNotMeasured { why } => {
                write!(f, "What a fix gains was not measured: {why}.")
            }
            Self::Unconfirmed => f.write_str(
                "Findings marked as not confirmed rest on samples alone: watchpoints were not \
                 available, not needed, or out of budget.",
            ),
            Self::Coincidences(1) => f.write_str(
                "One more object was used by several threads so rarely that it may be \
                 coincidence; it is left out.",
            ),
            Self::Coincidences(count) => write!(
                f,
                "{count} more objects were used by several threads so rarely that it may be \
                 coincidence; they are left out."
            ),

            Self::ProcessesLeftOut => {
                f.write_str("The program started other processes, which were not looked at.")
            }
            Self::ProcessesNotFollowed => f.write_str(
                "The program started other processes, which were not looked at; \
                 --follow-children follows them.",
            ),
            Self::ProcessesWithoutTimer => f.write_str(
                "Processes that did not load the runtime library, such as statically linked \
                 programs, were not seen by the timer observer.",
            ),
            Self::ProcessesMissed(missed) => write!(
                f,
                "{missed} processes or programs came faster than segments could be made for them; \
                 their heap objects have no names."
            ),
            Self::ForeignProcesses => f.write_str(
                "Heap objects of processes in another process namespace have no names: their \
                 numbers are not known there.",
            ),
            Self::ProcessesGoOn { named, more } => processes_go_on(f, named, *more),
            Self::ProcessesWithoutHeap { named, more } => processes_without_heap(f, named, *more),

            Self::NothingPreloaded { why } => write!(
                f,
                "Heap objects have no names and call stacks: nothing was preloaded, because {why}."
            ),
            Self::NoSegment { why } => write!(f, "Heap objects are not named: {why}."),
            Self::NoRuntime { why } => {
                write!(f, "Heap objects have no names and call stacks: {why}.")
            }
            Self::NoHeapObject => f.write_str(
                "No heap object was seen: the program allocates none or brings its own malloc.",
            ),
            Self::ThreadsBeyondTable(threads) => {
                write!(f, "{threads} threads were beyond the table of threads.")
            }
            Self::BlocksBeyondTable(blocks) => write!(
                f,
                "{blocks} heap blocks were beyond the table of blocks and have no names."
            ),
            Self::StacksBeyondTable(stacks) => {
                write!(
                    f,
                    "{stacks} allocations were beyond the table of call stacks."
                )
            }
            Self::RecordedFile => f.write_str(
                "A recorded file tells nothing of the heap: heap objects are named by the types \
                 of the pointers that lead to them, without call stacks.",
            ),
            Self::Attached => f.write_str(
                "An attached process tells nothing of its heap: heap objects are named by the \
                 types of the pointers that lead to them, without call stacks; `sunder detect` \
                 sees both.",
            ),
            Self::OtherLineSize(bytes) => write!(
                f,
                "The run was recorded with lines of {bytes} bytes: watchpoints, and what was recorded of \
                 freed heap blocks, are of the lines that were suspected then."
            ),
            Self::EndedEarly => f.write_str("The process ended before the time was over."),

            Self::WritesOnly => f.write_str(
                "The isolate observer sees what threads write while they compute, not what they \
                 only read: one writer beside readers is not found.",
            ),
            Self::NothingIsolated { why: Some(why) } => write!(f, "Nothing was observed: {why}."),
            Self::NothingIsolated { why: None } => f.write_str(
                "Nothing was observed: no two threads computed at once, for long, in code that \
                 can be isolated.",
            ),
            Self::IsolationEnded { why } => write!(f, "Observation ended early: {why}."),
            Self::IsolationPaused { times, percent } => write!(
                f,
                "Observation paused for some seconds, {}: isolation took {percent} % of the threads' \
                 time.",
                match times {
                    1 => "once".to_owned(),
                    _ => format!("{times} times"),
                }
            ),
            Self::PagesBeyondTable(times) => write!(
                f,
                "{times} times a page had no room in the tables and stayed shared."
            ),
            Self::PagesHandedOver(pages) => write!(
                f,
                "{} not observed: threads hand data over there by plain loads and stores, which \
                 private copies would delay.",
                match pages {
                    1 => "1 page was".to_owned(),
                    _ => format!("{pages} pages were"),
                }
            ),
            Self::ChangesLost(changes) => {
                write!(f, "{changes} changes came faster than they were taken.")
            }

            Self::PartialTrace { why } => write!(
                f,
                "The trace is partial: {why}. What is there was replayed."
            ),
            Self::FewMisses { objects, least } => write!(
                f,
                "{objects} objects and pairs of objects made nodes miss fewer than {least} times; \
                 they are left out."
            ),
            Self::MoreObjects { objects, misses } => write!(
                f,
                "{objects} more objects and pairs of objects shared pages; they are left out, \
                 with {misses} useless misses together."
            ),
        }
    }
}

fn processes_go_on(f: &mut fmt::Formatter<'_>, named: &[String], more: usize) -> fmt::Result {
    let shown = named.join(", ");
    match (named.len(), more) {
        (1, 0) => write!(
            f,
            "The run ended with the program itself, but process {shown}"
        )?,
        (_, 0) => write!(
            f,
            "The run ended with the program itself, but the processes {shown}"
        )?,
        (_, more) => write!(
            f,
            "The run ended with the program itself, but the processes {shown} and {more} more"
        )?,
    }
    let goes = if named.len() + more == 1 {
        "goes"
    } else {
        "go"
    };
    write!(
        f,
        " that it started {goes} on: `sunder attach --pid NUMBER` looks at one, or let the program \
         stay in the foreground."
    )
}

fn processes_without_heap(
    f: &mut fmt::Formatter<'_>,
    named: &[String],
    more: usize,
) -> fmt::Result {
    let shown = named.join(", ");
    match (named.len(), more) {
        (1, 0) => write!(
            f,
            "Heap objects of process {shown} have no names and call stacks: it ran without the \
             runtime library."
        ),
        (_, 0) => write!(
            f,
            "Heap objects of the processes {shown} have no names and call stacks: they ran \
             without the runtime library."
        ),
        (_, more) => write!(
            f,
            "Heap objects of the processes {shown} and {more} more have no names and call stacks: \
             they ran without the runtime library."
        ),
    }
}

/// Two limits are the same if they say the same: a file keeps the sentence only.
impl PartialEq for Limit {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Limit {}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_its_sentence_in_a_file() {
        let limit = Limit::LostSamples { lost: 3, all: 40 };
        let text = serde_json::to_string(&limit).expect("a sentence");
        assert_eq!(
            text,
            "\"3 of 40 samples were lost; costs may be underestimated.\""
        );
        let read: Limit = serde_json::from_str(&text).expect("just written");
        assert!(matches!(read, Limit::Text(_)), "{read:?}");
        assert_eq!(read, limit);
    }

    #[test]
    fn numbers_agree_with_their_nouns() {
        let without = |named: &[&str], more| {
            let named = named.iter().map(|&name| name.to_owned()).collect();
            Limit::ProcessesWithoutHeap { named, more }.to_string()
        };
        for (sentence, start) in [
            (Limit::FewSamples(0).to_string(), "No samples were"),
            (Limit::FewSamples(9).to_string(), "Only 9 samples were"),
            (Limit::Coincidences(1).to_string(), "One more object was"),
            (Limit::Coincidences(2).to_string(), "2 more objects were"),
            (without(&["7"], 0), "Heap objects of process 7 have"),
            (
                without(&["7 (a)", "8"], 0),
                "Heap objects of the processes 7 (a), 8 have",
            ),
            (
                without(&["7", "8"], 3),
                "Heap objects of the processes 7, 8 and 3 more have",
            ),
        ] {
            assert!(sentence.starts_with(start), "{sentence}");
        }
    }
}
