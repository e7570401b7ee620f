//! Certificates of the plane and of the shared etcd are renewed while it runs.
//!
//! Flows: now and then -> what is due is issued anew (the plane's own in its home, the shared etcd's in its Secret) -> everybody who holds one is told: programs
//! that read theirs once are restarted by the plane, clients and the webhook of this process use the new ones from then on. Holds: looking costs no request but
//! two for the shared etcd, and writes nothing unless something is due.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hangar_embedded::{Plane, RenewableClient, datastore, identities};
use hangar_engine::webhook::WebhookIdentity;
use hangar_pki::CertifiedKey;
use jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// Certificates are due a day and a half before two thirds of their life: a look that fails is made again in time.
const LOOK_EVERY: Duration = Duration::from_secs(6 * 3600);

/// One client for each part that calls the API server.
pub struct Clients {
    administrator: RenewableClient,
    controllers: RenewableClient,
    node: RenewableClient,
    cloud: RenewableClient,
}

impl Clients {
    pub async fn open(plane: &Plane) -> Result<Self> {
        Ok(Self {
            administrator: plane.renewable_client(None).await?,
            controllers: plane.renewable_client(Some(identities::CONTROLLERS)).await?,
            node: plane.renewable_client(Some(identities::NODE)).await?,
            cloud: plane.renewable_client(Some(identities::CLOUD)).await?,
        })
    }

    /// For what is installed: definitions, roles, the shared etcd.
    pub fn administrator(&self) -> Client {
        self.administrator.client()
    }

    pub fn controllers(&self) -> Client {
        self.controllers.client()
    }

    pub fn node(&self) -> Client {
        self.node.client()
    }

    pub fn cloud(&self) -> Client {
        self.cloud.client()
    }

    async fn renew(&self) -> Result<()> {
        for client in [&self.administrator, &self.controllers, &self.node, &self.cloud] {
            client.renew().await?;
        }
        Ok(())
    }
}

/// The first look is not at once: everything was looked at when the plane started.
pub fn looks() -> Interval {
    let mut looks = tokio::time::interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// Renews what is due; an error is not the end, since there are months until a certificate ends.
pub async fn look(plane: &Plane, clients: &Clients, webhook: &watch::Sender<WebhookIdentity>, now: Timestamp) {
    match renew(plane, clients, webhook, now).await {
        Ok(renewed) if renewed.is_empty() => {}
        Ok(renewed) => tracing::info!(certificates = renewed.join(", "), "renewed"),
        Err(error) => tracing::warn!("certificates were not renewed, which is tried again: {error:#}"),
    }
}

async fn renew(
    plane: &Plane,
    clients: &Clients,
    webhook: &watch::Sender<WebhookIdentity>,
    now: Timestamp,
) -> Result<Vec<String>> {
    let renewed = plane.renew(now)?;
    if !renewed.is_empty() {
        clients.renew().await?;
        webhook.send_replace(webhook_identity(plane.pki())?);
    }
    datastore::renew(&clients.administrator(), now).await?;
    Ok(renewed)
}

/// What the webhook shows, as it is in the home.
pub fn webhook_identity(pki: &Path) -> Result<WebhookIdentity> {
    let read = |name: &str| {
        let path = pki.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let server = CertifiedKey { certificate_pem: read("webhook.crt")?, key_pem: read("webhook.key")? };
    Ok(WebhookIdentity { ca_pem: read("ca.crt")?, server })
}
