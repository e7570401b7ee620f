//! How an engine is put together in a simulation: the only place that knows the engine's and the controllers' parts.

use std::sync::Arc;

use hangar_controllers::{Site, Surroundings, all, engine};
use hangar_engine::leader::{self, Candidate, Terms};
use hangar_engine::pass::StepHook;
use hangar_engine::runtime::Ended;
use hangar_kubesim::Clock;
use hangar_openstack::Transport;
use hangar_pki::Keys;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::datastores::MemoryDatastores;
use crate::meter::Meter;
use crate::tenants::Tenants;

/// What an engine is made of.
pub struct Parts {
    pub client: Client,
    pub transport: Transport,
    pub tenants: Tenants,
    pub datastores: Arc<MemoryDatastores>,
    pub clock: Clock,
    /// Of all lives: what is random is never the same twice.
    pub keys: Arc<dyn Keys>,
    pub meter: Meter,
}

impl Parts {
    /// One life of a process that acts only while it holds the Lease.
    pub async fn lead(&self, identity: &str, hook: Option<StepHook>, shutdown: CancellationToken) {
        let candidate = Candidate {
            client: self.client.clone(),
            namespace: "hangar-system".to_owned(),
            name: "hangar".to_owned(),
            identity: identity.to_owned(),
            terms: Terms::default(),
            clock: self.clock.clone(),
            metrics: None,
        };
        // Whoever lost it starts again, with nothing in memory.
        let _ = leader::lead(candidate, &shutdown, |term| self.run(hook, term)).await;
    }

    /// One life of the process.
    pub async fn run(&self, hook: Option<StepHook>, shutdown: CancellationToken) -> Ended {
        let transport = self.meter.transport(self.transport.clone());
        let engine = engine(Surroundings {
            client: self.client.clone(),
            clock: self.clock.clone(),
            site: Site { konnectivity: Ok(()) },
            connector: Arc::new(self.tenants.clone()),
            transports: Arc::new(move |_| Ok(transport.clone())),
            data_stores: self.datastores.clone(),
            keys: self.keys.clone(),
            hook,
            workers: 4,
            controllers: all(),
        });
        engine.run(shutdown).await
    }
}
