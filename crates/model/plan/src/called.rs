//! What to call an object in a sentence. Called by all advice that names one; must not name what
//! nobody wrote, such as a stack as a whole, as if it were a variable.

use crate::words::quoted;
use sunder_findings::Object;

/// The object in a sentence: its name in backquotes, or what it is.
pub(crate) fn called(object: &Object) -> String {
    if object.is_bare_stack() {
        return match &object.thread {
            Some(thread) => format!("the stack of thread {}", thread.id),
            None => "a thread's stack".to_owned(),
        };
    }
    match (&object.name, &object.type_name) {
        (None, None) => format!("the {}", object.kind.words()),
        _ => quoted(object.short_name()),
    }
}
