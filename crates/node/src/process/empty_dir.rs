//! Directories for pods: empty ones of their own, and the machine's.
//!
//! Holds: a volume in memory lies on the machine's own memory file system, with a link to it in the pod's directory, so that no mount has to be
//! made or could be left behind; it goes with the pod.

use std::io::{Error, Result};
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, HostPathVolumeSource, Pod};
use kube::ResourceExt as _;

use super::files::directory;

const MEMORY: &str = "/dev/shm";
const CONTENT: &str = "content";

/// An empty directory that every container of the pod may write to. `share` lets others in before it is there: a node that is killed meanwhile makes it anew.
pub(super) fn make(
    path: &Path,
    source: &EmptyDirVolumeSource,
    pod: &Pod,
    share: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    if source.medium.as_deref() != Some("Memory") || !Path::new(MEMORY).is_dir() {
        // No volume has a name with a dot in it.
        let beside = path.with_extension("new");
        directory(&beside, 0o777)?;
        share(&beside)?;
        return std::fs::rename(beside, path);
    }
    let volume = path.file_name().unwrap_or_default().to_string_lossy();
    let outer = Path::new(MEMORY).join(format!("hangar-{}-{volume}", pod.uid().unwrap_or_default()));
    // Other users of the machine get no further than this; containers have the inner one mounted.
    directory(&outer, 0o700)?;
    let real = outer.join(CONTENT);
    directory(&real, 0o777)?;
    share(&real)?;
    std::fs::create_dir_all(path.parent().unwrap_or(path))?;
    // What lay in memory is gone after the machine was started anew; the link to it is not.
    let _ = std::fs::remove_file(path);
    symlink(real, path)
}

/// Gives back what lies in memory; the pod's directory itself goes afterwards.
pub(super) fn give_back(pod_directory: &Path) {
    for entry in pod_directory.join("volumes").read_dir().into_iter().flatten().flatten() {
        if let Ok(real) = std::fs::read_link(entry.path())
            && let Some(outer) = real.parent().filter(|outer| outer.parent() == Some(Path::new(MEMORY)))
        {
            let _ = std::fs::remove_dir_all(outer);
        }
    }
}

/// A path of the machine, which must be what it is said to be.
pub(super) fn host_path(source: &HostPathVolumeSource) -> Result<PathBuf> {
    let path = PathBuf::from(&source.path);
    let kind = source.type_.as_deref().unwrap_or_default();
    match kind {
        "DirectoryOrCreate" if !path.exists() => std::fs::create_dir_all(&path)?,
        "FileOrCreate" if !path.exists() => std::fs::write(&path, "")?,
        // A runtime makes what it is told to mount.
        "" if !path.exists() => std::fs::create_dir_all(&path)?,
        _ => {}
    }
    let found = path.metadata().map_err(|error| Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let file_type = found.file_type();
    let right = match kind {
        "Directory" | "DirectoryOrCreate" => file_type.is_dir(),
        "File" | "FileOrCreate" => file_type.is_file(),
        "Socket" => file_type.is_socket(),
        "CharDevice" => file_type.is_char_device(),
        "BlockDevice" => file_type.is_block_device(),
        _ => true,
    };
    if right {
        Ok(path)
    } else {
        Err(Error::other(format!("hostPath type check failed: {} is not a {kind}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_path_of_the_machine_is_checked() {
        let directory = tempfile::tempdir().unwrap();
        let source = |name: &str, kind: &str| HostPathVolumeSource {
            path: directory.path().join(name).display().to_string(),
            type_: Some(kind.to_owned()),
        };
        let rows = [
            ("d", "Directory", false),
            ("d", "DirectoryOrCreate", true),
            ("d", "Directory", true),
            ("d", "File", false),
            ("f", "FileOrCreate", true),
            ("f", "Socket", false),
            ("new", "", true),
        ];
        for (name, kind, expected) in rows {
            assert_eq!(host_path(&source(name, kind)).is_ok(), expected, "{name} {kind}");
        }
    }

    #[test]
    fn memory_is_given_back() {
        if !Path::new(MEMORY).is_dir() {
            return println!("this system has no {MEMORY}");
        }
        let directory = tempfile::tempdir().unwrap();
        let pod = Pod {
            metadata: kube::api::ObjectMeta { uid: Some(format!("test-{}", std::process::id())), ..Default::default() },
            ..Default::default()
        };
        let source = EmptyDirVolumeSource { medium: Some("Memory".into()), size_limit: None };
        let path = directory.path().join("volumes/v");
        make(&path, &source, &pod, |_| Ok(())).unwrap();
        std::fs::write(path.join("x"), "").unwrap();
        let real = path.canonicalize().unwrap();
        let outer = real.parent().unwrap().to_owned();
        assert_eq!(outer.metadata().unwrap().mode() & 0o777, 0o700, "other users cannot look into it");
        // As the machine does when it is started anew.
        std::fs::remove_dir_all(&real).unwrap();
        make(&path, &source, &pod, |_| Ok(())).unwrap();
        assert!(path.is_dir() && path.read_dir().unwrap().next().is_none());
        give_back(directory.path());
        assert!(outer.starts_with(MEMORY) && !outer.exists());
    }
}
