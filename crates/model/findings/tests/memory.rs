//! How much memory reading a result takes: a file may be crafted so that each of its bytes takes many.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use sunder_findings::{Findings, examples};

/// The system's allocator, with a count of the bytes that are in use and of the most that were.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        // SAFETY: the caller keeps the rules of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes of memory that reading takes at most for each byte of `text`.
fn multiple(text: &str) -> usize {
    let before = IN_USE.load(Relaxed);
    MOST.store(before, Relaxed);
    // A result or a sentence: this is about the memory.
    drop(Findings::read(text.as_bytes()));
    (MOST.load(Relaxed) - before).div_ceil(text.len())
}

/// The only test of this program, so that no other one allocates beside it.
#[test]
fn reading_a_result_takes_a_small_multiple_of_its_size() {
    let good = examples::report().to_json().expect("it can be written");
    let many = |value: &str| format!("[{value}{}]", format!(",{value}").repeat(200_000));
    let unknown = |value: &str| {
        let field = format!("\"added_later\": {}, \"tool\"", many(value));
        good.replacen("\"tool\"", &field, 1)
    };
    for value in ["0", "{\"\":0}", "[]", "\"\"", "[[[[]]]]"] {
        let text = unknown(value);
        assert!(Findings::read(text.as_bytes()).is_ok(), "{value}");
        // The text itself, in a list that may be twice as long.
        let found = multiple(&text);
        assert!(found <= 4, "{value}: {found} times the text");
    }
    let mut value: serde_json::Value = serde_json::from_str(&good).expect("JSON");
    let word = "[0,0,null,[]]";
    for (place, fill) in [
        ("/findings/0/timeline", "0"),
        ("/findings/0/advice", "{\"fix\":\"align\",\"text\":\"\"}"),
        ("/findings/0/lines/0/words", word),
        ("/findings/0/sites/0/fields", "\"\""),
        ("/limits", "\"\""),
    ] {
        let whole = value.clone();
        *value.pointer_mut(place).expect("it is there") = "HERE".into();
        let text = value.to_string().replacen("\"HERE\"", &many(fill), 1);
        value = whole;
        assert!(Findings::read(text.as_bytes()).is_ok(), "{place}");
        let found = multiple(&text);
        println!("{place}: {found}");
        assert!(found <= 32, "{place}: {found} times the text");
    }
}
