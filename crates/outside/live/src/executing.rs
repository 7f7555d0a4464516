//! Asks, by breakpoints on instructions, for the addresses that samples do not tell. Driven by
//! `watching`, whose budget it spends. It must not choose places itself: the session does.

use std::time::Duration;
use sunder_access::ProcessId;
use sunder_observe::monotonic_now;
use sunder_observe::watch::{ExecutionRequest, WatchError, Watcher};
use sunder_pipeline::Session;

/// The longest duration of one burst. A hot instruction uses up its hits within some hundred
/// microseconds; one that is reached seldom is not what the time goes to.
const BURST: Duration = Duration::from_millis(2);

/// Hits of an instruction in each thread. They say whether it stays on one line, and how often it
/// is executed before the sampled one.
const HITS: u32 = 4;

/// The most threads that are stopped at once. With more threads than processors most of them do not
/// run during a burst; those cost no hits.
const THREADS: usize = 16;

/// Makes one execution burst in `process`, if one is wanted and affordable. Returns whether one was
/// made.
///
/// # Errors
/// If the kernel refuses breakpoints.
pub fn ask(
    session: &mut Session,
    watcher: &mut Watcher,
    process: ProcessId,
) -> Result<bool, WatchError> {
    let Some(question) = session.question(process, monotonic_now()) else {
        return Ok(false);
    };
    let request = ExecutionRequest {
        instructions: question.instructions(),
        threads: question.threads.iter().copied().take(THREADS).collect(),
        max_hits_per_thread: HITS,
        max_duration: BURST,
    };
    let burst = match watcher.executions(&request) {
        Ok(burst) => Some(burst),
        Err(WatchError::BudgetSpent(_)) => return Ok(false),
        // Its threads have ended; others may come.
        Err(WatchError::NoThreads(_)) => None,
        Err(error) => return Err(error),
    };
    session.executed(process, &question, monotonic_now(), burst.as_ref());
    Ok(burst.is_some())
}
