//! A pod's sandbox: its network and its names. No process waits in it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use hangar_node::process::ImageFile;
use tonic::Status;

use super::generated as api;
use super::network::PodLink;
use super::{Runtime, new_id, now};

pub struct Sandbox {
    pub id: String,
    pub config: api::PodSandboxConfig,
    pub created_at: i64,
    pub runtime_handler: String,
    /// None: it shares the network of the guest, or it is stopped.
    link: Mutex<Option<PodLink>>,
    pub is_stopped: std::sync::atomic::AtomicBool,
}

impl Sandbox {
    pub fn address(&self) -> Option<String> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|link| link.address.to_string())
    }

    pub fn namespace(&self) -> Option<PathBuf> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|link| link.namespace.clone())
    }

    pub fn is_ready(&self) -> bool {
        !self.is_stopped.load(std::sync::atomic::Ordering::Acquire)
    }

    fn network_mode(&self) -> i32 {
        namespaces(&self.config).map_or(api::NamespaceMode::Pod as i32, |options| options.network)
    }

    /// `/etc/resolv.conf`, as the kubelet wants it.
    pub fn resolv_conf(&self) -> Option<ImageFile> {
        let dns = self.config.dns_config.as_ref()?;
        let mut text = String::new();
        if !dns.searches.is_empty() {
            text.push_str(&format!("search {}\n", dns.searches.join(" ")));
        }
        dns.servers.iter().for_each(|server| text.push_str(&format!("nameserver {server}\n")));
        if !dns.options.is_empty() {
            text.push_str(&format!("options {}\n", dns.options.join(" ")));
        }
        Some(ImageFile { at: "/etc/resolv.conf".into(), content: text.into_bytes() })
    }

    pub fn hostname(&self) -> String {
        if !self.config.hostname.is_empty() {
            return self.config.hostname.clone();
        }
        std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
    }

    fn state(&self) -> i32 {
        let state =
            if self.is_ready() { api::PodSandboxState::SandboxReady } else { api::PodSandboxState::SandboxNotready };
        state as i32
    }

    pub fn summary(&self) -> api::PodSandbox {
        api::PodSandbox {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.runtime_handler.clone(),
        }
    }

    pub fn status(&self) -> api::PodSandboxStatus {
        let network = api::PodSandboxNetworkStatus { ip: self.address().unwrap_or_default(), additional_ips: vec![] };
        let options = api::NamespaceOption { network: self.network_mode(), ..Default::default() };
        api::PodSandboxStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state(),
            created_at: self.created_at,
            network: Some(network),
            linux: Some(api::LinuxPodSandboxStatus { namespaces: Some(api::Namespace { options: Some(options) }) }),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.runtime_handler.clone(),
        }
    }
}

fn namespaces(config: &api::PodSandboxConfig) -> Option<&api::NamespaceOption> {
    config.linux.as_ref()?.security_context.as_ref()?.namespace_options.as_ref()
}

impl Runtime {
    pub fn run_sandbox(&self, config: api::PodSandboxConfig, runtime_handler: String) -> Result<Arc<Sandbox>, Status> {
        let id = new_id().map_err(failed)?;
        let shares = namespaces(&config).is_some_and(|options| options.network == api::NamespaceMode::Node as i32);
        let link = if shares { None } else { Some(self.network.connect(&id).map_err(failed)?) };
        if !config.log_directory.is_empty() {
            std::fs::create_dir_all(&config.log_directory).map_err(failed)?;
        }
        let (link, is_stopped, created_at) = (Mutex::new(link), Default::default(), now());
        let sandbox = Arc::new(Sandbox { id: id.clone(), config, created_at, runtime_handler, link, is_stopped });
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sandbox.clone());
        Ok(sandbox)
    }

    pub async fn stop_sandbox(&self, id: &str) {
        let Some(sandbox) = self.sandbox(id) else { return };
        for container in self.all_containers().into_iter().filter(|container| container.sandbox == id) {
            container.stop(std::time::Duration::ZERO).await;
        }
        sandbox.is_stopped.store(true, std::sync::atomic::Ordering::Release);
        if let Some(link) = sandbox.link.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.network.disconnect(&link);
        }
    }

    pub async fn remove_sandbox(&self, id: &str) {
        self.stop_sandbox(id).await;
        let containers = self.all_containers().into_iter().filter(|container| container.sandbox == id);
        containers.for_each(|container| self.forget_container(&container.id));
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

pub fn failed(error: std::io::Error) -> Status {
    Status::internal(crate::chain(&error))
}
