//! The command line, and the wiring of the parts. Nothing else.

mod apply;
mod cli;
mod commands;
mod daemon;
mod health;
mod management;
mod manifest;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    match runtime.block_on(commands::run(cli)) {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

/// What went wrong, each cause on a line of its own.
fn failed(error: &anyhow::Error) -> ExitCode {
    anstream::eprintln!("{}error{}: {error}", anstyle::AnsiColor::Red.on_default().bold(), anstyle::Reset);
    for cause in error.chain().skip(1) {
        anstream::eprintln!("  because: {cause}");
    }
    ExitCode::FAILURE
}
