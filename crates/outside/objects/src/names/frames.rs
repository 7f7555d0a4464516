//! Functions and lines of an instruction, inlined functions included.

use super::placed::is_c_library;
use super::process::Names;
use crate::answer::CodeFrame;
use crate::dwarf::RawFrame;
use crate::fold;
use crate::module::Debug;
use sunder_access::{Address, CodeAddress};

impl Names {
    /// The functions at the instruction `code`, innermost first, inlined ones included. Never
    /// empty.
    pub fn frames(&mut self, code: CodeAddress) -> Vec<CodeFrame> {
        let code = self.original(code);
        self.frames_at(code, code)
    }

    /// The functions at the call that returns to `ret`. For the frames of a call stack: a return
    /// address may already belong to the next line, or even to the next function.
    pub fn frames_of_return(&mut self, ret: CodeAddress) -> Vec<CodeFrame> {
        self.frames_at(ret.offset(-1), ret)
    }

    fn frames_at(&mut self, code: CodeAddress, shown: CodeAddress) -> Vec<CodeFrame> {
        let Some(placed) = self.place(Address(code.0)) else {
            return vec![self.unplaced_frame(code, shown)];
        };
        let file = self.modules[placed.module].path.clone();
        let link = placed.link;
        let raw: Vec<RawFrame> = self.recalled(
            placed.module,
            || format!("frames {:x}", link.0),
            |names| match names.debug_for_frames(placed.module) {
                Some((debug, limits)) => debug.tables.info.frames(link, limits),
                None => Vec::new(),
            },
        );
        let image = &self.modules[placed.module].image;
        let symbol = image
            .is_code(placed.link)
            .then(|| image.symbols.function(placed.link))
            .flatten();
        let by_symbol = || match symbol {
            Some(s) => {
                let from = shown.0.wrapping_sub(placed.bias).wrapping_sub(s.address);
                format!("{}+{from:#x}", fold::function(&s.name))
            }
            None => {
                let name = file.rsplit('/').next().unwrap_or(&file);
                format!("{name}+{:#x}", shown.0.wrapping_sub(placed.bias))
            }
        };
        let offset = Some(shown.0.wrapping_sub(placed.bias));
        let count = raw.len();
        let mut frames: Vec<CodeFrame> = raw
            .into_iter()
            .enumerate()
            .map(|(i, frame)| CodeFrame {
                function: match (frame.function, symbol) {
                    (Some(name), _) => fold::function(&name),
                    (None, Some(symbol)) if i + 1 == count => fold::function(&symbol.name),
                    (None, _) => by_symbol(),
                },
                file: frame.file,
                line: frame.line,
                inlined: i + 1 < count,
                module: Some(file.clone()),
                offset,
                wrapper: false,
            })
            .collect();
        if frames.is_empty()
            && let Some(symbol) = symbol
            && let Some((source, line)) = image.symbols.line(link)
        {
            frames.push(CodeFrame {
                function: fold::function(&symbol.name),
                file: Some(source.to_owned()),
                line: Some(line),
                module: Some(file.clone()),
                offset,
                ..CodeFrame::default()
            });
        }
        if frames.is_empty() {
            frames.push(CodeFrame {
                function: by_symbol(),
                module: Some(file.clone()),
                offset,
                ..CodeFrame::default()
            });
        }
        frames
    }

    /// The debug information for names of code. Every call stack begins in the C library, whose
    /// symbols suffice for a reader. Its debug information takes a tenth of a second to read, so it
    /// is not read for frames alone.
    pub(super) fn debug_for_frames(
        &mut self,
        module: usize,
    ) -> Option<(&mut Debug, &mut Vec<String>)> {
        let known = self.modules.get(module)?;
        if known.debug.is_none() && is_c_library(&known.path) {
            return None;
        }
        self.debug(module)
    }

    fn unplaced_frame(&self, code: CodeAddress, shown: CodeAddress) -> CodeFrame {
        if let Some(name) = self.generated.at(code) {
            return CodeFrame {
                function: name.to_owned(),
                ..CodeFrame::default()
            };
        }
        let mapping = self
            .mappings
            .at(Address(code.0))
            .filter(|m| !m.path.is_empty());
        let function = match mapping {
            Some(m) => {
                let name = m.path.rsplit('/').next().unwrap_or(&m.path);
                format!(
                    "{name}+{:#x}",
                    m.file_offset
                        .wrapping_add(shown.0.wrapping_sub(m.span.start.0))
                )
            }
            None => shown.to_string(),
        };
        CodeFrame {
            function,
            module: mapping.map(|m| m.path.clone()),
            ..CodeFrame::default()
        }
    }
}
