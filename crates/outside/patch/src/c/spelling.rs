//! How alignment is written in C and C++. The attribute of gcc and clang works in every standard
//! of both languages; the keywords are nicer where they are sure to be understood.

use crate::sources::Language;

/// Which way of writing to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spelling {
    /// `_Alignas` in C, `alignas` in C++, the attribute in headers.
    #[default]
    Keyword,
    /// The attribute of gcc and clang everywhere: for C++ before C++11.
    Attribute,
}

impl Spelling {
    /// What stands at the beginning of a declaration of a member or variable, without a space.
    pub(crate) fn before(self, language: Language, line: u32) -> String {
        match (self, language) {
            (Self::Keyword, Language::C) => format!("_Alignas({line})"),
            (Self::Keyword, Language::Cpp) => format!("alignas({line})"),
            _ => attribute(line),
        }
    }

    /// What stands between `struct` and the name of the type. C has no keyword for it.
    pub(crate) fn of_type(self, language: Language, line: u32) -> String {
        match (self, language) {
            (Self::Keyword, Language::Cpp) => format!("alignas({line})"),
            _ => attribute(line),
        }
    }
}

/// What stands behind one of several declarators.
pub(crate) fn attribute(line: u32) -> String {
    format!("__attribute__((aligned({line})))")
}
