//! Where the suite runs, what it has to start with, and how it waits.

use std::path::PathBuf;
use std::time::Duration;

use hangar_openstack::*;
use hangar_simulator::{Options, Simulator, starter};
use tokio_util::sync::CancellationToken;

/// Tests share the projects of the real cloud, so they take turns.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

pub struct Place {
    pub admin: Cloud,
    pub demo: Cloud,
    /// Makes names unique.
    pub tag: String,
    clouds: PathBuf,
    _stop: tokio_util::sync::DropGuard,
    _turn: tokio::sync::MutexGuard<'static, ()>,
    _dir: tempfile::TempDir,
}

impl Place {
    pub async fn find() -> Self {
        let turn = TURN.lock().await;
        let stop = CancellationToken::new();
        let dir = tempfile::tempdir().unwrap();
        let clouds = match std::env::var_os("HANGAR_TEST_CLOUDS") {
            Some(path) => path.into(),
            None => simulator(&dir, &stop).await,
        };
        let cloud = |name: &str| {
            let config = CloudConfig::from_file(&clouds, name, None).unwrap();
            Cloud::new(config.clone(), transport_for(&config, &HostPolicy::everything()).unwrap())
        };
        let tag = format!("hangar-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        Self {
            admin: cloud("admin"),
            demo: cloud("demo"),
            tag,
            clouds: clouds.clone(),
            _stop: stop.drop_guard(),
            _turn: turn,
            _dir: dir,
        }
    }

    pub fn name(&self, what: &str) -> String {
        format!("{}-{what}", self.tag)
    }

    /// The tenant's entry as text, to be spoiled.
    pub fn clouds_yaml(&self) -> String {
        std::fs::read_to_string(&self.clouds).unwrap()
    }

    /// A network with a subnet, joined by a router to an external network of its own.
    pub async fn network(&self, cidr: &str, public: &str) -> Site {
        let external = CreateNetwork {
            name: self.name("public"),
            external: Some(true),
            network_type: Some("flat".into()),
            physical_network: Some(self.tag.replace('-', "")),
            ..CreateNetwork::default()
        };
        let external = self.admin.create_network(&external).await.unwrap();
        let outside = CreateSubnet {
            network_id: external.id.clone(),
            cidr: public.into(),
            ip_version: 4,
            enable_dhcp: Some(false),
            ..CreateSubnet::default()
        };
        self.admin.create_subnet(&outside).await.unwrap();
        let network = CreateNetwork { name: self.name("net"), ..CreateNetwork::default() };
        let network = self.demo.create_network(&network).await.unwrap();
        let inside = CreateSubnet {
            network_id: network.id.clone(),
            name: self.name("sub"),
            cidr: cidr.into(),
            ip_version: 4,
            dns_nameservers: vec!["192.0.2.53".into()],
            ..CreateSubnet::default()
        };
        let subnet = self.demo.create_subnet(&inside).await.unwrap();
        let gateway = GatewayInfo { network_id: external.id.clone(), ..GatewayInfo::default() };
        let router =
            CreateRouter { name: self.name("router"), external_gateway_info: Some(gateway), ..CreateRouter::default() };
        let router = self.demo.create_router(&router).await.unwrap();
        self.demo.add_router_interface(&router.id, &subnet.id).await.unwrap();
        Site { external, network, subnet, router }
    }

    pub async fn remove(&self, site: &Site) {
        self.demo.remove_router_interface(&site.router.id, &site.subnet.id).await.unwrap();
        self.demo.delete_router(&site.router.id).await.unwrap();
        self.demo.delete_network(&site.network.id).await.unwrap();
        // Its subnet went with it.
        assert!(self.demo.subnet(&site.subnet.id).await.unwrap_err().is_not_found());
        self.admin.delete_network(&site.external.id).await.unwrap();
    }

    pub async fn image(&self) -> Image {
        let fields = serde_json::json!({"name": self.name("image"), "disk_format": "raw", "container_format": "bare",
            "tags": [self.tag], "os_distro": "debian"});
        let image = self.demo.create_image(&fields).await.unwrap();
        assert_eq!((image.status.as_str(), image.visibility.as_str()), ("queued", "shared"));
        self.demo.upload_image(&image.id, bytes::Bytes::from(vec![0; 4096])).await.unwrap();
        let image = self.demo.image(&image.id).await.unwrap();
        assert_eq!((image.status.as_str(), image.size), ("active", Some(4096)));
        image
    }
}

pub struct Site {
    pub external: Network,
    pub network: Network,
    pub subnet: Subnet,
    pub router: Router,
}

async fn simulator(dir: &tempfile::TempDir, stop: &CancellationToken) -> PathBuf {
    let simulator = Simulator::new(Options { starter: false, speed: 20.0, ..Options::default() }).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let path = dir.path().join("clouds.yaml");
    let entries = [("admin", starter::ADMIN), ("demo", starter::USER)];
    std::fs::write(&path, simulator.clouds_yaml_of(&base, &entries, None)).unwrap();
    tokio::spawn(simulator.clone().serve_owned(listener, stop.clone()));
    path
}

/// Asks until the answer is as wanted; what a cloud does takes its time.
pub async fn until<T, F: AsyncFnMut() -> Option<T>>(what: &str, mut ask: F) -> T {
    let patience = std::time::Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(patience.elapsed() < Duration::from_secs(180), "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    let error = result.unwrap_err();
    assert!(error.status.is_none() || error.request_id.is_some(), "no request id in: {error}");
    assert!(!error.message.is_empty());
    error.kind
}
