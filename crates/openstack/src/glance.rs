//! Glance's calls.

use crate::query::ImageQuery;
use crate::wire::Image;
use crate::{Cloud, Error, Service};

impl Cloud {
    pub async fn images(&self, query: &ImageQuery) -> Result<Vec<Image>, Error> {
        self.list(Service::Glance, "/images", "images", &query.pairs()).await
    }
}
