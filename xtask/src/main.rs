//! Project tasks: `cargo xtask TASK …`. A new task is one file and one line in [`TASKS`].

mod import;
mod png;
mod screenshots;

use std::process::ExitCode;

/// A task's name, how to call it, and what runs it.
type Task = (&'static str, &'static str, fn(&[String]) -> Result<(), String>);

const TASKS: &[Task] = &[("import", import::USAGE, import::run), ("screenshots", screenshots::USAGE, screenshots::run)];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let task = args.split_first().and_then(|(name, rest)| Some((TASKS.iter().find(|task| task.0 == name)?, rest)));
    let Some((task, rest)) = task else {
        eprintln!("cargo xtask TASK, where TASK is one of");
        for task in TASKS {
            eprintln!("  {}", task.1);
        }
        return ExitCode::from(2);
    };
    match task.2(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask {}: {why}", task.0);
            ExitCode::FAILURE
        }
    }
}
