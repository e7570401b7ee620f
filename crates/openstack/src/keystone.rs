//! Keystone's calls, besides getting a token.

use serde_json::json;

use crate::query::escape;
use crate::wire::{ApplicationCredential, TokenReply};
use crate::{Cloud, Error, Service};

impl Cloud {
    /// Who the current token belongs to.
    async fn user_id(&self) -> Result<String, Error> {
        let reply: TokenReply = self.whoami().await?;
        Ok(reply.token.user.id)
    }

    pub async fn application_credentials(&self) -> Result<Vec<ApplicationCredential>, Error> {
        let path = format!("/users/{}/application_credentials", escape(&self.user_id().await?));
        self.list(Service::Keystone, &path, "application_credentials", &vec![]).await
    }

    /// The secret is in the answer, and nowhere else afterwards.
    pub async fn create_application_credential(
        &self,
        name: &str,
        secret: Option<&str>,
    ) -> Result<ApplicationCredential, Error> {
        let path = format!("/users/{}/application_credentials", escape(&self.user_id().await?));
        let body = json!({"name": name, "secret": secret});
        self.create(Service::Keystone, &path, "application_credential", &body).await
    }

    pub async fn delete_application_credential(&self, id: &str) -> Result<(), Error> {
        let path = format!("/users/{}/application_credentials/{}", escape(&self.user_id().await?), escape(id));
        self.delete(Service::Keystone, &path).await
    }
}
