//! The memory events of this machine's PMUs.
//!
//! Intel: load latency (`mem-loads`, with its auxiliary event where the kernel requires one) and
//! stores (`mem-stores`), by the kernel's names; and the retired loads that hit a line modified in
//! another core's cache, by CPU model. AMD: instruction-based sampling of operations (`ibs_op`).
//! Only reads files below given folders, so that tests can describe any machine.

use super::sysfs::Pmu;
use crate::perf_event::Attr;
use std::fs;
use std::path::Path;

/// Loads faster than this, in cycles, are not sampled: an L3 hit without a transfer takes 40 to 70.
/// `perf mem` uses the same value.
const LOAD_LATENCY: u32 = 30;

/// A memory event that can be opened.
#[derive(Clone, Debug)]
pub(crate) struct MemoryEvent {
    /// Its name in `perf`.
    pub name: String,
    /// The attribute with type and configuration only.
    pub attr: Attr,
    /// An event that must lead its group (`mem-loads-aux`); its own count is not used.
    pub leader: Option<Attr>,
    /// Whether every sample is a load that hit another core's modified line,
    /// although its data source does not say so.
    pub hitm: bool,
    /// The precision to try first; 0 where the PMU is always precise.
    pub precise: u32,
    /// Whether the kernel can exclude kernel mode (old IBS cannot).
    pub filters_kernel: bool,
    /// The CPUs on which it counts; `None` means all.
    pub cpus: Option<Vec<u32>>,
}

/// Vendor, family and model of the CPU, as `/proc/cpuinfo` shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CpuModel {
    vendor: String,
    family: u32,
    model: u32,
}

impl CpuModel {
    fn read(proc: &Path) -> Self {
        let info = fs::read_to_string(proc.join("cpuinfo")).unwrap_or_default();
        let field = |wanted: &str| {
            info.lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| name.trim() == wanted)
                .map(|(_, value)| value.trim())
        };
        let number = |wanted| field(wanted).and_then(|n| n.parse().ok()).unwrap_or(0);
        Self {
            vendor: field("vendor_id").unwrap_or_default().into(),
            family: number("cpu family"),
            model: number("model"),
        }
    }

    /// Whether event 0xd2 with mask 0x04 is the retired load that another core's
    /// modified line answered: `MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_HITM` from
    /// Sandy Bridge on, `MEM_LOAD_L3_HIT_RETIRED.XSNP_HITM` from Skylake and
    /// `.XSNP_FWD` from Ice Lake (Intel's published event lists).
    fn has_snoop_loads(&self) -> bool {
        const MODELS: [u32; 37] = [
            0x2a, 0x2d, // Sandy Bridge
            0x3a, 0x3e, // Ivy Bridge
            0x3c, 0x3f, 0x45, 0x46, // Haswell
            0x3d, 0x47, 0x4f, 0x56, // Broadwell
            0x4e, 0x5e, 0x55, 0x8e, 0x9e, 0xa5, 0xa6, // Skylake to Comet Lake
            0x66, 0x7d, 0x7e, 0x6a, 0x6c, // Cannon Lake, Ice Lake
            0x8c, 0x8d, 0xa7, // Tiger Lake, Rocket Lake
            0x97, 0x9a, 0xb7, 0xba, 0xbf, // Alder Lake, Raptor Lake
            0x8f, 0xcf, // Sapphire Rapids, Emerald Rapids
            0xad, 0xae, // Granite Rapids
            0xaa, // Meteor Lake
        ];
        self.vendor == "GenuineIntel" && self.family == 6 && MODELS.contains(&self.model)
    }
}

