//! `hangar simulator`: the simulated cloud, alone or of a running plane.

use anyhow::{Context as _, Result};
use hangar_simulator::{Options, Simulator};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::cli::{Global, Output, Simulated};
use crate::commands::home;
use crate::daemon::{DaemonState, state_path};

pub async fn run(global: &Global, what: Simulated) -> Result<()> {
    match what {
        Simulated::Inventory => inventory(global).await,
        Simulated::Openstack { listen, state } => {
            let listener =
                tokio::net::TcpListener::bind(&listen).await.with_context(|| format!("cannot listen on {listen}"))?;
            let url = format!("http://{}", listener.local_addr()?);
            let cloud = Simulator::new(Options { state_file: state, ..Options::default() })?;
            anstream::println!("{}", cloud.clouds_yaml(&url));
            let shutdown = CancellationToken::new();
            let stop = shutdown.clone();
            tokio::spawn(async move {
                drop(tokio::signal::ctrl_c().await);
                stop.cancel();
            });
            cloud.serve(listener, shutdown).await?;
            Ok(cloud.close()?)
        }
    }
}

async fn inventory(global: &Global) -> Result<()> {
    let home = home(global)?;
    let state = std::fs::read(state_path(&home)).context("no simulated cloud runs here; start it with `hangar up`")?;
    let state: DaemonState = serde_json::from_slice(&state)?;
    let body = get(&format!("{}/admin/inventory", state.cloud_url)).await?;
    let value: serde_json::Value = serde_json::from_slice(&body)?;
    if global.output == Output::Json {
        anstream::println!("{value:#}");
        return Ok(());
    }
    let mut rows = vec![];
    for (project, items) in value["projects"].as_object().into_iter().flatten() {
        for item in items.as_array().into_iter().flatten() {
            let cell = |key: &str| item[key].as_str().unwrap_or("-").to_owned();
            rows.push(vec![project.clone(), cell("kind"), cell("id"), cell("name"), cell("owner")]);
        }
    }
    if rows.is_empty() {
        anstream::println!("nothing");
    } else {
        anstream::print!("{}", hangar_views::table(&["PROJECT", "KIND", "ID", "NAME", "OWNER"], &rows));
    }
    Ok(())
}

/// One request to our own admin endpoint: plain HTTP/1.0 on this machine.
async fn get(url: &str) -> Result<Vec<u8>> {
    let (host, path) = url.trim_start_matches("http://").split_once('/').context("not an address")?;
    let mut stream = tokio::net::TcpStream::connect(host)
        .await
        .context("the simulated cloud does not answer; start it with `hangar up`")?;
    stream.write_all(format!("GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n").as_bytes()).await?;
    let mut answer = vec![];
    stream.read_to_end(&mut answer).await?;
    let start =
        answer.windows(4).position(|window| window == b"\r\n\r\n").context("the simulated cloud sent no answer")?;
    Ok(answer.split_off(start + 4))
}
