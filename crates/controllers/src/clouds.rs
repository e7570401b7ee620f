//! Sessions with clouds, and what we know of their projects.
//!
//! Holds: one session, hence one token, for each credential; servers and ports of a project are listed once for all its machines, and our own
//! calls are added to that list; after a call whose fate is unknown the list is read anew before anything else is decided.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hangar_api::{Object, ObjectKey};
use hangar_engine::management::Management;
use hangar_openstack::{Cloud, CloudConfig, Error, ErrorKind, Transport};
use hangar_planner::cloud::{Port, Server};
use hangar_planner::open_stack_machine::KEY_METADATA;
use hangar_planner::{OwnerKey, Reason, Wake};
use serde_json::Value;
use tokio::time::Instant;

use crate::secrets::Secrets;

/// Makes a transport for a cloud; a simulation has its own.
pub type Transports = Arc<dyn Fn(&CloudConfig) -> Result<Transport, String> + Send + Sync>;

/// Flavors hardly ever change.
const FLAVORS_AGE: Duration = Duration::from_secs(600);

pub struct Clouds {
    transports: Transports,
    sessions: Mutex<BTreeMap<String, Arc<Session>>>,
    secrets: Secrets,
}

/// One credential's session.
pub struct Session {
    pub cloud: Cloud,
    project: tokio::sync::Mutex<Project>,
}

#[derive(Default)]
struct Project {
    servers: Option<(Instant, Vec<Server>)>,
    ports: Option<(Instant, Vec<Port>)>,
    flavors: Option<(Instant, Vec<(String, String)>)>,
}

impl Clouds {
    pub fn new(transports: Transports) -> Self {
        Self { transports, sessions: Mutex::default(), secrets: Secrets::default() }
    }

    /// The session that an identityRef names.
    pub async fn session(
        &self,
        management: &Management,
        namespace: &str,
        identity: &Value,
    ) -> Result<Arc<Session>, Reason> {
        if identity["type"].as_str().unwrap_or("Secret") != "Secret" {
            return Err(blocked(
                "InvalidIdentity",
                "cluster-wide identities (type ClusterIdentity) are not built yet; name a Secret",
            ));
        }
        let (name, cloud) =
            (identity["name"].as_str().unwrap_or_default(), identity["cloudName"].as_str().unwrap_or_default());
        let key = ObjectKey::new("", "Secret", namespace, name);
        let secret = self.secret(management, &key).await?;
        let yaml = secret.secret_text("clouds.yaml");
        let yaml = yaml
            .ok_or_else(|| blocked("InvalidIdentity", &format!("Secret {namespace}/{name} has no key clouds.yaml")))?;
        let cacert = secret.secret_text("cacert").filter(|text| text.contains("BEGIN CERTIFICATE"));
        let config = CloudConfig::parse(
            yaml.as_bytes(),
            cloud,
            cacert.as_deref().map(str::as_bytes),
            identity["region"].as_str(),
        );
        let config =
            config.map_err(|error| blocked("InvalidIdentity", &format!("Secret {namespace}/{name}: {error}")))?;
        let fingerprint = config.fingerprint();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = sessions.get(&fingerprint) {
            return Ok(session.clone());
        }
        let transport = (self.transports)(&config).map_err(|message| blocked("InvalidIdentity", &message))?;
        let session =
            Arc::new(Session { cloud: Cloud::new(config, transport), project: tokio::sync::Mutex::default() });
        sessions.insert(fingerprint, session.clone());
        Ok(session)
    }

    async fn secret(&self, management: &Management, key: &ObjectKey) -> Result<Object, Reason> {
        match self.secrets.get(management, key).await {
            Ok(Some(secret)) => Ok(secret),
            Ok(None) => Err(blocked(
                "IdentityNotFound",
                &format!("there is no Secret {}/{}; create it with the key clouds.yaml", key.namespace, key.name),
            )),
            Err(error) => Err(blocked("APIServerUnreachable", &error.to_string())),
        }
    }

    /// Every session's calls so far, for benchmarks and metrics.
    pub fn calls(&self) -> Vec<hangar_openstack::CallCounts> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.values().map(|session| session.cloud.calls()).collect()
    }

    /// What a failed call means for a condition.
    pub fn refusal(&self, error: &Error) -> Reason {
        let code = match error.kind {
            ErrorKind::Unauthorized => {
                self.secrets.forget();
                "OpenStackAuthenticationFailed"
            }
            ErrorKind::Quota => "QuotaExceeded",
            ErrorKind::NotFound => "OpenStackNotFound",
            ErrorKind::Conflict => "OpenStackConflict",
            ErrorKind::BadRequest | ErrorKind::Forbidden => "OpenStackRefused",
            _ => "OpenStackError",
        };
        let wake = match error.kind {
            ErrorKind::TooManyRequests { retry_after: Some(time) } => Wake::After(time),
            _ => Wake::Retry,
        };
        Reason { code, message: error.to_string(), wake }
    }
}

