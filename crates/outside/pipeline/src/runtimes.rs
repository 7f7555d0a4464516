//! Which runtime makes code in a process, by the libraries that it has mapped. Called where neither
//! debug information nor a file tells the language of an object.

use sunder_access::Mappings;
use sunder_findings::Language;

/// The language of the runtime, if one of those that are known is there.
pub fn runtime_of(mappings: &Mappings) -> Option<Language> {
    let files = mappings.iter().filter(|m| m.is_file() && m.execute);
    files.into_iter().find_map(|m| runtime_of_file(&m.path))
}

/// The language of the runtime to which the file at `path` belongs.
pub fn runtime_of_file(path: &str) -> Option<Language> {
    let file = path.rsplit('/').next()?;
    let numbered = |name: &str| {
        let rest = file.strip_prefix(name);
        rest.is_some_and(|r| r.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
    };
    match file {
        "libjvm.so" => Some(Language::Java),
        "libcoreclr.so" => Some(Language::Dotnet),
        "node" => Some(Language::Javascript),
        _ if file.starts_with("libnode.so") => Some(Language::Javascript),
        _ if file.starts_with("libpython") || numbered("python") => Some(Language::Python),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_known_by_their_files() {
        for (path, language) in [
            ("/usr/lib/jvm/17/lib/server/libjvm.so", Some(Language::Java)),
            ("/usr/bin/python3.12", Some(Language::Python)),
            ("/usr/lib/libpython3.12.so.1.0", Some(Language::Python)),
            ("/usr/bin/node", Some(Language::Javascript)),
            ("/usr/bin/nodejs-helper", None),
            ("/usr/bin/pythonic", None),
            ("/usr/lib/libc.so.6", None),
        ] {
            assert_eq!(runtime_of_file(path), language, "{path}");
        }
    }
}
