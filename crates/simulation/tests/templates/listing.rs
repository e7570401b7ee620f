//! Everything that a project has, as text: the same in every cloud that has the same.

use std::collections::BTreeMap;

use hangar_openstack::*;

use crate::manifests::Names;
use crate::place::Place;

/// By id, with what is said of it.
#[derive(Default)]
pub struct Listing {
    lines: BTreeMap<String, String>,
    /// What ids stand for.
    names: BTreeMap<String, String>,
}

fn sorted(mut all: Vec<String>) -> String {
    all.sort();
    all.join(",")
}

/// The role in an owner's key, which must be there.
fn role(text: &str) -> &str {
    let key = text.split_once("[hangar:").and_then(|(_, rest)| rest.split_once(']'));
    key.and_then(|(key, _)| key.rsplit_once('/')).map_or("NO KEY", |(_, role)| role)
}

impl Listing {
    pub async fn of(place: &Place) -> Self {
        let (cloud, mut all) = (&place.demo, Self::default());
        let project = cloud.project_id().await.unwrap();
        let own = Some(project.clone());
        for it in cloud.networks(&NetworkQuery { project_id: own.clone(), ..Default::default() }).await.unwrap() {
            all.names.insert(it.id.clone(), it.name.clone());
            let line = format!("network {} [{}] {}", it.name, sorted(it.tags), role(&it.description));
            all.lines.insert(it.id, line);
        }
        for it in cloud.subnets(&SubnetQuery { project_id: own.clone(), ..Default::default() }).await.unwrap() {
            let dns = sorted(it.dns_nameservers);
            let line =
                format!("subnet {} [{}] {} dns={dns} {}", it.name, sorted(it.tags), it.cidr, role(&it.description));
            all.lines.insert(it.id, line);
        }
        for it in cloud.routers(&RouterQuery { project_id: own.clone(), ..Default::default() }).await.unwrap() {
            let out = it.external_gateway_info.is_some_and(|info| info.network_id == place.external.id);
            let line = format!("router {} [{}] leads-out={out} {}", it.name, sorted(it.tags), role(&it.description));
            all.lines.insert(it.id, line);
        }
        all.groups(cloud, &own).await;
        all.ports(cloud, &own).await;
        all.servers(cloud).await;
        all.balancers(cloud, &project).await;
        for it in cloud.floating_ips(&FloatingIpQuery { project_id: own, ..Default::default() }).await.unwrap() {
            let bound = it.port_id.and_then(|id| all.names.get(&id).cloned()).unwrap_or_else(|| "nothing".into());
            let line = format!("floating IP [{}] leads to {bound} {}", sorted(it.tags), role(&it.description));
            all.lines.insert(it.id, line);
        }
        all
    }

    async fn groups(&mut self, cloud: &Cloud, own: &Option<String>) {
        let query = SecurityGroupQuery { project_id: own.clone(), ..Default::default() };
        let groups = cloud.security_groups(&query).await.unwrap();
        self.names.extend(groups.iter().map(|it| (it.id.clone(), it.name.clone())));
        for it in groups {
            let line = format!("security group {} [{}] {}", it.name, sorted(it.tags.clone()), role(&it.description));
            for rule in it.security_group_rules {
                let from = match (&rule.remote_group_id, &rule.remote_ip_prefix) {
                    (Some(group), _) => self.names.get(group).cloned().unwrap_or_default(),
                    (None, Some(prefix)) => prefix.clone(),
                    (None, None) => "anywhere".into(),
                };
                let ports = match (rule.port_range_min, rule.port_range_max) {
                    (Some(first), Some(last)) => format!("{first}-{last}"),
                    _ => "all".into(),
                };
                let (family, protocol) = (rule.ethertype.as_str(), rule.protocol.as_deref().unwrap_or("any"));
                let line = format!("  {} {} {family} {protocol} {ports} {from}", it.name, rule.direction);
                self.lines.insert(rule.id, line);
            }
            self.lines.insert(it.id, line);
        }
    }

