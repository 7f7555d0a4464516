//! Which lines the caller of the pipeline wants findings for.

use sunder_access::Span;

/// Which lines the caller wants findings for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All lines.
    All,
    /// Lines in these spans, of which there may be none. Nothing else has to be named.
    Of(Vec<Span>),
}

impl Wanted {
    /// Whether findings for this span are wanted.
    pub fn holds(&self, span: Span) -> bool {
        match self {
            Self::All => true,
            Self::Of(places) => places.iter().any(|place| place.overlaps(span)),
        }
    }

    /// Whether no findings are wanted.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Of(places) if places.is_empty())
    }
}
