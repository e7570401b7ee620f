//! The pass that every controller makes: observe, plan, act, report.
//!
//! Holds: one observation for each pass; what a step brought back is absorbed and the planner is asked again; the first refusal ends the
//! steps and is planned for (so that it shows in the status); status is written once, at the end, and only if it changed; mere words may wait
//! for a quiet moment ([`crate::report`]).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hangar_api::{Object, ObjectKey};
use hangar_planner::{Effect, Plan, Progress, Reason, Step, Wake};
use jiff::Timestamp;

use crate::Clock;
use crate::management::{ApiError, Management};
use crate::queue::Outcome;
use crate::report::Unwritten;

/// More rounds than any plan needs: a planner that never comes to rest is a bug, and must not spin.
const MOST_ROUNDS: usize = 200;
/// No call may hold a worker for ever: a peer that accepted a connection and then died answers never. What was cut off is found by the next pass.
const DEADLINE: Duration = Duration::from_secs(45);

/// One kind's part in the pass.
#[async_trait]
pub trait Controller: Send + Sync {
    type World: Send + Sync;

    /// Reads everything that the decision needs, once. `None`: the object is gone.
    async fn observe(&self, key: &ObjectKey, now: Timestamp) -> Result<Option<Self::World>, PassError>;

    /// The pure part.
    fn plan(&self, world: &Self::World, now: Timestamp) -> Plan;

    /// Carries out one step, as it stands.
    async fn act(&self, world: &Self::World, step: Step) -> Result<Effect, Reason>;

    /// Takes what a step brought back into the World.
    fn absorb(&self, world: &mut Self::World, effect: Effect);

    /// The World remembers why a step was refused.
    fn refuse(&self, world: &mut Self::World, reason: Reason);

    /// The object that the World is about.
    fn object<'a>(&self, world: &'a Self::World) -> &'a Object;

    /// The pass is over; what was learnt of the cloud may be kept.
    fn settle(&self, _world: &Self::World, _progress: &Progress) {}
}

/// Why a pass could not even begin or end.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("{key} cannot be read: {message}")]
    Unreadable { key: String, message: String },
    /// Somebody was faster, or the API server was away: no word about it to users, just another look.
    #[error("another look is needed: {0}")]
    LookAgain(String),
    #[error("killed")]
    Killed,
}

/// Called before and after each step; a simulation may say that the process dies here.
pub type StepHook = Arc<dyn Fn(&Step, bool) -> bool + Send + Sync>;

/// What every pass needs.
#[derive(Clone)]
pub struct Passes {
    pub management: Management,
    pub clock: Clock,
    pub hook: Option<StepHook>,
    pub unwritten: Unwritten,
}

impl Passes {
    pub async fn run<C: Controller>(&self, controller: &C, key: &ObjectKey) -> Result<Outcome, PassError> {
        let Some(mut world) = in_time(controller.observe(key, (self.clock)())).await?? else {
            self.unwritten.written(key);
            return Ok(Outcome::Settled);
        };
        let mut plan = controller.plan(&world, (self.clock)());
        for _ in 0..MOST_ROUNDS {
            if plan.steps.is_empty() {
                break;
            }
            self.act(controller, &mut world, plan.steps).await?;
            plan = controller.plan(&world, (self.clock)());
        }
        let outcome = self.report(controller, &world, &plan).await?;
        controller.settle(&world, &plan.progress);
        Ok(outcome)
    }

    async fn act<C: Controller>(
        &self,
        controller: &C,
        world: &mut C::World,
        steps: Vec<Step>,
    ) -> Result<(), PassError> {
        for step in steps {
            self.survives(&step, false)?;
            tracing::debug!(object = %controller.object(world).key(), ?step, "step");
            match in_time(controller.act(world, step.clone())).await? {
                Ok(effect) => controller.absorb(world, effect),
                Err(reason) if ["Conflict", "APIServerUnreachable"].contains(&reason.code) => {
                    return Err(PassError::LookAgain(reason.message));
                }
                Err(reason) => {
                    tracing::info!(object = %controller.object(world).key(), code = reason.code, "{}", reason.message);
                    controller.refuse(world, reason);
                    return Ok(());
                }
            }
            self.survives(&step, true)?;
        }
        Ok(())
    }

    fn survives(&self, step: &Step, after: bool) -> Result<(), PassError> {
        match &self.hook {
            Some(hook) if hook(step, after) => Err(PassError::Killed),
            _ => Ok(()),
        }
    }

    async fn report<C: Controller>(&self, controller: &C, world: &C::World, plan: &Plan) -> Result<Outcome, PassError> {
        let outcome = outcome(plan);
        let Some(status) = &plan.status else { return Ok(outcome) };
        let (object, key) = (controller.object(world), controller.object(world).key());
        // The object may have been patched in this pass: its newest form is in the cache.
        let newest = self.management.cache().get(&key).filter(|newest| newest.uid() == object.uid());
        let newest = newest.as_deref().unwrap_or(object);
        if let Some(later) = self.unwritten.put_off(&key, newest.get("/status"), status, outcome, (self.clock)()) {
            return Ok(later);
        }
        let answer = self.management.report(newest, status).await;
        self.unwritten.written(&key);
        match answer {
            // Gone in between: there is nobody left to report on.
            Ok(_) | Err(ApiError::NotFound { .. }) => Ok(outcome),
            Err(error) => Err(error.into()),
        }
    }
}

async fn in_time<T>(call: impl Future<Output = T>) -> Result<T, PassError> {
    tokio::time::timeout(DEADLINE, call)
        .await
        .map_err(|_| PassError::LookAgain(format!("no answer within {} s", DEADLINE.as_secs())))
}

fn outcome(plan: &Plan) -> Outcome {
    match plan.progress.reason().map(|reason| reason.wake) {
        Some(Wake::After(time)) => Outcome::After(time),
        Some(Wake::Retry) => Outcome::Failed,
        _ if !plan.steps.is_empty() => Outcome::Failed,
        _ => Outcome::Settled,
    }
}

/// Steps on the management cluster, which all controllers share.
pub async fn act_on_management(management: &Management, step: Step) -> Result<Effect, Reason> {
    match step {
        Step::Apply(object) => management.apply(&object).await.map(Effect::Applied).map_err(reason),
        Step::Patch { key, uid, resource_version, fields } => management
            .patch(&key, &uid, resource_version.as_deref(), &fields)
            .await
            .map(Effect::Applied)
            .map_err(reason),
        Step::Delete { key, uid } => management.delete(&key, &uid).await.map(|()| Effect::Deleted(key)).map_err(reason),
        other => Err(Reason { code: "NotForMe", message: format!("no executor for {other:?}"), wake: Wake::Retry }),
    }
}

fn reason(error: ApiError) -> Reason {
    let code = match &error {
        ApiError::Conflict { .. } => "Conflict",
        ApiError::NotFound { .. } => "NotFound",
        ApiError::Refused { .. } => "Refused",
        ApiError::Unreachable { .. } => "APIServerUnreachable",
    };
    Reason { code, message: error.to_string(), wake: Wake::Retry }
}
