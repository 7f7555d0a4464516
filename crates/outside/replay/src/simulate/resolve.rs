//! Makes a layout from what the command line asks for: finds the blocks and variables that
//! names of call sites, types, fields and variables stand for. A name that is not known is
//! refused in one sentence, with the nearest known names.

mod alignment;
mod names;
mod typed;

pub use names::plain_type;

use super::changes::{Changes, LEAST_LINE};
use super::layout::{Layout, Origin};
use super::mappings::mappings;
use crate::options::{PlacementAsked, Simulate};
use alignment::{Requested, requested_alignment};
use anyhow::{bail, ensure};
use names::{as_shown, is_called, is_name, labels_of, nearest};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use sunder_access::{CodeAddress, Span};
use sunder_objects::{CodeFrame, HeapBlock, NameOptions, Names, ObjectContext, ObjectName};
use sunder_pipeline::Shape;
use sunder_placement::CallSite;
use sunder_trace::read::{Filter, Kinds, Trace, What};
use typed::{At, Typed, take_static};

/// The layout that `options` ask for.
///
/// # Errors
/// If a name is not known in this trace.
pub fn resolve(options: &Simulate, trace: &Trace) -> anyhow::Result<Layout> {
    let changes = Changes {
        placement: options.placement.clone(),
        pad: options.pad.clone(),
        align: options.align.clone(),
    };
    if changes.is_actual() {
        return Ok(Layout::default());
    }
    Program::read(trace).layout(&changes, options.granule)
}

/// The largest element that is searched for a field, byte by byte.
const LARGEST_ELEMENT: u64 = 1 << 16;

fn align_blocks(layout: &mut Layout, program: &Program<'_>, stacks: &BTreeSet<u32>, to: u64) {
    let requests = program.requests.keys();
    for &(stack, size) in requests.filter(|(stack, _)| stacks.contains(stack)) {
        let known = layout.blocks.remove(&(stack, size));
        let shape = known.map_or_else(
            || Shape::aligned(to),
            |known| Shape::clone(&known).with_align(to),
        );
        layout.blocks.insert((stack, size), Arc::new(shape));
    }
}

/// A trace's allocations, and the names in its program.
pub struct Program<'t> {
    trace: &'t Trace,
    names: Names,
    requests: BTreeMap<(u32, u64), Requested>,
    /// Whether a return address lies in `operator new`.
    new: HashMap<CodeAddress, bool>,
    variables: Option<Vec<ObjectName>>,
    origins: Option<Arc<HashMap<u32, Origin>>>,
}

impl<'t> Program<'t> {
    /// Reads the allocations of `trace`.
    pub fn read(trace: &'t Trace) -> Self {
        let mut names = Names::new(NameOptions::default());
        names.set_mappings(mappings(trace));
        let filter = Filter {
            kinds: Kinds::HEAP,
            ..Filter::default()
        };
        let mut requests: BTreeMap<(u32, u64), Requested> = BTreeMap::new();
        for event in trace.events(filter) {
            if let What::Allocate {
                address,
                size,
                stack,
                align,
            } = event.what
            {
                let known = requests.entry((stack, size)).or_default();
                if align.is_none() {
                    known.blocks += 1;
                    known.addresses |= address.0;
                }
            }
        }
        Self {
            trace,
            names,
            requests,
            new: HashMap::new(),
            variables: None,
            origins: None,
        }
    }

    /// Whether the trace has allocations.
    pub fn has_blocks(&self) -> bool {
        !self.requests.is_empty()
    }

