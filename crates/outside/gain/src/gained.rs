//! What threads gained by something that was done, from the gain of each: whether it pays, and how it is
//! told. Used by `repair` and `protect`. Pure.

use sunder_access::ThreadId;
use sunder_findings::{Progress, ThreadProgress};
use sunder_live::counted;
use sunder_plan::progress::{Gain, WORTH_KEEPING};

/// Whether such gains pay. A program that waits for all of its threads is as fast as the slowest,
/// so none may lose more than chance explains. Where threads take turns on CPUs, one may have been
/// measured before while none of its rivals ran, and seems to lose then: whoever did not lose when the
/// same was done `earlier` is not taken to lose now.
pub fn pays(gains: &[(ThreadId, Gain)], earlier: &[(ThreadId, Gain)]) -> bool {
    let keeps = |gain: &Gain| gain.ratio * WORTH_KEEPING >= 1.0;
    let kept = |thread| earlier.iter().any(|one| one.0 == thread && keeps(&one.1));
    mean(gains).is_some_and(|mean| mean >= WORTH_KEEPING)
        && (gains.iter()).all(|(thread, gain)| keeps(gain) || kept(*thread))
}

/// The gain of the thread that got on worst; `None` if no thread was measured.
pub fn least(gains: &[(ThreadId, Gain)]) -> Option<f64> {
    gains.iter().map(|g| g.1.ratio).min_by(f64::total_cmp)
}

/// The geometric mean of the gains: if one thread got twice as fast and another half as fast,
/// nothing was gained.
pub fn mean(gains: &[(ThreadId, Gain)]) -> Option<f64> {
    let sum: f64 = gains.iter().map(|g| g.1.ratio.ln()).sum();
    (!gains.is_empty()).then(|| (sum / gains.len() as f64).exp())
}

/// The gains in the form of results; `None` if no thread was measured.
pub fn progress(gains: &[(ThreadId, Gain)]) -> Option<Progress> {
    let threads = gains.iter().map(|(thread, gain)| ThreadProgress {
        thread: thread.0,
        before: gain.before * 1e6,
        after: gain.after * 1e6,
        clocks: gain.clocks as u32,
    });
    Some(Progress {
        gain: mean(gains)?,
        threads: threads.collect(),
    })
}

/// The gain, as a clause for people.
pub fn told(progress: &Progress) -> String {
    format!(
        "{} got on {:.2} times as fast as before{}",
        counted(progress.threads.len(), "thread"),
        progress.gain,
        spread(progress)
    )
}

/// From which to which factor the threads' gains reach, if there are several.
fn spread(progress: &Progress) -> String {
    let ratios = progress.threads.iter().map(|t| t.after / t.before);
    let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
    if ratios.len() < 2 {
        return String::new();
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    format!(" (by thread {least:.2} to {most:.2})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gains(ratios: &[f64]) -> Vec<(ThreadId, Gain)> {
        let gain = |&ratio: &f64| Gain {
            ratio,
            before: 2e-6,
            after: 2e-6 * ratio,
            clocks: 1,
        };
        let threads = (1..).map(ThreadId);
        threads.zip(ratios.iter().map(gain)).collect()
    }

    #[test]
    fn gains_are_told_with_the_threads_that_gained_least_and_most() {
        let told = |ratios: &[f64]| progress(&gains(ratios)).map(|all| told(&all));
        assert_eq!(told(&[]), None);
        let one = "1 thread got on 3.00 times as fast as before";
        assert_eq!(told(&[3.0]).as_deref(), Some(one));
        let two = "2 threads got on 2.00 times as fast as before (by thread 1.00 to 4.00)";
        assert_eq!(told(&[4.0, 1.0]).as_deref(), Some(two));
        // By the millisecond.
        let progress = progress(&gains(&[3.0])).expect("a thread");
        assert!((progress.threads[0].before - 2.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_pays_by_which_a_thread_loses() {
        let pays = |ratios: &[f64]| pays(&gains(ratios), &[]);
        assert!(pays(&[3.0, 1.0]));
        assert!(!pays(&[3.0, 0.9]));
        assert!(!pays(&[1.02, 1.03]), "that is not told from chance");
        assert!(!pays(&[]));
    }

    #[test]
    fn a_thread_loses_if_it_loses_whenever_it_is_tried() {
        let again = |now: &[f64], earlier: &[f64]| pays(&gains(now), &gains(earlier));
        assert!(again(&[3.0, 0.8], &[0.8, 2.0]));
        assert!(!again(&[3.0, 0.8], &[2.0, 0.9]));
        assert!(!again(&[3.0, 0.8], &[2.0]), "it was not measured then");
        assert!(!again(&[0.9, 0.8], &[2.0, 2.0]), "nothing is gained now");
        assert!(!again(&[], &[2.0, 2.0]));
    }
}
