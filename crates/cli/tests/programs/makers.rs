//! Like `makers.cpp`, with boxes or vectors.

struct Counter {
    _count: u64,
    _spare: u64,
}

fn one(how: &str) -> *mut u64 {
    if how == "box" {
        let counter = Counter {
            _count: 0,
            _spare: 0,
        };
        Box::into_raw(Box::new(counter)).cast()
    } else {
        let mut counters = Vec::with_capacity(2);
        counters.push(0);
        counters.leak().as_mut_ptr()
    }
}

#[inline(never)]
fn make_busy(how: &str) -> Vec<*mut u64> {
    let make = if how == "box" {
        || {
            let counter = Counter {
                _count: 0,
                _spare: 0,
            };
            Box::into_raw(Box::new(counter)).cast()
        }
    } else {
        || {
            let mut counters = Vec::with_capacity(2);
            counters.push(0);
            counters.leak().as_mut_ptr()
        }
    };
    (0..3).map(|_| make()).collect()
}

#[inline(never)]
fn make_idle(how: &str) -> Vec<*mut u64> {
    (0..3).map(|_| one(how)).collect()
}

fn on_one_line(blocks: &[*mut u64], first: usize) -> bool {
    blocks[first].addr() / 64 == blocks[first + 1].addr() / 64
}

fn lie(blocks: &[*mut u64]) -> &'static str {
    if on_one_line(blocks, 0) || on_one_line(blocks, 1) {
        "one line"
    } else {
        "apart"
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (how, rounds) = (&arguments[1], arguments[2].parse::<u64>().unwrap());
    let (busy, idle) = (make_busy(how), make_idle(how));
    let from = usize::from(!on_one_line(&busy, 0));
    std::thread::scope(|scope| {
        for block in &busy[from..from + 2] {
            let own = block.expose_provenance();
            scope.spawn(move || {
                let own = std::ptr::with_exposed_provenance_mut::<u64>(own);
                for _ in 0..rounds {
                    // SAFETY: only this thread uses the counter.
                    unsafe { own.write_volatile(own.read_volatile() + 1) };
                }
            });
        }
    });
    println!("busy {}, idle {}", lie(&busy), lie(&idle));
}
