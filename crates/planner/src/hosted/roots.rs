//! What everything else stands on: the cluster's authority, the authority of the front proxy, the keys of service accounts, the key that encrypts Secrets.
//!
//! Flows: a Secret that a user made by Cluster API's convention -> a copy of it among our own; else key material that is made here. Holds: pods
//! and leaves only ever use our own Secrets; the user's are read, never written and never adopted; what was once made here is not
//! exchanged for a user's, because nobody would trust it yet, and a copy outlives what it was copied from.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::Object;
use hangar_api::conditions::{Condition, Status};
use serde_json::{Value, json};

use super::certificates::{self, ISSUED_FOR_ANNOTATION};
use super::{ControlPlane, Hosting, encryption};
use crate::intent::{self, fingerprint};
use crate::step::{Issue, Material, Signer};
use crate::{Phase, Reason, Step};

/// The certificate that signs, where the file of the authority holds several that are trusted.
pub const SIGNER_FILE: &str = "signer.crt";
/// Which Secret of a user ours is a copy of.
pub const PROVIDED_BY_ANNOTATION: &str = "hangar.dev/provided-by";

/// One of the things that everything stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Root {
    ClusterAuthority,
    FrontProxyAuthority,
    ServiceAccountKeys,
    EncryptionKey,
}

impl Root {
    pub const ALL: [Self; 4] =
        [Self::ClusterAuthority, Self::FrontProxyAuthority, Self::ServiceAccountKeys, Self::EncryptionKey];

    pub fn is_authority(self) -> bool {
        matches!(self, Self::ClusterAuthority | Self::FrontProxyAuthority)
    }

    /// What a user's Secret is called after the name of the cluster, if users can provide it.
    pub fn provided_suffix(self) -> Option<&'static str> {
        match self {
            Self::ClusterAuthority => Some("-ca"),
            Self::FrontProxyAuthority => Some("-proxy"),
            Self::ServiceAccountKeys => Some("-sa"),
            Self::EncryptionKey => None,
        }
    }

    /// The files of our own Secret: what is trusted, and the key. Who encrypts has one for both.
    pub fn files(self) -> (&'static str, &'static str) {
        match self {
            Self::ClusterAuthority => ("ca.crt", "ca.key"),
            Self::FrontProxyAuthority => ("front-proxy-ca.crt", "front-proxy-ca.key"),
            Self::ServiceAccountKeys => ("sa.pub", "sa.key"),
            Self::EncryptionKey => (encryption::FILE, encryption::FILE),
        }
    }

    /// The same content under other names, where others look for it.
    pub fn also(self) -> Option<(&'static str, &'static str)> {
        (self == Self::ClusterAuthority).then_some(("tls.crt", "tls.key"))
    }

    pub fn words(self) -> &'static str {
        match self {
            Self::ClusterAuthority => "the certificate authority",
            Self::FrontProxyAuthority => "the front proxy's certificate authority",
            Self::ServiceAccountKeys => "the service account keys",
            Self::EncryptionKey => "the key that encrypts Secrets",
        }
    }
}

/// What a user provides for one of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Provided {
    /// The name of the user's Secret.
    pub secret: String,
    /// What is in it, or what is wrong with which of its keys.
    pub content: Result<Signer, String>,
}

impl std::fmt::Debug for Provided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Provided({})", self.secret)
    }
}

pub type AllProvided = BTreeMap<Root, Provided>;

/// Whether a user made a Secret for us to use: nobody controls it. Ours, and those of a control plane that is being deleted, have a controller.
pub fn is_provided(secret: &Object) -> bool {
    secret.controller().is_none() && !secret.is_deleting()
}

/// Where the cluster's authority lies. A control plane that is called like its cluster finds the user's Secret at the name of its own.
pub fn authority_secret<'a>(owner: &Object, cluster_name: &str, named: impl Fn(&str) -> Option<&'a Object>) -> String {
    let (own, copy) = (format!("{}-ca", owner.name()), format!("{}-ca-copy", owner.name()));
    let provided = owner.name() == cluster_name && named(&own).is_some_and(is_provided);
    if provided || named(&copy).is_some_and(|secret| secret.is_owned_by(owner.uid())) { copy } else { own }
}

impl ControlPlane {
    /// The name of our own Secret.
    pub fn root_secret(&self, root: Root) -> String {
        match root {
            Root::ClusterAuthority => self.authority_secret.clone(),
            Root::FrontProxyAuthority => self.object("-front-proxy-ca-certificate"),
            Root::ServiceAccountKeys => self.object("-sa-certificate"),
            Root::EncryptionKey => self.object("-encryption"),
        }
    }
}

