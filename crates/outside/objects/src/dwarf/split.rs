//! Split debug information: `.dwo` files beside the objects and `.dwp` packages beside the program.
//! Called by [`super`]; reports missing files once per module.

use super::sections::{Bytes, Dwarf, load_sections, section};
use crate::bounded::FileBytes;
use crate::image::{Elf, Image};
use crate::options::NameOptions;
use gimli::{DwoId, EndianSlice, LittleEndian, SectionId};
use object::read::elf::ElfFile64;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The `.dwo` files and the `.dwp` package of a module.
pub(crate) struct SplitFiles {
    options: NameOptions,
    module: PathBuf,
    package: Option<Option<gimli::DwarfPackage<Bytes>>>,
    loaded: HashMap<DwoId, Option<Arc<Dwarf>>>,
    complained: bool,
}

impl SplitFiles {
    pub(crate) fn new(image: &Image, options: &NameOptions) -> Self {
        Self {
            options: options.clone(),
            module: image.path.clone(),
            package: None,
            loaded: HashMap::new(),
            complained: false,
        }
    }

    /// The debug information with `id`, of which the unit in `parent` is the skeleton.
    pub(crate) fn load(
        &mut self,
        id: DwoId,
        folder: Option<&'static str>,
        name: Option<&'static str>,
        parent: &Arc<Dwarf>,
        limits: &mut Vec<String>,
    ) -> Option<Arc<Dwarf>> {
        if let Some(known) = self.loaded.get(&id) {
            return known.clone();
        }
        let mut found = self.in_package(id, parent);
        if found.is_none() {
            found = name.and_then(|n| self.in_file(id, folder.unwrap_or(""), n, parent));
        }
        if found.is_none() && !self.complained {
            self.complained = true;
            limits.push(format!(
                "{}: split debug information ({}) was not found, so variables, types and inlined \
                 functions of some of its files are missing.",
                self.module.display(),
                name.unwrap_or("a .dwo file without a name"),
            ));
        }
        let found = found.map(Arc::new);
        self.loaded.insert(id, found.clone());
        found
    }

    fn in_package(&mut self, id: DwoId, parent: &Dwarf) -> Option<Dwarf> {
        let (module, options) = (&self.module, &self.options);
        let package = self.package.get_or_insert_with(|| {
            let mut name = module.clone().into_os_string();
            name.push(".dwp");
            let bytes = FileBytes::of(options.files.open(Path::new(&name)).ok()?);
            let elf: Elf<'_> = ElfFile64::parse(&bytes).ok()?;
            let section = |s: SectionId| section(&elf, s.dwo_name());
            gimli::DwarfPackage::load(section, EndianSlice::new(&[], LittleEndian)).ok()
        });
        package.as_ref()?.find_cu(id, parent).ok().flatten()
    }

    fn in_file(&self, id: DwoId, folder: &str, name: &str, parent: &Dwarf) -> Option<Dwarf> {
        let recorded = Path::new(folder).join(name);
        let beside = self.module.parent()?.join(Path::new(name).file_name()?);
        [recorded, beside].iter().find_map(|path| {
            let bytes = FileBytes::of(self.options.files.open(path).ok()?);
            let elf: Elf<'_> = ElfFile64::parse(&bytes).ok()?;
            let mut dwarf = load_sections(&elf, true).ok()?;
            dwarf.make_dwo(parent);
            has_unit(&dwarf, id).then_some(dwarf)
        })
    }
}

/// Whether a `.dwo` is of the same compilation as its skeleton.
fn has_unit(dwarf: &Dwarf, id: DwoId) -> bool {
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        if dwarf.unit(header).is_ok_and(|u| u.dwo_id == Some(id)) {
            return true;
        }
    }
    false
}
