//! Advice reads as a person would write it: names as in the code, a way in every sentence, and no
//! code that the reader can't change.

use super::{assert_says, global};
use crate::{advise, words};
use sunder_findings::examples::{self, site, word};
use sunder_findings::*;

/// Elements that one thread writes and another reads meet in one member: no order takes them apart.
fn array_with_readers(field: impl Fn(usize) -> String) -> Finding {
    let words = (0..2).map(|i| {
        let owner = 4701 + i as u32;
        let reader = 4702 - i as u32;
        let uses = [(owner, 0, 50, 0, 0), (reader, 50, 0, 0, 0)];
        word(i as u32 * 8, 8, &field(i), &uses)
    });
    let mut finding = global("array", "int *", 16, "listing.c", words.collect());
    finding.sharing = Sharing::Mixed;
    finding.false_share = 0.6;
    finding
}

#[test]
fn elements_that_others_read_are_told_how_to_be_taken_apart() {
    let all = advise(&array_with_readers(|i| format!("[{i}]")), 64);
    assert_says(
        &all[0],
        &[
            "Different threads use elements of `array`",
            "`array[0]` (written by thread 4701",
            "Give each element lines of its own: make the element",
        ],
    );
    let all = advise(&array_with_readers(|i| format!(".names[{i}]")), 64);
    for advice in all {
        let text = &advice.text;
        assert!(!text.contains("`."), "a name begins with a dot: {text}");
        assert!(!text.contains("lines. "), "no way is named: {text}");
    }
}

/// Threads of Go write elements of an array in a structure on the heap, which has no name there.
#[test]
fn elements_in_a_nameless_structure_of_go_are_padded() {
    let word = |i: u32| {
        let uses = [(4701 + i, 0, 50, 0, 0)];
        word(i * 8, 8, &format!(".n[{i}]"), &uses)
    };
    let mut finding = global("", "main.C", 4 << 20, "", vec![word(0), word(1)]);
    finding.object.kind = ObjectKind::Mapping;
    finding.object.name = None;
    finding.object.declared = None;
    finding.object.language = Some(Language::Go);
    let all = advise(&finding, 64);
    assert_says(
        &all[0],
        &[
            "Give each element of `n` of `main.C` lines of its own",
            "make the element a struct of it and `_ cpu.CacheLinePad`",
        ],
    );
}

#[test]
fn a_sentence_goes_on_behind_a_colon() {
    let all = advise(&examples::latent(), 64);
    let text = &all[0].text;
    assert!(
        text.contains("64-byte lines): give each element of"),
        "{text}"
    );
    assert_eq!(words::continued("`a` is"), "`a` is");
    assert_eq!(words::continued("SXX is"), "SXX is");
}

#[test]
fn code_on_a_stack_is_the_programs_before_the_c_librarys() {
    let uses = |thread| [(thread, 0, 50, 0, 0)];
    let words = vec![word(0, 8, "", &uses(4701)), word(8, 8, "", &uses(4702))];
    let mut finding = global("stack of 4701", "", 8192, "a.c", words);
    finding.object.kind = ObjectKind::Stack;
    finding.object.declared = None;
    finding.sharing = Sharing::False;
    let called = |function: &str, module: &str| {
        let mut one = site(
            function,
            ("a.c", 7),
            AccessKind::Write,
            &[4701],
            50,
            &[],
            "",
        );
        one.module = Some(module.into());
        one
    };
    let library = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    finding.sites = vec![
        called("__pthread_join", library),
        called("work", "/usr/bin/program"),
    ];
    let text = advise(&finding, 64).remove(0).text;
    assert!(
        text.contains("`work`") && !text.contains("__pthread_join"),
        "{text}"
    );
    // Where the program's own code is not known, the library's says more than nothing.
    finding.sites.truncate(1);
    let text = advise(&finding, 64).remove(0).text;
    assert!(text.contains("__pthread_join"), "{text}");
}

#[test]
fn only_a_known_member_holds_what_threads_use() {
    let two = |field: &str, size| {
        let words = vec![
            word(0, 8, field, &[(1, 0, 0, 90, 0)]),
            word(8, 8, field, &[(2, 0, 0, 90, 0)]),
        ];
        advise(&global("app::st", "struct stats", size, "a.c", words), 64)[0]
            .text
            .clone()
    };
    let inside = "They meet inside one member";
    assert!(two("st.both", 16).contains(inside));
    let unknown = two("st", 16);
    assert!(!unknown.contains(inside), "{unknown}");
    assert!(unknown.contains("at least 64 bytes apart"), "{unknown}");
}

/// One write in a hundred does not make its writer the owner, but a reader of the picture sees it.
#[test]
fn what_is_seldom_written_is_called_so() {
    let words = vec![
        word(0, 8, "s.kept", &[(3, 500, 0, 0, 0), (4, 500, 0, 0, 0)]),
        word(8, 8, "s.limit", &[(3, 500, 5, 0, 0), (4, 500, 0, 0, 0)]),
        word(16, 8, "s.one", &[(1, 0, 0, 900, 0)]),
        word(24, 8, "s.two", &[(2, 0, 0, 900, 0)]),
    ];
    let all = advise(&global("s", "struct s", 32, "a.c", words), 64);
    let told = [
        "`s.kept` (read by several threads)",
        "`s.limit` (read by several threads, seldom written)",
    ];
    assert_says(&all[0], &told);
}
