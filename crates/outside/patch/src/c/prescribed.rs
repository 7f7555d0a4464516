//! Whether others prescribe a type's layout: an interface, a file, a protocol, or the source itself.
//! Then no patch is made, and the reason is told. It can see only what the source says.

use crate::c::names::nodes;
use crate::c::types::TypeDefinition;
use crate::error::{Unsure, unsure};
use crate::macros::{closing, is_word, words};
use crate::sources::Sources;

/// Calls that read or write memory as bytes which others see: files, sockets, other processes.
const INPUT_OUTPUT: [&str; 24] = [
    "fread",
    "fwrite",
    "read",
    "write",
    "pread",
    "pwrite",
    "readv",
    "writev",
    "send",
    "sendto",
    "sendmsg",
    "recv",
    "recvfrom",
    "recvmsg",
    "ioctl",
    "mmap",
    "shmat",
    "MPI_Send",
    "MPI_Recv",
    "MPI_Bcast",
    "hton",
    "htonl",
    "htons",
    "copy_to_user",
];

/// # Errors
/// The reason, if the type's layout is not the user's to change.
pub(crate) fn check(
    sources: &Sources,
    definition: &TypeDefinition,
    variable: Option<&str>,
) -> Result<(), Unsure> {
    let name = &definition.name;
    let place = definition.place();
    if definition.is_union {
        unsure!("`{name}` at {place} is a union, whose members share bytes on purpose");
    }
    let text = definition.text();
    if words(text).any(|(_, word)| {
        matches!(
            word,
            "packed" | "__packed__" | "__packed" | "PACKED" | "gcc_struct" | "ms_struct"
        )
    }) {
        unsure!(
            "`{name}` at {place} is packed: its layout is prescribed, for example by a file or a protocol"
        );
    }
    if is_packed_by_pragma(&definition.source.text, definition.range.start) {
        unsure!("`{name}` at {place} is packed by a `#pragma pack`: its layout is prescribed");
    }
    for source in sources.with_word(name, false) {
        for view in source.views.iter().take(1) {
            let asserted = nodes(view.tree.root_node(), &|n| {
                matches!(n.kind(), "static_assert_declaration" | "call_expression")
            });
            for node in asserted {
                let told = &view.text[node.byte_range()];
                let function = words(told).next().map_or("", |(_, word)| word);
                let names_type = || mentions_layout(told, name);
                if matches!(
                    function,
                    "static_assert" | "_Static_assert" | "BUILD_BUG_ON"
                ) && names_type()
                {
                    unsure!(
                        "the source asserts the layout of `{name}` at {}",
                        source.place(node.start_byte())
                    );
                }
                let of_variable = || variable.is_some_and(|v| words(told).any(|(_, w)| w == v));
                if INPUT_OUTPUT.contains(&function) && (names_type() || of_variable()) {
                    unsure!(
                        "`{function}` at {} reads or writes `{name}` as bytes: another program may prescribe its layout",
                        source.place(node.start_byte())
                    );
                }
            }
        }
    }
    Ok(())
}

/// Whether `sizeof`, `offsetof` or `alignof` is applied to the type.
fn mentions_layout(text: &str, name: &str) -> bool {
    words(text).any(|(at, word)| {
        matches!(word, "sizeof" | "offsetof" | "alignof" | "_Alignof") && {
            let rest = text[at + word.len()..].trim_start();
            let end =
                closing(rest).unwrap_or_else(|| rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
            words(&rest[..end]).any(|(_, w)| w == name)
        }
    })
}

fn is_packed_by_pragma(text: &str, at: usize) -> bool {
    let mut packed = false;
    for line in text[..at].lines() {
        let line = line.trim().trim_start_matches('#').trim();
        if let Some(rest) = line.strip_prefix("pragma").map(str::trim)
            && let Some(rest) = rest.strip_prefix("pack")
        {
            let inside = rest.trim().trim_matches(['(', ')']).trim();
            packed = !(inside.is_empty() || inside.starts_with("pop"));
        }
    }
    packed
}
