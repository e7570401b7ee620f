//! Neutron's calls.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::query::{NetworkQuery, PortQuery, SecurityGroupQuery, SubnetQuery, escape};
use crate::wire::{
    CreateNetwork, CreatePort, CreateSecurityGroup, CreateSecurityGroupRule, CreateSubnet, Network, Port,
    SecurityGroup, SecurityGroupRule, Subnet, Usage,
};
use crate::{Cloud, Error, Service};

impl Cloud {
    pub async fn networks(&self, query: &NetworkQuery) -> Result<Vec<Network>, Error> {
        self.list(Service::Neutron, "/networks", "networks", &query.pairs()).await
    }

    pub async fn network(&self, id: &str) -> Result<Network, Error> {
        self.show(Service::Neutron, &format!("/networks/{}", escape(id)), "network").await
    }

    pub async fn create_network(&self, body: &CreateNetwork) -> Result<Network, Error> {
        self.create(Service::Neutron, "/networks", "network", body).await
    }

    /// Only what is in `changes`, such as `{"mtu": 1400}`.
    pub async fn update_network(&self, id: &str, changes: &Value) -> Result<Network, Error> {
        self.update(Service::Neutron, &format!("/networks/{}", escape(id)), "network", changes, None).await
    }

    /// Its subnets go with it; a port of anybody keeps it.
    pub async fn delete_network(&self, id: &str) -> Result<(), Error> {
        self.delete(Service::Neutron, &format!("/networks/{}", escape(id))).await
    }

    pub async fn subnet(&self, id: &str) -> Result<Subnet, Error> {
        self.show(Service::Neutron, &format!("/subnets/{}", escape(id)), "subnet").await
    }

    pub async fn create_subnet(&self, body: &CreateSubnet) -> Result<Subnet, Error> {
        self.create(Service::Neutron, "/subnets", "subnet", body).await
    }

    /// Only what is in `changes`, such as `{"dns_nameservers": [...]}`.
    pub async fn update_subnet(&self, id: &str, changes: &Value) -> Result<Subnet, Error> {
        self.update(Service::Neutron, &format!("/subnets/{}", escape(id)), "subnet", changes, None).await
    }

    pub async fn delete_subnet(&self, id: &str) -> Result<(), Error> {
        self.delete(Service::Neutron, &format!("/subnets/{}", escape(id))).await
    }

    /// The aliases of what this Neutron can do.
    pub async fn extensions(&self) -> Result<Vec<String>, Error> {
        #[derive(Deserialize)]
        struct Extension {
            alias: String,
        }
        let all: Vec<Extension> = self.list(Service::Neutron, "/extensions", "extensions", &vec![]).await?;
        Ok(all.into_iter().map(|extension| extension.alias).collect())
    }

    /// Limits of a project by name of the resource; -1 is none.
    pub async fn network_quota(&self, project: &str) -> Result<BTreeMap<String, i64>, Error> {
        self.show(Service::Neutron, &format!("/quotas/{}", escape(project)), "quota").await
    }

    /// The same, with how much of each is used.
    pub async fn network_usage(&self, project: &str) -> Result<BTreeMap<String, Usage>, Error> {
        self.show(Service::Neutron, &format!("/quotas/{}/details", escape(project)), "quota").await
    }

    /// For administrators.
    pub async fn set_network_quota(&self, project: &str, name: &str, limit: i64) -> Result<(), Error> {
        let path = format!("/quotas/{}", escape(project));
        self.update::<Value>(Service::Neutron, &path, "quota", &json!({name: limit}), None).await.map(drop)
    }

    pub async fn subnets(&self, query: &SubnetQuery) -> Result<Vec<Subnet>, Error> {
        self.list(Service::Neutron, "/subnets", "subnets", &query.pairs()).await
    }

    pub async fn ports(&self, query: &PortQuery) -> Result<Vec<Port>, Error> {
        self.list(Service::Neutron, "/ports", "ports", &query.pairs()).await
    }

    pub async fn create_port(&self, body: &CreatePort) -> Result<Port, Error> {
        #[derive(Deserialize)]
        struct Reply {
            port: Port,
        }
        Ok(self.post::<Reply>(Service::Neutron, "/ports", &json!({"port": body})).await?.port)
    }

    pub async fn port(&self, id: &str) -> Result<Port, Error> {
        self.show(Service::Neutron, &format!("/ports/{}", escape(id)), "port").await
    }

    /// Only what is in `changes`; with `revision` only while nobody else changed it, otherwise it is a conflict.
    pub async fn update_port(&self, id: &str, changes: &Value, revision: Option<u64>) -> Result<Port, Error> {
        self.update(Service::Neutron, &format!("/ports/{}", escape(id)), "port", changes, revision).await
    }

    /// A port that is not there is an error of kind `NotFound`; what that means is the caller's business.
    pub async fn delete_port(&self, id: &str) -> Result<(), Error> {
        self.delete(Service::Neutron, &format!("/ports/{}", escape(id))).await
    }

    /// With the rules of each group.
    pub async fn security_groups(&self, query: &SecurityGroupQuery) -> Result<Vec<SecurityGroup>, Error> {
        self.list(Service::Neutron, "/security-groups", "security_groups", &query.pairs()).await
    }

    pub async fn create_security_group(&self, body: &CreateSecurityGroup) -> Result<SecurityGroup, Error> {
        #[derive(Deserialize)]
        struct Reply {
            security_group: SecurityGroup,
        }
        let body = json!({"security_group": body});
        Ok(self.post::<Reply>(Service::Neutron, "/security-groups", &body).await?.security_group)
    }

    pub async fn delete_security_group(&self, id: &str) -> Result<(), Error> {
        self.delete(Service::Neutron, &format!("/security-groups/{}", escape(id))).await
    }

    /// All of them in one request; Neutron makes all or none.
    pub async fn create_security_group_rules(
        &self,
        bodies: &[CreateSecurityGroupRule],
    ) -> Result<Vec<SecurityGroupRule>, Error> {
        #[derive(Deserialize)]
        struct Reply {
            security_group_rules: Vec<SecurityGroupRule>,
        }
        if bodies.is_empty() {
            return Ok(vec![]);
        }
        let body = json!({"security_group_rules": bodies});
        Ok(self.post::<Reply>(Service::Neutron, "/security-group-rules", &body).await?.security_group_rules)
    }

    /// Replaces all tags; `collection` is `ports`, `security-groups`, `networks`, ...
    pub async fn set_tags(&self, collection: &str, id: &str, tags: &[String]) -> Result<Vec<String>, Error> {
        #[derive(Deserialize)]
        struct Reply {
            tags: Vec<String>,
        }
        let path = format!("/{}/{}/tags", escape(collection), escape(id));
        Ok(self.put::<Reply>(Service::Neutron, &path, &json!({"tags": tags})).await?.tags)
    }

    pub async fn delete_security_group_rule(&self, id: &str) -> Result<(), Error> {
        self.delete(Service::Neutron, &format!("/security-group-rules/{}", escape(id))).await
    }
}
