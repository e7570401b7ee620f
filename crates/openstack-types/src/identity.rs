//! Keystone: tokens and the catalog. Nothing here shows a password: those go into a request body and nowhere else.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenReply {
    pub token: Token,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Token {
    pub methods: Vec<String>,
    pub issued_at: String,
    pub expires_at: String,
    pub user: Named,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<Named>,
    pub roles: Vec<Named>,
    pub catalog: Vec<CatalogEntry>,
}

/// A user, project, role or domain by id and name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Named {
    #[serde(deserialize_with = "super::null_is_default")]
    pub id: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<Box<Named>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CatalogEntry {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    pub id: String,
    pub interface: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub region: String,
    #[serde(deserialize_with = "super::null_is_default")]
    pub region_id: String,
    pub url: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Project {
    pub id: String,
    pub name: String,
    pub description: String,
    pub domain_id: String,
    pub enabled: bool,
}

/// A credential of a user's own; the secret is shown once, in the answer to its creation.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApplicationCredential {
    pub id: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    pub description: Option<String>,
    pub project_id: String,
    pub expires_at: Option<String>,
    #[serde(deserialize_with = "super::null_is_default")]
    pub unrestricted: bool,
    pub roles: Vec<Named>,
}

impl std::fmt::Debug for ApplicationCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApplicationCredential").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}
