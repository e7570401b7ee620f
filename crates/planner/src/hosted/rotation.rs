//! Rotation of what everything stands on, in three steps: trust the next beside the current one; sign everything with the next; drop the old.
//!
//! Flows: an annotation or the clock -> the Secret of a root gets its successor -> all pods, kubeconfigs and nodes know both -> the successor signs -> nothing
//! depends on the old one any more -> it goes. Holds: the state is in the Secret, so that whoever continues knows where it was; a step is taken when the pods
//! of the one before have rolled out completely, and never while a node would be cut off; the control plane is ready all the way.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::kinds::Machine;
use hangar_api::{Kind as _, Object};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::certificates::{self, EXPIRES_ANNOTATION};
use super::encryption::Rewriting;
use super::roots::{self, Root, SIGNER_FILE};
use super::{ControlPlane, Hosting, encryption};
use crate::step::{ClusterName, Issue, Material};
use crate::{Phase, Step, intent};

/// Any new value asks for another certificate authority, and another one of the front proxy.
pub const ROTATE_AUTHORITIES_ANNOTATION: &str = "hangar.dev/rotate-ca";
/// Any new value asks for other keys of service accounts.
pub const ROTATE_KEYS_ANNOTATION: &str = "hangar.dev/rotate-service-account-keys";
/// Any new value asks for another key that encrypts Secrets.
pub const ROTATE_ENCRYPTION_ANNOTATION: &str = "hangar.dev/rotate-encryption-key";
/// A person says that no node needs the old authority any more: `trust` or `sign`, the step that may end.
pub const CONFIRMED_ANNOTATION: &str = "hangar.dev/rotation-confirmed";
/// The value that was last acted upon.
const ROTATED_FOR_ANNOTATION: &str = "hangar.dev/rotated-for";
/// The step of the rotation that it is about, and since when all pods have it. What somebody left there from another step does not count.
const SETTLED_ANNOTATION: &str = "hangar.dev/rotation-settled";
/// When the successor expires.
pub const NEXT_EXPIRES_ANNOTATION: &str = "hangar.dev/next-expires";

const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const OLD_CERTIFICATE: &str = "old.crt";

/// A third of an authority's life: nodes have three years to be replaced.
const ROTATE_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 1217);
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(24 * 3650);
/// Whoever reads kubeconfigs, the published authorities or keys now and then has read them by then, and API servers that were replaced write no more.
const PATIENCE: SignedDuration = SignedDuration::from_hours(1);
/// The kubelet fetches every token anew after a day at the latest.
const TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(48);
/// Certificates of kubelets live for a year, unless the user says otherwise.
const KUBELET_CERTIFICATE_LIFE: SignedDuration = SignedDuration::from_hours(24 * 366);
/// Nodes without a Machine wake nobody.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(10);

/// Where a rotation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Rest,
    /// Both are trusted, the old one signs.
    Trust,
    /// Both are trusted, the new one signs.
    Sign,
}

impl Stage {
    pub fn of(secret: &Object) -> Self {
        let has = |file: &str| secret.get("/data")[file].is_string();
        if has(NEXT_CERTIFICATE) {
            Self::Trust
        } else if has(OLD_CERTIFICATE) {
            Self::Sign
        } else {
            Self::Rest
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Trust => "trust",
            Self::Sign => "sign",
        }
    }
}

type Data = Map<String, Value>;