impl Session {
    /// Servers that carry a key of ours, not older than `age`.
    pub async fn servers(&self, age: Option<Duration>) -> Result<Vec<Server>, Error> {
        let mut project = self.project.lock().await;
        if let Some((at, servers)) = &project.servers
            && age.is_none_or(|age| at.elapsed() < age)
        {
            return Ok(servers.clone());
        }
        let listed = self.cloud.servers(&hangar_openstack::ServerQuery::default()).await?;
        let servers: Vec<Server> = listed.iter().map(server).filter(|server| server.key.is_some()).collect();
        project.servers = Some((Instant::now(), servers.clone()));
        Ok(servers)
    }

    pub async fn ports(&self, age: Option<Duration>) -> Result<Vec<Port>, Error> {
        let mut project = self.project.lock().await;
        if let Some((at, ports)) = &project.ports
            && age.is_none_or(|age| at.elapsed() < age)
        {
            return Ok(ports.clone());
        }
        let project_id = Some(self.cloud.project_id().await?);
        let listed = self.cloud.ports(&hangar_openstack::PortQuery { project_id, ..Default::default() }).await?;
        let ports: Vec<Port> = listed.iter().map(port).filter(|port| port.key.is_some()).collect();
        project.ports = Some((Instant::now(), ports.clone()));
        Ok(ports)
    }

    /// Name and id of every flavor.
    pub async fn flavors(&self) -> Result<Vec<(String, String)>, Error> {
        let mut project = self.project.lock().await;
        if let Some((at, flavors)) = &project.flavors
            && at.elapsed() < FLAVORS_AGE
        {
            return Ok(flavors.clone());
        }
        let flavors: Vec<(String, String)> =
            self.cloud.flavors().await?.into_iter().map(|flavor| (flavor.name, flavor.id)).collect();
        project.flavors = Some((Instant::now(), flavors.clone()));
        Ok(flavors)
    }

    pub async fn add_server(&self, server: Server) {
        if let Some((_, servers)) = &mut self.project.lock().await.servers {
            servers.retain(|other| other.id != server.id);
            servers.push(server);
        }
    }

    pub async fn add_port(&self, port: Port) {
        if let Some((_, ports)) = &mut self.project.lock().await.ports {
            ports.retain(|other| other.id != port.id);
            ports.push(port);
        }
    }

    pub async fn tag_port(&self, id: &str, tags: &[String]) {
        if let Some((_, ports)) = &mut self.project.lock().await.ports {
            ports.iter_mut().filter(|port| port.id == id).for_each(|port| port.tags = tags.to_vec());
        }
    }

    pub async fn remove_port(&self, id: &str) {
        if let Some((_, ports)) = &mut self.project.lock().await.ports {
            ports.retain(|port| port.id != id);
        }
    }

    pub async fn mark_deleting(&self, id: &str) {
        if let Some((_, servers)) = &mut self.project.lock().await.servers {
            servers.iter_mut().filter(|server| server.id == id).for_each(|server| server.status = "DELETING".into());
        }
    }

    /// A call's fate is unknown: what we know is worth nothing until it is read again. Flavors are looked up anew as well, since an
    /// operator may just have mended them.
    pub async fn doubt(&self) {
        *self.project.lock().await = Project::default();
    }
}

fn blocked(code: &'static str, message: &str) -> Reason {
    Reason { code, message: message.to_owned(), wake: Wake::Retry }
}

pub fn server(wire: &hangar_openstack::Server) -> Server {
    let mut addresses = vec![];
    for list in wire.addresses.values() {
        let mut sorted: Vec<_> = list.iter().collect();
        sorted.sort_by_key(|address| address.version);
        addresses.extend(sorted.into_iter().map(|address| (address.kind.clone(), address.addr.clone())));
    }
    let deleting = wire.task_state.as_deref() == Some("deleting");
    Server {
        id: wire.id.clone(),
        name: wire.name.clone(),
        status: if deleting { "DELETING".into() } else { wire.status.clone() },
        fault: wire.fault.as_ref().map(|fault| fault.message.clone()),
        addresses,
        key: wire.metadata.get(KEY_METADATA).and_then(|text| OwnerKey::find_in(text)),
        created_at: wire.created.clone(),
    }
}

pub fn port(wire: &hangar_openstack::Port) -> Port {
    Port {
        id: wire.id.clone(),
        name: wire.name.clone(),
        network_id: wire.network_id.clone(),
        addresses: wire.fixed_ips.iter().filter_map(|ip| ip.ip_address.clone()).collect(),
        device_id: wire.device_id.clone(),
        tags: wire.tags.clone(),
        key: OwnerKey::find_in(&wire.description),
        created_at: wire.created_at.clone().unwrap_or_default(),
    }
}
