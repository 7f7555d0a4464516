//! A finding's identity across runs, builds and machines, for SARIF viewers and for comparison.
//! It must not depend on addresses, thread numbers, ranks, counts, line numbers or the folder
//! in which a program was built.

use crate::object::Object;
use crate::schema::Finding;
use crate::simulation::LatentOn;
use crate::subject::{file_name, normalized_field};
use std::collections::BTreeSet;

/// 32 hexadecimal digits, which are the same for two findings if they are about the same objects.
///
/// It is made of the objects' kind, name and type, the function and file (not
/// the line) that allocated or declared them, and whether and how the finding is
/// latent. Objects without any name are told apart by the functions that touch them.
///
/// The written fields are not part of it: which of them a short run sees is partly chance.
pub fn fingerprint(finding: &Finding) -> String {
    digest(&identity(finding))
}

/// The fingerprint with the written fields, without element numbers. Of several findings about
/// the same objects a comparison first matches those with the same fields.
pub(crate) fn fingerprint_with_fields(finding: &Finding) -> String {
    let mut parts = identity(finding);
    let fields = finding.written_fields().into_iter();
    parts.extend(fields.map(|field| format!("field {field}")));
    digest(&parts)
}

fn identity(finding: &Finding) -> Vec<String> {
    let latent = match (finding.latent, finding.latent_on) {
        (false, _) => "present".to_owned(),
        (true, Some(LatentOn::LineSize(bytes))) => format!("latent at lines of {bytes}"),
        (true, Some(LatentOn::StartOffset(_))) => "latent at another start".to_owned(),
        (true, Some(LatentOn::MoreCpusThan(_))) => "latent with more processors".to_owned(),
        (true, None) => "latent".to_owned(),
    };
    let mut objects: Vec<String> = std::iter::once(&finding.object)
        .chain(&finding.neighbour)
        .map(object_identity)
        .collect();
    // The addresses decide which of two neighbours comes first, so they are sorted.
    objects.sort();
    let mut parts = vec![latent];
    let nameless = !finding.object.has_identity();
    parts.extend(objects);
    if nameless {
        let functions: BTreeSet<&str> = finding.sites.iter().map(|s| s.function.as_str()).collect();
        parts.extend(functions.into_iter().map(|f| format!("touched in {f}")));
    }
    parts
}

fn object_identity(object: &Object) -> String {
    let site = object.allocation_site();
    let declared = object.declared.as_ref().map(|d| file_name(&d.file));
    [
        object.kind.words(),
        object.name.as_deref().unwrap_or_default(),
        &normalized_field(object.type_name.as_deref().unwrap_or_default()),
        site.map(|f| f.function.as_str()).unwrap_or_default(),
        site.and_then(|f| f.file.as_deref())
            .map(file_name)
            .unwrap_or_default(),
        declared.unwrap_or_default(),
    ]
    .join("\u{1f}")
}

impl Object {
    fn has_identity(&self) -> bool {
        self.name.is_some() || self.type_name.is_some() || !self.allocation.is_empty()
    }
}

/// FNV-1a with 128 bits. It never changes, unlike the standard library's hasher, and it need
/// not be secret.
fn digest(parts: &[String]) -> String {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut hash = BASIS;
    for part in parts {
        for byte in part.bytes().chain([0x1e]) {
            hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
        }
    }
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples;
    use sunder_access::Address;

    #[test]
    fn addresses_threads_and_ranks_do_not_matter() {
        let one = examples::linear_regression();
        let mut two = one.clone();
        two.rank = 9;
        two.cost_percent = 1.0;
        two.object.address = Address(0x7000);
        two.object.size = Some(9999);
        for line in &mut two.lines {
            line.address = Address(0x7000);
            for word in &mut line.words {
                word.field = word
                    .field
                    .as_ref()
                    .map(|f| f.replace("[1]", "[3]").replace("[0]", "[2]"));
                for thread in &mut word.threads {
                    thread.id += 5000;
                }
            }
        }
        for frame in &mut two.object.allocation {
            frame.line = frame.line.map(|l| l + 7);
            frame.file = frame
                .file
                .as_ref()
                .map(|f| format!("/elsewhere/{}", file_name(f)));
        }
        assert_ne!(one, two);
        assert_eq!(fingerprint(&one), fingerprint(&two));
    }

    #[test]
    fn a_field_that_was_not_seen_does_not_make_another_finding() {
        let one = examples::linear_regression();
        let mut two = one.clone();
        two.lines[0].words[0].field = Some("[0].other".into());
        assert_eq!(fingerprint(&one), fingerprint(&two));
        assert_ne!(fingerprint_with_fields(&one), fingerprint_with_fields(&two));
    }

    #[test]
    fn another_object_or_site_is_another_finding() {
        let one = examples::linear_regression();
        let mut variants = vec![one.clone(); 3];
        variants[0].object.type_name = Some("other_args".into());
        variants[1].object.allocation[1].function = "elsewhere".into();
        variants[2].latent = true;
        for other in variants {
            assert_ne!(fingerprint(&one), fingerprint(&other));
        }
    }

    #[test]
    fn the_order_of_two_neighbours_does_not_matter() {
        let one = examples::heap_pair();
        let mut two = one.clone();
        two.object = one.neighbour.clone().expect("a pair");
        two.neighbour = Some(one.object.clone());
        assert_eq!(fingerprint(&one), fingerprint(&two));
    }

    #[test]
    fn unnamed_memory_is_distinguished_by_its_instructions() {
        let one = examples::no_debug_info();
        let mut two = one.clone();
        two.sites[0].function = "elsewhere+0x10".into();
        assert_ne!(fingerprint(&one), fingerprint(&two));
    }

    /// The published test vector of FNV-1a 128 for "a", with our separator appended by hand.
    #[test]
    fn the_hash_is_fnv_1a() {
        let a: u128 = 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964;
        let prime: u128 = (1 << 88) + 0x13b;
        let wanted = (a ^ 0x1e).wrapping_mul(prime);
        assert_eq!(digest(&["a".to_owned()]), format!("{wanted:032x}"));
    }
}
