//! Names and filters of specs: `NetworkParam`, `SubnetParam`, `RouterParam`, `SecurityGroupParam` and `ServerGroupParam`.
//!
//! Flows: a field of a spec -> [`Parameter`] -> (the cloud's list) -> [`Parameter::choose`] -> a [`Lookup`]. Holds: exactly one must match, else the candidates are
//! named; what the cloud lists is matched once more here, because services ignore parameters that they do not know.

use hangar_openstack_types::{Network, Router, SecurityGroup, ServerGroup, Subnet};
use serde_json::Value;

use super::Lookup;

/// How a spec names a resource that is there already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Parameter {
    #[default]
    None,
    Id(String),
    Filter(Box<Filter>),
}

/// Every field that is set must fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub name: Option<String>,
    pub description: Option<String>,
    pub project_id: Option<String>,
    pub tags: Vec<String>,
    pub tags_any: Vec<String>,
    pub not_tags: Vec<String>,
    pub not_tags_any: Vec<String>,
    /// From here on of subnets only.
    pub ip_version: Option<u8>,
    pub gateway_ip: Option<String>,
    pub cidr: Option<String>,
    pub ipv6_address_mode: Option<String>,
    pub ipv6_ra_mode: Option<String>,
    /// As it stands in the spec, for people.
    text: String,
}

/// What filters look at.
pub trait Filtered {
    fn id(&self) -> &str;
    fn name(&self) -> &str;
    fn description(&self) -> &str {
        ""
    }
    fn project_id(&self) -> &str {
        ""
    }
    fn tags(&self) -> &[String] {
        &[]
    }
    fn as_subnet(&self) -> Option<&Subnet> {
        None
    }
}

