//! How a room says something while it works: through the caller, who decides where it goes.

/// Gets what a room has to say while it works. The program prints it; a library may keep it.
pub trait Notices {
    /// One sentence, without a full stop or a name in front.
    fn note(&self, sentence: &str);
}

/// Nothing is kept.
pub struct NoNotices;

impl Notices for NoNotices {
    fn note(&self, _sentence: &str) {}
}

/// What a remedy for one process says if nothing was to be done and the program started others.
pub const LEFT_ALONE: &str = "; processes that the program started were left alone";

/// `1 page`, `2 pages`.
pub fn counted(number: usize, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}
