//! What the view shows and what keys do to it. It knows neither the terminal nor how things are drawn.

use super::screen::Key;
use std::time::Duration;
use sunder_access::{LINE, Span};
use sunder_findings::{Finding, Findings, Shown};
use sunder_repair::by_hand::Standing;

/// The slices of a sparkline.
pub const SLICES: usize = 60;
/// The time that a sparkline covers.
pub const COVERED: Duration = Duration::from_secs(30);
/// The last slices, which are taken as now.
const NOW: usize = 4;

/// What was seen so far.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// The findings, and the machine that reports need.
    pub findings: Findings,
    /// Threads with the share of one CPU that each had since the last picture, the busiest first.
    pub threads: Vec<(String, f64)>,
    /// Since the observation began.
    pub elapsed: Duration,
    /// Samples.
    pub samples: u64,
}

/// By what objects are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Their cost in the last seconds.
    #[default]
    Now,
    /// Their cost since the beginning.
    Cost,
    /// Their names.
    Name,
}

/// What the keys have brought about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The user leaves the view.
    Leave,
    /// Ctrl-C.
    Interrupt,
    /// The object of this name is to be repaired.
    Repair(String),
    /// Its bytes are to go back.
    Undo(String),
}

/// What is shown in place of the objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Page {
    /// The objects.
    #[default]
    Objects,
    /// The selected finding, from this line on.
    Finding(usize),
    /// The keys.
    Help,
    /// Whether a library may be put into the program, to repair the selected object.
    Confirm,
}

/// The state of the view.
#[derive(Debug, Default)]
pub struct View {
    /// What is shown.
    pub picture: Picture,
    /// Which page.
    pub page: Page,
    /// By what objects are sorted.
    pub sort: Sort,
    /// Only objects whose names or code contain this.
    pub filter: String,
    /// Whether the filter is being typed.
    pub is_typing: bool,
    /// Whether new pictures are dropped.
    pub is_frozen: bool,
    /// How the objects stand that are repaired, by name. They are never frozen.
    pub standings: Vec<(String, Standing)>,
    /// Whether our library is in the program, so that no question is asked again.
    pub is_inside: bool,
    /// The name of the selected object; the first one if there is none of this name.
    selected: Option<String>,
}

/// The share of its threads' time, in percent, that a finding costs in the last seconds: its cost, as its
/// turns now are to its turns on average.
pub fn cost_now(finding: &Finding) -> f64 {
    let slices = &finding.timeline;
    let last = &slices[slices.len().saturating_sub(NOW)..];
    if last.is_empty() || finding.interleavings_per_second <= 0.0 {
        return 0.0;
    }
    let now = last.iter().sum::<f64>() / last.len() as f64;
    (finding.cost_percent * now / finding.interleavings_per_second).clamp(0.0, 100.0)
}

/// The name of a finding's object, cleaned.
pub fn name(finding: &Finding) -> String {
    Shown(&finding.subject()).to_string()
}

impl View {
    /// Takes a new picture.
    pub fn take(&mut self, picture: Picture) {
        if !self.is_frozen {
            self.picture = picture;
        }
    }

    /// The objects that are shown, in their order.
    pub fn objects(&self) -> Vec<&Finding> {
        let wanted = self.filter.to_lowercase();
        let holds = |text: &str| text.to_lowercase().contains(&wanted);
        let fits = |finding: &&Finding| {
            let mut code = finding.sites.iter().map(|site| site.function.as_str());
            holds(&name(finding)) || code.any(holds)
        };
        let mut all: Vec<_> = self.picture.findings.findings.iter().filter(fits).collect();
        match self.sort {
            Sort::Now => all.sort_by(|a, b| cost_now(b).total_cmp(&cost_now(a))),
            Sort::Cost => all.sort_by(|a, b| b.cost_percent.total_cmp(&a.cost_percent)),
            Sort::Name => all.sort_by_key(|finding| name(finding)),
        }
        all
    }

