//! Bars: a paper's number and ours for each program, with the range of ours.

use super::papers::{Figure, Row};
use anyhow::{Result, anyhow};
use plotters::prelude::*;
use std::path::Path;

/// The height of a program's two bars, and of the rest, in pixels.
const EACH: u32 = 48;
const REST: u32 = 90;
const WIDTH: u32 = 720;

const PAPER: RGBColor = RGBColor(0xb0, 0xb8, 0xc0);
const OURS: RGBColor = RGBColor(0x1f, 0x6f, 0xb4);

/// Draws the chart into `file`.
///
/// # Errors
/// If it can't be written.
pub fn draw(file: &Path, figure: &Figure, rows: &[Row]) -> Result<()> {
    let count = u32::try_from(rows.len())?;
    let area = SVGBackend::new(file, (WIDTH, REST + EACH * count)).into_drawing_area();
    let wrong = |error: String| anyhow!("cannot draw {}: {error}", file.display());
    area.fill(&WHITE).map_err(|e| wrong(e.to_string()))?;
    let most = rows.iter().map(|row| row.paper.max(row.most));
    let most = most.fold(1.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(&area)
        .caption(&figure.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(150)
        .build_cartesian_2d(0.0..most, 0.0..f64::from(count))
        .map_err(|e| wrong(e.to_string()))?;
    // The first program is at the top.
    let name = |at: f64| {
        let place = (f64::from(count) - at).floor();
        let row = rows.get(place.max(0.0) as usize);
        row.map_or_else(String::new, |row| row.program.clone())
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .draw()
        .map_err(|e| wrong(e.to_string()))?;
    let bars = |offset: f64, color: RGBColor, of: fn(&Row) -> f64| {
        rows.iter().enumerate().map(move |(i, row)| {
            let top = f64::from(count) - i as f64 - offset;
            Rectangle::new([(0.0, top), (of(row), top - 0.35)], color.filled())
        })
    };
    chart
        .draw_series(bars(0.12, PAPER, |row| row.paper))
        .map_err(|e| wrong(e.to_string()))?
        .label(figure.paper.as_str())
        .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], PAPER.filled()));
    chart
        .draw_series(bars(0.5, OURS, |row| row.median))
        .map_err(|e| wrong(e.to_string()))?
        .label("here, median and range")
        .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], OURS.filled()));
    let middle = |i: usize| f64::from(count) - i as f64 - 0.675;
    let ranges = rows
        .iter()
        .enumerate()
        .map(|(i, row)| PathElement::new([(row.least, middle(i)), (row.most, middle(i))], BLACK));
    chart
        .draw_series(ranges)
        .map_err(|e| wrong(e.to_string()))?;
    // Names beside the bars: a label of the axis would stand on their border.
    for i in 0..rows.len() {
        let at = f64::from(count) - i as f64 - 0.5;
        let (x, y) = chart.backend_coord(&(0.0, at));
        let text = Text::new(name(at), (x - 140, y - 8), ("sans-serif", 14));
        area.draw(&text).map_err(|e| wrong(e.to_string()))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()
        .map_err(|e| wrong(e.to_string()))?;
    area.present().map_err(|e| wrong(e.to_string()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all::papers::figures;

    #[test]
    fn a_chart_names_its_programs_and_sources() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("chart.svg");
        let figure = figures().expect("figures").remove(0);
        let row = |program: &str, paper: f64, median: f64| Row {
            program: program.into(),
            paper,
            median,
            least: median * 0.9,
            most: median * 1.2,
        };
        let rows = [
            row("linear_regression", 9.18, 3.1),
            row("word_count", 1.01, 1.0),
        ];
        draw(&file, &figure, &rows).expect("drawn");
        let text = std::fs::read_to_string(&file).expect("a chart");
        for part in [
            "<svg",
            "linear_regression",
            "word_count",
            "SHERIFF, Table 3",
        ] {
            assert!(text.contains(part), "{part} is not in it");
        }
        if let Some(kept) = std::env::var_os("SUNDER_KEEP_CHART") {
            std::fs::copy(&file, kept).expect("copied");
        }
    }
}