    async fn ports(&mut self, cloud: &Cloud, own: &Option<String>) {
        for it in cloud.ports(&PortQuery { project_id: own.clone(), ..Default::default() }).await.unwrap() {
            // Others make ports for themselves: they are listed by who has them, and go with those.
            if !it.description.contains("[hangar:") {
                self.names.insert(it.id.clone(), it.device_owner.clone());
                continue;
            }
            self.names.insert(it.id.clone(), format!("port {}", it.name));
            let groups = it.security_groups.iter().filter_map(|id| self.names.get(id).cloned());
            let owner = it.device_owner.split(':').next().unwrap_or_default();
            let line = format!(
                "port {} [{}] in {} owner={owner} groups={} {}",
                it.name,
                sorted(it.tags.clone()),
                self.names.get(&it.network_id).cloned().unwrap_or_default(),
                sorted(groups.collect()),
                role(&it.description)
            );
            self.lines.insert(it.id, line);
        }
        let query = TrunkQuery { project_id: own.clone(), ..Default::default() };
        for it in cloud.trunks(&query).await.unwrap() {
            let on = self.names.get(&it.port_id).cloned().unwrap_or_default();
            let line = format!("trunk {} [{}] on {on} {}", it.name, sorted(it.tags), role(&it.description));
            self.lines.insert(it.id, line);
        }
    }

    async fn servers(&mut self, cloud: &Cloud) {
        let volumes = cloud.volumes(None).await.unwrap();
        for it in &volumes {
            let zone = &it.availability_zone;
            let key = it.metadata.get("hangar-key").map_or("NO KEY", |key| role(key));
            let line = format!("volume {} {} GiB in {zone} {} {key}", it.name, it.size, it.status);
            self.names.insert(it.id.clone(), it.name.clone());
            self.lines.insert(it.id.clone(), line);
        }
        for it in cloud.servers(&ServerQuery::default()).await.unwrap() {
            let attached = it.volumes.iter().filter_map(|volume| self.names.get(&volume.id).cloned());
            let key = it.metadata.get("hangar-key").map_or("NO KEY", |key| role(key));
            let line = format!(
                "server {} [{}] {} in {} volumes={} {key}",
                it.name,
                sorted(it.tags.clone()),
                it.status,
                it.availability_zone.clone().unwrap_or_default(),
                sorted(attached.collect())
            );
            self.lines.insert(it.id, line);
        }
    }

    async fn balancers(&mut self, cloud: &Cloud, project: &str) {
        let own = |of: &str| of == project;
        for it in cloud.load_balancers(None).await.unwrap().into_iter().filter(|it| own(&it.project_id)) {
            if let Some(port) = &it.vip_port_id {
                self.names.insert(port.clone(), format!("load balancer {}", it.name));
            }
            let line = format!("load balancer {} [{}] {}", it.name, sorted(it.tags), role(&it.description));
            self.lines.insert(it.id, line);
        }
        for it in cloud.listeners(None).await.unwrap().into_iter().filter(|it| own(&it.project_id)) {
            let allowed = it.allowed_cidrs.unwrap_or_default();
            // The router's address outside is the cloud's choice.
            let allowed =
                allowed.into_iter().map(|cidr| if cidr.starts_with("203.0.113.") { "router".into() } else { cidr });
            let line = format!(
                "listener {} {} {} allowed={}",
                it.name,
                it.protocol,
                it.protocol_port,
                sorted(allowed.collect())
            );
            self.lines.insert(it.id, line);
        }
        for it in cloud.pools(None).await.unwrap().into_iter().filter(|it| own(&it.project_id)) {
            for member in cloud.members(&it.id, None).await.unwrap() {
                self.lines.insert(member.id, format!("member {} {}", member.name, member.protocol_port));
            }
            self.lines.insert(it.id, format!("pool {} {} {}", it.name, it.protocol, it.lb_algorithm));
        }
        for it in cloud.health_monitors(None).await.unwrap().into_iter().filter(|it| own(&it.project_id)) {
            let line = format!(
                "monitor {} {} {} {} {} {}",
                it.name, it.kind, it.delay, it.timeout, it.max_retries, it.max_retries_down
            );
            self.lines.insert(it.id, line);
        }
    }

    pub fn without(mut self, before: &Self) -> Self {
        self.lines.retain(|id, _| !before.lines.contains_key(id));
        self
    }

    /// Sorted, with names that are the same every time.
    pub fn lines(&self, names: &Names) -> Vec<String> {
        let mut lines: Vec<String> =
            self.lines.values().map(|line| line.replace(&names.cluster, "C").trim_end().to_owned()).collect();
        lines.sort();
        lines
    }
}
