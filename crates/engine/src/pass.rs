//! The pass that every controller makes: observe, plan, act, report.
//!
//! Holds: one observation for each pass; a paused object is left alone and says so; what a step brought back is absorbed and the planner is asked
//! again; the first refusal ends the steps and shows in the status; status is written once, at the end, and only if it changed; mere words may
//! wait for a quiet moment ([`crate::report`]).

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hangar_api::conditions::{Condition, Status};
use hangar_api::names::PAUSED_ANNOTATION;
use hangar_api::{Kind, Object, ObjectKey, references};
use hangar_planner::report::{self as conditions, PAUSED, READY};
use hangar_planner::{Effect, Objects, Plan, Planner, Reason, Shared, Step, Wake, World, events, plan, refused};
use jiff::Timestamp;
use serde_json::Value;

use crate::Clock;
use crate::events::Events;
use crate::management::{ApiError, Management};
use crate::metrics::Metrics;
use crate::queue::Outcome;
use crate::reads::{NotListed, Read};
use crate::report::Unwritten;

/// More rounds than any plan needs: a planner that never comes to rest is a bug, and must not spin.
const MOST_ROUNDS: usize = 200;
/// No call may hold a worker for ever: a peer that accepted a connection and then died answers never. What was cut off is found by the next pass.
const DEADLINE: Duration = Duration::from_secs(45);

/// Carries out steps, wherever they go.
pub trait Executor: Send + Sync + 'static {
    fn passes(&self) -> &Passes;
    fn carry_out(&self, step: Step, now: Timestamp) -> impl Future<Output = Result<Effect, Reason>> + Send;
}

/// What a planner needs to know, and how it comes by it.
pub trait Controller<X: Executor>: Planner {
    const READS: &'static [Read];

    /// What is not an object of the management cluster.
    fn facts(
        _context: &X,
        _world: &World<Self>,
        _now: Timestamp,
    ) -> impl Future<Output = Result<Self::Facts, Reason>> + Send {
        async { Ok(Self::Facts::default()) }
    }

    /// What can only be asked once the other facts are known.
    fn further(
        _context: &X,
        _world: &mut World<Self>,
        _now: Timestamp,
    ) -> impl Future<Output = Result<(), Reason>> + Send {
        async { Ok(()) }
    }

    /// The object is gone, or about to be: what was kept for it may go.
    fn forget(_context: &X, _object: &Object) {}
}

/// A controller as the engine knows it.
pub struct Registration<X> {
    pub group: &'static str,
    pub kind: &'static str,
    pub version: &'static str,
    pub reads: &'static [Read],
    /// [`Planner::CONDITIONS`]
    pub conditions: &'static [&'static str],
    pub(crate) pass: for<'a> fn(&'a X, &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, PassError>>,
    pub(crate) amended: fn(&Object, Condition, Timestamp) -> Value,
}

/// The line of a controller in the registry.
pub const fn of<C: Controller<X>, X: Executor>() -> Registration<X> {
    Registration {
        group: C::Kind::GROUP,
        kind: C::Kind::KIND,
        version: C::Kind::VERSION,
        reads: C::READS,
        conditions: C::CONDITIONS,
        pass: boxed::<C, X>,
        amended: amended::<C>,
    }
}

/// Nothing for a kind that has no status.
fn amended<P: Planner>(object: &Object, condition: Condition, now: Timestamp) -> Value {
    let has_conditions = P::REPORTS && P::SHARED != Shared::Never;
    if has_conditions { conditions::amended::<P::Kind>(object, condition, now) } else { Value::Null }
}

fn boxed<'a, C: Controller<X>, X: Executor>(
    context: &'a X,
    key: &'a ObjectKey,
) -> BoxFuture<'a, Result<Outcome, PassError>> {
    run::<C, X>(context, key).boxed()
}

/// Why a pass could not even begin or end.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Somebody was faster, or the API server was away: no word about it to users, just another look.
    #[error("another look is needed: {0}")]
    LookAgain(String),
    #[error("killed")]
    Killed,
}

impl From<NotListed> for PassError {
    fn from(NotListed(key): NotListed) -> Self {
        Self::LookAgain(format!("{} has not been listed yet, which {key} is of", key.kind))
    }
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
    pub metrics: Metrics,
    pub events: Events,
}

