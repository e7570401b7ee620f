//! Trunks on ports of a server.
//! Flows: surplus ones go -> missing ones are made on their ports -> tags. Holds: subports belong to whoever made them; they leave the trunk before it goes, and stay.

use hangar_openstack_types::{CreateTrunk, Trunk};
use jiff::Timestamp;

use super::resources::oldest;
use super::{Cloud, CloudCall, ResourceType};
use crate::plan::Phase;
use crate::planner::Part;

/// One trunk as it should be.
#[derive(Debug, Clone)]
pub struct WantedTrunk {
    pub role: String,
    /// The role of the port that it is on.
    pub port: String,
    pub name: String,
    /// With the owner's key.
    pub description: String,
    pub tags: Vec<String>,
}

pub struct Trunks<'a> {
    pub cloud: &'a Cloud,
    /// There is a server, which has them.
    pub has_server: bool,
    pub wanted: Vec<WantedTrunk>,
}

impl Trunks<'_> {
    fn of(&self, wanted: &WantedTrunk) -> Option<&Trunk> {
        oldest(&self.cloud.resources.trunks, &wanted.role)
    }

    fn surplus(&self) -> Phase {
        let needed: Vec<&str> = self.wanted.iter().filter_map(|it| self.of(it)).map(|it| it.id.as_str()).collect();
        let all = self.cloud.resources.trunks.values().filter(|trunk| !needed.contains(&trunk.id.as_str()));
        self.gone(all.map(AsRef::as_ref))
    }

    fn missing(&self) -> Phase {
        let missing = self.wanted.iter().filter(|wanted| self.of(wanted).is_none());
        Phase::steps(missing.filter_map(|wanted| {
            let port = oldest(&self.cloud.resources.ports, &wanted.port)?;
            let create = CreateTrunk {
                name: wanted.name.clone(),
                port_id: port.id.clone(),
                description: Some(wanted.description.clone()),
                ..CreateTrunk::default()
            };
            Some(self.cloud.step(CloudCall::CreateTrunk(Box::new(create))))
        }))
    }

    fn deleted(&self) -> Phase {
        match self.wanted.iter().find(|wanted| self.of(wanted).is_none()) {
            Some(wanted) => Phase::blocked(
                "TrunkDeleted",
                format!(
                    "trunk {} was deleted in the cloud while its server is there; delete the Machine to have it replaced",
                    wanted.name
                ),
            ),
            None => Phase::Done,
        }
    }

    /// Neutron takes no tags in the create call.
    fn tags(&self) -> Phase {
        Phase::steps(self.wanted.iter().filter_map(|wanted| {
            let trunk = self.of(wanted)?;
            let complete = wanted.tags.iter().all(|tag| trunk.tags.contains(tag));
            let tag = || CloudCall::Tag { of: ResourceType::Trunk, id: trunk.id.clone(), tags: wanted.tags.clone() };
            (!complete).then(|| self.cloud.step(tag()))
        }))
    }

    fn gone<'t>(&self, trunks: impl Iterator<Item = &'t Trunk>) -> Phase {
        Phase::steps(trunks.flat_map(|trunk| {
            let port_ids: Vec<String> = trunk.sub_ports.iter().map(|port| port.port_id.clone()).collect();
            let id = trunk.id.clone();
            let leave = (!port_ids.is_empty()).then(|| CloudCall::RemoveSubPorts { trunk_id: id.clone(), port_ids });
            let calls = leave.into_iter().chain([CloudCall::Delete(ResourceType::Trunk, id)]);
            calls.map(|call| self.cloud.step(call)).collect::<Vec<_>>()
        }))
    }
}

impl Part for Trunks<'_> {
    fn build(&self, _now: Timestamp) -> Phase {
        // Most drivers make no trunk on a port that is in use, nor take one from it.
        match self.has_server {
            true => self.deleted(),
            false => self.surplus().then(|| self.missing()).then(|| self.tags()),
        }
    }

    fn delete(&self, _now: Timestamp) -> Phase {
        self.gone(self.cloud.resources.trunks.values().map(AsRef::as_ref))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hangar_openstack_types::{Port, SubPort};

    use super::*;
    use crate::cloud::Resource;
    use crate::cloud::tests::{cloud, described};
    use crate::owner_key::OwnerKey;
    use crate::testing::at;

    fn described_by(role: &str) -> String {
        OwnerKey::new("c", "o", role).describe("x")
    }

    fn port() -> Resource {
        Resource::Port(Arc::new(Port { id: "p0".into(), description: described_by("port-0"), ..Port::default() }))
    }

    fn trunk(id: &str, role: &str, tags: &[&str], sub_ports: &[&str]) -> Resource {
        let sub_ports = sub_ports.iter().map(|id| SubPort { port_id: (*id).into(), ..SubPort::default() }).collect();
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let description = described_by(role);
        Resource::Trunk(Arc::new(Trunk { id: id.into(), description, tags, sub_ports, ..Trunk::default() }))
    }

    #[test]
    fn a_trunk_is_made_on_its_port_and_tagged() {
        let wanted = || WantedTrunk {
            role: "trunk-0".into(),
            port: "port-0".into(),
            name: "m-0".into(),
            description: described_by("trunk-0"),
            tags: vec!["blue".into()],
        };
        for (what, present, has_server, expected) in [
            ("no port yet", vec![], false, "done"),
            ("none", vec![port()], false, "create trunk m-0"),
            ("without its tags", vec![port(), trunk("t", "trunk-0", &[], &[])], false, "tag Trunk t blue"),
            ("there", vec![port(), trunk("t", "trunk-0", &["blue"], &["sub"])], true, "done"),
            (
                "taken from its server",
                vec![port()],
                true,
                "blocked TrunkDeleted: trunk m-0 was deleted in the cloud while its server is there; delete the Machine to have it replaced",
            ),
            (
                "one that nobody wants",
                vec![port(), trunk("t", "trunk-0", &["blue"], &[]), trunk("u", "trunk-1", &[], &[])],
                false,
                "delete Trunk u",
            ),
            (
                "one that nobody wants, in use",
                vec![port(), trunk("t", "trunk-0", &["blue"], &[]), trunk("u", "trunk-1", &[], &[])],
                true,
                "done",
            ),
        ] {
            let cloud = cloud(present);
            let part = Trunks { cloud: &cloud, has_server, wanted: vec![wanted()] };
            assert_eq!(described(part.build(at(0))), expected, "{what}");
        }
    }

    #[test]
    fn subports_leave_a_trunk_that_goes_and_are_not_deleted() {
        let cloud = cloud(vec![port(), trunk("t", "trunk-0", &[], &["s1", "s2"]), trunk("u", "trunk-1", &[], &[])]);
        let part = Trunks { cloud: &cloud, has_server: false, wanted: vec![] };
        assert_eq!(described(part.delete(at(0))), "remove sub-ports s1,s2 of t; delete Trunk t; delete Trunk u");
    }
}