    /// The layout that `changes` stand for, with granules of `granule` bytes.
    ///
    /// # Errors
    /// If a name is not known in this trace.
    pub fn layout(&mut self, changes: &Changes, granule: u64) -> anyhow::Result<Layout> {
        let line = granule.max(LEAST_LINE);
        let origins = match &self.origins {
            Some(known) => Arc::clone(known),
            None => {
                let new = Arc::new(self.origins());
                Arc::clone(self.origins.insert(new))
            }
        };
        let mut layout = Layout {
            origins,
            ..Layout::default()
        };
        match &changes.placement {
            PlacementAsked::Actual => {}
            PlacementAsked::Policy(policy) => layout.policy = Some(*policy),
            PlacementAsked::Padded(sites) => {
                for site in sites {
                    let stacks = self.site(site)?;
                    layout.changes.push(format!("padded:{site}"));
                    align_blocks(&mut layout, self, &stacks, line);
                }
            }
        }
        for pad in &changes.pad {
            match pad.strip_suffix("[]") {
                Some(object) => self.pad_elements(&mut layout, object.trim(), line)?,
                None => self.pad(&mut layout, pad, line)?,
            }
            layout.changes.push(format!("pad {pad}"));
        }
        for (object, bytes) in &changes.align {
            self.align(&mut layout, object, *bytes)?;
            layout.changes.push(format!("align {object}={bytes}"));
        }
        Ok(layout)
    }

    /// The blocks, by call stack and size, to which a finding's `object` belongs.
    pub fn blocks_of(&mut self, object: &sunder_findings::Object) -> Vec<(u32, u64)> {
        let Some(size) = object.size else {
            return Vec::new();
        };
        let stacks: Vec<u32> = self
            .requests
            .keys()
            .filter(|&&(_, of)| of.max(1) == size.max(1))
            .map(|&(stack, _)| stack)
            .collect();
        let mut found = Vec::new();
        for stack in stacks {
            let block = HeapBlock {
                span: Span::new(object.address, size.max(1)),
                allocation: self.trace.stack(stack).unwrap_or_default().to_vec(),
                thread: None,
                freed: false,
            };
            let context = ObjectContext {
                heap: Some(block),
                ..ObjectContext::default()
            };
            let named = self.names.object_at(object.address, &context);
            let frames = named.allocation.iter().map(as_shown);
            let wanted = object
                .allocation
                .iter()
                .map(|f| (&f.function, &f.file, f.line, f.offset));
            let same = frames
                .collect::<Vec<_>>()
                .iter()
                .map(|f| (&f.function, &f.file, f.line, f.offset))
                .eq(wanted);
            if same {
                let known = self.requests.keys();
                let sizes = known.filter(|&&(s, of)| s == stack && of.max(1) == size.max(1));
                found.extend(sizes);
            }
        }
        found
    }

    /// The call site and the requested alignment of each call stack's blocks.
    pub fn origins(&mut self) -> HashMap<u32, Origin> {
        let stacks: BTreeSet<u32> = self.requests.keys().map(|&(stack, _)| stack).collect();
        let mut sites: HashMap<u32, CallSite> = HashMap::new();
        let mut requested: HashMap<CallSite, Requested> = HashMap::new();
        for &stack in &stacks {
            let ret = self.caller(stack);
            sites.insert(stack, CallSite(ret.map_or(0, |ret| ret.0)));
        }
        for (&(stack, _), seen) in &self.requests {
            let site = sites.get(&stack).copied().unwrap_or_default();
            let all = requested.entry(site).or_default();
            all.blocks += seen.blocks;
            all.addresses |= seen.addresses;
        }
        let origin = |(stack, site): (u32, CallSite)| {
            let all = requested.get(&site).copied().unwrap_or_default();
            let align = requested_alignment(all);
            (stack, Origin { site, align })
        };
        sites.into_iter().map(origin).collect()
    }

    /// The return address of the innermost call of `stack` that is not in `operator new`.
    fn caller(&mut self, stack: u32) -> Option<CodeAddress> {
        let frames = self.trace.stack(stack)?;
        let found = frames.iter().find(|&&ret| !self.is_new(ret));
        found.or(frames.first()).copied()
    }

    fn is_new(&mut self, ret: CodeAddress) -> bool {
        if let Some(&known) = self.new.get(&ret) {
            return known;
        }
        let frames = self.names.frames_of_return(ret);
        let outermost = frames.last().map_or("", |f| f.function.as_str());
        let new = outermost.starts_with("operator new");
        self.new.insert(ret, new);
        new
    }

