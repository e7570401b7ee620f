//! Names of Services and pods, as a hosts file for each pod.
//!
//! Flows: Services and Pods -> lines -> `hosts` in the pod's directory, which its processes see as `/etc/hosts` ([`super::isolation`]). Holds: a
//! file is changed in place, since a running process has that very file mounted; what the machine knows stays known. A hosts file has no
//! aliases to other domains and no SRV records: Services of type ExternalName and named ports are not found this way.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;

use super::Node;
use super::services::{is_headless, selected};

const DOMAIN: &str = "cluster.local";
/// As kubelets write it: programs look for these words.
const HEADER: &str = "# Kubernetes-managed hosts file.\n";
const HEADER_OF_HOST: &str = "# Kubernetes-managed hosts file (host network).\n";

/// What was last written, by the uid of the pod.
#[derive(Default)]
pub(super) struct HostsFiles(Mutex<HashMap<String, String>>);

/// Brings the files of all pods up to date whenever a name or an address changes.
pub(super) async fn run(node: Arc<Node>) {
    let (mut services, mut pods) = (node.watched.services.changes(), node.watched.pods.changes());
    loop {
        node.hosts_files.refresh(&node);
        tokio::select! {
            changed = services.changed() => if changed.is_err() { return },
            changed = pods.changed() => if changed.is_err() { return },
        }
    }
}

impl HostsFiles {
    /// The pod's file, written if it is not there yet.
    pub fn of(&self, node: &Node, pod: &Pod) -> std::io::Result<PathBuf> {
        let path = path(node, pod);
        if !path.exists() {
            let table = NameTable::read(node);
            write(&path, &table.hosts(pod))?;
        }
        Ok(path)
    }

    fn refresh(&self, node: &Node) {
        let table = NameTable::read(node);
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut present = HashMap::new();
        for pod in node.watched.pods.all() {
            let (Some(uid), path) = (pod.uid(), path(node, &pod)) else { continue };
            if !path.exists() {
                continue;
            }
            let text = table.hosts(&pod);
            if written.get(&uid) != Some(&text)
                && let Err(error) = write(&path, &text)
            {
                tracing::warn!(pod = %pod.name_any(), %error, "could not write the hosts file");
            }
            present.insert(uid, text);
        }
        *written = present;
    }
}

fn path(node: &Node, pod: &Pod) -> PathBuf {
    node.options.pods_dir.join(pod.uid().unwrap_or_default()).join("hosts")
}

/// New text over the old, then the rest cut off: a reader in between sees whole lines, old or new.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

/// Who is where.
struct NameTable {
    machine: String,
    /// Lines that hold everywhere, and by namespace the short names that hold only there.
    everywhere: Vec<(String, String)>,
    within: BTreeMap<String, Vec<(String, String)>>,
}

impl NameTable {
    fn read(node: &Node) -> Self {
        let machine = std::fs::read_to_string("/etc/hosts").unwrap_or_else(|_| "127.0.0.1\tlocalhost\n".into());
        Self::new(machine, &node.watched.services.all(), &node.watched.pods.all())
    }

    fn new(machine: String, services: &[Arc<Service>], pods: &[Arc<Pod>]) -> Self {
        let mut all = Self { machine, everywhere: vec![], within: BTreeMap::new() };
        for service in services {
            all.add(service, pods);
        }
        all.everywhere.sort();
        all.within.values_mut().for_each(|lines| lines.sort());
        all
    }

    fn add(&mut self, service: &Service, pods: &[Arc<Pod>]) {
        let Some(spec) = &service.spec else { return };
        let (name, namespace) = (service.name_any(), service.namespace().unwrap_or_default());
        if !is_headless(service) {
            let address = spec.cluster_ip.iter().filter(|ip| !ip.is_empty());
            address.for_each(|ip| self.add_name(ip, &name, &namespace));
            return;
        }
        for pod in selected(service, pods) {
            let Some(ip) = pod.status.as_ref().and_then(|status| status.pod_ip.clone()) else { continue };
            self.add_name(&ip, &name, &namespace);
            let own = pod.spec.as_ref().filter(|spec| spec.subdomain.as_deref() == Some(&name));
            if let Some(hostname) = own.and_then(|spec| spec.hostname.as_deref()) {
                self.add_name(&ip, &format!("{hostname}.{name}"), &namespace);
            }
        }
    }

