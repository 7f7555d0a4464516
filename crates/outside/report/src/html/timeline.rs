//! Interleavings over time, as the paths of a small chart.

use crate::figures::{seconds, short};

const LEFT: f64 = 56.0;
const RIGHT: f64 = 392.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 105.0;

pub(super) struct Timeline {
    pub(super) label: String,
    pub(super) top: String,
    pub(super) middle: String,
    pub(super) end: String,
    /// The run in seconds, from which the script computes the ends of the part that it shows.
    pub(super) seconds: f64,
    pub(super) area: String,
    pub(super) curve: String,
}

impl Timeline {
    /// `None` if there are fewer than two slices or no interleavings.
    pub(super) fn new(slices: &[f64], run_seconds: f64) -> Option<Self> {
        let real = |v: &f64| if v.is_finite() { v.max(0.0) } else { 0.0 };
        let highest = slices.iter().map(real).fold(0.0, f64::max);
        if slices.len() < 2 || highest <= 0.0 {
            return None;
        }
        let top = nice(highest);
        let step = (RIGHT - LEFT) / (slices.len() - 1) as f64;
        let points: Vec<String> = slices
            .iter()
            .enumerate()
            .map(|(i, v)| {
                let x = LEFT + step * i as f64;
                let y = BOTTOM - (BOTTOM - TOP) * real(v) / top;
                format!("{x:.1} {y:.1}")
            })
            .collect();
        let line = points.join("L");
        Some(Self {
            label: format!(
                "Interleavings per second over {}, at most {}",
                seconds(run_seconds),
                short(highest)
            ),
            top: format!("{}/s", short(top)),
            middle: short(top / 2.0),
            end: seconds(run_seconds),
            seconds: real(&run_seconds),
            area: format!("M{LEFT} {BOTTOM}L{line}L{RIGHT} {BOTTOM}Z"),
            curve: format!("M{line}"),
        })
    }
}

/// The next number that is 1, 2 or 5 times a power of ten.
fn nice(highest: f64) -> f64 {
    let power = 10_f64.powf(highest.log10().floor());
    for factor in [1.0, 2.0, 5.0, 10.0] {
        if highest <= power * factor {
            return power * factor;
        }
    }
    highest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_spans_its_axes() {
        let chart = Timeline::new(&[0.0, 50.0, 100.0], 3.0).expect("there is something");
        assert_eq!(chart.curve, "M56.0 105.0L224.0 57.5L392.0 10.0");
        assert_eq!((chart.top.as_str(), chart.end.as_str()), ("100/s", "3.0 s"));
    }

    #[test]
    fn nothing_to_draw_draws_nothing() {
        assert!(Timeline::new(&[], 1.0).is_none());
        assert!(Timeline::new(&[5.0], 1.0).is_none());
        assert!(Timeline::new(&[0.0, f64::NAN], 1.0).is_none());
    }

    #[test]
    fn axes_end_at_round_figures() {
        for (highest, wanted) in [(1.0, 1.0), (1.1, 2.0), (4200.0, 5000.0), (99.0, 100.0)] {
            assert_eq!(nice(highest), wanted);
        }
    }
}
