//! What was changed in a program, and what is needed to take it out: written into the program's own
//! memory before anything is changed, so that another run of the tool can take out what a killed one
//! has left ([`super::remnant`]). The program can change it; it then has done to it what it says,
//! with the program's rights and in its own memory. So all numbers are checked, and none is trusted
//! to be true. Called by `inject` and `remnant`.

use anyhow::{Context, Result, ensure};
use sunder_access::PAGE;
use sunder_stop::Gate;
use sunder_x86::jump::jump;

/// The first word: "SUNDLEDG", and below it the version of this form.
const MAGIC: u64 = u64::from_le_bytes(*b"SUNDLEDG");
const VERSION: u64 = 1;
/// More bytes are never read.
pub const MOST_BYTES: u64 = 1 << 20;
/// Room for the masks of threads that blocked the signal of faults. Those of more threads are not
/// written down.
const MOST_OPENED: usize = 1024;
/// The most bytes of code that a hook overwrites.
const MOST_CODE: u64 = 64;
/// The instruction that fills what a jump does not take of the overwritten bytes.
const NOP: u8 = 0x90;

/// A hook: a jump in the program's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its address.
    pub at: u64,
    /// The code that it replaces.
    pub original: Vec<u8>,
    /// Where it leads.
    pub to: u64,
}

impl Hook {
    /// The code that it is.
    ///
    /// # Errors
    /// If no jump reaches so far.
    pub fn code(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![NOP; self.original.len()];
        let jump = jump(self.at as usize, self.to as usize);
        let jump = jump.context("its C library is out of reach")?;
        let head = bytes.get_mut(..jump.len());
        head.context("a hook is too short")?.copy_from_slice(&jump);
        Ok(bytes)
    }

    /// Whether `ip` lies inside the overwritten code, where no thread may stand while it changes.
    pub fn is_inside(&self, ip: u64) -> bool {
        let end = self.at.saturating_add(self.original.len() as u64);
        self.at < ip && ip < end
    }
}

/// See the head of this file. Addresses are those of the program.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Start and end addresses of our memory, except the control file and the areas.
    pub parts: Vec<(u64, u64)>,
    /// The code that functions of the library return to.
    pub stub: u64,
    /// Upper end of the stack on which they run.
    pub stack: u64,
    /// Upper end of the memory for the signal frame of a borrowed thread.
    pub frames: u64,
    /// Where the control file is mapped; 0 if it is not yet.
    pub control: u64,
    /// The library's function that gives the signal handlers back; 0 if no function of the library
    /// can be called yet, and so nothing is to be given back.
    pub end: u64,
    /// The library's function that puts an area's bytes back.
    pub roll_back: u64,
    /// Code through which a thread makes calls for us.
    pub gate: Gate,
    /// Addresses of code that returns from signal handlers.
    pub restorers: Vec<u64>,
    /// The hooks, whether they are in the code or not.
    pub hooks: Vec<Hook>,
    /// Threads that blocked the signal of faults, and the signal masks that they had.
    pub opened: Vec<(i32, u64)>,
}

/// Bytes of memory that a ledger needs for so many hooks and restorers.
pub const fn room(hooks: usize, restorers: usize) -> u64 {
    let most_of_one = 3 + MOST_CODE as usize / 8;
    let words = 64 + hooks * most_of_one + restorers + 2 * MOST_OPENED;
    (words as u64 * 8).next_multiple_of(PAGE)
}

impl Ledger {
    /// Whether an address lies in our memory.
    pub fn has(&self, ip: u64) -> bool {
        self.parts
            .iter()
            .any(|&(start, end)| (start..end).contains(&ip))
    }

    /// The form in which it lies in the program.
    pub fn bytes(&self) -> Vec<u8> {
        let mut words = vec![MAGIC, VERSION, self.stub, self.stack, self.frames];
        words.extend([self.control, self.end, self.roll_back]);
        words.extend([self.gate.call, self.gate.restore]);
        words.push(self.parts.len() as u64);
        words.extend(self.parts.iter().flat_map(|&(start, end)| [start, end]));
        words.push(self.restorers.len() as u64);
        words.extend(&self.restorers);
        words.push(self.hooks.len() as u64);
        for hook in &self.hooks {
            words.extend([hook.at, hook.to, hook.original.len() as u64]);
            words.extend(hook.original.chunks(8).map(|part| {
                let mut word = [0; 8];
                word[..part.len()].copy_from_slice(part);
                u64::from_le_bytes(word)
            }));
        }
        let opened = &self.opened[..self.opened.len().min(MOST_OPENED)];
        words.push(opened.len() as u64);
        words.extend(
            opened
                .iter()
                .flat_map(|&(thread, mask)| [thread as u64, mask]),
        );
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // Its length is told by the first bytes.
        let len = (bytes.len() as u64 + 8).to_le_bytes();
        bytes.splice(0..0, len);
        bytes
    }

