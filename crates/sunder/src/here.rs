//! Observing a function of the calling program, as a test or a benchmark wants it.

use crate::{Error, Findings, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use sunder_access::ProcessId;
use sunder_live::{Ending, Look, ObserveOptions};

/// Calls `function` on a thread of its own and observes the whole program meanwhile: what the
/// function returned, and what was found. Threads that run beside it are observed with it, so only
/// one such call is useful at a time.
///
/// Heap objects are named by the types of the pointers that lead to them, without call stacks.
///
/// # Errors
/// If this program may not be observed ([`Error::Refused`]); `function` was not called then.
///
/// # Panics
/// If `function` panics.
pub fn observe<R: Send>(function: impl FnOnce() -> R + Send) -> Result<(R, Findings)> {
    let process = ProcessId(std::process::id());
    let options = ObserveOptions::default();
    let mut look = Look::begin(process, &options, None, Ending::InTime)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let call = scope.spawn(|| {
            let _over = SetAtTheEnd(&is_over);
            function()
        });
        let looked = look.go_on(None, &mut |_| !is_over.load(Ordering::Acquire));
        let value = match call.join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        looked.map_err(Error::from)?;
        Ok((value, look.finish()))
    })
}

/// Says that the function is over, also if it panicked.
struct SetAtTheEnd<'a>(&'a AtomicBool);

impl Drop for SetAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
