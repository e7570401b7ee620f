//! Who has which name in a store: a register inside the store itself, which no tenant can write.
//!
//! Flows: claim user and schema for a control plane's UID -> user, role, permission; and back: what is claimed by that UID goes, then the claims. Holds: two
//! control planes never share a user, a role or a prefix, whatever their specs or annotations say; a claim is given back last, so that a deletion
//! that was interrupted is done again.

use super::wire::{Compare, Expected, Operation, Put, Range, RangeAnswer, Transaction};
use super::{Empty, Etcd, EtcdError};

/// Tenants' keys are below `/<schema>/`, and no schema may have this name.
const REGISTER: &str = "/hangar/tenants/";

fn user_claim(user: &str) -> String {
    format!("{REGISTER}users/{user}")
}

fn schema_claim(role: &str) -> String {
    format!("{REGISTER}schemas/{role}")
}

impl Etcd {
    /// A user that may read and write below one prefix, nothing else.
    pub async fn create_tenant(&self, owner: &str, user: &str, role: &str, prefix: &str) -> Result<(), EtcdError> {
        self.enable_auth().await?;
        for (claim, name) in [(user_claim(user), user), (schema_claim(role), role)] {
            self.claim(&claim, name, owner).await?;
        }
        tokio::try_join!(self.add_role(role), self.add_user(user))?;
        tokio::try_join!(self.grant_prefix(role, prefix), self.grant_role(user, role)).map(drop)
    }

    /// What this owner has there, and nothing else.
    pub async fn delete_tenant(&self, owner: &str, user: &str, role: &str, prefix: &str) -> Result<(), EtcdError> {
        let (user_claim, schema_claim) = (user_claim(user), schema_claim(role));
        if self.is_owned(&user_claim, user, owner).await? {
            self.delete_user(user).await?;
        }
        if self.is_owned(&schema_claim, role, owner).await? {
            self.delete_role(role).await?;
            self.delete_prefix(prefix).await?;
        }
        for (claim, name) in [(user_claim, user), (schema_claim, role)] {
            if self.is_owned(&claim, name, owner).await? {
                self.delete_key(&claim).await?;
            }
        }
        Ok(())
    }

    /// The first who asks has the name.
    async fn claim(&self, claim: &str, name: &str, owner: &str) -> Result<(), EtcdError> {
        let request = Transaction {
            compare: vec![Compare { key: claim.into(), expected: Some(Expected::Version(0)) }],
            success: vec![Operation { put: Some(Put { key: claim.into(), value: owner.into() }) }],
        };
        self.call::<_, Empty>("KV/Txn", &request).await?;
        match self.value(claim).await? {
            Some(first) if first == owner => Ok(()),
            _ => Err(EtcdError::Taken { name: name.to_owned() }),
        }
    }

    /// A name that is the owner's UID is nobody else's, registered or not.
    async fn is_owned(&self, claim: &str, name: &str, owner: &str) -> Result<bool, EtcdError> {
        Ok(name == owner || self.value(claim).await?.is_some_and(|first| first == owner))
    }

    /// What is stored under a key.
    pub async fn value(&self, key: &str) -> Result<Option<String>, EtcdError> {
        let request = Range { key: key.into(), ..Range::default() };
        let answer = self.call::<_, RangeAnswer>("KV/Range", &request).await?;
        Ok(answer.pairs.into_iter().next().map(|pair| String::from_utf8_lossy(&pair.value).into_owned()))
    }
}
