//! The command line, and the wiring of the parts. Nothing else.

mod apply;
mod cli;
mod commands;
mod daemon;
mod health;
mod management;
mod manager;
mod manifest;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;
use hangar_embedded::{Store, StoreOptions, Substitution};
use hangar_node::process::Images;
use rustix::process::{Resource, Rlimit, setrlimit};

/// A third of what controllers do is allocating maps of JSON, and with thousands of clusters the system's allocator takes half as long again for it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // First of all: namespaces are for processes with one thread.
    if let Some(code) = hangar_machine::run_if_asked(images_of_guests) {
        return code;
    }
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

/// What a guest's containers run: the components that it is shown, and nothing else.
fn images_of_guests(directory: &Path) -> Arc<dyn Images> {
    Arc::new(Store::new(StoreOptions {
        directory: directory.to_owned(),
        download: false,
        path_lookup: false,
        substitution: Substitution::Always,
        ..StoreOptions::default()
    }))
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