/// The memory events that are described below `devices`
/// (`/sys/bus/event_source/devices`) for the CPU of `proc` (`/proc`). Empty if
/// there are none, as in most virtual machines.
pub(crate) fn discover(devices: &Path, proc: &Path) -> Vec<MemoryEvent> {
    let cpu = CpuModel::read(proc);
    let mut found = Vec::new();
    // Hybrid CPUs have one PMU for each kind of core.
    for name in ["cpu", "cpu_core", "cpu_atom"] {
        if let Some(pmu) = Pmu::read(devices, name) {
            found.extend(intel_events(&pmu, name, &cpu));
        }
    }
    if let Some(pmu) = Pmu::read(devices, "ibs_op") {
        found.extend(ibs_event(&pmu));
    }
    found
}

fn intel_events(pmu: &Pmu, name: &str, cpu: &CpuModel) -> Vec<MemoryEvent> {
    let mut found = Vec::new();
    let Some(loads) = pmu.event("mem-loads") else {
        // Without load latency there is no PEBS either (AMD, virtual PMUs).
        return found;
    };
    let precise = pmu.max_precise().unwrap_or(MAX_PRECISE).min(MAX_PRECISE);
    let mut add = |label: String, terms: &str, leader: Option<Attr>, hitm: bool| {
        let Some(attr) = attr_of(pmu, terms) else {
            return;
        };
        found.push(MemoryEvent {
            name: label,
            attr,
            leader,
            hitm,
            precise,
            filters_kernel: true,
            cpus: pmu.cpus.clone(),
        });
    };
    // The kernel refuses mem-loads outside a group with this event where it
    // exists (Sapphire Rapids, Alder Lake: ENODATA).
    let aux = pmu
        .event("mem-loads-aux")
        .and_then(|terms| attr_of(pmu, &terms));
    let loads = if pmu.has_term("ldlat") {
        format!("{loads},ldlat={LOAD_LATENCY}")
    } else {
        loads
    };
    add(format!("{name}/mem-loads/"), &loads, aux, false);
    if let Some(stores) = pmu.event("mem-stores") {
        add(format!("{name}/mem-stores/"), &stores, None, false);
    }
    if cpu.has_snoop_loads() && name != "cpu_atom" {
        let terms = "event=0xd2,umask=0x04";
        add(format!("{name}/{terms}/"), terms, None, true);
    }
    found
}

/// `precise_ip` has two bits.
const MAX_PRECISE: u32 = 3;

fn ibs_event(pmu: &Pmu) -> Option<MemoryEvent> {
    // Sampling by operations instead of cycles hits each instruction equally
    // often; not every CPU can.
    let mut terms = vec![];
    if pmu.has_term("cnt_ctl") {
        terms.push("cnt_ctl=1");
    }
    // Linux 6.13: the kernel filters by mode in software.
    let filters_kernel = pmu.has_term("swfilt");
    if filters_kernel {
        terms.push("swfilt=1");
    }
    Some(MemoryEvent {
        name: "ibs_op//".into(),
        attr: attr_of(pmu, &terms.join(","))?,
        leader: None,
        hitm: false,
        precise: 0,
        filters_kernel,
        cpus: pmu.cpus.clone(),
    })
}

