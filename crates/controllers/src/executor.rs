//! Carries out any step, as it is: to the management cluster, a cloud, a data store or a tenant.
//!
//! Holds: a step carries all that it needs; nothing is decided here. A refusal is a reason in the words of whoever refused.

use hangar_engine::pass::{Executor, Passes, act_on_management};
use hangar_planner::step::{ClusterName, Issue, Material, TenantCall};
use hangar_planner::{Effect, Reason, Step};
use jiff::Timestamp;

use crate::{Context, clouds, data_stores, issue, tenant_calls};

impl Executor for Context {
    fn passes(&self) -> &Passes {
        &self.passes
    }

    async fn carry_out(&self, step: Step, now: Timestamp) -> Result<Effect, Reason> {
        match step {
            Step::Issue(order) => self.issue(order, now).await,
            Step::Cloud { identity, call } => clouds::call(self, &identity, call).await.map(Effect::Cloud),
            Step::DataStore { store, call } => {
                data_stores::call(self, &store, &call).await.map(|()| Effect::DataStore(call))
            }
            Step::Tenant { cluster, call } => self.tenant(&cluster, &call, now).await,
            Step::Create(_)
            | Step::CreateOnce(_)
            | Step::Apply(_)
            | Step::Patch { .. }
            | Step::Mark(_)
            | Step::Delete { .. } => act_on_management(self.management(), step).await,
        }
    }
}

impl Context {
    async fn issue(&self, order: Issue, now: Timestamp) -> Result<Effect, Reason> {
        let secret =
            issue::fill(self, &order, now).map_err(|error| Reason::retry("CertificateNotIssued", error.to_string()))?;
        let step = match order.material {
            _ if order.replaces => Step::Apply(secret),
            // Two processes must not encrypt with two keys, of which one is kept.
            Material::EncryptionKey { .. } => Step::CreateOnce(secret),
            _ => Step::Create(secret),
        };
        act_on_management(self.management(), step).await
    }

    async fn tenant(&self, cluster: &ClusterName, call: &TenantCall, now: Timestamp) -> Result<Effect, Reason> {
        let code = match call {
            TenantCall::Apply { .. } | TenantCall::RewriteSecrets { .. } => "TenantNotReady",
            TenantCall::Install(_) => "NotApplied",
            TenantCall::CreateToken { .. } | TenantCall::ExtendToken { .. } => "TokenNotCreated",
            TenantCall::DeleteToken { .. } => "TokenNotDeleted",
            TenantCall::DecideRequest { .. } => "CertificateRequestNotDecided",
            TenantCall::DeleteNode { .. } => "DeletingNode",
            TenantCall::CordonNode { .. } | TenantCall::EvictPod(_) => "DrainingNode",
            TenantCall::AdoptNode(_) => "NodeNotUpdated",
        };
        let answer = tenant_calls::carry_out(&self.tenants, self.keys.as_ref(), cluster, call, now).await;
        answer.iter().for_each(|answer| self.manifests.note(cluster, answer, now));
        answer.map(Effect::Tenant).map_err(|message| Reason::retry(code, message))
    }
}