    /// Reads what [`Self::bytes`] has made; `bytes` may have more behind it.
    ///
    /// # Errors
    /// If it is something else, or says what can't be.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let mut words = Words(words.iter().map(|word| u64::from_le_bytes(*word)));
        words.next()?;
        ensure!(
            words.next()? == MAGIC && words.next()? == VERSION,
            "it was left by another version of Sunder"
        );
        let [stub, stack, frames, control, end, roll_back, call, restore] = words.many()?;
        let parts = words.list(64, |words| Ok((words.next()?, words.next()?)))?;
        let restorers = words.list(1 << 16, Words::next)?;
        let hooks = words.list(1 << 16, |words| {
            let [at, to, len] = words.many()?;
            ensure!(len <= MOST_CODE, "a hook is too long");
            let mut original = Vec::new();
            for _ in 0..len.div_ceil(8) {
                original.extend(words.next()?.to_le_bytes());
            }
            original.truncate(len as usize);
            Ok(Hook { at, original, to })
        })?;
        let opened = words.list(MOST_OPENED as u64, |words| {
            Ok((words.next()? as i32, words.next()?))
        })?;
        Ok(Self {
            parts,
            stub,
            stack,
            frames,
            control,
            end,
            roll_back,
            gate: Gate { call, restore },
            restorers,
            hooks,
            opened,
        })
    }
}

struct Words<I>(I);

impl<I: Iterator<Item = u64>> Words<I> {
    fn next(&mut self) -> Result<u64> {
        self.0.next().context("what it has written down is cut off")
    }

    fn many<const N: usize>(&mut self) -> Result<[u64; N]> {
        let mut all = [0; N];
        for one in &mut all {
            *one = self.next()?;
        }
        Ok(all)
    }

    /// A number of entries, `most` at most, and so many entries.
    fn list<T>(&mut self, most: u64, one: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.next()?;
        ensure!(
            count <= most,
            "what it has written down has too long a list"
        );
        (0..count).map(|_| one(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        Ledger {
            parts: vec![(0x1000, 0x9000), (0x20000, 0x21000)],
            stub: 1,
            stack: 2,
            frames: 3,
            control: 4,
            end: 5,
            roll_back: 6,
            gate: Gate {
                call: 7,
                restore: 8,
            },
            restorers: vec![9, 10],
            hooks: vec![
                Hook {
                    at: 0x1000,
                    original: (0..11).collect(),
                    to: 0x2000,
                },
                Hook {
                    at: 0x3000,
                    original: (0..5).collect(),
                    to: 0x2100,
                },
            ],
            opened: vec![(77, 1 << 63)],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let (wanted, mut bytes) = (ledger(), ledger().bytes());
        assert_eq!(bytes[..8], (bytes.len() as u64).to_le_bytes());
        assert!(bytes.len() as u64 <= room(wanted.hooks.len(), wanted.restorers.len()));
        bytes.extend([0xff; 100]);
        let read = Ledger::read(&bytes).expect("whole");
        assert_eq!(format!("{read:?}"), format!("{wanted:?}"));
    }

    #[test]
    fn a_ledger_that_is_cut_off_or_absurd_is_refused() {
        let bytes = ledger().bytes();
        for len in 0..bytes.len() {
            assert!(Ledger::read(&bytes[..len]).is_err(), "{len} bytes");
        }
        for at in (0..bytes.len()).step_by(8) {
            let mut absurd = bytes.clone();
            absurd[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
            // It may be read, if the word was an address; it never takes memory for what it says.
            let _ = Ledger::read(&absurd);
        }
    }

    #[test]
    fn the_first_byte_of_a_hook_is_not_inside() {
        let hook = &ledger().hooks[1];
        let inside: Vec<u64> = (0x2ff0..0x3010).filter(|&ip| hook.is_inside(ip)).collect();
        assert_eq!(inside, [0x3001, 0x3002, 0x3003, 0x3004]);
    }
}
