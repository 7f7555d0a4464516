//! `name FILE ADDRESS…`: the names at addresses of the file (hexadecimal, as `nm` prints them), as
//! data and as code. For trying the crate by hand.

use std::path::Path;
use sunder_access::{Address, CodeAddress, Mapping, Mappings, Span};
use sunder_objects::{NameOptions, Names, ObjectContext};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(file) = arguments.next() else {
        eprintln!("usage: name FILE ADDRESS…");
        std::process::exit(2);
    };
    let started = std::time::Instant::now();
    let mut names = Names::new(NameOptions::default());
    names.set_mappings(as_linked(Path::new(&file)));
    for text in arguments {
        match u64::from_str_radix(text.trim_start_matches("0x"), 16) {
            Ok(address) => show(&mut names, address),
            Err(_) => eprintln!("{text} is no hexadecimal address"),
        }
    }
    for limit in names.limits() {
        println!("limit: {limit}");
    }
    println!("took {:?}", started.elapsed());
}

fn show(names: &mut Names, address: u64) {
    println!("{address:#x}");
    let object = names.object_at(Address(address), &ObjectContext::default());
    let field = object
        .offset_of(Address(address))
        .and_then(|o| names.field_at(&object, o));
    println!(
        "  data: {:?} {} `{}` of {:?} bytes at {}, field {:?}, declared {:?}",
        object.kind,
        object.name.as_deref().unwrap_or("-"),
        object.type_name.as_deref().unwrap_or("-"),
        object.size,
        object.start,
        field,
        object.declared.map(|d| (d.file, d.line)),
    );
    for frame in names.frames(CodeAddress(address)) {
        let place = frame
            .file
            .map(|f| format!("{f}:{}", frame.line.unwrap_or(0)));
        let inlined = if frame.inlined { " (inlined)" } else { "" };
        println!(
            "  code: {}{inlined} {}",
            frame.function,
            place.unwrap_or_default()
        );
    }
    if let Some(access) = names.typed_access(CodeAddress(address)) {
        println!("  access: {access:?}");
    }
}

/// Maps the file at its link addresses, segment by segment.
fn as_linked(file: &Path) -> Mappings {
    use object::{Object, ObjectSegment};
    let Ok(data) = std::fs::read(file) else {
        return Mappings::new();
    };
    let Ok(elf) = object::File::parse(&*data) else {
        return Mappings::new();
    };
    let path = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    elf.segments()
        .map(|segment| {
            let before = segment.address() & 0xfff;
            Mapping {
                span: Span::new(
                    Address(segment.address() - before),
                    (segment.size() + before).next_multiple_of(0x1000),
                ),
                file_offset: segment.file_range().0.saturating_sub(before),
                path: path.display().to_string(),
                inode: 0,
                read: true,
                write: true,
                execute: true,
                shared: false,
            }
        })
        .collect()
}
