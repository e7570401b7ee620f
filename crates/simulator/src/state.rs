//! Everything the cloud remembers across restarts, and what it forgets (tokens, journal).

use std::collections::{BTreeMap, HashMap, VecDeque};

use hangar_openstack::wire::{
    AvailabilityZone, Flavor, FloatingIp, HealthMonitor, Image, KeyPair, Listener, LoadBalancer, Member, Network, Pool,
    Router, SecurityGroup, Server, ServerGroup, Snapshot, Subnet, Trunk, Volume, VolumeType,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::faults::{Call, Faults};
use crate::guests::Console;
use crate::network::ports::Ports;
use crate::table::{Rows, Table};

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    pub projects: Table<Project>,
    pub users: Table<User>,
    pub networks: Table<Network>,
    pub subnets: Table<Subnet>,
    pub routers: Table<Router>,
    pub ports: Ports,
    pub floating_ips: Table<FloatingIp>,
    pub trunks: Table<Trunk>,
    pub security_groups: Table<SecurityGroup>,
    pub images: Table<Image>,
    pub flavors: Table<Flavor>,
    pub zones: Table<AvailabilityZone>,
    /// By `user/name`.
    pub key_pairs: Table<OwnedKeyPair>,
    pub server_groups: Table<ServerGroup>,
    pub servers: Table<ServerRecord>,
    pub volumes: Table<Volume>,
    pub snapshots: Table<Snapshot>,
    pub volume_types: Table<VolumeType>,
    pub load_balancers: Table<LoadBalancer>,
    pub listeners: Table<Listener>,
    pub pools: Table<Pool>,
    /// With the pool each belongs to.
    pub members: Table<PoolMember>,
    pub health_monitors: Table<HealthMonitor>,
    /// By project, then by name of the resource; what is not there is not limited.
    pub quotas: Table<BTreeMap<String, i64>>,
    /// Made by the starter: not counted as a tenant's.
    pub starter: Table<bool>,
    /// Numbers that count up and are never used twice.
    pub counters: Table<u64>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Project {
    pub id: String,
    pub name: String,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct User {
    pub id: String,
    pub name: String,
    pub password: String,
    /// The first one is where a token without a scope belongs.
    pub projects: Vec<String>,
    pub admin: bool,
    pub application_credentials: Vec<ApplicationCredential>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ApplicationCredential {
    pub id: String,
    pub name: String,
    pub secret: String,
    pub project_id: String,
    pub description: Option<String>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct OwnedKeyPair {
    pub user_id: String,
    pub key_pair: KeyPair,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct PoolMember {
    pub pool_id: String,
    #[serde(flatten)]
    pub member: Member,
}

/// A server and what Nova does not show of it.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServerRecord {
    /// `addresses` stays empty in here: they are those of the ports when somebody asks.
    pub server: Server,
    /// In the order of the request.
    pub ports: Vec<String>,
    /// Those that Nova made itself and takes away with the server.
    pub own_ports: Vec<String>,
    pub flavor_id: String,
    pub vcpus: u32,
    pub ram: u64,
    /// Decoded; in the state file it is what it was in the request.
    #[serde(with = "encoded")]
    pub user_data: Vec<u8>,
    /// Volumes that Nova makes from an image before the server can start.
    pub volumes_to_make: Vec<VolumeToMake>,
    /// The fault this server will end in instead of ACTIVE.
    pub doomed: Option<String>,
    /// Orders lists: newest first, as Nova does.
    pub sequence: u64,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct VolumeToMake {
    pub size: u64,
    pub volume_type: Option<String>,
    pub image_id: Option<String>,
    pub delete_on_termination: bool,
}

mod encoded {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

pub(crate) struct Token {
    pub user_id: String,
    pub project_id: String,
    pub admin: bool,
    pub method: String,
    pub expires: Instant,
}

/// Later work a request leaves behind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    Build(String),
    Remove(String),
    /// A server that was told to stop or start is there after a while.
    Power(String, &'static str),
    /// A volume reaches the state it is on the way to.
    Volume(String),
    /// A load balancer leaves its PENDING state.
    LoadBalancer(String),
    /// A floating IP's status follows its binding.
    FloatingIp(String),
    /// An image that is being imported is there.
    Image(String),
}

/// Where ids come from: the system's randomness, or a seed, so that a simulation can be replayed.
#[derive(Default)]
pub(crate) struct Ids(pub Option<u64>);

impl Ids {
    /// A UUID of version 4.
    pub(crate) fn uuid(&mut self) -> uuid::Uuid {
        match &mut self.0 {
            None => uuid::Uuid::new_v4(),
            Some(state) => {
                let bytes = (u128::from(splitmix(state)) << 64) | u128::from(splitmix(state));
                uuid::Builder::from_random_bytes(bytes.to_be_bytes()).into_uuid()
            }
        }
    }

    pub(crate) fn text(&mut self) -> String {
        self.uuid().to_string()
    }
}

/// SplitMix64: small, and good enough for names and dice.
pub(crate) fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[derive(Default)]
pub(crate) struct World {
    pub state: State,
    pub tokens: HashMap<String, Token>,
    pub consoles: HashMap<String, Console>,
    pub journal: VecDeque<Call>,
    pub faults: Faults,
    pub effects: Vec<Effect>,
    pub sequence: u64,
    pub ids: Ids,
    /// What really answers at an address and port of the simulated networks.
    pub backends: BTreeMap<(String, u16), String>,
}

impl State {
    pub(crate) fn tables(&mut self) -> Vec<(&'static str, &mut dyn Rows)> {
        vec![
            ("projects", &mut self.projects),
            ("users", &mut self.users),
            ("networks", &mut self.networks),
            ("subnets", &mut self.subnets),
            ("routers", &mut self.routers),
            ("ports", &mut self.ports),
            ("floating_ips", &mut self.floating_ips),
            ("trunks", &mut self.trunks),
            ("security_groups", &mut self.security_groups),
            ("images", &mut self.images),
            ("flavors", &mut self.flavors),
            ("zones", &mut self.zones),
            ("key_pairs", &mut self.key_pairs),
            ("server_groups", &mut self.server_groups),
            ("servers", &mut self.servers),
            ("volumes", &mut self.volumes),
            ("snapshots", &mut self.snapshots),
            ("volume_types", &mut self.volume_types),
            ("load_balancers", &mut self.load_balancers),
            ("listeners", &mut self.listeners),
            ("pools", &mut self.pools),
            ("members", &mut self.members),
            ("health_monitors", &mut self.health_monitors),
            ("quotas", &mut self.quotas),
            ("starter", &mut self.starter),
            ("counters", &mut self.counters),
        ]
    }

    pub(crate) fn count_up(&mut self, name: &str) -> u64 {
        let next = self.counters.get(name).copied().unwrap_or(0) + 1;
        self.counters.insert(name, next);
        next
    }

    pub(crate) fn limit(&self, project: &str, name: &str) -> i64 {
        self.quotas.get(project).and_then(|quotas| quotas.get(name)).copied().unwrap_or(-1)
    }

    /// `Err` holds (limit, used) when one more would be too many.
    pub(crate) fn room(&self, project: &str, name: &str, used: usize, more: usize) -> Result<(), (i64, i64)> {
        let limit = self.limit(project, name);
        let (used, more) = (i64::try_from(used).unwrap_or(i64::MAX), i64::try_from(more).unwrap_or(i64::MAX));
        if limit >= 0 && used.saturating_add(more) > limit { Err((limit, used)) } else { Ok(()) }
    }

    pub(crate) fn servers_of<'a>(&'a self, project: &'a str) -> impl Iterator<Item = &'a ServerRecord> {
        self.servers.values().filter(move |record| record.server.tenant_id == project)
    }

    pub(crate) fn groups_of<'a>(&'a self, project: &'a str) -> impl Iterator<Item = &'a SecurityGroup> {
        self.security_groups.values().filter(move |group| group.project_id == project)
    }

    pub(crate) fn project(&self, wanted: &str) -> Option<&Project> {
        self.projects.get(wanted).or_else(|| self.projects.values().find(|known| known.name == wanted))
    }
}
