//! From a URL to what is meant by it.

use std::collections::BTreeMap;

/// What a path names: a collection, an object, or a subresource of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub group: String,
    pub version: String,
    pub plural: String,
    /// Empty for cluster-scoped kinds and for collections over all namespaces.
    pub namespace: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl Target {
    pub fn parse(path: &str) -> Option<Self> {
        let mut segments = path.trim_matches('/').split('/');
        let group = match segments.next()? {
            "api" => "",
            "apis" => segments.next()?,
            _ => return None,
        };
        let version = segments.next()?;
        let rest: Vec<&str> = segments.collect();
        let (namespace, rest) = match rest.as_slice() {
            // `namespaces/x` and its status are about the namespace itself.
            ["namespaces", namespace, below @ ..]
                if !below.is_empty() && !["status", "finalize"].contains(&below[0]) =>
            {
                (*namespace, below)
            }
            all => ("", all),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
            _ => return None,
        };
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
        })
    }

    /// `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// The parameters of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    pub fn parse(uri: &http::Uri) -> Self {
        Self(form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect())
    }

    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub fn flag(&self, name: &str) -> bool {
        ["true", "1"].contains(&self.text(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_collections_objects_and_subresources() {
        let rows = [
            ("/api/v1/nodes", ("", "v1", "nodes", "", None, None)),
            ("/api/v1/namespaces/n", ("", "v1", "namespaces", "", Some("n"), None)),
            ("/api/v1/namespaces/n/status", ("", "v1", "namespaces", "", Some("n"), Some("status"))),
            ("/api/v1/namespaces/n/secrets", ("", "v1", "secrets", "n", None, None)),
            (
                "/apis/apps/v1/namespaces/n/deployments/d/status",
                ("apps", "v1", "deployments", "n", Some("d"), Some("status")),
            ),
            ("/apis/g.io/v1beta1/things?", ("g.io", "v1beta1", "things?", "", None, None)),
        ];
        for (path, (group, version, plural, namespace, name, subresource)) in rows {
            let target = Target::parse(path).unwrap();
            assert_eq!(
                (target.group.as_str(), target.version.as_str(), target.plural.as_str()),
                (group, version, plural)
            );
            assert_eq!((target.namespace.as_str(), target.name.as_deref()), (namespace, name), "{path}");
            assert_eq!(target.subresource.as_deref(), subresource, "{path}");
        }
        for path in ["/", "/version", "/api/v1", "/apis/apps/v1"] {
            assert_eq!(Target::parse(path), None, "{path}");
        }
    }
}
