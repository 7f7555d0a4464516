// Rust: locks, conditions, channels, parking, scopes, panics, thread-locals: all of
// them wait by the system call itself, not through the C library's functions.
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, OnceLock, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

static ENDED: AtomicU64 = AtomicU64::new(0);

struct Local(Vec<u64>);

impl Drop for Local {
    fn drop(&mut self) {
        ENDED.fetch_add(self.0.len() as u64, Ordering::Relaxed);
    }
}

thread_local! {
    static LOCAL: RefCell<Local> = const { RefCell::new(Local(Vec::new())) };
}

/// Counters of different threads side by side.
static HOT: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

fn heat(own: usize, times: u64) {
    for _ in 0..times {
        HOT[own].store(HOT[own].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

fn main() {
    let scale: u64 = std::env::args().nth(1).map_or(1, |s| s.parse().expect("a number"));
    let rounds = 500 * scale;

    let turn = (Mutex::new(0), Condvar::new());
    let words = RwLock::new(Vec::new());
    let meet = Barrier::new(4);
    let once = Once::new();
    let first: OnceLock<u64> = OnceLock::new();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for own in 0..4_u64 {
            let (turn, words, meet, once, first) = (&turn, &words, &meet, &once, &first);
            threads.push(scope.spawn(move || {
                once.call_once(|| heat(7, 1));
                first.get_or_init(|| 42);
                for round in 0..rounds {
                    let mut now = turn.0.lock().expect("nobody panics");
                    while *now % 4 != own {
                        now = turn.1.wait(now).expect("nobody panics");
                    }
                    *now += 1;
                    turn.1.notify_all();
                    drop(now);
                    heat(own as usize, 100);
                    LOCAL.with_borrow_mut(|l| l.0.push(round));
                    if round % 50 == own {
                        words.write().expect("nobody panics").push(format!("{own} {round}"));
                    }
                    let seen = words.read().expect("nobody panics").len();
                    assert!(seen <= rounds as usize);
                }
                meet.wait();
            }));
        }
        // The end of a scope does not wait for the destructors of their thread-locals.
        for thread in threads {
            thread.join().expect("ended well");
        }
    });
    assert_eq!(*turn.0.lock().expect("nobody panics"), 4 * rounds);
    assert_eq!(ENDED.load(Ordering::Relaxed), 4 * rounds);
    for own in 0..4 {
        assert_eq!(HOT[own].load(Ordering::Relaxed), rounds * 100);
    }
    println!("turns, locals {}, once {}", ENDED.load(Ordering::Relaxed) / rounds, HOT[7].load(Ordering::Relaxed));

    let (send, receive) = mpsc::sync_channel(4);
    let senders: Vec<_> = (0..3_u64)
        .map(|own| {
            let send = send.clone();
            thread::spawn(move || (0..rounds).for_each(|i| send.send((own, i)).expect("received")))
        })
        .collect();
    drop(send);
    let mut next = [0; 3];
    for (own, i) in receive {
        assert_eq!(next[own as usize], i);
        next[own as usize] += 1;
    }
    for sender in senders {
        sender.join().expect("ended well");
    }
    println!("channels in order");

    let flag = Arc::new(AtomicBool::new(false));
    let sleeper = {
        let flag = Arc::clone(&flag);
        thread::spawn(move || {
            while !flag.load(Ordering::Acquire) {
                thread::park();
            }
        })
    };
    heat(0, 100_000);
    flag.store(true, Ordering::Release);
    sleeper.thread().unpark();
    sleeper.join().expect("ended well");
    let begin = Instant::now();
    thread::park_timeout(Duration::from_millis(30));
    thread::sleep(Duration::from_millis(30));
    assert!(begin.elapsed() >= Duration::from_millis(30));

    std::panic::set_hook(Box::new(|_| ()));
    let poisoned = Arc::new(Mutex::new(1));
    let panics = {
        let poisoned = Arc::clone(&poisoned);
        thread::Builder::new().name("panics".into()).spawn(move || {
            let _held = poisoned.lock().expect("first");
            LOCAL.with_borrow_mut(|l| l.0.push(0));
            panic!("on purpose");
        })
    };
    let result = panics.expect("a thread").join();
    let message = *result.expect_err("panicked").downcast::<&str>().expect("a text");
    println!("{message}, poisoned {}", poisoned.is_poisoned());
}
