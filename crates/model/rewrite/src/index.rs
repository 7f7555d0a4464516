//! Finds the node of a graph by the address of its instruction. Used by [`crate::flow`] only.

use crate::request::Code;
use alloc::vec;
use alloc::vec::Vec;

/// The nodes by instance and address. Each instruction of a graph is looked up several times while a
/// thread of the program waits, so a look-up is one access to an array.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index(Vec<Vec<Part>>);

/// The nodes of one function in an instance.
#[derive(Clone, Debug)]
struct Part {
    start: u64,
    /// For each byte of the function, 1 + the node that begins there, or 0.
    nodes: Vec<u32>,
}

impl Index {
    /// The node that begins at `ip`.
    pub(crate) fn get(&self, instance: u8, ip: u64) -> Option<usize> {
        let at = |part: &Part| {
            let offset = usize::try_from(ip.checked_sub(part.start)?).ok()?;
            part.nodes.get(offset).copied().filter(|&n| n > 0)
        };
        let parts = self.0.get(usize::from(instance))?;
        parts.iter().find_map(at).map(|n| n as usize - 1)
    }

    /// Adds the node `n` at `ip`, an address in `code`.
    pub(crate) fn insert(&mut self, instance: u8, code: &Code<'_>, ip: u64, n: usize) {
        let instance = usize::from(instance);
        if self.0.len() <= instance {
            self.0.resize_with(instance + 1, Vec::new);
        }
        let parts = &mut self.0[instance];
        let known = parts.iter().position(|part| part.start == code.start.0);
        let part = known.unwrap_or_else(|| {
            parts.push(Part {
                start: code.start.0,
                nodes: vec![0; code.bytes.len()],
            });
            parts.len() - 1
        });
        let nodes = &mut parts[part].nodes;
        let offset = ip.wrapping_sub(code.start.0) as usize;
        if nodes.len() <= offset {
            nodes.resize(offset + 1, 0);
        }
        nodes[offset] = n as u32 + 1;
    }
}
