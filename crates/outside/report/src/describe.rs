//! Sentences about findings, runs and fleets, shared by text, HTML and SARIF.

mod change;
mod evidence;
mod fleet;
mod line;
mod object;
mod run;
mod simulation;
mod verdict;

pub(crate) use change::{ChangeVerdict, change_answer, change_costs, change_kind};
pub(crate) use evidence::{evidence, private_page};
pub(crate) use fleet::{
    blind_word, build_cost, build_name, cpu_time, fleet_answer, fleet_facts, fleet_kind,
    fleet_limits, history, lost, own_cost, share, spread, step, when,
};
pub(crate) use line::{Touch, access_kind, drawn_line_size, line_position, site_place, word_name};
pub(crate) use object::{inner_field, origin, place, thread_label};
pub(crate) use run::{command, looked_at, run_facts};
pub(crate) use simulation::{TriedRow, elsewhere, placed, simulated, tried, tried_of};
pub(crate) use verdict::{
    Counts, answer, cost, false_part, gain, hidden, kind, on_smaller_lines, threads_of, whole_cost,
};
