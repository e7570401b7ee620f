//! Cinder's calls.

use http::Method;
use serde_json::{Value, json};

use crate::cloud::Extra;
use crate::query::{Pairs, escape};
use crate::wire::{CreateVolume, Volume, VolumeType};
use crate::{Cloud, Error, Service};

impl Cloud {
    /// Of this project; by name if one is given.
    pub async fn volumes(&self, name: Option<&str>) -> Result<Vec<Volume>, Error> {
        let query: Pairs = name.map(|name| ("name", name.to_owned())).into_iter().collect();
        self.list(Service::Cinder, &self.below("/volumes/detail").await?, "volumes", &query).await
    }

    /// Whether this cloud has Cinder at all.
    pub async fn has_volumes(&self) -> Result<bool, Error> {
        self.has(Service::Cinder).await
    }

    pub async fn volume(&self, id: &str) -> Result<Volume, Error> {
        self.show(Service::Cinder, &self.below(&format!("/volumes/{}", escape(id))).await?, "volume").await
    }

    /// Then in `creating`.
    pub async fn create_volume(&self, body: &CreateVolume) -> Result<Volume, Error> {
        self.create(Service::Cinder, &self.below("/volumes").await?, "volume", body).await
    }

    pub async fn delete_volume(&self, id: &str) -> Result<(), Error> {
        self.delete(Service::Cinder, &self.below(&format!("/volumes/{}", escape(id))).await?).await
    }

    /// To this many GiB.
    pub async fn extend_volume(&self, id: &str, size: u64) -> Result<(), Error> {
        let path = self.below(&format!("/volumes/{}/action", escape(id))).await?;
        let body = json!({"os-extend": {"new_size": size}});
        let extra = Extra { body: Some(&body), microversion: Some("3.42"), ..Extra::default() };
        self.tell(Service::Cinder, Method::POST, &path, extra).await
    }

    /// The limits of the project and how much of them is used, as Cinder tells them.
    pub async fn volume_limits(&self) -> Result<Value, Error> {
        Ok(self.get::<Value>(Service::Cinder, &self.below("/limits").await?).await?["limits"]["absolute"].take())
    }

    pub async fn volume_types(&self) -> Result<Vec<VolumeType>, Error> {
        self.list(Service::Cinder, &self.below("/types").await?, "volume_types", &vec![]).await
    }

    /// Cinder before Antelope wants the project in the path; newer ones take it. A catalog may have it already.
    async fn below(&self, path: &str) -> Result<String, Error> {
        let project = self.project_id().await?;
        let there = self.endpoint(Service::Cinder).await?.ends_with(&project);
        Ok(if there { path.to_owned() } else { format!("/{project}{path}") })
    }
}
