//! `hangar simulator`: the simulated cloud, alone or of a running plane.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use hangar_pki::{Authority, Leaf, SystemKeys};
use hangar_simulator::guests::HollowGuests;
use hangar_simulator::{Access, Options, Simulator, Tls, starter};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::cli::{Global, Guests, Output, Simulated, SimulatedOpenstack};
use crate::commands::home;
use crate::daemon::{ADMIN_TOKEN, DaemonState};

pub async fn run(global: &Global, what: Simulated) -> Result<()> {
    match what {
        Simulated::Inventory => inventory(global).await,
        Simulated::Openstack(wanted) => openstack(wanted).await,
    }
}

async fn openstack(wanted: SimulatedOpenstack) -> Result<()> {
    let listen = &wanted.listen;
    let listener = tokio::net::TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let address = listener.local_addr()?;
    let token = Access::random_word();
    let access = Access { password: Some(Access::random_word()), admin_token: Some(token.clone()) };
    let mut options = Options {
        access,
        state_file: wanted.state,
        starter: !wanted.bare,
        speed: wanted.speed,
        forward: wanted.forward,
        ..Options::default()
    };
    if wanted.forward {
        options.public_cidr = hangar_simulator::starter::LOCAL_PUBLIC_CIDR;
    }
    let cloud = Simulator::new(options)?;
    if let Some(path) = &wanted.faults {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let rules = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not a list of fault rules", path.display()))?;
        cloud.set_faults(rules);
    }
    let tls = wanted.tls.as_deref().map(|path| certificate(path, &address.ip().to_string())).transpose()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let entries = [("openstack", starter::USER), ("admin", starter::ADMIN), ("demo", starter::USER)];
    let clouds = cloud.clouds_yaml_of(&format!("{scheme}://{address}"), &entries, wanted.tls.as_deref());
    let clouds = format!("# /admin needs the header X-Admin-Token: {token}\n{clouds}");
    if let Some(path) = &wanted.clouds {
        hangar_node::small_file::note(path, clouds.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    anstream::println!("{clouds}");
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        drop(tokio::signal::ctrl_c().await);
        stop.cancel();
    });
    if matches!(wanted.guests, Guests::Hollow) {
        cloud.set_guests(Arc::new(HollowGuests::new(cloud.guests_dir(), shutdown.clone())));
    }
    match tls {
        Some(tls) => cloud.serve_tls(listener, tls, shutdown).await?,
        None => cloud.serve(listener, shutdown).await?,
    }
    Ok(cloud.close()?)
}

/// A server certificate of an authority that lives as long as this process; who trusts its certificate trusts the cloud.
fn certificate(ca_file: &Path, host: &str) -> Result<Tls> {
    let now = jiff::Timestamp::now();
    let authority = Authority::create(&SystemKeys, "simulated cloud", now)?;
    let leaf = Leaf::server("simulated cloud", [host.to_owned(), "localhost".to_owned()]);
    let issued = authority.issue(&SystemKeys, &leaf, now)?;
    std::fs::write(ca_file, authority.certificate_pem())
        .with_context(|| format!("cannot write {}", ca_file.display()))?;
    Ok(Tls::new(&issued.certificate_pem, &issued.key_pem)?)
}

async fn inventory(global: &Global) -> Result<()> {
    let home = home(global)?;
    let state = DaemonState::now(&home).filter(|state| state.ready);
    let state = state.context("the simulated cloud is not running; start it with `hangar up`")?;
    let path = home.path().join("cloud").join(ADMIN_TOKEN);
    let token = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let body = get(&format!("{}/admin/inventory", state.cloud_url), token.trim()).await?;
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
async fn get(url: &str, token: &str) -> Result<Vec<u8>> {
    let (host, path) = url.trim_start_matches("http://").split_once('/').context("not an address")?;
    let mut stream = tokio::net::TcpStream::connect(host)
        .await
        .context("the simulated cloud does not answer; start it with `hangar up`")?;
    let request = format!("GET /{path} HTTP/1.0\r\nHost: {host}\r\nX-Admin-Token: {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = vec![];
    stream.read_to_end(&mut answer).await?;
    let start =
        answer.windows(4).position(|window| window == b"\r\n\r\n").context("the simulated cloud sent no response")?;
    Ok(answer.split_off(start + 4))
}
