//! Variables and blocks whose type is known, and the changes of their fields.

use crate::simulate::layout::Layout;
use std::ops::Range;
use std::sync::Arc;
use sunder_access::Span;
use sunder_objects::{Names, ObjectName, TypeHandle};
use sunder_pipeline::Shape;

/// A variable, or a kind of blocks, whose type is known.
pub struct Typed {
    /// The type's name.
    pub type_name: String,
    /// Bytes of the type, or of an element of the array.
    pub element: u64,
    /// What it is.
    pub at: At,
}

/// A variable, or the blocks of one call stack and size.
pub enum At {
    /// A variable and its bytes.
    Variable(ObjectName, Span),
    /// The call stack, the size, and the type.
    Block(u32, u64, TypeHandle),
}

impl Typed {
    /// The path of the byte at `offset` of the first element, beginning at the element.
    pub fn path(&self, names: &mut Names, offset: u64) -> Option<String> {
        let mut path = match &self.at {
            At::Variable(object, _) => {
                let path = names.field_at(object, offset)?;
                let name = object.name.as_deref().unwrap_or("");
                path.strip_prefix(name).unwrap_or(&path).to_owned()
            }
            At::Block(_, size, handle) => names.field_path(*handle, *size, offset)?,
        };
        while path.starts_with('[') {
            let end = path.find(']')?;
            path.drain(..=end);
        }
        Some(path)
    }

    /// Gives the bytes at `extent` of each element, or each element as a whole, lines of their
    /// own.
    pub fn change(&self, layout: &mut Layout, extent: Option<Range<u64>>, line: u64) {
        let change = |known: Option<Shape>| {
            let fields: Vec<Range<u64>> = known
                .iter()
                .flat_map(Shape::moved_fields)
                .chain(extent.clone())
                .collect();
            let align = known.map_or(1, |known| known.align());
            Shape::fields(self.element, &fields, line).with_align(align)
        };
        match self.at {
            At::Variable(_, span) => {
                let known = take_static(layout, span);
                layout.statics.push((span, Arc::new(change(known))));
            }
            At::Block(stack, size, _) => {
                let known = layout.blocks.remove(&(stack, size));
                let known = known.map(|known| Shape::clone(&known));
                let shape = Arc::new(change(known));
                layout.blocks.insert((stack, size), shape);
            }
        }
    }
}

/// Takes the new shape of the variable at `span` out of the layout, if it has one.
pub fn take_static(layout: &mut Layout, span: Span) -> Option<Shape> {
    let at = layout
        .statics
        .iter()
        .position(|(known, _)| *known == span)?;
    Some(Shape::clone(&layout.statics.swap_remove(at).1))
}
