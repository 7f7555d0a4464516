//! Finds the caller of a stack frame from a file's call-frame information, so that the heap library
//! can tell the callers of an allocation wrapper apart. Knows only the two forms that compilers
//! emit for ordinary functions; for any other form the answer is "unknown". Called by `call_sites`.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, LittleEndian, RegisterRule, UnwindContext, UnwindSection,
    X86_64,
};
use object::{Object, ObjectSection, ReadCache};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use sunder_observe::foreign::ForeignFiles;

/// Larger sections, in bytes, are not read: that of a large browser has a third of it.
const LARGEST: u64 = 64 << 20;

/// How to find the caller's frame at one return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// The canonical frame address (CFA) is relative to the frame pointer, not to the stack
    /// pointer.
    pub from_frame_pointer: bool,
    /// Distance of the CFA above that register, in bytes. The return address lies just below the
    /// CFA.
    pub cfa: u64,
    /// Where the caller's frame pointer is saved, in bytes below the CFA; 0 if it is still in its
    /// register.
    pub saved: u64,
}

/// Call-frame information of files. Each file is read once.
#[derive(Debug)]
pub struct Unwinder {
    files: Arc<ForeignFiles>,
    known: HashMap<String, Option<Frames>>,
}

/// The `.eh_frame` section of a file, and its address in the file's address space.
#[derive(Debug)]
struct Frames {
    bytes: Vec<u8>,
    address: u64,
}

impl Unwinder {
    /// The call-frame information of `files`.
    pub fn of(files: Arc<ForeignFiles>) -> Self {
        Self {
            files,
            known: HashMap::new(),
        }
    }

    /// The rule at the return address `offset` of `file`, an address as in the file; `None` if it
    /// is unknown.
    pub fn rule(&mut self, file: &str, offset: u64) -> Option<Rule> {
        let files = &self.files;
        let frames = self.known.entry(file.to_owned());
        let frames = frames.or_insert_with(|| read(files, file));
        frames.as_ref()?.rule(offset)
    }
}

fn read(files: &ForeignFiles, file: &str) -> Option<Frames> {
    // Of a large file only the headers and this section are read.
    let bytes = ReadCache::new(files.open(Path::new(file)).ok()?);
    let file = object::File::parse(&bytes).ok()?;
    let section = file.section_by_name(".eh_frame")?;
    if section.size() > LARGEST {
        return None;
    }
    Some(Frames {
        bytes: section.data().ok()?.to_vec(),
        address: section.address(),
    })
}

impl Frames {
    fn rule(&self, offset: u64) -> Option<Rule> {
        let mut section = EhFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(8);
        let bases = BaseAddresses::default().set_eh_frame(self.address);
        let mut context = UnwindContext::new();
        // The address of the call itself: a call can be the last instruction of its function.
        let call = offset.checked_sub(1)?;
        let row = section
            .unwind_info_for_address(&bases, &mut context, call, EhFrame::cie_from_offset)
            .ok()?;
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
            return None;
        };
        if row.register(X86_64::RA) != Some(RegisterRule::Offset(-8)) {
            return None;
        }
        let saved = match row.register(X86_64::RBP) {
            None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => 0,
            Some(RegisterRule::Offset(below)) if below < 0 => below.unsigned_abs(),
            Some(_) => return None,
        };
        Some(Rule {
            from_frame_pointer: match register {
                X86_64::RSP => false,
                X86_64::RBP => true,
                _ => return None,
            },
            cfa: u64::try_from(offset).ok()?,
            saved,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const SOURCE: &str = "
        .text
        plain: .cfi_startproc
        sub $24, %rsp
        .cfi_adjust_cfa_offset 24
        call other
        .globl after_plain
        after_plain: add $24, %rsp
        .cfi_adjust_cfa_offset -24
        ret
        .cfi_endproc
        framed: .cfi_startproc
        push %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbp, -16
        mov %rsp, %rbp
        .cfi_def_cfa_register %rbp
        call other
        .globl after_framed
        after_framed: pop %rbp
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        bare: call other
        .globl after_bare
        after_bare: ret
        other: ret
    ";

    #[test]
    fn frames_with_and_without_frame_pointer_have_rules_and_bare_code_has_none() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (source, library) = (folder.path().join("a.s"), folder.path().join("a.so"));
        std::fs::write(&source, SOURCE).expect("the folder can be written to");
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-nostdlib", "-o"]).arg(&library);
        assert!(gcc.arg(&source).status().expect("gcc runs").success());
        let bytes = std::fs::read(&library).expect("gcc has made the library");
        let file = object::File::parse(bytes.as_slice()).expect("an ELF file");
        let address = |name: &str| {
            use object::ObjectSymbol;
            let mut symbols = file.dynamic_symbols();
            let found = symbols.find(|s| s.name() == Ok(name));
            found.expect("the symbol is global").address()
        };
        let mut unwinder = Unwinder::of(Arc::new(ForeignFiles::ours()));
        let mut rule =
            |name| unwinder.rule(library.to_str().expect("the path is UTF-8"), address(name));
        let plain = Rule {
            from_frame_pointer: false,
            cfa: 32,
            saved: 0,
        };
        let framed = Rule {
            from_frame_pointer: true,
            cfa: 16,
            saved: 16,
        };
        assert_eq!(rule("after_plain"), Some(plain));
        assert_eq!(rule("after_framed"), Some(framed));
        assert_eq!(rule("after_bare"), None);
        assert_eq!(unwinder.rule("/no/such/file", 8), None);
    }
}
