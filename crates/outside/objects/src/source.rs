//! Lines of source files, for reports. Called by the pipeline; opens a file as the program would,
//! because a program names any file as its source.

use crate::names::Names;
use std::io::Read;
use std::path::Path;

/// Larger files are not searched for a line, in bytes.
const LARGEST: u64 = 8 << 20;

impl Names {
    /// Line `line` of the source file `file` and up to `around` lines on either side, with their
    /// numbers. Empty if the program may not read the file, or it is very large.
    pub fn source_around(&self, file: &str, line: u32, around: u32) -> Vec<(u32, String)> {
        let Some(text) = self.source(Path::new(file)) else {
            return Vec::new();
        };
        let wanted = line.saturating_sub(around)..=line.saturating_add(around);
        (1..)
            .zip(text.lines())
            .skip_while(|(number, _)| number < wanted.start())
            .take_while(|(number, _)| number <= wanted.end())
            .map(|(number, text)| (number, text.trim_end().to_owned()))
            .collect()
    }

    fn source(&self, path: &Path) -> Option<String> {
        let file = self.options.files.open_source(path).ok()?;
        let mut text = String::new();
        file.take(LARGEST + 1).read_to_string(&mut text).ok()?;
        (text.len() as u64 <= LARGEST).then_some(text)
    }
}
