//! Volumes as directories: what the API holds becomes files, the rest is a directory that stays.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Pod, Volume, VolumeProjection};
use kube::ResourceExt as _;

use super::Node;
use super::environment::{Data, SourceError, config_map, field_of, keys, resource_of, secret};
use super::files::{self, File, Files, private_directory, write_all};
use super::identity::is_root;
use super::tokens::Tokens;

#[derive(Debug, thiserror::Error)]
pub(super) enum VolumeError {
    #[error("volume {volume}: {source}")]
    Source { volume: String, source: SourceError },
    #[error("volume {volume}: PersistentVolumeClaim {claim} {state}")]
    Claim { volume: String, claim: String, state: &'static str },
    #[error("volume {volume}: {source}")]
    File { volume: String, source: std::io::Error },
    #[error("volume {volume}: could not get a service account token: {source}")]
    Token { volume: String, source: Box<kube::Error> },
    #[error(
        "volume {volume} has an unsupported type: use secret, configMap, projected, downwardAPI, emptyDir, hostPath or persistentVolumeClaim"
    )]
    Kind { volume: String },
}

impl VolumeError {
    /// Something is missing in what the node has heard of; it may be there already.
    pub fn may_be_stale(&self) -> bool {
        matches!(self, Self::Source { .. } | Self::Claim { .. })
    }
}

/// Where each volume lies, and how soon a token in one of them has to be made anew.
pub(super) struct Prepared {
    pub directories: BTreeMap<String, PathBuf>,
    pub again_in: Option<Duration>,
}

/// Prepares all volumes of a pod; called again, it brings their files up to date.
pub(super) async fn prepare(
    node: &Node,
    pod: &Pod,
    directory: &Path,
    ip: Ipv4Addr,
    tokens: &Tokens,
) -> Result<Prepared, VolumeError> {
    let mut prepared = Prepared { directories: BTreeMap::new(), again_in: None };
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let own = directory.join("volumes").join(&volume.name);
        let asked = VolumeRequest { node, pod, volume, ip, tokens };
        let real = asked.make(own, &mut prepared.again_in).await?;
        prepared.directories.insert(volume.name.clone(), real);
    }
    Ok(prepared)
}

/// One volume of one pod.
struct VolumeRequest<'a> {
    node: &'a Node,
    pod: &'a Pod,
    volume: &'a Volume,
    ip: Ipv4Addr,
    tokens: &'a Tokens,
}