fn attr_of(pmu: &Pmu, terms: &str) -> Option<Attr> {
    let config = pmu.encode(terms)?;
    let mut attr = Attr::new(pmu.kind, config.words[0]);
    attr.config1 = config.words[1];
    attr.config2 = config.words[2];
    Some(attr)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct MadeUp(tempfile::TempDir);

    impl MadeUp {
        fn new(vendor: &str, family: u32, model: u32) -> Self {
            let made = Self(tempfile::tempdir().unwrap());
            let info =
                format!("vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n");
            made.write("proc/cpuinfo", &info);
            made
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn intel_pmu(&self, name: &str, kind: u32) {
            self.write(&format!("sys/{name}/type"), &format!("{kind}\n"));
            for (term, bits) in [
                ("event", "config:0-7"),
                ("umask", "config:8-15"),
                ("ldlat", "config1:0-15"),
            ] {
                self.write(&format!("sys/{name}/format/{term}"), bits);
            }
            self.write(&format!("sys/{name}/caps/max_precise"), "3\n");
        }

        fn discover(&self) -> Vec<MemoryEvent> {
            discover(&self.0.path().join("sys"), &self.0.path().join("proc"))
        }
    }

    #[test]
    fn skylake_has_loads_stores_and_snooped_loads() {
        let made = MadeUp::new("GenuineIntel", 6, 0x55);
        made.intel_pmu("cpu", 4);
        made.write("sys/cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n");
        made.write("sys/cpu/events/mem-stores", "event=0xd0,umask=0x82\n");
        let found = made.discover();
        let seen: Vec<_> = found
            .iter()
            .map(|e| (e.attr.type_, e.attr.config, e.attr.config1, e.hitm))
            .collect();
        assert_eq!(
            seen,
            [
                (4, 0x01cd, 30, false),
                (4, 0x82d0, 0, false),
                (4, 0x04d2, 0, true),
            ]
        );
        assert!(found.iter().all(|e| e.leader.is_none() && e.precise == 3));
    }

    #[test]
    fn sapphire_rapids_loads_need_their_auxiliary_event() {
        let made = MadeUp::new("GenuineIntel", 6, 0x8f);
        made.intel_pmu("cpu", 4);
        made.write("sys/cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3");
        made.write("sys/cpu/events/mem-loads-aux", "event=0x03,umask=0x82");
        let found = made.discover();
        assert_eq!(found[0].leader.map(|leader| leader.config), Some(0x8203));
    }

    #[test]
    fn a_hybrid_cpu_has_events_on_each_kind_of_core() {
        let made = MadeUp::new("GenuineIntel", 6, 0x97);
        made.intel_pmu("cpu_core", 4);
        made.write("sys/cpu_core/cpus", "0-15\n");
        made.write(
            "sys/cpu_core/events/mem-loads",
            "event=0xcd,umask=0x1,ldlat=3",
        );
        made.intel_pmu("cpu_atom", 10);
        made.write("sys/cpu_atom/cpus", "16-23\n");
        made.write(
            "sys/cpu_atom/events/mem-loads",
            "event=0xd0,umask=0x5,ldlat=3",
        );
        let found = made.discover();
        let seen: Vec<_> = found
            .iter()
            .map(|e| (e.name.as_str(), e.attr.type_, e.cpus.as_ref().map(Vec::len)))
            .collect();
        assert_eq!(
            seen,
            [
                ("cpu_core/mem-loads/", 4, Some(16)),
                ("cpu_core/event=0xd2,umask=0x04/", 4, Some(16)),
                ("cpu_atom/mem-loads/", 10, Some(8)),
            ]
        );
    }

    #[test]
    fn ibs_filters_the_kernel_only_where_it_can() {
        let made = MadeUp::new("AuthenticAMD", 25, 1);
        made.write("sys/ibs_op/type", "11\n");
        made.write("sys/ibs_op/format/cnt_ctl", "config:19\n");
        // AMD's core PMU has no mem-loads.
        made.intel_pmu("cpu", 4);
        let found = made.discover();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].attr.type_, found[0].attr.config), (11, 1 << 19));
        assert!(!found[0].filters_kernel && found[0].precise == 0);
        made.write("sys/ibs_op/format/swfilt", "config2:0\n");
        let found = made.discover();
        assert!(found[0].filters_kernel);
        assert_eq!(found[0].attr.config2, 1);
    }

    #[test]
    fn a_virtual_machine_has_none() {
        let made = MadeUp::new("GenuineIntel", 6, 0xcf);
        assert!(made.discover().is_empty());
        // A virtual PMU counts cycles but samples no memory.
        made.intel_pmu("cpu", 4);
        assert!(made.discover().is_empty());
        // Described, but in terms that this program does not know.
        made.write("sys/cpu/events/mem-loads", "event=0xcd,frontend=0x1");
        assert!(made.discover().iter().all(|event| event.hitm));
    }
}
