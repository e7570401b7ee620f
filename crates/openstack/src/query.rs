//! What a list is filtered by: every field optional, equal names as the services have them; and where its next page is.

use serde_json::Value;

/// Neutron's tag filters; each list is sent comma separated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TagFilter {
    pub all: Vec<String>,
    pub any: Vec<String>,
    pub not_all: Vec<String>,
    pub not_any: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkQuery {
    pub id: Option<String>,
    pub name: Option<String>,
    pub description: Option<String>,
    pub project_id: Option<String>,
    pub external: Option<bool>,
    pub shared: Option<bool>,
    pub tags: TagFilter,
    /// Page size; pages are followed in any case.
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubnetQuery {
    pub id: Option<String>,
    pub name: Option<String>,
    pub description: Option<String>,
    pub project_id: Option<String>,
    pub network_id: Option<String>,
    pub cidr: Option<String>,
    pub ip_version: Option<u8>,
    pub gateway_ip: Option<String>,
    pub tags: TagFilter,
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortQuery {
    pub id: Option<String>,
    pub name: Option<String>,
    pub description: Option<String>,
    pub project_id: Option<String>,
    pub network_id: Option<String>,
    pub device_id: Option<String>,
    pub device_owner: Option<String>,
    pub mac_address: Option<String>,
    pub tags: TagFilter,
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecurityGroupQuery {
    pub id: Option<String>,
    pub name: Option<String>,
    pub description: Option<String>,
    pub project_id: Option<String>,
    pub tags: TagFilter,
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerQuery {
    /// A regular expression to Nova: `^name$` for one name.
    pub name: Option<String>,
    pub status: Option<String>,
    /// All of these.
    pub tags: Vec<String>,
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageQuery {
    pub id: Option<String>,
    pub name: Option<String>,
    /// All of these.
    pub tags: Vec<String>,
    pub status: Option<String>,
    pub visibility: Option<String>,
    /// Id of the project.
    pub owner: Option<String>,
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouterQuery {
    pub id: Option<String>,
    pub name: Option<String>,
    pub description: Option<String>,
    pub project_id: Option<String>,
    pub tags: TagFilter,
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FloatingIpQuery {
    pub id: Option<String>,
    pub floating_ip_address: Option<String>,
    pub floating_network_id: Option<String>,
    pub port_id: Option<String>,
    pub status: Option<String>,
    pub description: Option<String>,
    pub project_id: Option<String>,
    pub tags: TagFilter,
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrunkQuery {
    pub name: Option<String>,
    pub port_id: Option<String>,
    pub project_id: Option<String>,
    pub tags: TagFilter,
    pub limit: Option<u32>,
}

pub(crate) type Pairs = Vec<(&'static str, String)>;

/// Collects what is set, in a fixed order so that the same query is the same URL.
#[derive(Default)]
struct Set(Pairs);

impl Set {
    fn text(mut self, name: &'static str, value: &Option<impl ToString>) -> Self {
        self.0.extend(value.as_ref().map(|value| (name, value.to_string())));
        self
    }

    fn list(mut self, name: &'static str, values: &[String]) -> Self {
        if !values.is_empty() {
            self.0.push((name, values.join(",")));
        }
        self
    }

    fn tags(self, filter: &TagFilter) -> Self {
        self.list("tags", &filter.all)
            .list("tags-any", &filter.any)
            .list("not-tags", &filter.not_all)
            .list("not-tags-any", &filter.not_any)
    }
}

impl NetworkQuery {
    pub(crate) fn pairs(&self) -> Pairs {
        Set::default()
            .text("id", &self.id)
            .text("name", &self.name)
            .text("description", &self.description)
            .text("project_id", &self.project_id)
            .text("router:external", &self.external)
            .text("shared", &self.shared)
            .tags(&self.tags)
            .text("limit", &self.limit)
            .0
    }
}

impl SubnetQuery {
    pub(crate) fn pairs(&self) -> Pairs {
        Set::default()
            .text("id", &self.id)
            .text("name", &self.name)
            .text("description", &self.description)
            .text("project_id", &self.project_id)
            .text("network_id", &self.network_id)
            .text("cidr", &self.cidr)
            .text("ip_version", &self.ip_version)
            .text("gateway_ip", &self.gateway_ip)
            .tags(&self.tags)
            .text("limit", &self.limit)
            .0
    }
}

impl PortQuery {
    pub(crate) fn pairs(&self) -> Pairs {
        Set::default()
            .text("id", &self.id)
            .text("name", &self.name)
            .text("description", &self.description)
            .text("project_id", &self.project_id)
            .text("network_id", &self.network_id)
            .text("device_id", &self.device_id)
            .text("device_owner", &self.device_owner)
            .text("mac_address", &self.mac_address)
            .tags(&self.tags)
            .text("limit", &self.limit)
            .0
    }
}

impl SecurityGroupQuery {
    pub(crate) fn pairs(&self) -> Pairs {
        Set::default()
            .text("id", &self.id)
            .text("name", &self.name)
            .text("description", &self.description)
            .text("project_id", &self.project_id)
            .tags(&self.tags)
            .text("limit", &self.limit)
            .0
    }
}

impl RouterQuery {
    pub(crate) fn pairs(&self) -> Pairs {
        Set::default()
            .text("id", &self.id)
            .text("name", &self.name)
            .text("description", &self.description)
            .text("project_id", &self.project_id)
            .tags(&self.tags)
            .text("limit", &self.limit)
            .0
    }
}

impl FloatingIpQuery {
    pub(crate) fn pairs(&self) -> Pairs {
        Set::default()
            .text("id", &self.id)
            .text("floating_ip_address", &self.floating_ip_address)
            .text("floating_network_id", &self.floating_network_id)
            .text("port_id", &self.port_id)
            .text("status", &self.status)
            .text("description", &self.description)
            .text("project_id", &self.project_id)
            .tags(&self.tags)
            .text("limit", &self.limit)
            .0
    }
}

impl TrunkQuery {
    pub(crate) fn pairs(&self) -> Pairs {
        Set::default()
            .text("name", &self.name)
            .text("port_id", &self.port_id)
            .text("project_id", &self.project_id)
            .tags(&self.tags)
            .text("limit", &self.limit)
            .0
    }
}

impl ServerQuery {
    pub(crate) fn pairs(&self) -> Pairs {
        Set::default()
            .text("name", &self.name)
            .text("status", &self.status)
            .list("tags", &self.tags)
            .text("limit", &self.limit)
            .0
    }
}

impl ImageQuery {
    pub(crate) fn pairs(&self) -> Pairs {
        let mut set = Set::default()
            .text("id", &self.id)
            .text("name", &self.name)
            .text("status", &self.status)
            .text("visibility", &self.visibility)
            .text("owner", &self.owner);
        // Glance wants one parameter per tag.
        set.0.extend(self.tags.iter().map(|tag| ("tag", tag.clone())));
        set.text("limit", &self.limit).0
    }
}

/// `a=b&c=d`, escaped.
pub(crate) fn encode(pairs: &[(&'static str, String)]) -> String {
    let part = |(name, value): &(&str, String)| format!("{}={}", escape(name), escape(value));
    pairs.iter().map(part).collect::<Vec<_>>().join("&")
}

pub(crate) fn escape(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:,".contains(&byte);
    text.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// The query of the next page. Only the query counts: behind a proxy the link's host is often one nobody can reach.
pub(crate) fn next_query(page: &Value, collection: &str) -> Option<String> {
    let links = page.get(format!("{collection}_links")).and_then(Value::as_array);
    let linked = links.and_then(|links| links.iter().find(|link| link["rel"] == "next")?["href"].as_str());
    let href = linked.or_else(|| page.get("next")?.as_str())?;
    Some(href.split_once('?')?.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_set_is_asked_for_and_escaped() {
        let query = PortQuery {
            name: Some("a b&c".to_owned()),
            tags: TagFilter { any: vec!["x".to_owned(), "y".to_owned()], ..TagFilter::default() },
            ..PortQuery::default()
        };
        assert_eq!(encode(&query.pairs()), "name=a%20b%26c&tags-any=x,y");
        assert_eq!(
            encode(&NetworkQuery { external: Some(true), ..NetworkQuery::default() }.pairs()),
            "router:external=true"
        );
        let server = ServerQuery { name: Some("^w$".to_owned()), ..ServerQuery::default() };
        assert_eq!(encode(&server.pairs()), "name=%5Ew%24");
    }
}