fn text(data: &Data, file: &str) -> String {
    let bytes = data.get(file).and_then(Value::as_str).and_then(|text| STANDARD.decode(text).ok());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

fn beside(root: Root, first: &str, second: &str) -> String {
    match root {
        Root::EncryptionKey => encryption::beside(first, second),
        _ => format!("{}\n{}\n", first.trim_end(), second.trim_end()),
    }
}

fn put(data: &mut Data, root: Root, public: Option<&str>, private: Option<&str>) {
    for (public_file, private_file) in [Some(root.files()), root.also()].into_iter().flatten() {
        if let Some(public) = public {
            data.insert(public_file.to_owned(), STANDARD.encode(public).into());
        }
        if let Some(private) = private.filter(|_| private_file != public_file) {
            data.insert(private_file.to_owned(), STANDARD.encode(private).into());
        }
    }
}

/// The data of a Secret whose root has got a successor: both are trusted, the current one signs.
pub fn with_successor(root: Root, current: &Data, public: &str, private: &str) -> Data {
    let mut data = current.clone();
    let signer = text(current, root.files().0);
    put(&mut data, root, Some(&beside(root, &signer, public)), None);
    let parts = [(SIGNER_FILE, signer.as_str()), (NEXT_CERTIFICATE, public), (NEXT_KEY, private)];
    for (file, content) in parts.into_iter().filter(|(_, content)| !content.is_empty()) {
        data.insert(file.to_owned(), STANDARD.encode(content).into());
    }
    data
}

/// Both are trusted, the successor signs. The key of the old one is gone.
fn with_successor_signing(root: Root, current: &Data) -> Data {
    let (old, next, key) = (text(current, SIGNER_FILE), text(current, NEXT_CERTIFICATE), text(current, NEXT_KEY));
    let mut data = current.clone();
    put(&mut data, root, Some(&beside(root, &next, &old)), Some(&key));
    data.retain(|file, _| file != NEXT_CERTIFICATE && file != NEXT_KEY);
    data.insert(SIGNER_FILE.to_owned(), STANDARD.encode(&next).into());
    data.insert(OLD_CERTIFICATE.to_owned(), STANDARD.encode(&old).into());
    data
}

fn without_old(root: Root, current: &Data) -> Data {
    let mut data = current.clone();
    put(&mut data, root, Some(&text(current, SIGNER_FILE)), None);
    data.retain(|file, _| file != SIGNER_FILE && file != OLD_CERTIFICATE);
    data
}

/// What a rotation waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waiting {
    ForPods,
    Until(Timestamp),
    /// The tenant's nodes are not known at the moment.
    ForTenant,
    /// These depend on the old one; and when they no longer do by themselves, if ever.
    ForNodes(Vec<String>, Option<Timestamp>),
    /// Some could not be written with the new key: why.
    ForSecrets(String),
}

impl Root {
    pub fn request_annotation(self) -> &'static str {
        match self {
            Self::ClusterAuthority | Self::FrontProxyAuthority => ROTATE_AUTHORITIES_ANNOTATION,
            Self::ServiceAccountKeys => ROTATE_KEYS_ANNOTATION,
            Self::EncryptionKey => ROTATE_ENCRYPTION_ANNOTATION,
        }
    }
}

fn moment(secret: &Object, annotation: &str) -> Option<Timestamp> {
    secret.annotation(annotation)?.parse().ok()
}

/// Since when all pods have what the present step is about.
fn settled(secret: &Object) -> Option<Timestamp> {
    let (step, at) = secret.annotation(SETTLED_ANNOTATION)?.split_once(' ')?;
    at.parse().ok().filter(|_| step == Stage::of(secret).word())
}

/// When the signing authority in a Secret expires; those made before it was written down were never rotated.
fn expires(secret: &Object) -> Option<Timestamp> {
    moment(secret, EXPIRES_ANNOTATION).or_else(|| secret.created()?.checked_add(AUTHORITY_LIFE).ok())
}

/// When an authority is rotated by itself.
pub fn rotate_after(root: Root, secret: &Object) -> Option<Timestamp> {
    let expires = expires(secret).filter(|_| root.is_authority())?;
    expires.checked_sub(ROTATE_BEFORE).ok()
}

/// When a step may end at the earliest.
fn earliest(root: Root, stage: Stage, settled: Timestamp) -> Timestamp {
    let patience = if (root, stage) == (Root::ServiceAccountKeys, Stage::Sign) { TOKEN_LIFE } else { PATIENCE };
    settled.checked_add(patience).unwrap_or(settled)
}

