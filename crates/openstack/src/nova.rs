//! Nova's calls.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cloud::Extra;
use crate::query::{ServerQuery, escape};
use crate::wire::{
    AvailabilityZone, CreateServer, Flavor, InterfaceAttachment, KeyPair, Reference, Server, ServerGroup,
    VolumeAttachment,
};
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

    pub async fn flavor(&self, id: &str) -> Result<Flavor, Error> {
        self.show(Service::Nova, &format!("/flavors/{}", escape(id)), "flavor").await
    }

    /// For administrators.
    pub async fn create_flavor(&self, name: &str, vcpus: u32, ram: u64, disk: u64) -> Result<Flavor, Error> {
        let body = json!({"name": name, "vcpus": vcpus, "ram": ram, "disk": disk});
        self.create(Service::Nova, "/flavors", "flavor", &body).await
    }

    pub async fn delete_flavor(&self, id: &str) -> Result<(), Error> {
        self.delete(Service::Nova, &format!("/flavors/{}", escape(id))).await
    }

    pub async fn create_key_pair(&self, name: &str, public_key: &str) -> Result<KeyPair, Error> {
        let body = json!({"name": name, "public_key": public_key});
        self.create(Service::Nova, "/os-keypairs", "keypair", &body).await
    }

    pub async fn delete_key_pair(&self, name: &str) -> Result<(), Error> {
        self.delete(Service::Nova, &format!("/os-keypairs/{}", escape(name))).await
    }

    pub async fn server_groups(&self) -> Result<Vec<ServerGroup>, Error> {
        self.list(Service::Nova, "/os-server-groups", "server_groups", &vec![]).await
    }

    /// `policy` is `affinity`, `anti-affinity`, `soft-affinity` or `soft-anti-affinity`.
    pub async fn create_server_group(&self, name: &str, policy: &str) -> Result<ServerGroup, Error> {
        let body = json!({"name": name, "policies": [policy]});
        self.create(Service::Nova, "/os-server-groups", "server_group", &body).await
    }

    pub async fn delete_server_group(&self, id: &str) -> Result<(), Error> {
        self.delete(Service::Nova, &format!("/os-server-groups/{}", escape(id))).await
    }

    pub async fn stop_server(&self, id: &str) -> Result<(), Error> {
        self.act(id, "os-stop").await
    }

    pub async fn start_server(&self, id: &str) -> Result<(), Error> {
        self.act(id, "os-start").await
    }

    pub async fn lock_server(&self, id: &str, locked: bool) -> Result<(), Error> {
        self.act(id, if locked { "lock" } else { "unlock" }).await
    }

    async fn act(&self, id: &str, action: &str) -> Result<(), Error> {
        let path = format!("/servers/{}/action", escape(id));
        let body = json!({action: null});
        self.tell(Service::Nova, Method::POST, &path, Extra { body: Some(&body), ..Extra::default() }).await
    }

    pub async fn server_interfaces(&self, id: &str) -> Result<Vec<InterfaceAttachment>, Error> {
        self.list(Service::Nova, &format!("/servers/{}/os-interface", escape(id)), "interfaceAttachments", &vec![])
            .await
    }

    pub async fn attach_volume(&self, server: &str, volume: &str) -> Result<VolumeAttachment, Error> {
        let path = format!("/servers/{}/os-volume_attachments", escape(server));
        self.create(Service::Nova, &path, "volumeAttachment", &json!({"volumeId": volume})).await
    }

    pub async fn detach_volume(&self, server: &str, volume: &str) -> Result<(), Error> {
        let path = format!("/servers/{}/os-volume_attachments/{}", escape(server), escape(volume));
        self.delete(Service::Nova, &path).await
    }

    /// For administrators.
    pub async fn set_compute_quota(&self, project: &str, name: &str, limit: i64) -> Result<(), Error> {
        let path = format!("/os-quota-sets/{}", escape(project));
        let body = json!({name: limit, "force": true});
        self.update::<Value>(Service::Nova, &path, "quota_set", &body, None).await.map(drop)
    }
}
