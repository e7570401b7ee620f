//! Glance's calls.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::cloud::Extra;
use crate::error::Target;
use crate::query::{ImageQuery, escape};
use crate::wire::Image;
use crate::{Cloud, Error, Service};

const PATCH: &str = "application/openstack-images-v2.1-json-patch";

impl Cloud {
    pub async fn images(&self, query: &ImageQuery) -> Result<Vec<Image>, Error> {
        self.list(Service::Glance, "/images", "images", &query.pairs()).await
    }

    pub async fn image(&self, id: &str) -> Result<Image, Error> {
        self.get(Service::Glance, &format!("/images/{}", escape(id))).await
    }

    /// `fields` such as name, disk_format, container_format, tags and free properties; the image is then `queued`.
    pub async fn create_image(&self, fields: &Value) -> Result<Image, Error> {
        self.post(Service::Glance, "/images", fields).await
    }

    /// Fills an image that is `queued`.
    pub async fn upload_image(&self, id: &str, file: Bytes) -> Result<(), Error> {
        let path = format!("/images/{}/file", escape(id));
        self.tell(Service::Glance, Method::PUT, &path, Extra { file: Some(&file), ..Extra::default() }).await
    }

    /// Lets the cloud fetch the image itself.
    pub async fn import_image(&self, id: &str, url: &str) -> Result<(), Error> {
        let body = json!({"method": {"name": "web-download", "uri": url}});
        let path = format!("/images/{}/import", escape(id));
        self.tell(Service::Glance, Method::POST, &path, Extra { body: Some(&body), ..Extra::default() }).await
    }

    /// JSON patch, such as `[{"op": "replace", "path": "/name", "value": "x"}]`.
    pub async fn patch_image(&self, id: &str, steps: &Value) -> Result<Image, Error> {
        let target =
            Target { service: Service::Glance, method: Method::PATCH, path: format!("/images/{}", escape(id)) };
        self.read(target, "", Extra { body: Some(steps), content_type: Some(PATCH), ..Extra::default() }).await
    }

    pub async fn delete_image(&self, id: &str) -> Result<(), Error> {
        self.delete(Service::Glance, &format!("/images/{}", escape(id))).await
    }
}
