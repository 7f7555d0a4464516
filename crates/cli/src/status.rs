//! Exit statuses of Sunder's own. The target's status passes through unchanged
//! (128 + signal number for a death by signal, as a shell has it); these follow
//! `env`, `timeout` and `nohup` so that scripts already know them.

/// Wrong usage: as the parser of the command line has it.
pub const USAGE: u8 = 2;
/// The run could not tell whether there is false sharing, and `--fail-on` asked to fail.
pub const INCONCLUSIVE: u8 = 122;
/// False sharing above the threshold was found and `--fail-on` asked to fail.
pub const FOUND: u8 = 123;
/// Sunder itself failed.
pub const FAILED: u8 = 125;
/// The program can't be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The program was not found.
pub const NOT_FOUND: u8 = 127;