impl VolumeRequest<'_> {
    fn wrong(&self, source: SourceError) -> VolumeError {
        VolumeError::Source { volume: self.volume.name.clone(), source }
    }

    async fn make(&self, own: PathBuf, again_in: &mut Option<Duration>) -> Result<PathBuf, VolumeError> {
        let volume = self.volume;
        let files = if let Some(from) = &volume.secret {
            let name = from.secret_name.as_deref().unwrap_or_default();
            let pick = KeySelection { kind: "Secret", name, mode: from.default_mode, optional: from.optional };
            self.picked(&pick, from.items.as_deref())
        } else if let Some(from) = &volume.config_map {
            let pick =
                KeySelection { kind: "ConfigMap", name: &from.name, mode: from.default_mode, optional: from.optional };
            self.picked(&pick, from.items.as_deref())
        } else if let Some(from) = &volume.downward_api {
            self.fields(from.items.as_deref().unwrap_or_default(), from.default_mode)
        } else if let Some(from) = &volume.projected {
            let mut files = Files::new();
            for projection in from.sources.iter().flatten() {
                files.extend(self.projected(projection, from.default_mode, again_in).await?);
            }
            Ok(files)
        } else {
            return directory(self.node, self.pod, volume, own);
        };
        let file = |source| VolumeError::File { volume: volume.name.clone(), source };
        write_all(&own, &files?, fs_group(self.pod)).map_err(file)?;
        Ok(own)
    }

    fn picked(&self, pick: &KeySelection<'_>, items: Option<&[KeyToPath]>) -> Result<Files, VolumeError> {
        let namespace = self.pod.namespace().unwrap_or_default();
        let data = match pick.kind {
            "Secret" => secret(self.node, &namespace, pick.name),
            _ => config_map(self.node, &namespace, pick.name),
        };
        keys(data, pick.optional).and_then(|data| pick.from(data, items)).map_err(|error| self.wrong(error))
    }

    fn fields(&self, items: &[DownwardAPIVolumeFile], mode: Option<i32>) -> Result<Files, VolumeError> {
        fields(self.node, self.pod, items, self.ip, mode).map_err(|error| self.wrong(error))
    }

    async fn projected(
        &self,
        projection: &VolumeProjection,
        mode: Option<i32>,
        again_in: &mut Option<Duration>,
    ) -> Result<Files, VolumeError> {
        if let Some(from) = &projection.secret {
            let pick = KeySelection { kind: "Secret", name: &from.name, mode, optional: from.optional };
            return self.picked(&pick, from.items.as_deref());
        }
        if let Some(from) = &projection.config_map {
            let pick = KeySelection { kind: "ConfigMap", name: &from.name, mode, optional: from.optional };
            return self.picked(&pick, from.items.as_deref());
        }
        if let Some(from) = &projection.downward_api {
            return self.fields(from.items.as_deref().unwrap_or_default(), mode);
        }
        let Some(from) = &projection.service_account_token else {
            return Err(VolumeError::Kind { volume: self.volume.name.clone() });
        };
        let failed = |error| VolumeError::Token { volume: self.volume.name.clone(), source: Box::new(error) };
        let (token, renew) = self.tokens.get(&self.node.client, self.pod, from).await.map_err(failed)?;
        *again_in = Some(again_in.map_or(renew, |known| known.min(renew)));
        // A token is for those who are meant to have it, where that can be said.
        let owner = common_user(self.pod).filter(|_| fs_group(self.pod).is_none());
        let mode = if owner.is_some() || fs_group(self.pod).is_some() { 0o600 } else { bits(mode) };
        Ok(Files::from([(from.path.clone(), File { content: token.into_bytes(), mode, owner })]))
    }
}

/// The group that shares the pod's volumes; only root can give files away.
fn fs_group(pod: &Pod) -> Option<u32> {
    let group = pod.spec.as_ref()?.security_context.as_ref()?.fs_group?;
    u32::try_from(group).ok().filter(|_| is_root())
}

/// The user all containers run as, if they agree.
fn common_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|context| context.run_as_user);
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut users: Vec<Option<i64>> =
        containers.map(|one| one.security_context.as_ref().and_then(|own| own.run_as_user).or(of_pod)).collect();
    users.dedup();
    let [user] = users[..] else { return None };
    user.and_then(|user| u32::try_from(user).ok()).filter(|_| is_root())
}

/// Volumes that are a directory and nothing else.
fn directory(node: &Node, pod: &Pod, volume: &Volume, own: PathBuf) -> Result<PathBuf, VolumeError> {
    let file = |source| VolumeError::File { volume: volume.name.clone(), source };
    let namespace = &pod.namespace().unwrap_or_default();
    if let Some(empty) = &volume.empty_dir {
        // Made once: afterwards it belongs to the containers.
        if !own.exists() {
            super::empty_dir::make(&own, empty, pod, |made| share(made, pod)).map_err(file)?;
        }
        return own.canonicalize().map_err(file);
    }
    if let Some(host) = &volume.host_path {
        return super::empty_dir::host_path(host).map_err(file);
    }
    let Some(claim) = &volume.persistent_volume_claim else {
        return Err(VolumeError::Kind { volume: volume.name.clone() });
    };
    let failed = |state| VolumeError::Claim { volume: volume.name.clone(), claim: claim.claim_name.clone(), state };
    let object = node.watched.claims.get(namespace, &claim.claim_name).ok_or_else(|| failed("not found"))?;
    let bound = object.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let name = object.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|_| bound);
    let name = name.ok_or_else(|| failed("is not bound yet"))?;
    let all = node.watched.volumes.all();
    let persistent = all.iter().find(|persistent| persistent.name_any() == name);
    let spec = persistent.and_then(|persistent| persistent.spec.as_ref()).ok_or_else(|| failed("has no volume"))?;
    let path = spec.host_path.as_ref().map(|host| &host.path).or(spec.local.as_ref().map(|local| &local.path));
    let path = PathBuf::from(path.ok_or_else(|| failed("is bound to a volume that is not a local directory"))?);
    if !path.exists() {
        private_directory(&path).map_err(file)?;
    }
    share(&path, pod).map_err(file)?;
    Ok(path)
}