    fn add_name(&mut self, ip: &str, name: &str, namespace: &str) {
        let long = format!("{name}.{namespace}.svc.{DOMAIN} {name}.{namespace}.svc {name}.{namespace}");
        self.everywhere.push((ip.to_owned(), long));
        self.within.entry(namespace.to_owned()).or_default().push((ip.to_owned(), name.to_owned()));
    }

    /// The file of one pod: the machine's lines, the pod itself, its aliases, then everybody.
    fn hosts(&self, pod: &Pod) -> String {
        let spec = pod.spec.as_ref();
        let of_host = spec.and_then(|spec| spec.host_network) == Some(true);
        let mut text = if of_host { HEADER_OF_HOST } else { HEADER }.to_owned();
        text.push_str(self.machine.trim_end());
        let mut line = |ip: &str, names: &str| text.push_str(&format!("\n{ip}\t{names}"));
        if let Some(ip) = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()) {
            let hostname = spec.and_then(|spec| spec.hostname.clone()).unwrap_or_else(|| pod.name_any());
            let subdomain = spec.and_then(|spec| spec.subdomain.as_deref());
            let namespace = pod.namespace().unwrap_or_default();
            let long = subdomain.map(|within| format!("{hostname}.{within}.{namespace}.svc.{DOMAIN}\t"));
            line(ip, &format!("{}{hostname}", long.unwrap_or_default()));
        }
        for alias in spec.into_iter().flat_map(|spec| spec.host_aliases.iter().flatten()) {
            line(&alias.ip, &alias.hostnames.iter().flatten().cloned().collect::<Vec<_>>().join("\t"));
        }
        self.everywhere.iter().for_each(|(ip, names)| line(ip, names));
        let near = pod.namespace().and_then(|namespace| self.within.get(&namespace));
        near.into_iter().flatten().for_each(|(ip, name)| line(ip, name));
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(name: &str, spec: Value) -> Arc<Service> {
        let object = json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn pod(namespace: &str, name: &str, ip: &str, ready: &str) -> Arc<Pod> {
        let object = json!({
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": "etcd"}},
            "spec": {"hostname": name, "subdomain": "etcd", "containers": [],
                     "hostAliases": [{"ip": "127.0.0.9", "hostnames": ["alias"]}]},
            "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": ready}]},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn services_and_members_of_headless_ones_have_names() {
        let headless = json!({"clusterIP": "None", "selector": {"app": "etcd"}});
        let services = [service("api", json!({"clusterIP": "127.1.128.7"})), service("etcd", headless)];
        let pods = [pod("n", "etcd-0", "127.1.0.16", "True"), pod("n", "etcd-1", "127.1.0.17", "False")];
        let table = NameTable::new("127.0.0.1\tlocalhost\n".into(), &services, &pods);
        let near = table.hosts(&pods[0]);
        for line in [
            "127.0.0.1\tlocalhost",
            "127.1.0.16\tetcd-0.etcd.n.svc.cluster.local\tetcd-0",
            "127.0.0.9\talias",
            "127.1.128.7\tapi",
            "127.1.128.7\tapi.n.svc.cluster.local api.n.svc api.n",
            "127.1.0.16\tetcd-0.etcd.n.svc.cluster.local etcd-0.etcd.n.svc etcd-0.etcd.n",
            "127.1.0.16\tetcd-0.etcd",
        ] {
            assert!(near.lines().any(|found| found == line), "{line} is not in\n{near}");
        }
        assert!(!near.contains("127.1.0.17"), "a member that is not ready is not found");
        let far = table.hosts(&pod("other", "x", "127.1.0.18", "True"));
        assert!(far.contains("api.n.svc") && !far.lines().any(|line| line == "127.1.128.7\tapi"));
    }

    #[test]
    fn a_file_is_changed_in_place() {
        use std::os::unix::fs::MetadataExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts");
        write(&path, "a long first text\n").unwrap();
        let inode = path.metadata().unwrap().ino();
        write(&path, "short\n").unwrap();
        assert_eq!(
            (std::fs::read_to_string(&path).unwrap().as_str(), path.metadata().unwrap().ino()),
            ("short\n", inode)
        );
    }
}
