//! Neutron's calls.

use serde::Deserialize;
use serde_json::json;

use crate::query::{NetworkQuery, PortQuery, SecurityGroupQuery, SubnetQuery, escape};
use crate::wire::{
    CreatePort, CreateSecurityGroup, CreateSecurityGroupRule, Network, Port, SecurityGroup, SecurityGroupRule, Subnet,
};
use crate::{Cloud, Error, Service};

impl Cloud {
    pub async fn networks(&self, query: &NetworkQuery) -> Result<Vec<Network>, Error> {
        self.list(Service::Neutron, "/networks", "networks", &query.pairs()).await
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
