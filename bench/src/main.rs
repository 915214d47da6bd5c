//! Arguments in, one verb, an exit status: 0 done, 1 failed or a promise broken, 2 usage.

use std::io::Write as _;
use std::process::ExitCode;

use gateway_bench::verbs::{self, Failure};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match verbs::run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let mut stderr = std::io::stderr().lock();
            // Nobody is left to tell when standard error is closed.
            writeln!(stderr, "gateway-bench: {failure}").ok();
            match failure {
                Failure::Usage(_) => ExitCode::from(2),
                Failure::Io(_) | Failure::Broken => ExitCode::FAILURE,
            }
        }
    }
}