    /// The call stacks that `site` names. It is a function, `file:line`, or the offset of a
    /// return address; of the call itself, or of the frame that reports show.
    pub fn site(&mut self, site: &str) -> anyhow::Result<BTreeSet<u32>> {
        let stacks: BTreeSet<u32> = self.requests.keys().map(|&(stack, _)| stack).collect();
        ensure!(
            !stacks.is_empty(),
            "the trace has no allocations, so '{site}' is no call site of it"
        );
        let mut found = BTreeSet::new();
        let mut labels = BTreeSet::new();
        for stack in stacks {
            let frames = self.places(stack);
            if frames.iter().any(|frame| is_called(frame, site)) {
                found.insert(stack);
            }
            labels.extend(frames.iter().flat_map(labels_of));
        }
        if found.is_empty() {
            bail!(
                "nothing was allocated at '{site}'; {}",
                nearest(site, &labels, "call site")
            );
        }
        Ok(found)
    }

    /// The frames that may name the call site of `stack`: the innermost that is not `operator
    /// new`, and the one that reports show.
    fn places(&mut self, stack: u32) -> Vec<CodeFrame> {
        let Some(caller) = self.caller(stack) else {
            return Vec::new();
        };
        let mut places = self.names.frames_of_return(caller);
        let frames = self.trace.stack(stack).unwrap_or_default();
        for &ret in frames.iter().take(DEEPEST) {
            let own = |frame: &CodeFrame| !as_shown(frame).is_library() && frame.file.is_some();
            let inlined = self.names.frames_of_return(ret);
            if let Some(frame) = inlined.into_iter().find(own) {
                if !places.contains(&frame) {
                    places.push(frame);
                }
                break;
            }
        }
        places
    }

    fn variables(&mut self) -> &[ObjectName] {
        let names = &mut self.names;
        self.variables.get_or_insert_with(|| names.variables())
    }

    /// Carries out `--align OBJECT=BYTES`.
    fn align(&mut self, layout: &mut Layout, object: &str, bytes: u64) -> anyhow::Result<()> {
        let named = |v: &ObjectName| v.name.as_deref().is_some_and(|n| is_name(n, object));
        let variables: Vec<Span> = self
            .variables()
            .iter()
            .filter(|v| named(v))
            .filter_map(ObjectName::span)
            .collect();
        if !variables.is_empty() {
            for span in variables {
                let shape = take_static(layout, span);
                let shape = shape.map_or_else(|| Shape::aligned(bytes), |s| s.with_align(bytes));
                layout.statics.push((span, Arc::new(shape)));
            }
            return Ok(());
        }
        match self.site(object) {
            Ok(stacks) => {
                align_blocks(layout, self, &stacks, bytes);
                Ok(())
            }
            Err(_) => {
                let mut labels: BTreeSet<String> = self
                    .variables()
                    .iter()
                    .filter_map(|v| v.name.clone())
                    .collect();
                let stacks: BTreeSet<u32> = self.requests.keys().map(|&(s, _)| s).collect();
                for stack in stacks {
                    labels.extend(self.places(stack).iter().flat_map(labels_of));
                }
                bail!(
                    "'{object}' is neither a global nor a call site of the program; {}",
                    nearest(object, &labels, "variable or call site")
                );
            }
        }
    }

    /// Carries out `--pad OBJECT[]`: pads each element of a global, or of the blocks of a call
    /// site.
    fn pad_elements(&mut self, layout: &mut Layout, object: &str, line: u64) -> anyhow::Result<()> {
        let typed = self.typed();
        let named = |v: &ObjectName| v.name.as_deref().is_some_and(|n| is_name(n, object));
        let is_global = |t: &&Typed| matches!(&t.at, At::Variable(v, _) if named(v));
        let mut chosen: Vec<&Typed> = typed.iter().filter(is_global).collect();
        if chosen.is_empty() {
            let stacks = match self.site(object) {
                Ok(stacks) => stacks,
                // This error lists the names that there are.
                Err(_) => return self.align(layout, object, line),
            };
            let of_site =
                |t: &&Typed| matches!(t.at, At::Block(stack, ..) if stacks.contains(&stack));
            chosen = typed.iter().filter(of_site).collect();
        }
        ensure!(
            !chosen.is_empty(),
            "nothing is known of the elements of '{object}'; was the program built with -g?"
        );
        for one in chosen {
            one.change(layout, None, line);
        }
        Ok(())
    }

