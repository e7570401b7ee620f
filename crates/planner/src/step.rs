//! Everything that a plan may ask for, and what comes back.
//!
//! Holds: a step carries all it needs; the executor that runs it makes no choice.

use std::sync::Arc;

use hangar_api::{Object, ObjectKey};
use serde_json::{Map, Value};

use crate::cloud::{CloudAnswer, CloudCall, CloudIdentity};
use crate::cluster_resource_set_binding::Resource;
use crate::hosted::roots::Root;

/// One thing to do, and where.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Make this object in the management cluster; one that is there already is taken only if it has the same owner.
    Create(Object),
    /// The same, but one of the same owner that is there already stays as it is: what is in it is used by somebody already.
    CreateOnce(Object),
    /// Server-side apply of exactly these fields to an object that is ours.
    Apply(Object),
    /// Change these fields of an object that somebody else made; lists are whole, hence the version they were read at.
    Patch { key: ObjectKey, uid: String, resource_version: Option<String>, fields: Value },
    /// Conditions that a health check says of an object whose status is another controller's: these, and none of the same sort beside them.
    Mark(Object),
    /// Delete this object, if it is still the one with this UID and, where it matters, still as it was seen.
    Delete { key: ObjectKey, uid: String, resource_version: Option<String> },
    /// Make keys and certificates and store them as this Secret.
    Issue(Issue),
    /// One call to a cloud.
    Cloud { identity: CloudIdentity, call: CloudCall },
    /// One call to a data store of control planes.
    DataStore { store: ObjectKey, call: DataStoreCall },
    /// One call to a tenant cluster.
    Tenant { cluster: ClusterName, call: TenantCall },
}

/// A tenant cluster, by the namespace and name of its Cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ClusterName {
    pub namespace: String,
    pub name: String,
}

/// A Secret whose content has to be generated.
#[derive(Debug, Clone, PartialEq)]
pub struct Issue {
    /// The Secret without its data.
    pub secret: Object,
    pub material: Material,
    /// It replaces one of ours; else there must be none, or one of the same owner.
    pub replaces: bool,
}

/// What goes into a generated Secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Material {
    /// A new authority under each of the names: `<name>.crt` and `<name>.key`.
    Authority { common_name: String, files: Vec<(String, String)> },
    /// A leaf, signed by the authority given.
    Leaf { authority: Signer, leaf: LeafCertificate, files: (String, String), ca_file: Option<String> },
    /// Kubeconfigs for one or more identities.
    Kubeconfig { authority: Signer, cluster: String, identities: Vec<Identity> },
    /// The key pair for service account tokens.
    ServiceAccount { public_file: String, private_file: String },
    /// The configuration of an API server that encrypts with a new key.
    EncryptionKey { file: String },
    /// What comes after an authority or a key pair, beside the data that is there.
    Successor { root: Root, common_name: String, current: Map<String, Value> },
}

/// An authority that may sign: both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Signer {
    pub certificate_pem: String,
    pub key_pem: String,
    /// What clients must trust, if that is another authority than the one that signs them.
    pub trust_pem: Option<String>,
}

/// The subject of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafCertificate {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub names: Vec<String>,
    pub server: bool,
    pub client: bool,
}

/// Whom a kubeconfig is for, and its files, which differ by server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub leaf: LeafCertificate,
    pub user: String,
    /// Name and server.
    pub files: Vec<(String, String)>,
}

/// What the shared etcd is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataStoreCall {
    /// A user and a role that may read and write below one prefix, nothing else. They are the owner's, by its UID, from then on.
    CreateTenant { owner: String, user: String, role: String, prefix: String },
    /// User, role and every key below the prefix go, as far as they are the owner's.
    DeleteTenant { owner: String, user: String, role: String, prefix: String },
    /// One member writes its file anew, without what is no longer used.
    Defragment { endpoint: String },
}

/// What the tenant cluster is asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum TenantCall {
    /// Server-side apply of these objects, in order; then these go, if they are there.
    Apply { objects: Vec<Object>, remove: Vec<ObjectKey> },
    /// What users want to have in their cluster.
    Install(Installation),
    /// A new bootstrap token that lives this many seconds, and is good for the Node of this name or for any.
    CreateToken { seconds: i64, node: Option<String> },
    /// The same token lives on.
    ExtendToken { id: String, seconds: i64 },
    /// The token has done its work.
    DeleteToken { id: String },
    DeleteNode {
        name: String,
        /// If it is refused, that is the end of it.
        last_try: bool,
    },
    /// A CertificateSigningRequest is approved, or denied for a reason, if it is still as it was seen.
    DecideRequest { name: String, resource_version: String, refusal: Option<String> },
    /// No new pods come to the node.
    CordonNode { name: String },
    /// Asks a pod to go, as far as disruption budgets allow.
    EvictPod(Eviction),
    /// Labels, annotations and taints of a node, as its machine wants them.
    AdoptNode(NodeChange),
    /// Every Secret is written again as it is, so that it is encrypted with the key that writes now; from a page on.
    RewriteSecrets { from: Option<String> },
}

