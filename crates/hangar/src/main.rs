//! The command line, and the wiring of the parts. Nothing else.

mod apply;
mod cli;
mod commands;
mod daemon;
mod health;
mod management;
mod manager;
mod manifest;

use std::process::ExitCode;

use clap::Parser as _;
use rustix::process::{Resource, Rlimit, setrlimit};

/// A third of what controllers do is allocating maps of JSON, and with thousands of clusters the system's allocator takes half as long again for it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    if let Err(error) = no_core_dumps() {
        return failed(&anyhow::Error::new(error).context("could not switch core dumps off"));
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    match runtime.block_on(commands::run(cli)) {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

/// Memory holds keys and credentials, and a core dump would write it to a file that is not ours to protect. Programs that are started from here inherit
/// the limit: the plane's own, and those of pods.
fn no_core_dumps() -> rustix::io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
}

/// What went wrong, each cause on a line of its own.
fn failed(error: &anyhow::Error) -> ExitCode {
    anstream::eprintln!("{}error{}: {error}", anstyle::AnsiColor::Red.on_default().bold(), anstyle::Reset);
    for cause in error.chain().skip(1) {
        anstream::eprintln!("  because: {cause}");
    }
    ExitCode::FAILURE
}