    /// Carries out `--pad TYPE.FIELD`, or `--pad TYPE` for each object of the type as a whole.
    fn pad(&mut self, layout: &mut Layout, pad: &str, line: u64) -> anyhow::Result<()> {
        let (wanted, field) = match pad.split_once('.') {
            Some((of, field)) => (of.trim(), Some(field.trim())),
            None => (pad.trim(), None),
        };
        let mut types = BTreeSet::new();
        let mut fields = BTreeSet::new();
        let mut found = false;
        for typed in self.typed() {
            let name = plain_type(&typed.type_name);
            types.insert(name.to_owned());
            if !is_name(name, plain_type(wanted)) {
                continue;
            }
            let extent = match field {
                None => Some(None),
                Some(field) => {
                    let (extent, seen) = self.field(&typed, field);
                    fields.extend(seen);
                    extent.map(Some)
                }
            };
            let Some(extent) = extent else { continue };
            found = true;
            typed.change(layout, extent, line);
        }
        if found {
            return Ok(());
        }
        match field {
            Some(field) if !fields.is_empty() => bail!(
                "'{wanted}' has no field '{field}'; {}",
                nearest(field, &fields, "field")
            ),
            _ if types.is_empty() => bail!(
                "no object of the trace has a known type, so there is no '{pad}': the program was \
                 built without -g"
            ),
            _ => bail!(
                "no global and no heap block has the type '{wanted}'; {}",
                nearest(wanted, &types, "type")
            ),
        }
    }

    /// Variables and blocks whose type is known.
    fn typed(&mut self) -> Vec<Typed> {
        let mut all: Vec<Typed> = Vec::new();
        for object in self.variables() {
            if let (Some(type_name), Some(span)) = (object.type_name.clone(), object.span()) {
                all.push(Typed {
                    element: object.element_size.unwrap_or(span.len),
                    type_name,
                    at: At::Variable(object.clone(), span),
                });
            }
        }
        let requests: Vec<(u32, u64)> = self.requests.keys().copied().collect();
        for (stack, size) in requests {
            let frames = self.trace.stack(stack).unwrap_or_default();
            let Some(handle) = self.names.allocated_type(frames, size) else {
                continue;
            };
            let (Some(type_name), Some(element)) =
                (self.names.type_name(handle), self.names.type_size(handle))
            else {
                continue;
            };
            all.push(Typed {
                type_name,
                element,
                at: At::Block(stack, size, handle),
            });
        }
        all
    }

    /// The bytes of `field` in an element of `typed`, and the names of all its fields.
    fn field(&mut self, typed: &Typed, field: &str) -> (Option<Range<u64>>, BTreeSet<String>) {
        let mut found: Option<Range<u64>> = None;
        let mut seen = BTreeSet::new();
        for offset in 0..typed.element.min(LARGEST_ELEMENT) {
            let Some(path) = typed.path(&mut self.names, offset) else {
                continue;
            };
            let inside = path.trim_start_matches('.');
            let top = inside.split(['.', '[', ' ']).next().unwrap_or_default();
            if !top.is_empty() && !top.starts_with(['<', '{', '+']) {
                seen.insert(top.to_owned());
            }
            let rest = inside.strip_prefix(field);
            if rest.is_some_and(|r| r.is_empty() || r.starts_with(['.', '[', ' '])) {
                let start = found.as_ref().map_or(offset, |f| f.start);
                found = Some(start..offset + 1);
            }
        }
        (found, seen)
    }
}

/// The most frames that are searched for the one that reports show.
const DEEPEST: usize = 16;
