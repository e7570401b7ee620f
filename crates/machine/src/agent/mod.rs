//! What runs in a guest beside its first process: set-up by user-data, services, and the container runtime.
//!
//! Flows: [`crate::GuestSpec`] -> runtime and services are there -> [`setup`] does what the user-data says -> services that are switched on start. What
//! matters is on the console.

mod services;
mod setup;
pub(crate) mod systemctl;
mod unit;

use std::io::{Error, Result};
use std::process::ExitCode;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use crate::guest::{GuestSpec, SPEC};
use crate::{ImagesIn, chain, cri};

const WORKERS: usize = 2;

pub fn run(images: ImagesIn) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(work(images))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("agent: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

async fn work(images: ImagesIn) -> Result<()> {
    let spec: GuestSpec = serde_json::from_slice(&std::fs::read(SPEC)?)?;
    let mut term = signal(SignalKind::terminate())?;
    console(&format!("{} booted", spec.instance.name));
    let services = services::Services::start()?;
    let runtime = cri::serve(images(&spec.components)).map_err(|error| Error::other(chain(&error)))?;
    services.start_enabled().await;
    let setup = tokio::spawn(setup::run(spec, Arc::clone(&services)));
    tokio::select! {
        _ = term.recv() => {}
        ended = runtime => console(&format!("runtime: it ended: {ended:?}")),
    }
    setup.abort();
    services.stop_all().await;
    Ok(())
}

/// Standard output is the console.
pub(crate) fn console(text: &str) {
    println!("{text}");
}
