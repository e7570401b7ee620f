//! Where it runs: the cloud, what it has to start with, the controllers, and how they are waited for.

use std::time::Duration;

use bytes::Bytes;
use hangar_openstack::{
    Cloud, CloudConfig, CreateNetwork, CreateSubnet, Flavor, Image, Network, Transport, http_transport,
};
use hangar_simulation::either_cloud::EitherCloud;
use hangar_simulator::{Options, Simulator};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tokio::time::Instant;

/// The real cloud's project is shared by all tests.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn real() -> Option<String> {
    std::env::var_os("HANGAR_TEST_CLOUDS").map(|path| std::fs::read_to_string(path).unwrap())
}

/// With a clock of its own, unless a real cloud has one.
pub fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    if real().is_none() {
        builder.start_paused(true);
    }
    builder.enable_all().build().unwrap().block_on(test);
}

pub struct Place {
    pub admin: Cloud,
    pub demo: Cloud,
    pub api: EitherCloud,
    pub clouds_yaml: String,
    pub tag: String,
    pub flavor: Flavor,
    pub image: Image,
    pub external: Network,
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

impl Place {
    pub async fn find() -> Self {
        let turn = TURN.lock().await;
        let (clouds_yaml, transport): (String, Transport) = match real() {
            Some(text) => (text, http_transport(None).unwrap()),
            None => {
                let cloud = Simulator::new(Options::default()).unwrap();
                let entries = [("demo", "demo"), ("admin", "admin")];
                (cloud.clouds_yaml_of("http://cloud.test", &entries, None), cloud.transport())
            }
        };
        let cloud = |name: &str| {
            let config = CloudConfig::parse(clouds_yaml.as_bytes(), name, None, None).unwrap();
            Cloud::new(config, transport.clone())
        };
        let (admin, demo) = (cloud("admin"), cloud("demo"));
        // Unique in the real cloud, where others may have been before.
        let tag = format!("t{:x}", jiff::Timestamp::now().as_nanosecond());
        let external = CreateNetwork {
            name: format!("{tag}-public"),
            external: Some(true),
            network_type: Some("flat".into()),
            physical_network: Some(tag.clone()),
            ..CreateNetwork::default()
        };
        let external = admin.create_network(&external).await.unwrap();
        let outside = CreateSubnet {
            network_id: external.id.clone(),
            cidr: "203.0.113.0/24".into(),
            ip_version: 4,
            enable_dhcp: Some(false),
            ..CreateSubnet::default()
        };
        admin.create_subnet(&outside).await.unwrap();
        let flavor = admin.create_flavor(&format!("{tag}-flavor"), 1, 512, 1).await.unwrap();
        let fields = json!({ "name": format!("{tag}-image"), "disk_format": "raw", "container_format": "bare" });
        let image = demo.create_image(&fields).await.unwrap();
        demo.upload_image(&image.id, Bytes::from(vec![0; 4096])).await.unwrap();
        let api = EitherCloud::start(transport);
        Self { admin, demo, api, clouds_yaml, tag, flavor, image, external, _turn: turn }
    }

    /// `kubectl apply`
    pub async fn apply(&self, documents: &[Value]) {
        for object in documents {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (api_version, kind) = (text("/apiVersion"), text("/kind"));
            let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
            let client = self.api.management.client_as("kubectl");
            let api: Api<DynamicObject> = Api::namespaced_with(client, &text("/metadata/namespace"), &resource);
            let params = PatchParams::apply("kubectl").force();
            api.patch(&text("/metadata/name"), &params, &Patch::Apply(object)).await.unwrap();
        }
    }

    pub async fn until(&self, what: impl Fn() -> String, reached: impl Fn() -> bool) {
        let began = Instant::now();
        while !reached() {
            assert!(began.elapsed() < Duration::from_secs(1_200), "it never came that {}", what());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    pub async fn remove(self) {
        self.api.stop().await;
        self.demo.delete_image(&self.image.id).await.unwrap();
        self.admin.delete_flavor(&self.flavor.id).await.unwrap();
        self.admin.delete_network(&self.external.id).await.unwrap();
    }
}
