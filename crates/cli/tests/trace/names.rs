//! Names in replayed traces that only the recorder could know: variables on stacks, and blocks
//! that `operator new` allocated.

use crate::support::replays::replay;
use crate::support::{plain_sunder, sunder};
use std::path::Path;
use sunder_findings::{Findings, ObjectKind, Sharing};
use sunder_workloads::{Language, Table, Variant};

/// The replay of a short run of the workload `name`, recorded with hooks.
fn traced(name: &str, folder: &Path) -> Findings {
    let table = Table::load().expect("the table");
    let workload = table.workloads.iter().find(|w| w.name == name);
    let workload = workload.expect("in the table");
    let program = folder.join(name);
    let mut compiler = plain_sunder();
    compiler.arg(match workload.language {
        Language::Cpp => "c++",
        _ => "cc",
    });
    workload
        .compile_with(Variant::Shared, &mut compiler, &program)
        .expect("it compiles");
    let file = program.with_extension("trace");
    let mut record = sunder();
    record.args(["trace", "-o"]).arg(&file).arg("--");
    record.arg(&program).args(["2", "4000"]).assert().success();
    replay("simulate", &file, &[])
}

#[test]
fn a_variable_of_the_frame_in_which_threads_are_created_has_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let result = traced("stack_slots", folder.path());
    let named = |f: &&sunder_findings::Finding| f.object.name.as_deref() == Some("results");
    let found = result.findings.iter().find(named);
    let found = found.unwrap_or_else(|| panic!("{:#?}", result.findings));
    assert_eq!(found.object.kind, ObjectKind::Stack);
    assert_eq!(found.sharing, Sharing::False);
    let declared = found.object.allocation.first().expect("its function");
    assert_eq!(declared.function, "main");
}

/// Two threads write the halves of a line, by statements that become calls of hooks. Each stands between two
/// others, which must not be named.
const CALLS: &str = "
#include <pthread.h>
#include <stdatomic.h>
struct half { atomic_long count, last; };
_Alignas(64) struct half halves[2];
static _Alignas(64) volatile long before, after;
static void *work(void *own)
{
    struct half *half = own;
    for (int i = 0; i < 3000; i++) {
        before++;
        atomic_fetch_add(&half->count, 1); /* HERE */
        after++;
        before++;
        atomic_store(&half->last, i); /* HERE */
        after++;
    }
    return 0;
}
int main(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, &halves[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
";

#[test]
fn what_a_called_function_does_is_on_the_line_of_the_call() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("calls.c"), folder.path().join("calls"));
    std::fs::write(&source, CALLS).expect("a file of ours");
    let lines = CALLS.lines().zip(1..);
    let wanted: Vec<u32> = lines
        .filter(|(text, _)| text.ends_with("/* HERE */"))
        .map(|(_, line)| line)
        .collect();
    let mut compiler = sunder();
    compiler.args(["cc", "-O2", "-g", "-pthread", "-o"]);
    compiler.arg(&program).arg(&source).assert().success();
    let file = folder.path().join("calls.trace");
    let mut record = sunder();
    record.args(["trace", "-o"]).arg(&file).arg("--");
    record.arg(&program).assert().success();
    let result = replay("simulate", &file, &[]);
    let named = |f: &&sunder_findings::Finding| f.object.name.as_deref() == Some("halves");
    let found = result.findings.iter().find(named);
    let found = found.unwrap_or_else(|| panic!("{:#?}", result.findings));
    let mut seen: Vec<u32> = found.sites.iter().filter_map(|site| site.line).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, wanted, "{:#?}", found.sites);
}

