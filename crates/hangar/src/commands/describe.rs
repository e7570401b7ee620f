//! `hangar describe cluster`: the tree, and why it is not ready.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::cli::{Global, Output};
use crate::commands::home;
use crate::management;

pub async fn run(global: &Global, name: &str) -> Result<ExitCode> {
    let client = management::client_for(&home(global)?).await?;
    let Some(snapshot) = management::snapshot(&client, &global.namespace, name).await? else {
        bail!(
            "there is no Cluster {name} in namespace {}; `hangar kubectl -- get clusters -A` lists all",
            global.namespace
        );
    };
    let root = hangar_views::tree(&snapshot);
    if global.output == Output::Json {
        anstream::println!("{}", serde_json::to_string_pretty(&root)?);
    } else {
        let options = hangar_views::RenderOptions { color: std::io::stdout().is_terminal(), width: width() };
        anstream::print!("{}", hangar_views::render(&root, jiff::Timestamp::now(), &options));
        let reasons = hangar_views::why(&root);
        if !reasons.is_empty() {
            anstream::println!("\nwhy:");
            reasons.iter().for_each(|line| anstream::println!("  {line}"));
        }
    }
    Ok(if hangar_views::is_ready(&root) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The terminal's width, or a good one to read.
pub fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    if columns >= 60 { columns } else { 140 }
}
