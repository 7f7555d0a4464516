//! What is done before a signal stops or ends this process: whoever draws on the terminal takes away
//! what is there. Called by `signals` and `late`, and by whoever ends this process at once.

use std::sync::OnceLock;

static THEN: OnceLock<fn()> = OnceLock::new();

/// Before Ctrl-Z stops this process, or a signal ends it while its report is made, `then` is called. It is
/// called in a signal handler, so it may only make async-signal-safe calls. Only the first `then` counts.
pub fn before_leaving(then: fn()) {
    let _ = THEN.set(then);
}

/// Does it.
pub fn leave() {
    if let Some(then) = THEN.get() {
        then();
    }
}