impl Parameter {
    /// `{id: ...}` or `{filter: {...}}`; nothing else names anything.
    pub fn of(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        if let Some(id) = text(&value["id"]) {
            return Self::Id(id);
        }
        let filter = &value["filter"];
        if filter.as_object().is_none_or(serde_json::Map::is_empty) {
            return Self::None;
        }
        let list = |field: &str| -> Vec<String> {
            filter[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self::Filter(Box::new(Filter {
            name: text(&filter["name"]),
            description: text(&filter["description"]),
            project_id: text(&filter["projectID"]),
            tags: list("tags"),
            tags_any: list("tagsAny"),
            not_tags: list("notTags"),
            not_tags_any: list("notTagsAny"),
            ip_version: filter["ipVersion"].as_u64().and_then(|version| u8::try_from(version).ok()),
            gateway_ip: text(&filter["gatewayIP"]),
            cidr: text(&filter["cidr"]),
            ipv6_address_mode: text(&filter["ipv6AddressMode"]),
            ipv6_ra_mode: text(&filter["ipv6RAMode"]),
            text: filter.to_string(),
        }))
    }

    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// As a person wrote it.
    pub fn text(&self) -> &str {
        match self {
            Self::None => "",
            Self::Id(id) => id,
            Self::Filter(filter) => &filter.text,
        }
    }

    pub fn matches(&self, candidate: &impl Filtered) -> bool {
        match self {
            Self::None => true,
            Self::Id(id) => candidate.id() == id,
            Self::Filter(filter) => filter.matches(candidate),
        }
    }

    /// The only one of these that matches.
    pub fn choose<T: Filtered>(&self, listed: Vec<T>) -> (Lookup, Option<T>) {
        let mut found: Vec<T> = listed.into_iter().filter(|candidate| self.matches(candidate)).collect();
        let wanted = self.text().to_owned();
        match found.len() {
            0 => (Lookup::Missing { wanted, known: vec![] }, None),
            1 => {
                let one = found.swap_remove(0);
                (Lookup::Found(one.id().to_owned()), Some(one))
            }
            _ => {
                let candidates = found.iter().map(|one| format!("{} {}", one.name(), one.id()).trim().to_owned());
                (Lookup::Ambiguous { wanted, candidates: candidates.collect() }, None)
            }
        }
    }
}

impl Filter {
    fn matches(&self, candidate: &impl Filtered) -> bool {
        let fits = |wanted: &Option<String>, there: &str| wanted.as_deref().is_none_or(|wanted| wanted == there);
        let has = |tag: &String| candidate.tags().contains(tag);
        fits(&self.name, candidate.name())
            && fits(&self.description, candidate.description())
            && fits(&self.project_id, candidate.project_id())
            && self.tags.iter().all(has)
            && (self.tags_any.is_empty() || self.tags_any.iter().any(has))
            && (self.not_tags.is_empty() || !self.not_tags.iter().all(has))
            && !self.not_tags_any.iter().any(has)
            && candidate.as_subnet().is_none_or(|subnet| self.fits_subnet(subnet))
    }

    fn fits_subnet(&self, subnet: &Subnet) -> bool {
        let fits = |wanted: &Option<String>, there: &Option<String>| wanted.is_none() || wanted == there;
        self.ip_version.is_none_or(|version| version == subnet.ip_version)
            && self.cidr.as_ref().is_none_or(|cidr| *cidr == subnet.cidr)
            && fits(&self.gateway_ip, &subnet.gateway_ip)
            && fits(&self.ipv6_address_mode, &subnet.ipv6_address_mode)
            && fits(&self.ipv6_ra_mode, &subnet.ipv6_ra_mode)
    }
}

macro_rules! filtered {
    ($($type:ty $(: $own:item)?),*) => {
        $(impl Filtered for $type {
            fn id(&self) -> &str {
                &self.id
            }
            fn name(&self) -> &str {
                &self.name
            }
            fn description(&self) -> &str {
                &self.description
            }
            fn project_id(&self) -> &str {
                if self.project_id.is_empty() { &self.tenant_id } else { &self.project_id }
            }
            fn tags(&self) -> &[String] {
                &self.tags
            }
            $($own)?
        })*
    };
}

filtered!(Network, Router, SecurityGroup, Subnet: fn as_subnet(&self) -> Option<&Subnet> { Some(self) });

impl Filtered for ServerGroup {
    fn id(&self) -> &str {
        &self.id
    }
    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn network(id: &str, name: &str, tags: &[&str]) -> Network {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        Network { id: id.into(), name: name.into(), project_id: "p".into(), tags, ..Network::default() }
    }

    #[test]
    fn oc3_exactly_one_must_match_and_the_candidates_are_named() {
        let all = || {
            vec![
                network("1", "a", &["x", "y"]),
                network("2", "a", &["x"]),
                network("3", "b", &["z"]),
                network("4", "c", &[]),
            ]
        };
        for (filter, expected) in [
            (json!({ "id": "3" }), None),
            (json!({ "id": "9" }), Some("spec.network 9 matches no network; it must match exactly one")),
            (json!({ "filter": { "name": "b" } }), None),
            (
                json!({ "filter": { "name": "a" } }),
                Some(r#"spec.network {"name":"a"} matches 2 networks (a 1, a 2); it must match exactly one"#),
            ),
            (json!({ "filter": { "name": "a", "tags": ["x", "y"] } }), None),
            (json!({ "filter": { "name": "a", "notTags": ["x", "y"] } }), None),
            (json!({ "filter": { "tagsAny": ["z", "q"] } }), None),
            (json!({ "filter": { "notTagsAny": ["x", "z"] } }), None),
            (
                json!({ "filter": { "name": "b", "projectID": "q" } }),
                Some(r#"spec.network {"name":"b","projectID":"q"} matches no network; it must match exactly one"#),
            ),
        ] {
            let (lookup, found) = Parameter::of(&filter).choose(all());
            assert_eq!(lookup.problem("spec.network", "network").as_deref(), expected, "{filter}");
            assert_eq!(found.is_some(), expected.is_none(), "{filter}");
        }
        for nothing in [json!(null), json!({}), json!({ "id": "" }), json!({ "filter": {} })] {
            assert!(Parameter::of(&nothing).is_none(), "{nothing}");
        }
    }

    #[test]
    fn a_subnet_is_also_known_by_its_range_and_its_modes() {
        let subnet = Subnet {
            id: "1".into(),
            ip_version: 6,
            cidr: "fd00::/64".into(),
            gateway_ip: Some("fd00::1".into()),
            ipv6_ra_mode: Some("slaac".into()),
            ..Subnet::default()
        };
        for (filter, fits) in [
            (json!({ "ipVersion": 6 }), true),
            (json!({ "ipVersion": 4 }), false),
            (json!({ "cidr": "fd00::/64", "gatewayIP": "fd00::1" }), true),
            (json!({ "gatewayIP": "fd00::2" }), false),
            (json!({ "ipv6RAMode": "slaac" }), true),
            (json!({ "ipv6AddressMode": "slaac" }), false),
        ] {
            assert_eq!(Parameter::of(&json!({ "filter": filter })).matches(&subnet), fits, "{filter}");
        }
    }
}
