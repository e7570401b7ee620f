//! Builds components from Go modules, straight out of the module cache: a `go.mod` of a few lines is all it takes.
//!
//! Holds: the pinned versions are verified against the `go.sum` in `modules/`, which is complete and never extended; for others the replacements are
//! read from the module's own `go.mod`, and Go's checksum database vouches for every module.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use semver::Version;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use super::go_settings::GoSettings;
use super::{Component, ETCD, KUBERNETES};

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(
        "`go` was not found: install Go from go.dev, or name a directory with the programs (--components) or a download site (--mirror)"
    )]
    NoGo(#[source] std::io::Error),
    #[error("could not prepare the build in {path}")]
    Prepare { path: PathBuf, source: std::io::Error },
    #[error(
        "could not download the Go module {module}: choose another version, or name a directory with the programs (--components) or a download site (--mirror)\n{output}"
    )]
    NoModule { module: String, output: String },
    #[error("`go build` ended with {status}; the full output is in {log}\n{output}")]
    Failed { status: String, log: PathBuf, output: String },
}

/// A Go module that components are built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Module {
    pub short: &'static str,
    pub path: &'static str,
    pub version: Version,
}

impl Module {
    pub fn of(component: &Component) -> Option<Module> {
        let (short, path) = match component.name.as_str() {
            "kube-apiserver"
            | "kube-controller-manager"
            | "kube-scheduler"
            | "kubectl"
            | "kubeadm"
            | "kubelet"
            | "kube-proxy"
            | "agnhost"
            | "e2e" => ("kubernetes", "k8s.io/kubernetes"),
            "etcd" => ("etcd", "go.etcd.io/etcd/server/v3"),
            "etcdctl" => ("etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
            "etcdutl" => ("etcdutl", "go.etcd.io/etcd/etcdutl/v3"),
            "coredns" => ("coredns", "github.com/coredns/coredns"),
            "konnectivity-server" | "konnectivity-agent" => ("konnectivity", "sigs.k8s.io/apiserver-network-proxy"),
            "helm" => ("helm", "helm.sh/helm/v3"),
            "clusterctl" => ("cluster-api", "sigs.k8s.io/cluster-api"),
            _ => return None,
        };
        Some(Module { short, path, version: component.version.clone() })
    }

    /// The package of a program.
    fn package(&self, name: &str) -> String {
        match name {
            "etcd" | "etcdctl" | "etcdutl" | "coredns" => self.path.to_owned(),
            "konnectivity-server" => format!("{}/cmd/server", self.path),
            "konnectivity-agent" => format!("{}/cmd/agent", self.path),
            "agnhost" => format!("{}/test/images/agnhost", self.path),
            "e2e" => format!("{}/test/e2e", self.path),
            name => format!("{}/cmd/{name}", self.path),
        }
    }

    /// Modules that lie in the same repository and are published under the same version.
    fn companions(&self) -> &'static [&'static str] {
        match self.short {
            "konnectivity" => &["sigs.k8s.io/apiserver-network-proxy/konnectivity-client"],
            _ => &[],
        }
    }

    /// `go.mod` and `go.sum` as committed, for the versions that are.
    fn pinned(&self) -> Option<(&'static str, &'static str)> {
        match (self.short, self.version.to_string().as_str()) {
            ("kubernetes", KUBERNETES) => {
                Some((include_str!("../../modules/kubernetes/go.mod"), include_str!("../../modules/kubernetes/go.sum")))
            }
            ("etcd", ETCD) => {
                Some((include_str!("../../modules/etcd/go.mod"), include_str!("../../modules/etcd/go.sum")))
            }
            _ => None,
        }
    }

    fn linker_flags(&self) -> String {
        let Version { major, minor, .. } = self.version;
        let set = "-X k8s.io/component-base/version.git";
        match self.short {
            "kubernetes" => {
                format!("-s -w {set}Version=v{} {set}Major={major} {set}Minor={minor}", self.version)
            }
            // The other way round they say "(devel)" or nothing when they are asked for their version.
            "helm" => format!("-s -w -X helm.sh/helm/v3/internal/version.version=v{}", self.version),
            "cluster-api" => {
                let set = "-X sigs.k8s.io/cluster-api/version.git";
                format!("-s -w {set}Version=v{} {set}Major={major} {set}Minor={minor}", self.version)
            }
            _ => "-s -w".to_owned(),
        }
    }
}

