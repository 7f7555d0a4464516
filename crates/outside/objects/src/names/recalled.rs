//! Questions that a memory may have the answer to ([`crate::remembered`]), and handles of types that do not
//! depend on what has been loaded.

use super::process::Names;
use crate::answer::TypeHandle;
use crate::dwarf::DieRef;
use crate::module::Module;
use crate::remembered::Place;
use crate::types::TypeId;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Handles of types with this bit are places in [`Module::dies`].
const REMEMBERED: u32 = 1 << 31;
/// The most types of one module that are handed out so.
const MOST_TYPES: usize = 1 << 16;

impl Names {
    /// The answer to a question about a module: from the memory, or else that of `ask`, which is then
    /// remembered. What is answered without debug information is not: it may be installed later.
    pub(crate) fn recalled<A: Serialize + DeserializeOwned>(
        &mut self,
        module: usize,
        question: impl FnOnce() -> String,
        ask: impl FnOnce(&mut Self) -> A,
    ) -> A {
        let memory = self.options.memory.clone();
        let file = memory.as_ref().and(self.modules.get_mut(module));
        let (Some(memory), Some(file)) = (memory, file.and_then(Module::identity)) else {
            return ask(self);
        };
        let question = question();
        if !self.is_loaded(module)
            && let Some(answer) = memory.recall(&file, &question)
            && let Ok(answer) = serde_json::from_str(&answer)
        {
            self.modules[module].is_remembered = true;
            return answer;
        }
        let answer = ask(self);
        if self.is_loaded(module)
            && let Ok(text) = serde_json::to_string(&answer)
        {
            memory.remember(&file, question, text);
        }
        answer
    }

    /// The same for a question about a type.
    pub(crate) fn recalled_of_type<A: Serialize + DeserializeOwned>(
        &mut self,
        ty: TypeHandle,
        question: &str,
        ask: impl FnOnce(&mut Self, TypeHandle) -> A,
    ) -> A {
        let Some(die) = self.remembered_die(ty) else {
            return ask(self, ty);
        };
        self.recalled(
            ty.module as usize,
            || format!("{question} of {:x} {:x}", die.unit, die.offset),
            |names| {
                let loaded = names.loaded_type(ty);
                ask(names, loaded)
            },
        )
    }

    fn is_loaded(&self, module: usize) -> bool {
        matches!(self.modules.get(module), Some(module) if matches!(module.debug, Some(Some(_))))
    }

    /// Whether there is debug information of a module, as far as its answers in the memory tell; else it is
    /// loaded.
    pub(crate) fn has_debug(&mut self, module: usize) -> bool {
        let remembered = self.modules.get(module).is_some_and(|m| m.is_remembered);
        remembered || self.debug(module).is_some()
    }

    /// Where the entry of a type stands that has been loaded. Without a memory nobody needs it, and it is
    /// not searched.
    pub(crate) fn place_of(&self, module: usize, ty: TypeId) -> Option<Place> {
        if self.options.memory.is_none() {
            return Some(Place::default());
        }
        let debug = self.modules.get(module)?.debug.as_ref()?.as_ref()?;
        let die = debug.tables.types.die_of(ty)?;
        Some((die.unit, die.offset))
    }

    /// The handle of the type whose entry stands there. It is the same whether the debug information has
    /// been loaded or not.
    pub(crate) fn handle_at(&mut self, module: usize, (unit, offset): Place) -> Option<TypeHandle> {
        let die = DieRef { unit, offset };
        let number = u32::try_from(module).ok()?;
        let dies = &mut self.modules.get_mut(module)?.dies;
        let at = match dies.iter().position(|known| *known == die) {
            Some(at) => at,
            None if dies.len() < MOST_TYPES => {
                dies.push(die);
                dies.len() - 1
            }
            None => return None,
        };
        Some(TypeHandle {
            module: number,
            ty: REMEMBERED | at as u32,
        })
    }

    fn remembered_die(&self, ty: TypeHandle) -> Option<DieRef> {
        let at = (ty.ty & REMEMBERED != 0).then_some(ty.ty & !REMEMBERED)?;
        let module = self.modules.get(ty.module as usize)?;
        module.dies.get(at as usize).copied()
    }

    /// The type as a place in the module's table of types, which is loaded for it. A handle that is one
    /// already stays as it is; one whose type can't be loaded leads to no type.
    pub(crate) fn loaded_type(&mut self, ty: TypeHandle) -> TypeHandle {
        let Some(die) = self.remembered_die(ty) else {
            return ty;
        };
        let Some((debug, limits)) = self.debug(ty.module as usize) else {
            return ty;
        };
        let tables = &mut debug.tables;
        // Reads the list of units, if it has not been read.
        tables.info.unit_count(limits);
        let loaded = tables.types.load(&mut tables.info, die, 0);
        loaded.map_or(ty, |id| TypeHandle { ty: id.0, ..ty })
    }
}
