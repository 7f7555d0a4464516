//! The commands of the tool that start a program or attach to one.

/// How the program of a mode comes to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The tool starts it.
    ByTool,
    /// The tool attaches to it while it runs.
    Before,
}

/// A command of the tool.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Its name, as in tables and for `--mode`.
    pub name: &'static str,
    /// The words after `sunder`. `FILE` stands for a file to write, `SEED` for a number.
    pub words: &'static [&'static str],
    /// More words for our own programs, which have a variable `hot`.
    pub own_words: &'static [&'static str],
    /// How the program comes to run.
    pub start: Start,
    /// The share of the usual work that the program gets: 1 in so many, because it is slowed down.
    pub slower: u64,
    /// Whether the program has to be built by `sunder cc`.
    pub instrumented: bool,
    /// Whether a program that was not made for this is tried too.
    pub real: bool,
}

const fn starts(name: &'static str, words: &'static [&'static str]) -> Mode {
    Mode {
        name,
        words,
        own_words: &[],
        start: Start::ByTool,
        slower: 1,
        instrumented: false,
        real: true,
    }
}

/// All modes.
pub const MODES: [Mode; 14] = [
    starts("detect", &["detect", "-o", "FILE"]),
    starts("detect --measure", &["detect", "--measure", "-o", "FILE"]),
    starts(
        "detect --observer timer",
        &["detect", "--observer", "timer", "-o", "FILE"],
    ),
    // Every interval is looked at, so that memory is converted again and again.
    starts(
        "detect --observer isolate",
        &[
            "detect",
            "--observer",
            "isolate",
            "--sampled",
            "1000",
            "-o",
            "FILE",
        ],
    ),
    // Named beforehand, so that threads are isolated whatever the machine's load is.
    Mode {
        own_words: &["--isolate-global", "hot", "--every", "300"],
        ..starts("protect", &["protect", "--report", "FILE"])
    },
    starts(
        "protect --eager",
        &["protect", "--eager", "--report", "FILE"],
    ),
    // Pages move at random, so that they move whatever the machine's load is.
    starts("repair", &["repair", "--chaos", "SEED", "--report", "FILE"]),
    starts("cure", &["cure", "--save", "FILE"]),
    Mode {
        start: Start::Before,
        ..starts("attach", &["attach", "--duration", "700ms", "-o", "FILE"])
    },
    Mode {
        start: Start::Before,
        ..starts(
            "attach --measure",
            &["attach", "--measure", "--duration", "700ms", "-o", "FILE"],
        )
    },
    Mode {
        start: Start::Before,
        ..starts(
            "attach --repair",
            &[
                "attach",
                "--repair",
                "--chaos",
                "SEED",
                "--duration",
                "700ms",
                "--report",
                "FILE",
            ],
        )
    },
    starts("run", &["run"]),
    Mode {
        slower: 20,
        instrumented: true,
        real: false,
        ..starts("trace", &["trace", "--via", "instrumented", "-o", "FILE"])
    },
    Mode {
        slower: 40,
        real: false,
        ..starts(
            "trace --via emulated",
            &["trace", "--via", "emulated", "-o", "FILE"],
        )
    },
];

impl Mode {
    /// The mode of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        MODES.iter().find(|mode| mode.name == name)
    }
}
