//! Answers that a memory has: the same as those of the debug information, which is not read for them.

use crate::build::{Program, compile};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use sunder_access::{Address, CodeAddress};
use sunder_objects::{Memory, Names, ObjectContext};

/// A memory that counts what it did not know.
#[derive(Debug, Default)]
struct Kept {
    answers: Mutex<HashMap<(String, String), String>>,
    missed: Mutex<Vec<String>>,
    /// What is answered in place of what was remembered.
    instead: Option<&'static str>,
}

impl Memory for Kept {
    fn recall(&self, file: &str, question: &str) -> Option<String> {
        let key = (file.to_owned(), question.to_owned());
        let answers = self.answers.lock().expect("one thread");
        let found = answers.get(&key).cloned();
        if found.is_none() {
            let mut missed = self.missed.lock().expect("one thread");
            missed.push(question.to_owned());
        }
        found.map(|found| self.instead.map_or(found, str::to_owned))
    }

    fn remember(&self, file: &str, question: String, answer: String) {
        let mut answers = self.answers.lock().expect("one thread");
        answers.insert((file.to_owned(), question), answer);
    }
}

/// All that is asked about the program: a variable and its fields, a thread-local one's absence, code.
pub fn asked(names: &mut Names, program: &Program) -> String {
    let mut told = String::new();
    let counters = program.address("counters");
    for offset in [0, 24 + 9, 7 * 24 + 12] {
        let object = names.object_at(Address(counters.0 + offset), &ObjectContext::default());
        let field = names.field_at(&object, offset);
        let ty = object.type_handle.expect("typed");
        told += &format!(
            "{:?} {:?} {:?} {:?} {:?} {field:?} {:?} {:?} {}\n",
            object.name,
            object.type_name,
            object.size,
            object.element_size,
            object.declared,
            names.language_of(ty),
            names.field_path(ty, 48, 30),
            names.is_own_record(ty),
        );
    }
    for (code, _) in program.instructions("bump") {
        let access = names.typed_access(code);
        let path = access.as_ref().map(|access| {
            let ty = access.type_handle;
            (names.type_name(ty), names.field_path(ty, 24, 9))
        });
        let access = access.map(|a| (a.variable, a.type_name, a.type_size, a.field, a.exact));
        told += &format!("{access:?} {path:?} {:?}\n", names.frames(code));
        told += &format!(
            "{:?} {:?}\n",
            names.in_loop(code, "bump"),
            names.language_at(code)
        );
    }
    told
}

fn with(program: &Program, memory: &Arc<Kept>) -> Names {
    let mut names = program.names();
    names.set_memory(Arc::clone(memory) as Arc<dyn Memory>);
    names
}

#[test]
fn what_was_asked_before_is_answered_without_debug_information() {
    for options in [["-g", "-O0"], ["-g", "-O2"]] {
        let mut all = options.to_vec();
        all.push("-Wl,--build-id");
        let Some(program) = compile("counters.c", &all) else {
            return;
        };
        let plain = asked(&mut program.names(), &program);
        assert!(plain.contains("counters[7].either"), "{plain}");
        let memory = Arc::new(Kept::default());
        assert_eq!(asked(&mut with(&program, &memory), &program), plain);
        memory.missed.lock().expect("one thread").clear();
        assert_eq!(asked(&mut with(&program, &memory), &program), plain);
        let missed = memory.missed.lock().expect("one thread");
        assert_eq!(*missed, Vec::<String>::new());
    }
}

/// Half of the answers are known: what is asked of the rest is about the same types.
#[test]
fn what_is_known_and_what_is_looked_up_fit_each_other() {
    let Some(program) = compile("counters.c", &["-g", "-O0", "-Wl,--build-id"]) else {
        return;
    };
    let plain = asked(&mut program.names(), &program);
    let whole = Arc::new(Kept::default());
    asked(&mut with(&program, &whole), &program);
    let answers = whole.answers.lock().expect("one thread").clone();
    for kept in 0..2 {
        let half = answers.iter().filter(|((_, question), _)| {
            let sum: usize = question.bytes().map(usize::from).sum();
            sum % 2 == kept
        });
        let half = half.map(|(key, answer)| (key.clone(), answer.clone()));
        let memory = Arc::new(Kept {
            answers: Mutex::new(half.collect()),
            ..Kept::default()
        });
        assert_eq!(asked(&mut with(&program, &memory), &program), plain);
    }
}

/// Whoever owns the folder may have written it.
#[test]
fn an_answer_that_is_none_is_looked_up_and_a_wrong_one_harms_nothing() {
    let Some(program) = compile("counters.c", &["-g", "-O0", "-Wl,--build-id"]) else {
        return;
    };
    let plain = asked(&mut program.names(), &program);
    for instead in ["", "[", "{\"a\":1}", "\u{0}"] {
        let memory = Arc::new(Kept::default());
        asked(&mut with(&program, &memory), &program);
        let answers = memory.answers.lock().expect("one thread").clone();
        let memory = Arc::new(Kept {
            answers: Mutex::new(answers),
            instead: Some(instead),
            ..Kept::default()
        });
        assert_eq!(
            asked(&mut with(&program, &memory), &program),
            plain,
            "{instead:?}"
        );
    }
    // A type whose entry stands nowhere.
    let memory = Arc::new(Kept::default());
    asked(&mut with(&program, &memory), &program);
    let mut answers = memory.answers.lock().expect("one thread").clone();
    answers.retain(|(_, question), answer| {
        let is_variable = question.starts_with("variable");
        let place = answer.rfind('[').filter(|_| is_variable);
        if let Some(place) = place {
            answer.replace_range(place.., "[4294967295,18446744073709551615]]");
        }
        is_variable
    });
    let memory = Arc::new(Kept {
        answers: Mutex::new(answers),
        ..Kept::default()
    });
    let mut names = with(&program, &memory);
    let counters = program.address("counters");
    let object = names.object_at(counters, &ObjectContext::default());
    assert_eq!(object.name.as_deref(), Some("counters"));
    // Whatever is said of such a type is no place in the program.
    let field = names.field_at(&object, 4).unwrap_or_default();
    assert!(!field.contains("hits"), "{field}");
}

/// Debug information may be installed later.
#[test]
fn what_symbols_alone_tell_is_not_remembered() {
    let Some(program) = compile("counters.c", &["-O0", "-Wl,--build-id"]) else {
        return;
    };
    let memory = Arc::new(Kept::default());
    let mut names = with(&program, &memory);
    let object = names.object_at(program.address("counters"), &ObjectContext::default());
    assert_eq!(object.name.as_deref(), Some("counters"));
    names.frames(CodeAddress(program.address("bump").0));
    assert!(memory.answers.lock().expect("one thread").is_empty());
}