/// Lets the pod's group and other users in; what the volume lies in keeps everybody else out.
fn share(path: &Path, pod: &Pod) -> std::io::Result<()> {
    match fs_group(pod) {
        Some(group) => files::give_to_group(path, group, 0o660),
        None => Ok(()),
    }
}

/// How files are made of the keys of a Secret or a ConfigMap.
struct KeySelection<'a> {
    kind: &'static str,
    name: &'a str,
    mode: Option<i32>,
    optional: Option<bool>,
}

impl KeySelection<'_> {
    /// All keys, or those that are named.
    fn from(&self, mut data: Data, items: Option<&[KeyToPath]>) -> Result<Files, SourceError> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            return Ok(data.into_iter().map(|(key, value)| (key, File::new(value, bits(self.mode)))).collect());
        };
        let mut files = Files::new();
        for item in items {
            match data.remove(&item.key) {
                Some(value) => {
                    files.insert(item.path.clone(), File::new(value, bits(item.mode.or(self.mode))));
                }
                None if self.optional == Some(true) => {}
                None => {
                    let (name, key) = (self.name.to_owned(), item.key.clone());
                    return Err(SourceError::NoKey { kind: self.kind, name, key });
                }
            }
        }
        Ok(files)
    }
}

/// The mode of a file, as the API gives it.
fn bits(mode: Option<i32>) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644) & 0o777
}

fn fields(
    node: &Node,
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    ip: Ipv4Addr,
    mode: Option<i32>,
) -> Result<Files, SourceError> {
    let mut files = Files::new();
    for item in items {
        let unsupported = || SourceError::Unsupported { what: "the source", name: item.path.clone() };
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => field_of(pod, &field.field_path, ip, node)?,
            (None, Some(resource)) => resource_of(pod, "", resource)?,
            (None, None) => return Err(unsupported()),
        };
        files.insert(item.path.clone(), File::new(text, bits(item.mode.or(mode))));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_keys_become_named_paths() {
        let data = || Data::from([("tls.crt".to_owned(), b"c".to_vec()), ("tls.key".to_owned(), b"k".to_vec())]);
        let item = KeyToPath { key: "tls.crt".into(), path: "pki/ca.crt".into(), mode: Some(0o400) };
        let pick = |optional| KeySelection { kind: "Secret", name: "s", mode: None, optional };
        let all = pick(None).from(data(), None).unwrap();
        assert_eq!(
            all.iter().map(|(name, file)| (&**name, file.mode)).collect::<Vec<_>>(),
            [("tls.crt", 0o644), ("tls.key", 0o644)]
        );
        let some = pick(None).from(data(), Some(&[item])).unwrap();
        assert_eq!(some.iter().map(|(name, file)| (&**name, file.mode)).collect::<Vec<_>>(), [("pki/ca.crt", 0o400)]);
        let absent = KeyToPath { key: "no".into(), path: "x".into(), mode: None };
        assert!(pick(None).from(data(), Some(std::slice::from_ref(&absent))).is_err());
        assert!(pick(Some(true)).from(data(), Some(&[absent])).unwrap().is_empty());
    }
}