async fn run<C: Controller<X>, X: Executor>(context: &X, key: &ObjectKey) -> Result<Outcome, PassError> {
    let passes = context.passes();
    let Some(object) = passes.management.cache().get(key) else {
        passes.unwritten.written(key);
        passes.metrics.gauges(key, vec![]);
        return Ok(Outcome::Settled);
    };
    if !C::is_ours(&object) {
        return Ok(Outcome::Settled);
    }
    if let Some(why) = paused(passes, &object) {
        let paused = Condition::new(PAUSED, Status::True, PAUSED, why);
        return passes.amend(&object, amended::<C>(&object, paused, (passes.clock)())).await;
    }
    let mut world = match World::<C>::new(object.clone(), gather::<C, X>(passes, &object)?) {
        Ok(world) => world,
        Err(unreadable) => {
            tracing::warn!(object = %key, error = %unreadable.0, "the object cannot be read");
            let condition = Condition::new(READY, Status::False, "Unreadable", unreadable.0);
            return passes.amend(&object, amended::<C>(&object, condition, (passes.clock)())).await;
        }
    };
    match in_time(C::facts(context, &world, (passes.clock)())).await? {
        Ok(facts) => {
            world.facts = facts;
            world.facts_error = in_time(C::further(context, &mut world, (passes.clock)())).await?.err();
        }
        Err(reason) => world.facts_error = Some(reason),
    }
    let plan = rounds::<C, X>(context, &mut world).await?;
    passes.metrics.gauges(key, C::gauges(&world, (passes.clock)()));
    let outcome = passes.report(world.object(), &plan).await?;
    if world.object().is_deleting() && plan.status.is_none() {
        C::forget(context, world.object());
    }
    Ok(outcome)
}

fn gather<C: Controller<X>, X: Executor>(passes: &Passes, object: &Arc<Object>) -> Result<Objects, NotListed> {
    let mut objects = Objects::default();
    for read in C::READS {
        read.gather(object, passes.management.cache())?.into_iter().for_each(|found| objects.insert(found));
    }
    Ok(objects)
}

/// Plans and acts until there is nothing left to do, a step is refused, or something must be waited for.
async fn rounds<C: Controller<X>, X: Executor>(context: &X, world: &mut World<C>) -> Result<Plan, PassError> {
    let passes = context.passes();
    for _ in 0..MOST_ROUNDS {
        let plan = plan(world, (passes.clock)());
        if plan.steps.is_empty() {
            return Ok(plan);
        }
        if let Some(reason) = act::<C, X>(context, world, plan.steps).await? {
            return Ok(refused(world, reason, (passes.clock)()));
        }
    }
    let text = format!("no end after {MOST_ROUNDS} rounds of planning: this is a bug in Hangar");
    tracing::error!(object = %world.object().key(), "{text}");
    Ok(refused(world, Reason::retry("InternalError", text), (passes.clock)()))
}

/// Carries out steps in order; the first that is refused ends them.
async fn act<C: Controller<X>, X: Executor>(
    context: &X,
    world: &mut World<C>,
    steps: Vec<Step>,
) -> Result<Option<Reason>, PassError> {
    let passes = context.passes();
    for step in steps {
        passes.may_go_on(world.object())?;
        passes.survives(&step, false)?;
        tracing::debug!(object = %world.object().key(), ?step, "step");
        let hooked = passes.hook.is_some().then(|| step.clone());
        let news = events::of_step(world.object(), &step);
        match in_time(context.carry_out(step, (passes.clock)())).await? {
            Ok(effect) => {
                passes.events.tell(news);
                world.absorb(&effect);
            }
            Err(reason) if ["Conflict", "APIServerUnreachable"].contains(&reason.code) => {
                return Err(PassError::LookAgain(reason.message));
            }
            Err(reason) => {
                tracing::info!(object = %world.object().key(), code = reason.code, "{}", reason.message);
                passes.events.tell([events::of_refusal(world.object(), &reason)]);
                return Ok(Some(reason));
            }
        }
        if let Some(step) = hooked {
            passes.survives(&step, true)?;
        }
    }
    Ok(None)
}

/// Why an object is left alone, if it is.
fn paused(passes: &Passes, object: &Object) -> Option<String> {
    if object.annotation(PAUSED_ANNOTATION).is_some() {
        return Some(format!("{} has the annotation {PAUSED_ANNOTATION}", object.kind()));
    }
    let cluster = passes.management.cache().get(&references::cluster(object)?)?;
    (cluster.get("/spec/paused") == true).then(|| format!("Cluster {} has spec.paused set", cluster.name()))
}

impl Passes {
    pub fn new(management: Management, clock: Clock, metrics: Metrics) -> Self {
        Self { management, clock, hook: None, unwritten: Unwritten::default(), metrics, events: Events::default() }
    }

    /// For ever.
    pub(crate) async fn write_events(self) {
        let (client, clock) = (self.management.client().clone(), self.clock.clone());
        self.events.write(client, clock).await;
    }

    fn survives(&self, step: &Step, after: bool) -> Result<(), PassError> {
        match &self.hook {
            Some(hook) if hook(step, after) => Err(PassError::Killed),
            _ => Ok(()),
        }
    }

