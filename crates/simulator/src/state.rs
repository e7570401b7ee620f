//! Everything the cloud remembers across restarts, and what it forgets (tokens, journal).

use std::collections::{BTreeMap, HashMap, VecDeque};

use hangar_openstack::wire::{AvailabilityZone, Flavor, Image, KeyPair, Network, Port, SecurityGroup, Server, Subnet};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::faults::{Call, Faults};
use crate::guests::Console;

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    pub projects: Vec<Project>,
    pub users: Vec<User>,
    pub networks: BTreeMap<String, Network>,
    pub subnets: BTreeMap<String, Subnet>,
    pub routers: BTreeMap<String, Router>,
    pub ports: BTreeMap<String, Port>,
    pub security_groups: BTreeMap<String, SecurityGroup>,
    pub images: BTreeMap<String, Image>,
    pub flavors: BTreeMap<String, Flavor>,
    pub zones: Vec<AvailabilityZone>,
    pub key_pairs: Vec<OwnedKeyPair>,
    pub servers: BTreeMap<String, ServerRecord>,
    /// By project, then by name of the resource; what is not there is not limited.
    pub quotas: BTreeMap<String, BTreeMap<String, i64>>,
    /// Made by the starter: not counted as a tenant's.
    pub starter: Vec<String>,
    /// Counts up, so that MAC addresses are unique for ever.
    pub last_mac: u32,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Project {
    pub id: String,
    pub name: String,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct User {
    pub id: String,
    pub name: String,
    pub password: String,
    pub project_id: String,
    #[serde(default)]
    pub application_credentials: Vec<ApplicationCredential>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct ApplicationCredential {
    pub id: String,
    pub name: String,
    pub secret: String,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct OwnedKeyPair {
    pub user_id: String,
    pub key_pair: KeyPair,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Router {
    pub id: String,
    pub name: String,
    pub status: String,
    pub project_id: String,
    pub tenant_id: String,
    pub admin_state_up: bool,
    pub external_gateway_info: serde_json::Value,
    pub tags: Vec<String>,
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
    /// Decoded.
    pub user_data: Vec<u8>,
    /// The fault this server will end in instead of ACTIVE.
    pub doomed: Option<String>,
    /// Orders lists: newest first, as Nova does.
    pub sequence: u64,
}

pub(crate) struct Token {
    pub user_id: String,
    pub project_id: String,
    pub expires: Instant,
}

/// Later work a request leaves behind.
pub(crate) enum Effect {
    Build(String),
    Remove(String),
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

/// SplitMix64: small, and good enough for names.
fn splitmix(state: &mut u64) -> u64 {
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
}

impl State {
    /// `Err` holds (limit, used) when one more would be too many.
    pub(crate) fn room(&self, project: &str, name: &str, used: usize, more: usize) -> Result<(), (i64, i64)> {
        let limit = self.quotas.get(project).and_then(|quotas| quotas.get(name)).copied().unwrap_or(-1);
        let (used, more) = (i64::try_from(used).unwrap_or(i64::MAX), i64::try_from(more).unwrap_or(i64::MAX));
        if limit >= 0 && used.saturating_add(more) > limit { Err((limit, used)) } else { Ok(()) }
    }

    pub(crate) fn servers_of<'a>(&'a self, project: &'a str) -> impl Iterator<Item = &'a ServerRecord> {
        self.servers.values().filter(move |record| record.server.tenant_id == project)
    }

    pub(crate) fn ports_of<'a>(&'a self, project: &'a str) -> impl Iterator<Item = &'a Port> {
        self.ports.values().filter(move |port| port.project_id == project)
    }

    pub(crate) fn groups_of<'a>(&'a self, project: &'a str) -> impl Iterator<Item = &'a SecurityGroup> {
        self.security_groups.values().filter(move |group| group.project_id == project)
    }
}
