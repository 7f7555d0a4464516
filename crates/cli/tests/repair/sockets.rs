//! Calls of sockets with a limit of time, whose threads are stopped again and again.

use crate::support::{c_program, plain_sunder, targets};

#[test]
fn calls_of_sockets_end_by_their_limit_and_are_not_interrupted() {
    let _alone = targets::alone();
    let program = c_program("sockets", &[]).expect("it compiles");
    for command in ["repair", "cure"] {
        let mut sunder = plain_sunder();
        sunder.args([command, "--"]).arg(&program);
        let ran = assert_cmd::Command::from_std(sunder)
            .timeout(std::time::Duration::from_secs(120))
            .output()
            .expect("it ran");
        let told = String::from_utf8_lossy(&ran.stderr);
        let all = "interrupted 0, ended in time 1, others 0\n".repeat(4);
        assert_eq!(String::from_utf8_lossy(&ran.stdout), all, "{told}");
    }
}