impl Hosting<'_> {
    /// All of them, copied or made.
    pub(super) fn roots(&self, plane: &ControlPlane) -> Phase {
        let steps: Result<Vec<Option<Step>>, Reason> =
            Root::ALL.into_iter().map(|root| self.root(plane, root)).collect();
        Phase::attempt(steps.map(|steps| steps.into_iter().flatten().collect()))
    }

    fn root(&self, plane: &ControlPlane, root: Root) -> Result<Option<Step>, Reason> {
        let name = plane.root_secret(root);
        let there = self.named("", "Secret", &name);
        if let Some(there) = there.filter(|there| !there.is_owned_by(self.owner.uid())) {
            return Err(intent::not_ours(&there.key()));
        }
        match (self.facts.provided.get(&root), there) {
            (Some(provided), there) if there.is_none_or(is_copy) => match &provided.content {
                Ok(content) => intent::ensure(self.owner, there, copy(plane, root, provided, content)),
                // What runs goes on with the copy; the condition says what is wrong.
                Err(_) if there.is_some() => Ok(None),
                Err(problem) => Err(Reason::retry("ProvidedCertificateInvalid", problem.clone())),
            },
            (_, Some(_)) => Ok(None),
            (_, None) => {
                let mut secret = certificates::secret(plane, &name, wish(root));
                for (name, value) in self.rotated_for(root).iter().filter_map(Value::as_object).flatten() {
                    secret.0["metadata"]["annotations"][name] = value.clone();
                }
                let secret = intent::owned(secret, &self.owner.as_owner(true));
                Ok(Some(Step::Issue(Issue { secret, material: self.material(plane, root)?, replaces: false })))
            }
        }
    }

    fn material(&self, plane: &ControlPlane, root: Root) -> Result<Material, Reason> {
        let (public, private) = root.files();
        let pair = |(one, other): (&str, &str)| (one.to_owned(), other.to_owned());
        Ok(match root {
            Root::EncryptionKey => self.first_encryption_key(plane)?,
            Root::ServiceAccountKeys => {
                Material::ServiceAccount { public_file: public.to_owned(), private_file: private.to_owned() }
            }
            Root::ClusterAuthority | Root::FrontProxyAuthority => Material::Authority {
                common_name: wish(root).to_owned(),
                files: [Some((public, private)), root.also()].into_iter().flatten().map(pair).collect(),
            },
        })
    }

    /// An authority as it signs and as it is trusted.
    pub(super) fn signer(&self, plane: &ControlPlane, root: Root) -> Option<Signer> {
        let secret = self.secret(&plane.root_secret(root))?;
        let (public, private) = root.files();
        let trusted = secret.secret_text(public)?;
        let key_pem = secret.secret_text(private)?;
        Some(match secret.secret_text(SIGNER_FILE) {
            Some(certificate_pem) => Signer { certificate_pem, key_pem, trust_pem: Some(trusted) },
            None => Signer { certificate_pem: trusted, key_pem, trust_pem: None },
        })
    }

    /// The file with the certificate by which the controller manager signs.
    pub(super) fn signing_file(&self, plane: &ControlPlane) -> &'static str {
        let secret = self.secret(&plane.root_secret(Root::ClusterAuthority));
        let apart = secret.is_some_and(|secret| secret.get("/data")[SIGNER_FILE].is_string());
        if apart { SIGNER_FILE } else { Root::ClusterAuthority.files().0 }
    }

    /// What became of the Secrets that users made.
    pub fn provided_condition(&self) -> Option<Condition> {
        const KIND: &str = "ProvidedCertificatesUsed";
        let copies: Vec<&Object> = self.secrets().filter(|secret| is_copy(secret)).collect();
        let sources: Vec<&str> = copies.iter().filter_map(|secret| secret.annotation(PROVIDED_BY_ANNOTATION)).collect();
        let given: Vec<&Provided> = self.facts.provided.values().collect();
        if sources.is_empty() && given.is_empty() {
            return None;
        }
        let invalid = given.iter().find_map(|provided| provided.content.as_ref().err());
        let late = given.iter().find(|provided| !sources.contains(&provided.secret.as_str()));
        let missing = sources.iter().find(|name| !given.iter().any(|provided| provided.secret == **name));
        Some(if let Some(problem) = invalid {
            Condition::new(KIND, Status::False, "ProvidedCertificateInvalid", problem.clone())
        } else if let Some(late) = late {
            let text = format!(
                "Secret {} is not used: the control plane has key material of its own since it was made; delete the Secret",
                late.secret
            );
            Condition::new(KIND, Status::False, "ProvidedTooLate", text)
        } else if let Some(missing) = missing {
            let text = format!("Secret {missing} is missing: its last content is used; create it again to change it");
            Condition::new(KIND, Status::False, "ProvidedCertificateMissing", text)
        } else {
            Condition::new(KIND, Status::True, "Used", format!("used from Secrets {}", sources.join(", ")))
        })
    }
}

/// Whether one of our Secrets is a copy of a user's.
pub fn is_copy(secret: &Object) -> bool {
    secret.annotation(PROVIDED_BY_ANNOTATION).is_some()
}

/// The name of an authority.
pub(super) fn wish(root: Root) -> &'static str {
    match root {
        Root::ClusterAuthority => "kubernetes",
        Root::FrontProxyAuthority => "front-proxy-ca",
        Root::ServiceAccountKeys => "sa",
        Root::EncryptionKey => "encryption",
    }
}

fn copy(plane: &ControlPlane, root: Root, provided: &Provided, content: &Signer) -> Object {
    let trusted = content.trust_pem.as_ref().unwrap_or(&content.certificate_pem);
    let mut secret = certificates::secret(plane, &plane.root_secret(root), "");
    // Another certificate rolls the pods, as any other change of what they mount.
    secret.0["metadata"]["annotations"] = json!({
        ISSUED_FOR_ANNOTATION: fingerprint(&json!([provided.secret, trusted])), PROVIDED_BY_ANNOTATION: provided.secret,
    });
    for (public, private) in [Some(root.files()), root.also()].into_iter().flatten() {
        secret.0["data"][public] = STANDARD.encode(trusted).into();
        secret.0["data"][private] = STANDARD.encode(&content.key_pem).into();
    }
    if content.trust_pem.is_some() && root != Root::ServiceAccountKeys {
        secret.0["data"][SIGNER_FILE] = STANDARD.encode(&content.certificate_pem).into();
    }
    secret
}
