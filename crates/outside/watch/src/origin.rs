//! Where a process belongs: its program, control group, container and unit. Reads `/proc` and, with
//! the rights of the process, its program's file.

use percent_encoding::percent_decode_str;
use sunder_access::ProcessId;
use sunder_findings::{Origin, file_name};
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::proc;

/// Bytes of a path that are kept: a program may choose very long ones.
const LONGEST: usize = 512;
/// The variable in which programs that OpenTelemetry observes are told what they are.
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// The facts of a living process; `None` if it is gone, or is a thread of the kernel.
pub fn origin(process: ProcessId, host: &str) -> Option<Origin> {
    let started_ticks = proc::start_ticks(process)?;
    let path = proc::executable(process).ok()?;
    let path = cut(path.to_string_lossy().trim_end_matches(" (deleted)"));
    let cgroup = proc::control_group(process).map(|group| cut(&group));
    let group = cgroup.as_deref().unwrap_or_default();
    Some(Origin {
        host: host.to_owned(),
        pid: process.0,
        started_ticks,
        program: file_name(&path).to_owned(),
        build_id: None,
        version: None,
        container: container(group),
        unit: unit(group),
        path: Some(path),
        cgroup,
    })
}

/// Build id and version of its program. Reads the program's file and the process's environment, so it is
/// only asked for when the process is looked at.
pub fn build(process: ProcessId) -> (Option<String>, Option<String>) {
    let file = ForeignFiles::of(process).executable().ok();
    let facts = file.map(sunder_objects::build_facts).unwrap_or_default();
    let service = proc::variable(process, ATTRIBUTES).and_then(|text| service_version(&text));
    (facts.build_id, service.or(facts.version).map(|v| cut(&v)))
}

/// `service.version` among attributes of a resource, as OpenTelemetry's variable has them: pairs with
/// commas between, whose values are percent-encoded.
fn service_version(attributes: &str) -> Option<String> {
    let pairs = attributes
        .split(',')
        .filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter(|(key, _)| key.trim() == "service.version");
    let value = values.next()?.1.trim();
    let value = percent_decode_str(value).decode_utf8().ok()?;
    (!value.is_empty()).then(|| value.into_owned())
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

/// The innermost container.
fn container(group: &str) -> Option<String> {
    group.rsplit('/').find_map(container_id)
}

/// The container that a part of a path names: 64 hexadecimal digits, as Docker, containerd, CRI-O and Podman
/// write them, with or without what is before (`docker-`, `cri-containerd-`) and behind.
pub fn container_id(part: &str) -> Option<String> {
    const DIGITS: usize = 64;
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let id = part.rsplit(['-', ':']).next()?;
    let is_id = id.len() == DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

/// The innermost service; else the innermost scope or other unit that holds processes.
fn unit(group: &str) -> Option<String> {
    let last = |end: &str| group.rsplit('/').find(|part| part.ends_with(end));
    last(".service")
        .or_else(|| last(".scope"))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_tell_container_and_unit() {
        let id = "0123456789abcdef".repeat(4);
        let of = |group: String| (container(&group), unit(&group));
        let known = Some(id.clone());
        let scope = format!("docker-{id}.scope");
        assert_eq!(
            of(format!("/system.slice/{scope}")),
            (known.clone(), Some(scope))
        );
        assert_eq!(of(format!("/docker/{id}")), (known.clone(), None));
        let pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice";
        let scope = format!("cri-containerd-{id}.scope");
        assert_eq!(of(format!("{pod}/{scope}")), (known, Some(scope)));
        assert_eq!(
            of("/user.slice/user-0.slice/user@0.service/app.slice/x.service".into()),
            (None, Some("x.service".into()))
        );
        assert_eq!(of("/".into()), (None, None));
        assert_eq!(of("/docker/0123".into()), (None, None));
    }

    #[test]
    fn the_version_is_one_of_the_resource_s_attributes() {
        let of = service_version;
        assert_eq!(
            of("service.name=shop,service.version=4.2"),
            Some("4.2".into())
        );
        assert_eq!(
            of(" service.version = a%2Cb%20c ,x=y"),
            Some("a,b c".into())
        );
        for none in [
            "",
            "service.version=",
            "service.version",
            "service.versions=1",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn our_own_process_is_described() {
        let own = ProcessId(std::process::id());
        let known = origin(own, "here").expect("we live");
        assert_eq!((known.pid, known.host.as_str()), (own.0, "here"));
        assert!(known.started_ticks > 0 && known.program.starts_with("sunder_watch"));
        assert_eq!(origin(ProcessId(1 << 23), "here"), None);
    }
}
