//! The names of types, in the syntax of their language.

use super::{MAX_DEPTH, Shape, TypeId, TypeTable};
use crate::dwarf::{DebugInfo, Language};
use crate::fold;

impl TypeTable {
    /// The type's name in the syntax of its language.
    pub(crate) fn name(&mut self, debug: &mut DebugInfo, id: TypeId) -> String {
        self.name_within(debug, id, 0)
    }

    fn name_within(&mut self, debug: &mut DebugInfo, id: TypeId, depth: u32) -> String {
        let Some(ty) = self.get(id).cloned() else {
            return "?".to_owned();
        };
        if depth > MAX_DEPTH {
            return "…".to_owned();
        }
        let inner = |table: &mut Self, debug: &mut DebugInfo, to: Option<TypeId>| match to {
            Some(to) => table.name_within(debug, to, depth + 1),
            None => "void".to_owned(),
        };
        match (&ty.shape, &ty.name) {
            // As a debugger shows it; what it is called by is its variable's name.
            (Shape::Record { keyword, .. }, None) => format!("{keyword} {{…}}"),
            (Shape::Record { keyword, .. }, Some(name)) => match ty.language {
                Language::C | Language::Other => format!("{keyword} {name}"),
                Language::Cpp => fold::cpp(name),
                Language::Rust => fold::rust_type(name),
                Language::Go | Language::Fortran => name.clone(),
            },
            // `value_type` and similar names say less than the type itself.
            (Shape::Alias { to: Some(to), .. }, Some(name))
                if name.contains("::") && fold::is_library_name(name) =>
            {
                inner(self, debug, Some(*to))
            }
            (_, Some(name)) => match ty.language {
                Language::Rust => fold::rust_type(name),
                Language::Go => name.clone(),
                _ => fold::cpp(name),
            },
            (Shape::Pointer { to, sign }, None) => {
                let to = to.and_then(|to| self.load(debug, to, 0));
                let to = inner(self, debug, to);
                // Stars follow each other without a blank, as in `char **`.
                let blank = if to.ends_with('*') { "" } else { " " };
                format!("{to}{blank}{sign}")
            }
            (
                Shape::Array {
                    element,
                    dimensions,
                },
                None,
            ) => {
                let element = inner(self, debug, Some(*element));
                let counts: Vec<_> = dimensions.iter().map(|d| d.count).collect();
                array_name(ty.language, element, &counts)
            }
            (Shape::Alias { to: Some(to), .. }, None) if self.is_pointer(*to) => {
                inner(self, debug, Some(*to))
            }
            (Shape::Alias { to, qualifier }, None) => {
                let inner = inner(self, debug, *to);
                // An array of qualified elements has the qualifier itself, too.
                match inner.starts_with(qualifier) {
                    true => inner,
                    false => format!("{qualifier}{inner}"),
                }
            }
            (Shape::Scalar, None) => "function".to_owned(),
        }
    }
}

fn array_name(language: Language, element: String, counts: &[Option<u64>]) -> String {
    let text = |c: &Option<u64>| c.map(|c| c.to_string()).unwrap_or_default();
    match language {
        Language::Rust => counts
            .iter()
            .rev()
            .fold(element, |inner, c| format!("[{inner}; {}]", text(c))),
        Language::Go => {
            let all: String = counts.iter().map(|c| format!("[{}]", text(c))).collect();
            format!("{all}{element}")
        }
        Language::Fortran => {
            let all: Vec<String> = counts.iter().rev().map(text).collect();
            format!("{element}[{}]", all.join(","))
        }
        _ => {
            let all: String = counts.iter().map(|c| format!("[{}]", text(c))).collect();
            format!("{element}{all}")
        }
    }
}