/// A part of what a resource of a ClusterResourceSet says.
#[derive(Clone, PartialEq)]
pub struct Installation {
    pub resource: Resource,
    pub objects: Vec<Object>,
    /// What is there already stays as it is.
    pub once: bool,
    pub is_last: bool,
}

/// What users keep in Secrets is in none of our words.
impl std::fmt::Debug for Installation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Resource { set, kind, name } = &self.resource;
        write!(f, "Install({} objects of {kind} {name} of {set}, once {})", self.objects.len(), self.once)
    }
}

/// What a Node is told; everything else on it stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeChange {
    pub name: String,
    pub annotations: Vec<(String, String)>,
    /// Nothing: it goes.
    pub labels: Vec<(String, Option<String>)>,
    /// As Nodes have them; one of the same key and effect is replaced.
    pub taints: Vec<Value>,
    /// Key and effect.
    pub remove_taints: Vec<(String, String)>,
}

/// A pod that is to leave its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    pub namespace: String,
    pub name: String,
    /// Another pod of this name stays.
    pub uid: String,
    /// How long it has, if not as long as it says itself.
    pub grace_seconds: Option<i64>,
}

/// What a tenant said to an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evicted {
    /// It goes, or is gone.
    Accepted,
    /// Why not, in its words: a disruption budget, or something that is wrong with one.
    Refused(String),
}

/// What a step brought back.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Applied(Arc<Object>),
    /// The object as it is now, waiting for its finalizers; nothing if it is gone.
    Deleted {
        key: ObjectKey,
        left: Option<Arc<Object>>,
    },
    Cloud(CloudAnswer),
    DataStore(DataStoreCall),
    Tenant(TenantAnswer),
}

#[derive(Clone, PartialEq)]
pub enum TenantAnswer {
    Applied,
    /// What of this part could not be applied, and why.
    Installed {
        resource: Resource,
        problems: Vec<String>,
        is_last: bool,
    },
    /// Goes into user-data at once; kept nowhere else.
    Token {
        id: String,
        secret: String,
        expires: jiff::Timestamp,
    },
    TokenExtended {
        expires: jiff::Timestamp,
    },
    TokenDeleted,
    /// Nothing is left of it, or nothing more is tried.
    NodeDeleted {
        name: String,
    },
    /// The Node as it is now.
    NodeAdopted(Arc<Object>),
    RequestDecided {
        name: String,
    },
    NodeCordoned(Arc<Object>),
    PodEvicted {
        uid: String,
        answer: Evicted,
    },
    /// Where to go on, or why not all could be written.
    SecretsRewritten {
        next: Option<String>,
        left: Option<String>,
    },
}

impl std::fmt::Debug for TenantAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Applied => "Applied",
            Self::Installed { .. } => "Installed",
            Self::Token { .. } => "Token(..)",
            Self::TokenExtended { .. } => "TokenExtended",
            Self::TokenDeleted => "TokenDeleted",
            Self::NodeDeleted { .. } => "NodeDeleted",
            Self::NodeAdopted(_) => "NodeAdopted",
            Self::RequestDecided { .. } => "RequestDecided",
            Self::NodeCordoned(_) => "NodeCordoned",
            Self::PodEvicted { .. } => "PodEvicted",
            Self::SecretsRewritten { .. } => "SecretsRewritten",
        })
    }
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Authority { common_name, .. } => write!(f, "Authority({common_name})"),
            Self::Leaf { leaf, .. } => write!(f, "Leaf({})", leaf.common_name),
            Self::Kubeconfig { identities, .. } => {
                let users: Vec<&str> = identities.iter().map(|identity| identity.user.as_str()).collect();
                write!(f, "Kubeconfig({})", users.join(", "))
            }
            Self::ServiceAccount { .. } => f.write_str("ServiceAccount"),
            Self::EncryptionKey { .. } => f.write_str("EncryptionKey"),
            Self::Successor { root, .. } => write!(f, "Successor({root:?})"),
        }
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer(..)")
    }
}