    /// What was told to go since it was read makes nothing more: whoever deletes it would not find what comes too late. Nor does what was paused since: a call
    /// to a slow cloud may have taken half a minute.
    fn may_go_on(&self, object: &Object) -> Result<(), PassError> {
        self.is_not_paused(object)?;
        let now = self.management.cache().get(&object.key()).filter(|now| now.uid() == object.uid());
        match now {
            Some(now) if object.is_deleting() || !now.is_deleting() => Ok(()),
            None if object.is_deleting() => Ok(()),
            _ => Err(PassError::LookAgain(format!("{} is being deleted", object.key()))),
        }
    }

    /// Since the pass began.
    fn is_not_paused(&self, object: &Object) -> Result<(), PassError> {
        match paused(self, object) {
            Some(_) => Err(PassError::LookAgain(format!("{} was paused", object.key()))),
            None => Ok(()),
        }
    }

    /// A status that no plan made.
    pub(crate) async fn amend(&self, object: &Object, status: Value) -> Result<Outcome, PassError> {
        self.unwritten.written(&object.key());
        if status.is_null() {
            return Ok(Outcome::Settled);
        }
        match self.management.report(object, &status).await {
            Ok(_) | Err(ApiError::NotFound { .. }) => Ok(Outcome::Settled),
            Err(error) => Err(error.into()),
        }
    }

    async fn report(&self, object: &Object, plan: &Plan) -> Result<Outcome, PassError> {
        let outcome = outcome(plan);
        let key = object.key();
        let Some(status) = &plan.status else {
            self.unwritten.written(&key);
            return Ok(outcome);
        };
        self.is_not_paused(object)?;
        // The object may have been changed since: its newest form is in the cache.
        let newest = self.management.cache().get(&key).filter(|newest| newest.uid() == object.uid());
        let newest = newest.as_deref().unwrap_or(object);
        let own = plan.is_shared(newest.get("/status")).then(|| own_part(newest, plan));
        let newest = own.as_ref().unwrap_or(newest);
        if let Some(later) = self.unwritten.put_off(&key, newest.get("/status"), status, outcome, (self.clock)()) {
            return Ok(later);
        }
        let answer = self.management.report(newest, status).await;
        self.unwritten.written(&key);
        match answer {
            Ok(Some(_)) => {
                self.events.tell(events::of_status(newest, status));
                Ok(outcome)
            }
            // Gone in between: there is nobody left to report on.
            Ok(None) | Err(ApiError::NotFound { .. }) => Ok(outcome),
            Err(error) => Err(error.into()),
        }
    }
}

/// The object without what others said in its status.
fn own_part(object: &Object, plan: &Plan) -> Object {
    let mut own = object.clone();
    own.0["status"] = plan.own_part(own.0["status"].take());
    own
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
        Some(Wake::Event) => Outcome::Settled,
        None => plan.recheck.map_or(Outcome::Settled, Outcome::After),
    }
}

/// Steps on the management cluster.
pub async fn act_on_management(management: &Management, step: Step) -> Result<Effect, Reason> {
    match step {
        Step::Create(object) => management.create(&object).await.map(Effect::Applied).map_err(reason),
        Step::CreateOnce(object) => management.create_once(&object).await.map(Effect::Applied).map_err(reason),
        Step::Apply(object) => management.apply(&object).await.map(Effect::Applied).map_err(reason),
        Step::Patch { key, uid, resource_version, fields } => management
            .patch(&key, &uid, resource_version.as_deref(), &fields)
            .await
            .map(Effect::Applied)
            .map_err(reason),
        Step::Mark(object) => match management.mark(&object).await {
            // Nobody is left to be spoken of.
            Err(ApiError::NotFound { .. }) => Ok(Effect::Deleted { key: object.key(), left: None }),
            answer => answer.map(Effect::Applied).map_err(reason),
        },
        Step::Delete { key, uid, resource_version } => {
            let left = management.delete(&key, &uid, resource_version).await.map_err(reason)?;
            Ok(Effect::Deleted { key, left })
        }
        other => Err(Reason::retry("InternalError", format!("not a step on the management cluster: {other:?}"))),
    }
}

fn reason(error: ApiError) -> Reason {
    let code = match &error {
        ApiError::Conflict { .. } => "Conflict",
        ApiError::NotFound { .. } => "NotFound",
        ApiError::NotOurs { .. } => "NotOurs",
        ApiError::Refused { .. } => "Refused",
        ApiError::Unreachable { .. } => "APIServerUnreachable",
    };
    Reason::retry(code, error.to_string())
}

#[cfg(test)]
pub(crate) mod tests;
