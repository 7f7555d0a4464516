//! The reports of whole findings, one file for each form of report.

mod browser;
mod documentation;
mod fleet;
mod gain;
mod html;
mod lsp;
mod odd_values;
mod pictures;
mod sarif;
mod text;
mod what_if;
