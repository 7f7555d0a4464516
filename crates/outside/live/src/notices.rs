//! The way in which a crate reports something while it works: through its caller, which decides
//! where the message goes.

/// Receives messages while a crate works. The program prints them; a library may keep them.
pub trait Notices {
    /// One sentence, without a full stop or a name in front.
    fn note(&self, sentence: &str);
}

/// Drops all messages.
pub struct NoNotices;

impl Notices for NoNotices {
    fn note(&self, _sentence: &str) {}
}

/// The end of a remedy's message if it acts on one process only, found nothing to do there, and
/// the program started other processes.
pub const LEFT_ALONE: &str = "; processes that the program started were left alone";

/// `1 page`, `2 pages`.
pub fn counted(number: usize, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}
