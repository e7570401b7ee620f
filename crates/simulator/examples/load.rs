//! How fast and how large: `cargo run --release -p hangar-simulator --example load [SERVERS]`.
//!
//! Makes servers with ports over real HTTP, says how many calls a second that is and how much memory they take, then asks
//! for one flavor list after the other with our client and with a bare HTTP client, in turns, and says what the client adds.

use std::time::{Duration, Instant};

use hangar_openstack::{
    Cloud, CloudConfig, CreateServer, Limits, PortQuery, ServerNetwork, ServerQuery, Transport, http_transport,
};
use hangar_simulator::{Options, Simulator, starter};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const CALLERS: usize = 8;
const COMPARED: usize = 1000;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let servers: usize = std::env::args().nth(1).map_or(Ok(10_000), |text| text.parse())?;
    let state_file = std::env::temp_dir().join(format!("hangar-load-{}.json", std::process::id()));
    let options =
        Options { state_file: Some(state_file.clone()), build_time: Duration::from_millis(10), ..Options::default() };
    let simulator = Simulator::new(options)?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let base = format!("http://{}", listener.local_addr()?);
    let network = simulator.add_network("load", "10.64.0.0/12".parse()?);
    let stop = CancellationToken::new();
    let serving = tokio::spawn(simulator.clone().serve_owned(listener, stop.clone()));
    let transport = http_transport(None)?;
    let config = CloudConfig::parse(simulator.clouds_yaml(&base).as_bytes(), "openstack", None, None)?;
    let limits = Limits { at_once: CALLERS, per_second: 1e9, burst: 1e9, ..Limits::default() };
    let cloud = Cloud::with_limits(config, transport.clone(), limits);
    cloud.project_id().await?;

    let before = memory();
    let took = fill(&cloud, servers, &network).await?;
    println!(
        "{servers} servers with a port and 4 KiB of user-data each: {:.0} calls/s, written down before each answer",
        servers as f64 / took.as_secs_f64()
    );
    println!(
        "memory: {:.0} MiB more than before, {:.1} KiB per server",
        (memory() - before) / 1024.0,
        (memory() - before) / servers as f64
    );
    let began = Instant::now();
    let listed = cloud.servers(&ServerQuery::default()).await?.len() + cloud.ports(&PortQuery::default()).await?.len();
    println!(
        "listing all servers and ports ({listed}): {:.2} s in {} calls",
        began.elapsed().as_secs_f64(),
        cloud.calls().total() - servers as u64
    );
    let began = Instant::now();
    for number in 0..200 {
        let named = ServerQuery { name: Some(format!("^w-{number}$")), ..ServerQuery::default() };
        cloud.servers(&named).await?;
    }
    println!("finding a server by name among them: {:.2} ms", began.elapsed().as_secs_f64() * 1000.0 / 200.0);

    let (ours, bare) = compare(&cloud, transport, &base).await?;
    println!(
        "a flavor list: {:.1} us with the client, {:.1} us with a bare HTTP client: {:+.1} us",
        micros(ours),
        micros(bare),
        micros(ours) - micros(bare)
    );
    stop.cancel();
    serving.await??;
    for ending in ["", ".log"] {
        let _ = std::fs::remove_file(format!("{}{ending}", state_file.display()));
    }
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6 / COMPARED as f64
}

async fn fill(cloud: &Cloud, servers: usize, network: &str) -> Result<Duration, Failure> {
    let began = Instant::now();
    let callers = (0..CALLERS).map(|caller| {
        let (cloud, network) = (cloud.clone(), network.to_owned());
        tokio::spawn(async move {
            for number in (caller..servers).step_by(CALLERS) {
                let server = CreateServer {
                    name: format!("w-{number}"),
                    flavor_id: starter::FLAVORS[0].1.into(),
                    image_id: starter::IMAGES[0].1.into(),
                    networks: vec![ServerNetwork { port: None, uuid: Some(network.clone()) }],
                    user_data: Some("I2Nsb3VkLWNvbmZpZyAgICAg".repeat(4096 / 18)),
                    ..CreateServer::default()
                };
                cloud.create_server(&server).await?;
            }
            Ok::<_, Failure>(())
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await??;
    }
    Ok(began.elapsed())
}

/// In turns, so that whatever else the machine does hits both.
async fn compare(cloud: &Cloud, transport: Transport, base: &str) -> Result<(Duration, Duration), Failure> {
    let auth = serde_json::json!({"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": starter::USER,
        "domain": {"id": "default"}, "password": starter::PASSWORD}}}}});
    let request = http::Request::post(format!("{base}/identity/v3/auth/tokens")).body(auth.to_string().into())?;
    let token = transport.clone().oneshot(request).await?.headers()["x-subject-token"].clone();
    let (mut ours, mut bare) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..COMPARED {
        let began = Instant::now();
        cloud.flavors().await?;
        ours += began.elapsed();
        let began = Instant::now();
        let request = http::Request::get(format!("{base}/compute/v2.1/flavors/detail")).header("x-auth-token", &token);
        let reply = transport.clone().oneshot(request.body(bytes::Bytes::new())?).await?;
        serde_json::from_slice::<serde_json::Value>(reply.body())?;
        bare += began.elapsed();
    }
    Ok((ours, bare))
}

/// Resident, in KiB.
fn memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}
