//! Memory that processes have in common (`MAP_SHARED`, memory files, System V segments) has
//! other addresses in each of them. Accesses to it are translated to one address space in which
//! each place is a file and an offset, and judged there. Fed by `session` in addition to the
//! judges of the processes; it only reports what threads of several processes share.

use crate::assemble::{Assembled, assemble};
use crate::common_memory::is_common;
use crate::process::Process;
use crate::wanted::Wanted;
use std::collections::{HashMap, HashSet};
use sunder_access::{Address, CodeAddress, Mapping, Mappings, ProcessId, Span, ThreadId, Time};
use sunder_findings as findings;
use sunder_findings::{Finding, ProcessName};
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::{Decoded, RawSample};
use sunder_sharing::Config;

/// The start of files whose own addresses are taken: beyond all user addresses.
const ELSEWHERE: u64 = 1 << 52;
/// The distance between two such files.
const STRIDE: u64 = 1 << 44;

/// The judge of memory that processes have in common.
pub struct Shared {
    /// The common address space, in the form of a process.
    space: Process,
    mappings: Mappings,
    /// The address of the first byte of each file.
    files: HashMap<(String, u64), u64>,
    elsewhere: u64,
    owners: HashMap<ThreadId, ProcessId>,
    moved: Decoded,
}

impl Shared {
    /// Without any events yet.
    pub fn new(config: Config) -> Self {
        Self {
            space: Process::recorded(ProcessId(0), config),
            mappings: Mappings::new(),
            files: HashMap::new(),
            elsewhere: ELSEWHERE,
            owners: HashMap::new(),
            moved: Decoded::default(),
        }
    }

    /// Sets the measured cost of a line transfer.
    pub fn set_transfer(&mut self, nanoseconds: f64) {
        self.space.judge.set_transfer(nanoseconds);
    }

    /// Whether threads were seen to contend for a line.
    pub fn has_any(&self) -> bool {
        self.space.judge.is_any_line_contended()
    }

    /// Judges the accesses of a sample, taken in a process with `mappings`, that touch common
    /// memory.
    pub fn sample(&mut self, mappings: &Mappings, sample: &RawSample, decoded: &Decoded) {
        let mut moved = std::mem::take(&mut self.moved);
        moved.accesses.clear();
        moved.distances.clear();
        for (access, distance) in decoded.accesses.iter().zip(&decoded.distances) {
            let Some(mapping) = mappings.at(access.address).filter(|m| is_common(m)) else {
                continue;
            };
            let mut access = *access;
            access.address = self.place(mapping, access.address);
            let code = Address(access.instruction.0);
            if let Some(mapping) = mappings.at(code) {
                access.instruction = CodeAddress(self.place(mapping, code).0);
            }
            moved.accesses.push(access);
            moved.distances.push(*distance);
        }
        self.owners.insert(sample.thread, sample.process);
        // Also without accesses: the sample is time that the thread spent elsewhere.
        self.space.sample(sample, &moved);
        self.moved = moved;
    }

    /// The place in the common address space of the byte at `address`, which lies in `mapping`.
    /// It is the same address unless another file is there.
    fn place(&mut self, mapping: &Mapping, address: Address) -> Address {
        if mapping.inode == 0 {
            return address;
        }
        let key = (mapping.path.clone(), mapping.inode);
        let base = match self.files.get(&key) {
            Some(base) => *base,
            None => {
                let wanted = mapping.span.start.0.wrapping_sub(mapping.file_offset);
                let base = if self.is_free(mapping.span) {
                    wanted
                } else {
                    self.elsewhere += STRIDE;
                    self.elsewhere
                };
                self.files.insert(key, base);
                base
            }
        };
        let start = Address(base.wrapping_add(mapping.file_offset));
        if self
            .mappings
            .at(start)
            .is_none_or(|m| m.span.len < mapping.span.len)
        {
            let span = Span::new(start, mapping.span.len);
            self.mappings.insert(Mapping {
                span,
                ..mapping.clone()
            });
        }
        Address(base.wrapping_add(mapping.file_offset_of(address)))
    }

    fn is_free(&self, span: Span) -> bool {
        let meets = |m: &Mapping| m.span.start < span.end() && span.start < m.span.end();
        !self.mappings.iter().any(meets)
    }

    /// The findings about memory that threads of several of `processes` share, and their lines.
    pub fn finish(
        &mut self,
        processes: &[Process],
        start: Time,
        end: Time,
    ) -> (Assembled, HashSet<Address>) {
        for process in processes {
            self.space.threads.take_names(&process.threads);
        }
        let files = processes.iter().map(|process| process.files.as_ref());
        self.space.set_files(ForeignFiles::of_all(files));
        self.space.set_mappings(self.mappings.clone());
        let names: HashMap<u32, ProcessName> =
            processes.iter().map(|p| (p.id.0, p.reference())).collect();
        let mut all = assemble(&mut self.space, &Wanted::All, start, end);
        all.weak = 0;
        all.findings.retain_mut(|finding| {
            let mut ids: Vec<u32> = Vec::new();
            let words = finding.lines.iter_mut().flat_map(|l| &mut l.words);
            for thread in words.flat_map(|w| &mut w.threads) {
                thread.process = self.owners.get(&ThreadId(thread.id)).map(|p| p.0);
                ids.extend(thread.process);
            }
            ids.sort_unstable();
            ids.dedup();
            finding.processes = ids.iter().filter_map(|id| names.get(id).cloned()).collect();
            ids.len() > 1
        });
        let lines = all.findings.iter().flat_map(|f| &f.lines);
        let lines = lines.map(|l| l.address).collect();
        (all, lines)
    }

    /// Whether all lines of a finding of a process with `mappings` are among the lines `reported`,
    /// which are addresses in the common address space.
    pub fn is_reported(
        &mut self,
        mappings: &Mappings,
        finding: &Finding,
        reported: &HashSet<Address>,
    ) -> bool {
        let is_known = |line: &findings::Line| {
            let mapping = mappings.at(line.address).filter(|m| is_common(m));
            mapping.is_some_and(|m| reported.contains(&self.place(m, line.address)))
        };
        !reported.is_empty() && !finding.lines.is_empty() && finding.lines.iter().all(is_known)
    }
}