    /// The place of the selected object among those that are shown.
    pub fn position(&self) -> usize {
        let objects = self.objects();
        let selected = self.selected.as_ref();
        let is_it = |finding: &&Finding| Some(&name(finding)) == selected;
        objects.iter().position(is_it).unwrap_or(0)
    }

    /// How the object of this name stands, if it is repaired.
    pub fn standing(&self, name: &str) -> Option<&Standing> {
        let mut all = self.standings.iter();
        Some(&all.find(|(of, _)| of == name)?.1)
    }

    /// The name of the selected object.
    fn selected_name(&self) -> Option<String> {
        self.objects()
            .get(self.position())
            .map(|finding| name(finding))
    }

    /// The memory of the object of this name, as far as its lines were seen.
    pub fn spans(&self, object: &str) -> Vec<Span> {
        let all = self.picture.findings.findings.iter();
        let lines = all.filter(|finding| name(finding) == object);
        let lines = lines.flat_map(|finding| &finding.lines);
        lines.map(|line| Span::new(line.address, LINE)).collect()
    }

    fn select(&mut self, position: usize) {
        self.selected = self.objects().get(position).map(|finding| name(finding));
    }

    /// A key was pressed.
    pub fn press(&mut self, key: Key) -> Option<Wish> {
        if key == Key::Interrupt {
            return Some(Wish::Interrupt);
        }
        if self.is_typing {
            match key {
                Key::Char(c) => self.filter.push(c),
                Key::Back => drop(self.filter.pop()),
                Key::Enter => self.is_typing = false,
                Key::Escape => {
                    self.is_typing = false;
                    self.filter.clear();
                }
                _ => {}
            }
            return None;
        }
        match (self.page, key) {
            (Page::Confirm, Key::Char('y')) => {
                self.page = Page::Objects;
                return self.selected_name().map(Wish::Repair);
            }
            (Page::Confirm, _) => self.page = Page::Objects,
            (_, Key::Char('q')) => return Some(Wish::Leave),
            (Page::Objects, Key::Char('r')) if !self.objects().is_empty() => {
                // The question, and what comes of it, are about this object in any order.
                self.select(self.position());
                if self.is_inside {
                    return self.selected_name().map(Wish::Repair);
                }
                self.page = Page::Confirm;
            }
            (Page::Objects, Key::Char('u')) => {
                let known = self.selected_name();
                return known
                    .filter(|name| self.standing(name).is_some())
                    .map(Wish::Undo);
            }
            (Page::Objects, Key::Up | Key::Char('k')) => {
                self.select(self.position().saturating_sub(1));
            }
            (Page::Objects, Key::Down | Key::Char('j')) => {
                let last = self.objects().len().saturating_sub(1);
                self.select((self.position() + 1).min(last));
            }
            (Page::Objects, Key::Char('s')) => {
                // The selected object stays selected in the new order.
                self.select(self.position());
                self.sort = match self.sort {
                    Sort::Now => Sort::Cost,
                    Sort::Cost => Sort::Name,
                    Sort::Name => Sort::Now,
                };
            }
            (Page::Objects, Key::Char('/')) => self.is_typing = true,
            (Page::Objects, Key::Escape) => self.filter.clear(),
            (_, Key::Char(' ')) => self.is_frozen = !self.is_frozen,
            (Page::Objects, Key::Enter) if !self.objects().is_empty() => {
                self.select(self.position());
                self.page = Page::Finding(0);
            }
            (Page::Objects | Page::Finding(_), Key::Char('?')) => self.page = Page::Help,
            (Page::Finding(from), Key::Down | Key::Char('j')) => {
                self.page = Page::Finding(from + 1);
            }
            (Page::Finding(from), Key::Up | Key::Char('k')) => {
                self.page = Page::Finding(from.saturating_sub(1));
            }
            (Page::Finding(_) | Page::Help, _) => self.page = Page::Objects,
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::examples;

    fn view() -> View {
        let mut view = View::default();
        let findings = Findings {
            findings: vec![
                examples::linear_regression(),
                examples::global_array(),
                examples::mixed(),
            ],
            ..Findings::default()
        };
        view.take(Picture {
            findings,
            ..Picture::default()
        });
        view
    }

    fn names(view: &View) -> Vec<String> {
        view.objects().into_iter().map(name).collect()
    }

    #[test]
    fn the_cost_now_follows_the_turns_of_the_last_seconds() {
        let mut finding = examples::global_array();
        finding.cost_percent = 20.0;
        finding.interleavings_per_second = 100.0;
        finding.timeline = vec![0.0; SLICES];
        assert!(cost_now(&finding) < 1e-9);
        finding.timeline[SLICES - NOW..].fill(50.0);
        assert!((cost_now(&finding) - 10.0).abs() < 1e-9);
        finding.timeline[SLICES - NOW..].fill(1e9);
        assert!((cost_now(&finding) - 100.0).abs() < 1e-9);
        finding.timeline.clear();
        assert!(cost_now(&finding) < 1e-9);
    }

    #[test]
    fn the_selection_stays_with_its_object_when_the_order_changes() {
        let mut view = view();
        view.sort = Sort::Cost;
        view.press(Key::Down);
        let selected = names(&view)[view.position()].clone();
        assert_eq!(view.position(), 1);
        view.press(Key::Char('s'));
        assert_eq!(view.sort, Sort::Name);
        assert_eq!(names(&view)[view.position()], selected);
        let mut sorted = names(&view);
        sorted.sort();
        assert_eq!(names(&view), sorted);
        for _ in 0..9 {
            view.press(Key::Down);
        }
        assert_eq!(view.position(), 2);
    }

    #[test]
    fn a_filter_is_typed_kept_and_taken_away() {
        let mut view = view();
        for key in [
            Key::Char('/'),
            Key::Char('C'),
            Key::Char('o'),
            Key::Char('q'),
            Key::Back,
        ] {
            assert_eq!(view.press(key), None);
        }
        view.press(Key::Char('u'));
        view.press(Key::Enter);
        assert_eq!(names(&view).len(), 1, "{:?}", names(&view));
        view.press(Key::Escape);
        assert_eq!(names(&view).len(), 3);
        assert_eq!(view.press(Key::Char('q')), Some(Wish::Leave));
    }

    #[test]
    fn a_repair_is_confirmed_once_and_undone_where_there_is_one() {
        let mut view = view();
        view.sort = Sort::Name;
        let first = names(&view)[0].clone();
        assert_eq!(view.press(Key::Char('u')), None);
        for other in [Key::Enter, Key::Escape, Key::Char('q'), Key::Char('n')] {
            assert_eq!(view.press(Key::Char('r')), None);
            assert_eq!(view.page, Page::Confirm);
            assert_eq!(view.press(other), None);
            assert_eq!(view.page, Page::Objects);
        }
        view.press(Key::Char('r'));
        assert_eq!(
            view.press(Key::Char('y')),
            Some(Wish::Repair(first.clone()))
        );
        assert!(!view.spans(&first).is_empty());
        view.standings = vec![(first.clone(), Standing::Waits)];
        view.is_inside = true;
        assert_eq!(view.press(Key::Char('u')), Some(Wish::Undo(first)));
        view.press(Key::Down);
        assert_eq!(view.press(Key::Char('u')), None);
        let second = names(&view)[1].clone();
        assert_eq!(view.press(Key::Char('r')), Some(Wish::Repair(second)));
    }

    #[test]
    fn what_is_frozen_stays() {
        let mut view = view();
        view.press(Key::Char(' '));
        view.take(Picture::default());
        assert_eq!(view.objects().len(), 3);
        view.press(Key::Char(' '));
        view.take(Picture::default());
        assert!(view.objects().is_empty());
        // Nothing can be opened, and nothing goes wrong.
        view.press(Key::Enter);
        view.press(Key::Down);
        assert_eq!((view.page, view.position()), (Page::Objects, 0));
    }
}