impl<'a> Hosting<'a> {
    /// Our own Secret of a root, whatever it is called.
    pub fn root_object(&self, root: Root) -> Option<&'a Object> {
        self.secrets().find(|secret| secret.get("/data")[root.files().1].is_string())
    }

    /// The value that a new Secret need not act upon.
    pub(super) fn rotated_for(&self, root: Root) -> Option<Value> {
        let request = self.owner.annotation(root.request_annotation())?;
        Some(json!({ ROTATED_FOR_ANNOTATION: request }))
    }

    /// Whether a person asks for a rotation that has not been begun.
    pub fn is_rotation_requested(&self, root: Root, secret: &Object) -> bool {
        let request = self.owner.annotation(root.request_annotation()).filter(|value| !value.is_empty());
        request.is_some_and(|value| secret.annotation(ROTATED_FOR_ANNOTATION) != Some(value))
    }

    /// The next step of every rotation that can take one. All that can go together do: pods roll once for them.
    pub(super) fn rotation(&self, plane: &ControlPlane, now: Timestamp) -> Phase {
        if plane.replicas == 0 {
            return Phase::Done;
        }
        Phase::steps(Root::ALL.into_iter().filter_map(|root| self.next_step(plane, root, now)))
    }

    fn next_step(&self, plane: &ControlPlane, root: Root, now: Timestamp) -> Option<Step> {
        let secret = self.root_object(root).filter(|secret| !roots::is_copy(secret))?;
        let current = secret.get("/data").as_object()?;
        let stage = Stage::of(secret);
        if stage == Stage::Rest {
            let due = rotate_after(root, secret).is_some_and(|at| at <= now);
            return (due || self.is_rotation_requested(root, secret)).then(|| self.begin(plane, root, secret, current));
        }
        if !self.has_rolled_out() {
            return None;
        }
        let keep = |names: &[&str]| {
            let kept = names.iter().filter_map(|name| Some(((*name).to_owned(), secret.annotation(name)?.into())));
            kept.collect::<Map<String, Value>>()
        };
        if settled(secret).is_none() {
            let mut annotations = keep(&[ROTATED_FOR_ANNOTATION, EXPIRES_ANNOTATION, NEXT_EXPIRES_ANNOTATION]);
            // Creation times have no fractions either.
            let settled = Timestamp::from_second(now.as_second()).unwrap_or(now);
            annotations.insert(SETTLED_ANNOTATION.to_owned(), format!("{} {settled}", stage.word()).into());
            return Some(Step::Apply(self.rewritten(plane, root, secret, current.clone(), annotations)));
        }
        if self.waiting(root, secret, now).is_some() {
            return None;
        }
        let rewrites = (root, stage) == (Root::EncryptionKey, Stage::Sign);
        if let Some(call) = self.facts.rewriting.call().filter(|_| rewrites) {
            let cluster = ClusterName { namespace: plane.namespace.clone(), name: plane.cluster_name.clone() };
            return Some(Step::Tenant { cluster, call });
        }
        let mut annotations = keep(&[ROTATED_FOR_ANNOTATION, EXPIRES_ANNOTATION]);
        let data = match stage {
            Stage::Trust => {
                annotations.remove(EXPIRES_ANNOTATION);
                let next = secret.annotation(NEXT_EXPIRES_ANNOTATION);
                annotations.extend(next.map(|at| (EXPIRES_ANNOTATION.to_owned(), at.into())));
                with_successor_signing(root, current)
            }
            Stage::Sign | Stage::Rest => without_old(root, current),
        };
        Some(Step::Apply(self.rewritten(plane, root, secret, data, annotations)))
    }

    fn begin(&self, plane: &ControlPlane, root: Root, secret: &Object, current: &Data) -> Step {
        let mut annotations = Map::new();
        let request = self.owner.annotation(root.request_annotation());
        annotations.extend(request.map(|value| (ROTATED_FOR_ANNOTATION.to_owned(), value.into())));
        annotations.extend(
            expires(secret)
                .filter(|_| root.is_authority())
                .map(|at| (EXPIRES_ANNOTATION.to_owned(), at.to_string().into())),
        );
        let mut next = self.rewritten(plane, root, secret, Map::new(), annotations);
        next.0.as_object_mut().into_iter().for_each(|fields| drop(fields.remove("data")));
        let material =
            Material::Successor { root, common_name: roots::wish(root).to_owned(), current: current.clone() };
        Step::Issue(Issue { secret: next, material, replaces: true })
    }

    /// The same Secret with other data; it is applied whole, so that what is not in it goes.
    fn rewritten(&self, plane: &ControlPlane, root: Root, secret: &Object, data: Data, annotations: Data) -> Object {
        let mut next = certificates::secret(plane, secret.name(), roots::wish(root));
        for (name, value) in annotations {
            next.0["metadata"]["annotations"][name] = value;
        }
        // As it was seen: whoever is late must not bring back keys that are gone, or drop one that is in use.
        next.0["metadata"]["resourceVersion"] = secret.resource_version().into();
        next.0["data"] = data.into();
        intent::owned(next, &self.owner.as_owner(true))
    }

    /// Whether every pod is of the newest form and available.
    fn has_rolled_out(&self) -> bool {
        ["", "-controller-manager", "-scheduler"].iter().all(|suffix| {
            let Some(deployment) = self.deployment(suffix) else { return false };
            let number = |pointer: &str| deployment.get(pointer).as_i64().unwrap_or(0);
            let wanted = deployment.get("/spec/replicas").as_i64().unwrap_or(1);
            number("/status/observedGeneration") >= deployment.generation()
                && ["replicas", "updatedReplicas", "availableReplicas"]
                    .iter()
                    .all(|count| number(&format!("/status/{count}")) == wanted)
        })
    }

    /// Why a rotation does not go on; nothing if it can, or if there is none.
    fn waiting(&self, root: Root, secret: &Object, now: Timestamp) -> Option<Waiting> {
        let stage = Stage::of(secret);
        if stage == Stage::Rest {
            return None;
        }
        let Some(settled) = settled(secret) else { return Some(Waiting::ForPods) };
        let until = earliest(root, stage, settled);
        if now < until {
            return Some(Waiting::Until(until));
        }
        match root {
            Root::ServiceAccountKeys => None,
            Root::EncryptionKey => match &self.facts.rewriting {
                Rewriting::Left(why) if stage == Stage::Sign => Some(Waiting::ForSecrets(why.clone())),
                _ => None,
            },
            Root::ClusterAuthority => self.waiting_for_nodes(stage, secret, settled, now),
            // It goes along with the other authority, so that pods restart once for both.
            Root::FrontProxyAuthority => {
                let other = self.root_object(Root::ClusterAuthority).filter(|other| Stage::of(other) == stage)?;
                self.waiting(Root::ClusterAuthority, other, now)
            }
        }
    }

    /// The same for people, whatever the time is: nodes first, because they take longest.
    pub(super) fn waiting_in_words(&self, root: Root, secret: &Object) -> Waiting {
        let (stage, settled) = (Stage::of(secret), settled(secret));
        let Some(settled) = settled else { return Waiting::ForPods };
        let others = match (root, &self.facts.rewriting) {
            (Root::ClusterAuthority, _) => self.waiting_for_nodes(stage, secret, settled, Timestamp::UNIX_EPOCH),
            (Root::EncryptionKey, Rewriting::Left(why)) => Some(Waiting::ForSecrets(why.clone())),
            _ => None,
        };
        others.unwrap_or_else(|| Waiting::Until(earliest(root, stage, settled)))
    }

    /// A kubelet trusts what `cluster-info` said when it joined, and has a certificate of whoever signed then, until it is renewed.
    fn waiting_for_nodes(&self, stage: Stage, secret: &Object, settled: Timestamp, now: Timestamp) -> Option<Waiting> {
        if self.owner.annotation(CONFIRMED_ANNOTATION) == Some(stage.word()) {
            return None;
        }
        // By then the old one cuts off by itself whoever knows no other.
        let by_itself = match stage {
            Stage::Trust => expires(secret),
            _ if self.kubelet_certificates_may_live_longer() => None,
            _ => settled.checked_add(KUBELET_CERTIFICATE_LIFE).ok(),
        };
        if by_itself.is_some_and(|at| at <= now) {
            return None;
        }
        let machines = self.objects.of_kind(Machine::GROUP, Machine::KIND);
        let old = |object: &Object| object.created().is_none_or(|at| at <= settled);
        let mut names: Vec<String> =
            machines.filter(|machine| old(machine)).map(|it| format!("Machine {}", it.name())).collect();
        let Some(nodes) = &self.facts.nodes else {
            return Some(if names.is_empty() { Waiting::ForTenant } else { Waiting::ForNodes(names, by_itself) });
        };
        let of_machine = |node: &str| {
            let mut machines = self.objects.of_kind(Machine::GROUP, Machine::KIND);
            machines.any(|machine| machine.text("/status/nodeRef/name") == node)
        };
        let without_machine = nodes.iter().filter(|(name, at)| *at <= settled && !of_machine(name));
        names.extend(without_machine.map(|(name, _)| format!("Node {name}")));
        (!names.is_empty()).then_some(Waiting::ForNodes(names, by_itself))
    }

    fn kubelet_certificates_may_live_longer(&self) -> bool {
        let arguments = self.owner.get("/spec/controllerManager/extraArgs").as_array().into_iter().flatten();
        arguments.filter_map(Value::as_str).any(|it| {
            let name = hangar_api::control_plane_arguments::name(it);
            ["cluster-signing-duration", "experimental-cluster-signing-duration"].contains(&name.as_str())
        })
    }

    /// How long until a rotation begins or may go on.
    pub fn rotation_remaining(&self, now: Timestamp) -> Option<Duration> {
        let moments = Root::ALL.into_iter().filter_map(|root| {
            let secret = self.root_object(root).filter(|secret| !roots::is_copy(secret))?;
            if Stage::of(secret) == Stage::Rest {
                return rotate_after(root, secret);
            }
            match self.waiting(root, secret, now)? {
                Waiting::ForPods => None,
                Waiting::Until(at) => Some(at),
                Waiting::ForTenant | Waiting::ForNodes(..) | Waiting::ForSecrets(_) => now.checked_add(LOOK_AGAIN).ok(),
            }
        });
        moments.min().map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default())
    }
}
