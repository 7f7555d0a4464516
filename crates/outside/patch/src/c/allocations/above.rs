//! What a changed call of an allocator needs above its function: a declaration, or a function that zeroes a
//! block. Called by `allocations`.

use crate::c::names::around;
use crate::edit::Edits;
use crate::macros::words;
use crate::sources::{Language, Source, Sources};
use tree_sitter::Node;

/// What the helper is called that zeroes a block.
pub(super) const ZEROED: &str = "calloc_on_lines";

/// For headers of C before C11.
const DECLARATION: &str = "void *aligned_alloc(size_t alignment, size_t size);";

/// Declares `aligned_alloc` where the build asks for a C standard whose header does not.
pub(super) fn declare_if_old(sources: &Sources, source: &Source, call: usize, edits: &mut Edits) {
    if source.language == Language::Cpp || !is_old_c(sources) {
        return;
    }
    if let Some(at) = above_function(source, call) {
        edits.insert(&source.path, at, format!("{DECLARATION}\n\n"));
    }
}

/// Defines the function that zeroes a block, unless the source has it.
pub(super) fn add_helper(
    sources: &Sources,
    source: &Source,
    call: usize,
    line: u32,
    edits: &mut Edits,
) {
    if words(&source.text).any(|(_, word)| word == ZEROED) {
        return;
    }
    let Some(at) = above_function(source, call) else {
        return;
    };
    let mut lines = Vec::new();
    if source.language != Language::Cpp && is_old_c(sources) {
        lines.extend([DECLARATION.to_owned(), String::new()]);
    }
    // In the words that all standards of C and C++ have in common.
    lines.extend([
        "/* Zeroed memory that begins a cache line and shares none with other blocks. */"
            .to_owned(),
        format!("static void *{ZEROED}(size_t count, size_t size)"),
        "{".to_owned(),
        "    size_t bytes = count * size, i;".to_owned(),
        "    char *block;".to_owned(),
        format!("    if (size != 0 && (bytes / size != count || bytes > (size_t)-{line}))"),
        "        return NULL;".to_owned(),
        format!("    bytes = (bytes + {}) / {line} * {line};", line - 1),
        format!("    block = (char *)aligned_alloc({line}, bytes);"),
        "    for (i = 0; block != NULL && i < bytes; i++)".to_owned(),
        "        block[i] = 0;".to_owned(),
        "    return block;".to_owned(),
        "}".to_owned(),
    ]);
    edits.insert(&source.path, at, lines.join("\n") + "\n\n");
}

/// Whether the build files ask for C before C11.
fn is_old_c(sources: &Sources) -> bool {
    const FILES: [&str; 6] = [
        "Makefile",
        "makefile",
        "GNUmakefile",
        "CMakeLists.txt",
        "meson.build",
        "configure.ac",
    ];
    const FLAGS: [&str; 9] = [
        "-std=c99",
        "-std=gnu99",
        "-std=c89",
        "-std=gnu89",
        "-std=c90",
        "-std=gnu90",
        "-ansi",
        "C_STANDARD 99",
        "c_std=c99",
    ];
    FILES.iter().any(|file| {
        let text = std::fs::read_to_string(sources.root().join(file)).unwrap_or_default();
        FLAGS.iter().any(|flag| text.contains(flag))
    })
}

/// The function whose definition contains the byte.
pub(super) fn function_at(source: &Source, at: usize) -> Option<Node<'_>> {
    source.views.iter().find_map(|view| {
        let node = view
            .tree
            .root_node()
            .descendant_for_byte_range(at, at + 1)?;
        around(node, &|n| n.kind() == "function_definition")
    })
}

/// Above the function that contains the byte, and above the comment that belongs to it.
fn above_function(source: &Source, at: usize) -> Option<usize> {
    let mut first = function_at(source, at)?;
    while let Some(before) = first.prev_sibling() {
        if before.kind() != "comment" || before.end_position().row + 1 < first.start_position().row
        {
            break;
        }
        first = before;
    }
    let start = first.start_byte();
    Some(source.text[..start].rfind('\n').map_or(0, |n| n + 1))
}
