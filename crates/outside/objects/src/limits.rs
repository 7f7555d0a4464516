//! What could not be found or read, in sentences for the report.

/// Missing debug information and symbols, for the report.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) sentences: Vec<String>,
    /// Files of the system without debug information, for one sentence about all.
    libraries: Vec<String>,
}

impl Limits {
    pub(crate) fn add_library(&mut self, path: &str) {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.libraries.push(name.to_owned());
    }

    /// Sets `sentence` for the file at `path`, which then is not in the sentence about several
    /// files.
    pub(crate) fn add_for_file(&mut self, path: &str, sentence: String) {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.libraries.retain(|library| library != name);
        if !self.sentences.contains(&sentence) {
            self.sentences.push(sentence);
        }
    }

    /// All of it, in sentences.
    pub(crate) fn in_sentences(&self) -> Vec<String> {
        let mut all = self.sentences.clone();
        if !self.libraries.is_empty() {
            all.push(format!(
                "Files of the system have no debug information here ({}): their functions and \
                 data are named by symbols only.",
                self.libraries.join(", ")
            ));
        }
        all
    }
}

/// Whether a file belongs to the system: missing debug information is normal there, and users do
/// not compile such files.
pub(crate) fn is_system_library(path: &str) -> bool {
    const FOLDERS: [&str; 4] = ["/usr/lib/", "/usr/lib64/", "/lib/", "/lib64/"];
    FOLDERS.iter().any(|folder| path.starts_with(folder))
}
