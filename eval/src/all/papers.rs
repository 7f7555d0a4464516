//! The papers' numbers (`eval/papers.toml`), and ours beside them from the raw rows of a record.

use crate::measure::{median, quantile};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::Path;

/// One chart.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The name of its file.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The end of the name of the record that has our numbers.
    pub record: String,
    /// The record's column with seconds; natively they are in `native_s`.
    pub column: String,
    /// Where the paper has its numbers.
    pub paper: String,
    values: Vec<Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Value {
    program: String,
    /// How many times as fast as natively.
    value: f64,
}

#[derive(Deserialize)]
struct Papers {
    figure: Vec<Figure>,
}

/// A program's number in the paper, and ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The program.
    pub program: String,
    /// The paper's number.
    pub paper: f64,
    /// Ours: the median of the repetitions, the least and the most.
    pub median: f64,
    /// See [`Row::median`].
    pub least: f64,
    /// See [`Row::median`].
    pub most: f64,
}

/// All charts.
///
/// # Errors
/// If `eval/papers.toml` is wrong.
pub fn figures() -> Result<Vec<Figure>> {
    let papers: Papers = toml::from_str(include_str!("../../papers.toml"))?;
    Ok(papers.figure)
}

/// The programs that both the paper and the record at `raw` have.
///
/// # Errors
/// If the record can't be read.
pub fn beside(figure: &Figure, raw: &Path) -> Result<Vec<Row>> {
    let mut reader =
        csv::Reader::from_path(raw).with_context(|| format!("cannot read {}", raw.display()))?;
    let headers = reader.headers()?.clone();
    let place = |name: &str| {
        let found = headers.iter().position(|header| header == name);
        found.with_context(|| format!("{} has no column {name}", raw.display()))
    };
    let (name, native, ours) = (
        place("workload")?,
        place("native_s")?,
        place(&figure.column)?,
    );
    let mut all: Vec<(String, f64)> = Vec::new();
    for record in reader.records() {
        let record = record?;
        let number = |place: usize| record.get(place)?.parse::<f64>().ok();
        if let (Some(program), Some(native), Some(ours)) =
            (record.get(name), number(native), number(ours))
            && ours > 0.0
        {
            all.push((program.to_owned(), native / ours));
        }
    }
    let row = |value: &Value| {
        let of = all.iter().filter(|(program, _)| *program == value.program);
        let ratios: Vec<f64> = of.map(|(_, ratio)| *ratio).collect();
        (!ratios.is_empty()).then(|| Row {
            program: value.program.clone(),
            paper: value.value,
            median: median(&ratios),
            least: quantile(&ratios, 0.0),
            most: quantile(&ratios, 1.0),
        })
    };
    Ok(figure.values.iter().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_numbers_are_ratios_of_the_columns() {
        let folder = tempfile::tempdir().expect("a folder");
        let raw = folder.path().join("raw.csv");
        let text = "workload,run,native_s,remedy_s,said\n\
                    fs_mixed,0,3.0,1.0,\"moved, and put back\"\n\
                    fs_mixed,1,2.0,1.0,\n\
                    fs_mixed,2,4.0,1.0,\n\
                    bitmask,0,1.0,,none\n\
                    other,0,1.0,1.0,\n";
        std::fs::write(&raw, text).expect("written");
        let all = figures().expect("the papers' numbers");
        let figure = all.iter().find(|f| f.name == "repair").expect("the chart");
        let rows = beside(figure, &raw).expect("rows");
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(
            rows[0],
            Row {
                program: "fs_mixed".into(),
                // 18.7 s and 11 s (Plastic).
                paper: 1.7,
                median: 3.0,
                least: 2.0,
                most: 4.0,
            }
        );
        let wrong = Figure {
            column: "none".into(),
            ..figure.clone()
        };
        assert!(beside(&wrong, &raw).is_err());
    }
}