/// Builds `names` of one module into `staging/out`. `tell` hears how many packages are compiled.
pub(super) async fn build(
    module: &Module,
    names: &[&str],
    staging: &Path,
    log: &Path,
    tell: &(dyn Fn(u64) + Send + Sync),
) -> Result<(), BuildError> {
    let work = staging.join("module");
    let out = staging.join("out");
    let prepare = |source| BuildError::Prepare { path: staging.to_owned(), source };
    std::fs::create_dir_all(&work).and_then(|()| std::fs::create_dir_all(&out)).map_err(prepare)?;
    let settings = GoSettings::read().await?;
    let (go_mod, go_sum, resolution) = match module.pinned() {
        Some((go_mod, go_sum)) => (go_mod.to_owned(), go_sum, "-mod=readonly"),
        None => (derived(module, &settings, &work).await?, "", "-mod=mod"),
    };
    let go = |verb: &[&str], target: &str, packages: &[String]| {
        let mut go = settings.command();
        go.current_dir(&work).args(verb).args(["-v", resolution, "-trimpath", "-buildvcs=false", "-ldflags"]);
        go.arg(module.linker_flags()).args(["-o", target]).args(packages);
        go
    };
    std::fs::write(work.join("go.mod"), go_mod).map_err(prepare)?;
    std::fs::write(work.join("go.sum"), go_sum).map_err(prepare)?;
    if module.short == "kubernetes" {
        // All of one module in one process: they share most of their packages, and each is named as its directory.
        let (tests, programs): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| **name == "e2e");
        if !programs.is_empty() {
            let packages: Vec<String> = programs.iter().map(|name| module.package(name)).collect();
            run(go(&["build"], &format!("{}/", out.display()), &packages), log, tell).await?;
        }
        for name in tests {
            let target = out.join(name).display().to_string();
            run(go(&["test", "-c"], &target, &[module.package(name)]), log, tell).await?;
        }
        return Ok(());
    }
    for name in names {
        let target = out.join(name).display().to_string();
        run(go(&["build"], &target, &[module.package(name)]), log, tell).await?;
    }
    Ok(())
}

async fn run(mut go: Command, log: &Path, tell: &(dyn Fn(u64) + Send + Sync)) -> Result<(), BuildError> {
    let prepare = |source| BuildError::Prepare { path: log.to_owned(), source };
    let mut file = tokio::fs::File::create(log).await.map_err(prepare)?;
    let mut child = go
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(BuildError::NoGo)?;
    let mut count = 0;
    tell(count);
    if let Some(stderr) = child.stderr.take() {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            file.write_all(format!("{line}\n").as_bytes()).await.map_err(prepare)?;
            if !line.starts_with("go: ") {
                count += 1;
                tell(count);
            }
        }
    }
    file.flush().await.map_err(prepare)?;
    let status = child.wait().await.map_err(prepare)?;
    if status.success() {
        return Ok(());
    }
    let output = hangar_node::process::log_tail(log, 12);
    Err(BuildError::Failed { status: status.to_string(), log: log.to_owned(), output })
}

/// A `go.mod` for a version that is not committed, with the replacements that the module itself has.
async fn derived(module: &Module, settings: &GoSettings, work: &Path) -> Result<String, BuildError> {
    let name = format!("{}@v{}", module.path, module.version);
    let mut go = settings.command();
    // Outside of any module, or the command would look for a go.mod that is not there yet.
    go.current_dir(work).args(["mod", "download", "-json", &name]).stdin(Stdio::null()).kill_on_drop(true);
    let output = go.output().await.map_err(BuildError::NoGo)?;
    let no_module = |output: String| BuildError::NoModule { module: name.clone(), output };
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| no_module(String::from_utf8_lossy(&output.stderr).trim().to_owned()))?;
    let Some(path) = answer["GoMod"].as_str() else {
        return Err(no_module(answer["Error"].as_str().unwrap_or_default().to_owned()));
    };
    let own = std::fs::read_to_string(path).map_err(|source| BuildError::Prepare { path: path.into(), source })?;
    Ok(go_mod(module, &own))
}

/// Staging modules are replaced by directories in the module's own `go.mod`; published, they carry `v0.MINOR.PATCH`.
fn go_mod(module: &Module, own: &str) -> String {
    let Version { minor, patch, .. } = module.version;
    let language = own.lines().find_map(|line| line.strip_prefix("go ")).unwrap_or("1.24").trim();
    let mut text =
        format!("module hangar.local/components\n\ngo {language}\n\nrequire {} v{}\n", module.path, module.version);
    for line in own.lines() {
        let Some((replaced, path)) = line.trim().trim_start_matches("replace ").split_once(" => ") else { continue };
        if let Some(staged) = path.trim().strip_prefix("./staging/src/") {
            let replaced = replaced.split_whitespace().next().unwrap_or(staged);
            text.push_str(&format!("replace {replaced} => {staged} v0.{minor}.{patch}\n"));
        }
    }
    for companion in module.companions() {
        text.push_str(&format!("replace {companion} => {companion} v{}\n", module.version));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_directories_become_published_versions() {
        let own = "module k8s.io/kubernetes\n\ngo 1.24.0\n\nrequire x v1.0.0\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tother => example.org/other v1.2.3\n)\n";
        let component = Component { name: "kubectl".into(), version: Version::new(1, 33, 13) };
        let text = go_mod(&Module::of(&component).unwrap(), own);
        assert!(text.contains("go 1.24.0\n") && text.contains("require k8s.io/kubernetes v1.33.13\n"), "{text}");
        assert!(text.contains("replace k8s.io/api => k8s.io/api v0.33.13\n") && !text.contains("other"), "{text}");
    }

    #[test]
    fn the_pinned_modules_require_the_pinned_versions() {
        for (name, version) in [("kubectl", KUBERNETES), ("etcd", ETCD)] {
            let module = Module::of(&Component { name: name.into(), version: version.parse().unwrap() }).unwrap();
            let (go_mod, go_sum) = module.pinned().unwrap();
            assert!(go_mod.contains(&format!("require {} v{version}\n", module.path)), "{name}");
            assert!(go_sum.contains(&format!("{} v{version} h1:", module.path)), "{name}");
        }
    }
}
