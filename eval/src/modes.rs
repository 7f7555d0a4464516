//! The commands of the tool under which programs are compared with their native runs. Used by the
//! benchmarks that run whole test suites.

use std::path::Path;
use std::process::Command;

/// A command of the tool.
#[derive(Debug)]
pub struct Mode {
    /// As the tables name it.
    pub name: &'static str,
    /// Its words; `FILE` stands for a file to write.
    words: &'static [&'static str],
}

impl Mode {
    /// The words of this command up to the program, which follows. `file` is written if the command
    /// writes a file.
    pub fn words<'a>(&'a self, file: &'a str) -> impl Iterator<Item = &'a str> {
        let words = self.words.iter();
        let words = words.map(move |&word| if word == "FILE" { file } else { word });
        words.chain(["--"])
    }

    /// The command, to which the program and its arguments are to be added.
    pub fn command(&self, sunder: &Path, file: &Path) -> Command {
        let mut command = Command::new(sunder);
        command.args(self.words(&file.to_string_lossy()));
        command
    }
}

/// All of them.
pub const MODES: [Mode; 8] = [
    Mode {
        name: "detect",
        words: &["detect", "--quiet", "-o", "FILE"],
    },
    Mode {
        name: "detect --observer timer",
        words: &["detect", "--quiet", "--observer", "timer", "-o", "FILE"],
    },
    Mode {
        name: "detect --observer isolate",
        words: &["detect", "--quiet", "--observer", "isolate", "-o", "FILE"],
    },
    Mode {
        name: "run",
        words: &["run"],
    },
    Mode {
        name: "repair",
        words: &["repair", "--quiet"],
    },
    Mode {
        name: "cure",
        words: &["cure", "--quiet"],
    },
    Mode {
        name: "protect",
        words: &["protect", "--quiet"],
    },
    Mode {
        name: "protect --eager",
        words: &["protect", "--quiet", "--eager"],
    },
];