#[test]
fn stacks_are_told_under_the_emulator_too() {
    if std::process::Command::new("qemu-x86_64")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("SKIP: qemu-x86_64 (Debian's package qemu-user) is not installed");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let table = Table::load().expect("the table");
    let workload = table.workloads.iter().find(|w| w.name == "stack_slots");
    let program = workload
        .expect("in the table")
        .build(Variant::Shared, folder.path())
        .expect("it compiles");
    let file = folder.path().join("trace");
    let mut record = sunder();
    record.args(["trace", "--via", "emulated", "-o"]).arg(&file);
    record.arg("--").arg(&program).args(["2", "4000"]);
    record.assert().success();
    let result = replay("simulate", &file, &[]);
    let named = |f: &&sunder_findings::Finding| f.object.name.as_deref() == Some("results");
    let found = result.findings.iter().find(named);
    let found = found.unwrap_or_else(|| panic!("{:#?}", result.findings));
    assert_eq!(found.object.kind, ObjectKind::Stack);
    // The trace has each thread's stack, and each thread's first accesses lie there.
    let trace = sunder_trace::Trace::open(&file).expect("recorded");
    let stacks: Vec<_> = trace
        .events(sunder_trace::Filter::default())
        .filter_map(|event| match event.what {
            sunder_trace::What::Stack { span } => Some((event.thread, span)),
            _ => None,
        })
        .collect();
    assert_eq!(stacks.len(), trace.threads().len());
    for (i, (_, span)) in stacks.iter().enumerate() {
        let others = &stacks[i + 1..];
        assert!(others.iter().all(|(_, other)| !span.overlaps(*other)));
    }
}

#[test]
fn what_operator_new_allocated_is_its_caller_s() {
    let folder = tempfile::tempdir().expect("a folder");
    let result = traced("shared_ptr_counts", folder.path());
    let heap = |f: &&sunder_findings::Finding| f.object.kind == ObjectKind::Heap;
    let found = result.findings.iter().find(heap);
    let found = found.unwrap_or_else(|| panic!("{:#?}", result.findings));
    let site = found.object.allocation_site().expect("a call stack");
    assert_eq!(site.function, "main", "{:?}", found.object.allocation);
    let file = site.file.as_deref().unwrap_or_default();
    assert!(file.ends_with("shared_ptr_counts.cpp"), "{file}");
}

const NEWS: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <new>
#ifdef OWN
static int calls;
void *operator new(std::size_t size) { calls++; return std::malloc(size); }
void operator delete(void *block) noexcept { std::free(block); }
void operator delete(void *block, std::size_t) noexcept { std::free(block); }
#endif
struct alignas(64) line { char bytes[64]; };
int main(int argc, char **) {
    int *volatile one = new int(argc);
    long *volatile some = new (std::nothrow) long[3];
    line *volatile aligned = new line;
    delete one;
    delete[] some;
    delete aligned;
#ifdef THROWS
    volatile std::size_t most = ~(std::size_t)0 / 4;
    try { ::operator delete(::operator new(most)); return 4; }
    catch (const std::bad_alloc &) { std::puts("caught"); }
    if (new (std::nothrow) char[most]) return 5;
#endif
#ifdef OWN
    return calls >= 1 ? 3 : 9;
#else
    return 3;
#endif
}
"#;

#[test]
fn a_program_s_own_operator_new_and_its_exceptions_stay_what_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("news.cpp");
    std::fs::write(&source, NEWS).expect("a file of ours");
    let program = folder.path().join("news");
    let cases: [(&[&str], &str); 3] = [
        (&["-DTHROWS"], "caught\n"),
        (&["-DOWN"], ""),
        (&["-static-libstdc++"], ""),
    ];
    for (options, told) in cases {
        let mut compile = sunder();
        compile.args(["c++", "-O1", "-g", "-o"]).arg(&program);
        compile.arg(&source).args(options).assert().success();
        // The program behaves the same whether it is recorded or not.
        let alone = std::process::Command::new(&program).output();
        let alone = alone.expect("it starts");
        assert_eq!(alone.status.code(), Some(3), "{options:?}");
        let file = folder.path().join("trace");
        let mut record = sunder();
        record.args(["trace", "-o"]).arg(&file).arg("--");
        let recorded = record.arg(&program).assert().code(3);
        assert_eq!(recorded.get_output().stdout, told.as_bytes(), "{options:?}");
        let trace = sunder_trace::Trace::open(&file).expect("recorded");
        let lines = trace.events(sunder_trace::Filter::default());
        let aligned = lines.filter(|event| {
            matches!(
                event.what,
                sunder_trace::What::Allocate {
                    size: 64,
                    align: Some(64),
                    ..
                }
            )
        });
        assert_eq!(aligned.count(), 1, "{options:?}");
    }
}
