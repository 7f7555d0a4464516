//! The vDSO: code that the kernel maps into every process, in no file. Ours equals the target's,
//! which may have ended.

use super::image::Image;

/// The kernel's vdso has at most a few pages of code and tables; the ELF header
/// says how many.
pub(super) fn image() -> Option<Image> {
    // SAFETY: no preconditions.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    if base == 0 {
        return None;
    }
    let own = sunder_access::ProcessId(std::process::id());
    let mappings = crate::proc::mappings(own).ok()?;
    let mapping = mappings.at(sunder_access::Address(base))?;
    let bytes = crate::remote::read(own, mapping.span.start, mapping.span.len as usize)?;
    Image::from_memory(bytes)
}
