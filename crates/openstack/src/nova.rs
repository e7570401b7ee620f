//! Nova's calls.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::query::{ServerQuery, escape};
use crate::wire::{AvailabilityZone, CreateServer, Flavor, KeyPair, Reference, Server};
use crate::{Cloud, Error, Service};

impl Cloud {
    pub async fn servers(&self, query: &ServerQuery) -> Result<Vec<Server>, Error> {
        self.list(Service::Nova, "/servers/detail", "servers", &query.pairs()).await
    }

    pub async fn server(&self, id: &str) -> Result<Server, Error> {
        #[derive(Deserialize)]
        struct Reply {
            server: Server,
        }
        Ok(self.get::<Reply>(Service::Nova, &format!("/servers/{}", escape(id))).await?.server)
    }

    /// The id of the new server, which is then in BUILD.
    pub async fn create_server(&self, body: &CreateServer) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Reply {
            server: Reference,
        }
        let mut request = json!({"server": body});
        if !body.scheduler_hints.is_empty() {
            request["os:scheduler_hints"] = json!(body.scheduler_hints);
        }
        Ok(self.post::<Reply>(Service::Nova, "/servers", &request).await?.server.id)
    }

    /// Asynchronous: the server is listed until it is gone.
    pub async fn delete_server(&self, id: &str) -> Result<(), Error> {
        self.delete(Service::Nova, &format!("/servers/{}", escape(id))).await
    }

    /// The end of what the server wrote to its console.
    pub async fn console_output(&self, id: &str) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Reply {
            output: String,
        }
        let path = format!("/servers/{}/action", escape(id));
        Ok(self.post::<Reply>(Service::Nova, &path, &json!({"os-getConsoleOutput": {}})).await?.output)
    }

    pub async fn flavors(&self) -> Result<Vec<Flavor>, Error> {
        self.list(Service::Nova, "/flavors/detail", "flavors", &vec![]).await
    }

    pub async fn availability_zones(&self) -> Result<Vec<AvailabilityZone>, Error> {
        self.list(Service::Nova, "/os-availability-zone", "availabilityZoneInfo", &vec![]).await
    }

    pub async fn key_pairs(&self) -> Result<Vec<KeyPair>, Error> {
        #[derive(Deserialize)]
        struct Wrapped {
            keypair: KeyPair,
        }
        let wrapped: Vec<Wrapped> = self.list(Service::Nova, "/os-keypairs", "keypairs", &vec![]).await?;
        Ok(wrapped.into_iter().map(|wrapped| wrapped.keypair).collect())
    }

    /// The limits of the project and how much of them is used, as Nova tells them.
    pub async fn compute_limits(&self) -> Result<Value, Error> {
        Ok(self.get::<Value>(Service::Nova, "/limits").await?["limits"]["absolute"].take())
    }
}
