//! The real controllers with a management cluster in memory and any cloud: the simulated one, or a real one over the network.
//!
//! Holds: whichever it is, they are put together in the same way, so that one test can be run in both.

use std::sync::Arc;

use hangar_kubesim::{Clock, KubeApi, KubeApiOptions};
use hangar_openstack::Transport;
use hangar_pki::SystemKeys;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::datastores::MemoryDatastores;
use crate::kubernetes;
use crate::laws::HANGAR;
use crate::meter::Meter;
use crate::tenants::Tenants;
use crate::wiring::Parts;

pub struct EitherCloud {
    pub management: KubeApi,
    stop: CancellationToken,
    engine: JoinHandle<()>,
    others: JoinHandle<()>,
}

impl EitherCloud {
    /// The controllers run until [`EitherCloud::stop`].
    pub fn start(transport: Transport) -> Self {
        let (began, since) = (jiff::Timestamp::now(), tokio::time::Instant::now());
        let clock: Clock = Arc::new(move || began + since.elapsed());
        let management = KubeApi::new(KubeApiOptions { clock: clock.clone(), ..KubeApiOptions::default() });
        let (balancers, others) = kubernetes::start(&management, Meter::default());
        let parts = Parts {
            client: management.client_as(HANGAR),
            transport,
            tenants: Tenants::new(management.clone(), balancers, clock.clone(), Meter::default()),
            datastores: Arc::<MemoryDatastores>::default(),
            clock,
            keys: Arc::new(SystemKeys),
            meter: Meter::default(),
        };
        let stop = CancellationToken::new();
        let told = stop.clone();
        let engine = tokio::spawn(async move {
            let _ = parts.run(None, told).await;
        });
        Self { management, stop, engine, others }
    }

    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.engine.await;
        self.others.abort();
    }
}
