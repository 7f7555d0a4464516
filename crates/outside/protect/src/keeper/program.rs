//! Which program the process executes. If the process executes another program, the keeper begins
//! anew if that program has the library and nothing was done to the last one. A program without the
//! library is left alone.

use super::{Keeper, SHORT};
use crate::guard::Guards;
use crate::image::Images;
use crate::pages::Pages;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};
use sunder_wire::isolation::{ISOLATE_MAGIC, ready};

/// The reason that is reported if the last program has no library.
const ELSEWHERE: &str = "the program has executed another one, which is not isolated";
/// Pause between two checks of whether the process executes the same program.
const IMAGE: Duration = Duration::from_millis(50);

impl Keeper {
    /// The process executes another program, which has the library again. The library reports that
    /// only if nothing was done to the last program, so what was learned of that one is forgotten.
    pub(super) fn begin_anew(&mut self) {
        if self.refused.is_some() {
            return;
        }
        if let Some(log) = &mut self.log {
            log.another_program();
        }
        self.pages = Pages::default();
        self.guards = Guards::default();
        self.images = Images::default();
        self.threads.clear();
        self.usual = 2.0 * SHORT;
        self.rests = None;
        self.next_conversion = None;
        self.missed = 0;
        for count in [
            &self.shared.page_count,
            &self.shared.code_count,
            &self.shared.guarded_count,
        ] {
            count.store(0, SeqCst);
        }
        for page in &self.shared.pages {
            page.bytes.iter().for_each(|bits| bits.store(0, Relaxed));
            page.given_up.store(0, Relaxed);
            page.work.store(0, Relaxed);
        }
        self.is_elsewhere = false;
        self.programs += 1;
        // Not if yet another program begins meanwhile: its library reports that too.
        let ready = &self.shared.ready;
        let _ = ready.compare_exchange(ready::ANOTHER, ready::READY, SeqCst, SeqCst);
    }

    /// Why no thread is isolated any more, if there is a reason.
    pub fn refusal(&self) -> Option<&str> {
        // The other program may have reported since that it has the library.
        let is_known = self.shared.ready.load(SeqCst) == ready::READY;
        let elsewhere = || (self.is_elsewhere && is_known).then_some(ELSEWHERE);
        self.refused.as_deref().or_else(elsewhere)
    }

    /// Isolates no thread any more. A reason that was found in the middle of an `exec` says nothing
    /// about the new program.
    pub(super) fn refuse(&mut self, why: String) {
        let has_begun = self.shared.ready.load(SeqCst) == ready::READY;
        if has_begun && self.is_same_image() {
            self.refused = Some(why);
        } else {
            self.is_elsewhere = self.is_another_image();
        }
    }

    /// Checks from time to time whether the process executes another program, whose library is not
    /// ready yet.
    pub(super) fn see_the_image(&mut self) {
        let now = Instant::now();
        if now < self.next_image || !self.is_open() {
            return;
        }
        self.next_image = now + IMAGE;
        self.is_elsewhere = self.is_another_image();
    }

    /// Whether the control file is still mapped where it was: an `exec` removes all mappings.
    pub(super) fn is_same_image(&self) -> bool {
        self.first_word() == Ok(ISOLATE_MAGIC)
    }

    /// Whether the control file is known not to be mapped there any more.
    pub(super) fn is_another_image(&self) -> bool {
        match self.first_word() {
            Ok(word) => word != ISOLATE_MAGIC,
            Err(error) => error == libc::EFAULT,
        }
    }

    /// The first word of the program's mapping of the control file, or the error number.
    fn first_word(&self) -> Result<u64, i32> {
        let base = self.shared.base.load(Relaxed);
        let mut word = 0u64;
        let local = libc::iovec {
            iov_base: (&raw mut word).cast(),
            iov_len: 8,
        };
        let remote = libc::iovec {
            iov_base: base as *mut _,
            iov_len: 8,
        };
        // SAFETY: the local part is valid for 8 bytes; the kernel checks the remote address.
        let read = unsafe {
            libc::process_vm_readv(self.process, &raw const local, 1, &raw const remote, 1, 0)
        };
        if read == 8 {
            return Ok(word);
        }
        let error = std::io::Error::last_os_error().raw_os_error();
        Err(error.unwrap_or_default())
    }
}
