//! Carries the advice for one finding out in C or C++: from the shape of what threads use to the
//! changes of the source, the best first. Called by the crate's root.

use crate::c::allocations::{self, Wanted};
use crate::c::names::{element_type, is_foreign};
use crate::c::spelling::Spelling;
use crate::c::types::{self, TypeDefinition};
use crate::c::{heap, prescribed, spread, variables, wrapped};
use crate::edit::Edits;
use crate::error::{Unsure, unsure};
use crate::shape::{self, Shape};
use crate::sources::Sources;
use crate::way::Way;
use std::collections::BTreeSet;
use std::path::PathBuf;
use sunder_findings::{Finding, Object, ObjectKind};

/// What is needed for each change.
pub(crate) struct Carry<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) finding: &'a Finding,
    pub(crate) line: u32,
    pub(crate) spelling: Spelling,
}

impl Carry<'_> {
    /// All changes that are certain, the best first; or why there is none.
    pub(crate) fn ways(&self) -> Result<Vec<Way>, Unsure> {
        let shape = Shape::of(self.finding, self.line);
        let tried = match &shape {
            Shape::Neighbours => vec![self.neighbours()],
            Shape::Elements { path } => self.elements(path),
            Shape::Members { path, breaks, ends } => vec![self.members(path, breaks, ends)],
            Shape::Slices => unsure!(
                "each thread works on a run of elements, and how the program divides the array is not seen in its layout"
            ),
            Shape::Other(why) => unsure!("{why}"),
        };
        let mut ways = Vec::new();
        let mut why = None;
        for one in tried {
            match one {
                Ok(way) => ways.push(way),
                // The last way asks for least.
                Err(reason) => why = Some(reason),
            }
        }
        match why {
            Some(why) if ways.is_empty() => Err(why),
            _ => Ok(ways),
        }
    }

    /// The file from which the object's type is seen.
    fn near(&self) -> Option<PathBuf> {
        let object = &self.finding.object;
        let declared = object.declared.iter().map(|d| d.file.as_str());
        let frames = object.allocation.iter().filter(|f| !f.is_library());
        let frames = frames.filter_map(|f| f.file.as_deref());
        let sites = self.finding.sites.iter().filter_map(|s| s.file.as_deref());
        let mut all = declared.chain(frames).chain(sites);
        all.find_map(|file| self.sources.locate(file).ok())
    }

    /// The type of the object's elements, or of the record at `path` in it.
    fn record(
        &self,
        path: &[String],
        members: &BTreeSet<String>,
    ) -> Result<TypeDefinition, Unsure> {
        let object = &self.finding.object;
        let Some(whole) = object.type_name.as_deref() else {
            unsure!("the type of {} is not known", object.short_name());
        };
        let Some(mut name) = element_type(whole) else {
            unsure!("`{whole}` is not a type of yours");
        };
        let near = self.near();
        let all = shape::members(self.finding);
        let mut definition = None;
        for step in path {
            let outer = types::find(self.sources, near.as_deref(), &name, &all)?;
            let Some(member) = outer.members.iter().find(|m| m.name == *step) else {
                unsure!("`{name}` at {} has no member `{step}`", outer.place());
            };
            if member.is_anonymous_record {
                unsure!("`{name}.{step}` is a record without a name");
            }
            let Some(inner) = element_type(&member.type_text) else {
                unsure!(
                    "`{name}.{step}` is of the type `{}`, which is not yours",
                    member.type_text
                );
            };
            name = inner;
            definition = Some(outer);
        }
        drop(definition);
        let found = types::find(self.sources, near.as_deref(), &name, members)?;
        prescribed::check(self.sources, &found, object.name.as_deref())?;
        Ok(found)
    }

    /// Two objects on one line: each begins a line of its own.
    fn neighbours(&self) -> Result<Way, Unsure> {
        let mut edits = Edits::default();
        let mut notes = Vec::new();
        let mut names = Vec::new();
        let objects = std::iter::once(&self.finding.object).chain(&self.finding.neighbour);
        for object in objects {
            notes.extend(self.own_lines(object, &mut edits)?);
            let name = format!("`{}`", object.short_name());
            if !names.contains(&name) {
                names.push(name);
            }
        }
        notes.dedup();
        Ok(Way {
            what: format!("{} begin lines of their own", names.join(" and ")),
            edits,
            notes,
            grows_by: self.finding.advice.first().and_then(|a| a.grows_by),
        })
    }

    /// Lets one object begin a line.
    fn own_lines(&self, object: &Object, edits: &mut Edits) -> Result<Vec<String>, Unsure> {
        let wanted = Wanted {
            line: self.line,
            type_is_aligned: false,
        };
        match object.kind {
            ObjectKind::Heap if by_new(object) => {
                let Some(name) = object.type_name.as_deref().and_then(element_type) else {
                    unsure!("the block comes from `new`, and its type is not yours to align");
                };
                let found = types::find(
                    self.sources,
                    self.near().as_deref(),
                    &name,
                    &BTreeSet::new(),
                )?;
                prescribed::check(self.sources, &found, None)?;
                found.align(self.spelling, self.line, edits);
                heap::align_all(self.sources, &found.name, self.line, edits)?;
                allocations::align(
                    self.sources,
                    object,
                    Wanted {
                        type_is_aligned: true,
                        ..wanted
                    },
                    edits,
                )
            }
            ObjectKind::Heap => allocations::align(self.sources, object, wanted, edits),
            ObjectKind::Global | ObjectKind::Tls | ObjectKind::Stack => {
                let variable = variables::find(self.sources, object)?;
                variable.align(self.spelling, self.line, edits);
                Ok(Vec::new())
            }
            kind => unsure!("a {} has no declaration", kind.words()),
        }
    }

    /// Each element of an array has lines of its own.
    fn elements(&self, path: &[String]) -> Vec<Result<Way, Unsure>> {
        let object = &self.finding.object;
        let whole = path.is_empty()
            && object
                .element_size
                .is_some_and(|size| size > 0 && size % u64::from(self.line) == 0);
        let mut all = Vec::new();
        if whole {
            all.push(self.start());
        }
        let foreign = object
            .type_name
            .as_deref()
            .is_some_and(|name| element_type(name).is_none() && is_foreign(name));
        if path.is_empty() && foreign {
            if object.kind != ObjectKind::Heap {
                all.push(self.wrapped());
            }
            all.push(self.spread());
        } else {
            all.push(self.aligned(path));
        }
        all
    }

    /// Elements of whole lines: only the array's start is wrong.
    fn start(&self) -> Result<Way, Unsure> {
        let object = &self.finding.object;
        let mut edits = Edits::default();
        let notes = self.own_lines(object, &mut edits)?;
        Ok(Way {
            what: format!(
                "`{}`, whose elements are whole lines, begins a line",
                object.short_name()
            ),
            edits,
            notes,
            grows_by: Some(u64::from(self.line).saturating_sub(16)),
        })
    }

    fn aligned(&self, path: &[String]) -> Result<Way, Unsure> {
        let definition = self.record(path, &shape::members(self.finding))?;
        let mut edits = Edits::default();
        definition.align(self.spelling, self.line, &mut edits);
        let notes = self.storage(&definition, &mut edits)?;
        let object = &self.finding.object;
        let padded = object
            .element_size
            .map(|s| s.next_multiple_of(u64::from(self.line)) - s);
        let count = object
            .element_size
            .zip(object.size)
            .map(|(e, s)| s / e.max(1));
        Ok(Way {
            what: format!("each `{}` has lines of its own", definition.name),
            edits,
            notes,
            grows_by: padded.zip(count).map(|(p, n)| p.saturating_mul(n)),
        })
    }

    fn wrapped(&self) -> Result<Way, Unsure> {
        let object = &self.finding.object;
        let variable = variables::find(self.sources, object)?;
        let mut edits = Edits::default();
        wrapped::wrap(
            self.sources,
            &variable,
            self.spelling,
            self.line,
            &mut edits,
        )?;
        Ok(Way {
            what: format!(
                "each element of `{}` becomes an aligned struct",
                variable.name
            ),
            edits,
            notes: Vec::new(),
            grows_by: self.finding.advice.first().and_then(|a| a.grows_by),
        })
    }

    fn spread(&self) -> Result<Way, Unsure> {
        let object = &self.finding.object;
        let mut edits = Edits::default();
        let done = spread::spread(self.sources, object, self.spelling, self.line, &mut edits)?;
        Ok(Way {
            what: format!(
                "the elements of `{}` lie {} places apart, each on lines of its own",
                done.name, done.apart
            ),
            edits,
            notes: done.notes,
            grows_by: object.size.map(|size| size.saturating_mul(done.apart - 1)),
        })
    }

    /// Members of different threads lie on different lines.
    fn members(
        &self,
        path: &[String],
        breaks: &[String],
        [first, last]: &[Option<String>; 2],
    ) -> Result<Way, Unsure> {
        let wanted: BTreeSet<String> = breaks.iter().cloned().collect();
        let definition = self.record(path, &wanted)?;
        let mut breaks = breaks.to_vec();
        // What is on other lines now stays there.
        if let Some(first) = first
            && definition.can_be_parted_before(first)
        {
            breaks.insert(0, first.clone());
        }
        let behind = last.as_deref().and_then(|last| definition.behind(last));
        breaks.extend(behind.map(|member| member.name.clone()));
        let mut edits = Edits::default();
        for member in &breaks {
            definition.break_before(member, self.spelling, self.line, &mut edits)?;
        }
        let notes = self.storage(&definition, &mut edits)?;
        let quoted: Vec<String> = breaks.iter().map(|b| format!("`{b}`")).collect();
        Ok(Way {
            what: format!(
                "a line begins before {} of `{}`",
                quoted.join(" and "),
                definition.name
            ),
            edits,
            notes,
            // The advice counts with members in another order, by which several breaks take less than here.
            grows_by: self
                .finding
                .advice
                .first()
                .and_then(|a| a.grows_by)
                .filter(|_| breaks.len() == 1),
        })
    }

    /// The memory of a type that is aligned now: blocks of C's allocators know nothing of it.
    fn storage(
        &self,
        definition: &TypeDefinition,
        edits: &mut Edits,
    ) -> Result<Vec<String>, Unsure> {
        let object = &self.finding.object;
        let mut notes = Vec::new();
        if object.kind == ObjectKind::Heap {
            let wanted = Wanted {
                line: self.line,
                type_is_aligned: true,
            };
            notes = allocations::align(self.sources, object, wanted, edits)?;
        }
        if let Some(vector) = object
            .type_name
            .as_deref()
            .filter(|t| t.starts_with("std::vector"))
        {
            notes.push(format!(
                "`{}` of an aligned type needs C++17",
                short(vector)
            ));
        }
        heap::align_all(self.sources, &definition.name, self.line, edits)?;
        Ok(notes)
    }
}

fn by_new(object: &Object) -> bool {
    object
        .allocation
        .iter()
        .any(|f| f.function.starts_with("operator new"))
}

fn short(name: &str) -> &str {
    name.split('<').next().unwrap_or(name)
}
