//! Whole passes against an API in memory, with the smallest of controllers.

use std::sync::Mutex;

use hangar_api::kinds::Machine;
use hangar_kubesim::{KubeApi, KubeApiOptions};
use hangar_planner::step::{ClusterName, TenantAnswer, TenantCall};
use hangar_planner::{Phase, Phases, Progress, Report, intent};
use serde_json::json;

use super::*;
use crate::cache::Cache;
use crate::reads::{cluster, owned_built_in, read};

pub(crate) const CORE: &str = "cluster.x-k8s.io";
const FINALIZER: &str = "test.hangar.dev/x";

/// The annotation `do` says what it decides.
pub(crate) struct Tests;

impl Planner for Tests {
    type Kind = Machine;
    type Facts = ();
    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    fn build(phases: Phases<'_, Self>) -> Phases<'_, Self> {
        phases.then(decided).facts()
    }

    fn status(_: &World<Self>, _: &Progress, _: &mut Report<Machine>) {}
}

fn map(name: &str) -> Object {
    let mut map = Object::named("v1", "ConfigMap", "default", name);
    map.0["metadata"]["labels"] = json!({ "cluster.x-k8s.io/cluster-name": "c" });
    map
}

fn decided(world: &World<Tests>) -> Phase {
    let ensure = |name: &str| {
        let step = intent::ensure(world.object(), world.named("", "ConfigMap", name), map(name));
        Phase::attempt(step.map(|step| step.into_iter().collect()))
    };
    match world.object().annotation("do").unwrap_or_default() {
        // The second is asked for only when the first is there.
        "chain" => ensure("a").then(|| ensure("b")),
        "refused" => Phase::Steps(vec![Step::Create(map("a")), tenant("refuse"), Step::Create(map("b"))]),
        "conflict" => Phase::Steps(vec![tenant("conflict")]),
        "hang" => Phase::Steps(vec![tenant("hang")]),
        "forever" => Phase::Steps(vec![tenant("x")]),
        "panic" => panic!("one and one is three"),
        "wait" => Phase::wait("Waits", "for something"),
        _ => Phase::Done,
    }
}

fn tenant(name: &str) -> Step {
    Step::Tenant {
        cluster: ClusterName::default(),
        call: TenantCall::DeleteNode { name: name.into(), last_try: false },
    }
}

impl Controller<Context> for Tests {
    const READS: &'static [Read] =
        &[read(&[cluster()], &["/spec/paused"]), read(&[owned_built_in("", "ConfigMap")], &[])];

    async fn facts(context: &Context, _: &World<Self>, _: Timestamp) -> Result<(), Reason> {
        if context.away { Err(Reason::retry("Away", "the cloud is away")) } else { Ok(()) }
    }

    fn forget(context: &Context, object: &Object) {
        context.steps.lock().unwrap().push(format!("forget {}", object.name()));
    }
}

pub(crate) struct Context {
    passes: Passes,
    pub steps: Mutex<Vec<String>>,
    away: bool,
}

impl Executor for Context {
    fn passes(&self) -> &Passes {
        &self.passes
    }

    async fn carry_out(&self, step: Step, _: Timestamp) -> Result<Effect, Reason> {
        let words = match &step {
            Step::Create(object) => format!("create {}", object.name()),
            Step::Patch { fields, .. } => format!("patch {fields}"),
            Step::Tenant { call: TenantCall::DeleteNode { name, .. }, .. } => name.clone(),
            other => format!("{other:?}"),
        };
        self.steps.lock().unwrap().push(words.clone());
        match words.as_str() {
            "refuse" => Err(Reason::retry("Quota", "Quota exceeded")),
            "conflict" => Err(Reason::retry("Conflict", "somebody was faster")),
            "hang" => std::future::pending().await,
            "x" => Ok(Effect::Tenant(TenantAnswer::NodeDeleted { name: "x".into() })),
            _ => act_on_management(&self.passes.management, step).await,
        }
    }
}

pub(crate) fn key() -> ObjectKey {
    ObjectKey::of::<Machine>("default", "m")
}

/// An API with a Cluster and a Machine, both of them in the cache.
pub(crate) fn context(machine: Value, paused: bool) -> (KubeApi, Context) {
    let api = KubeApi::new(KubeApiOptions { keep_requests: true, ..KubeApiOptions::default() });
    let mut of = Object::named("cluster.x-k8s.io/v1beta2", "Cluster", "default", "c");
    of.0["spec"] = json!({ "paused": paused });
    let mut own = Object::named("cluster.x-k8s.io/v1beta2", "Machine", "default", "m");
    own.0["metadata"]["labels"] = json!({ "cluster.x-k8s.io/cluster-name": "c" });
    own.0["metadata"]["annotations"] = machine["annotations"].clone();
    own.0["metadata"]["finalizers"] = machine["finalizers"].clone();
    own.0["spec"] = json!({ "clusterName": "c", "bootstrap": { "dataSecretName": "s" },
        "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackMachine", "name": "m" } });
    let cache = Cache::default();
    for object in [of, own] {
        let key = object.key();
        api.put(object.0);
        cache.put(Object(api.object(&key.group, &key.kind, &key.namespace, &key.name).unwrap()));
    }
    let (changed, _) = tokio::sync::mpsc::unbounded_channel();
    let management = Management::new(api.client(), cache, changed);
    let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    api.clear_requests();
    (
        api,
        Context {
            passes: Passes::new(management, clock, crate::metrics::Metrics::new(Arc::default())),
            steps: Mutex::default(),
            away: false,
        },
    )
}

fn annotated(what: &str) -> Value {
    json!({ "annotations": { "do": what }, "finalizers": [FINALIZER] })
}

pub(crate) fn stored(api: &KubeApi) -> Object {
    Object(api.object(CORE, "Machine", "default", "m").unwrap())
}

pub(crate) fn said(object: &Object, kind: &str) -> (String, String, String) {
    let conditions = conditions::present(object);
    let found = conditions.iter().find(|condition| condition.kind == kind);
    found.map(|it| (it.status.clone(), it.reason.clone(), it.message.clone())).unwrap_or_default()
}

fn writes(api: &KubeApi) -> usize {
    api.requests().iter().filter(|request| request.is_write()).count()
}

fn taken(context: &Context) -> Vec<String> {
    context.steps.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_paused_object_is_left_alone_and_only_its_condition_is_written() {
    let by_annotation = json!({ "annotations": { "do": "chain", PAUSED_ANNOTATION: "" } });
    for (what, machine, paused, why) in [
        ("annotation", by_annotation, false, "Machine has the annotation cluster.x-k8s.io/paused"),
        ("Cluster", annotated("chain"), true, "Cluster c has spec.paused set"),
    ] {
        let (api, context) = context(machine, paused);
        assert_eq!(run::<Tests, _>(&context, &key()).await.unwrap(), Outcome::Settled, "{what}");
        assert_eq!(said(&stored(&api), PAUSED), ("True".into(), "Paused".into(), why.into()), "{what}");
        assert_eq!(said(&stored(&api), READY), Default::default(), "{what}");
        assert_eq!((taken(&context).len(), writes(&api)), (0, 1), "{what}");
        run::<Tests, _>(&context, &key()).await.unwrap();
        assert_eq!(writes(&api), 1, "{what}: nothing is written when nothing changed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_steps_effect_is_absorbed_and_the_planner_asked_again() {
    let (api, context) = context(annotated("chain"), false);
    assert_eq!(run::<Tests, _>(&context, &key()).await.unwrap(), Outcome::Settled);
    assert_eq!(taken(&context), ["create a", "create b"]);
    assert_eq!(said(&stored(&api), READY).0, "True");
    let before = writes(&api);
    run::<Tests, _>(&context, &key()).await.unwrap();
    assert_eq!((taken(&context).len(), writes(&api)), (2, before), "no step and no status write when nothing changed");
}

#[tokio::test(start_paused = true)]
async fn the_first_refusal_ends_the_steps_of_the_pass_and_shows_in_the_status() {
    let (api, context) = context(annotated("refused"), false);
    assert_eq!(run::<Tests, _>(&context, &key()).await.unwrap(), Outcome::Failed);
    assert_eq!(taken(&context), ["create a", "refuse"]);
    assert_eq!(said(&stored(&api), READY), ("False".into(), "Quota".into(), "Quota exceeded".into()));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_or_a_call_that_hangs_is_no_word_to_users_but_another_look() {
    for what in ["conflict", "hang"] {
        let (api, context) = context(annotated(what), false);
        let answer = run::<Tests, _>(&context, &key()).await;
        assert!(matches!(answer, Err(PassError::LookAgain(_))), "{what}: {answer:?}");
        assert_eq!(writes(&api), 0, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_planner_that_never_comes_to_rest_is_stopped_and_named() {
    let (api, context) = context(annotated("forever"), false);
    assert_eq!(run::<Tests, _>(&context, &key()).await.unwrap(), Outcome::Failed);
    assert_eq!(taken(&context).len(), MOST_ROUNDS);
    assert_eq!(said(&stored(&api), READY).1, "InternalError");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_says_so_in_a_condition() {
    let (api, context) = context(annotated("chain"), false);
    let mut broken = stored(&api);
    broken.0["spec"]["clusterName"] = json!(5);
    broken.0["metadata"]["resourceVersion"] = "999999".into();
    context.passes.management.cache().put(broken);
    assert_eq!(run::<Tests, _>(&context, &key()).await.unwrap(), Outcome::Settled);
    let (status, reason, message) = said(&stored(&api), READY);
    assert_eq!((status.as_str(), reason.as_str(), taken(&context).len()), ("False", "Unreadable", 0));
    assert!(message.contains("invalid type"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn facts_that_could_not_be_had_are_the_status() {
    let (api, mut context) = context(annotated("chain"), false);
    context.away = true;
    assert_eq!(run::<Tests, _>(&context, &key()).await.unwrap(), Outcome::Failed);
    assert_eq!(said(&stored(&api), READY), ("False".into(), "Away".into(), "the cloud is away".into()));
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_goes_on_with_the_first_step_and_off_at_the_end() {
    let (api, context) = context(json!({ "annotations": { "do": "chain" } }), false);
    run::<Tests, _>(&context, &key()).await.unwrap();
    assert_eq!(stored(&api).finalizers(), [FINALIZER]);
    assert!(taken(&context)[0].starts_with("patch"), "{:?}", taken(&context));
    api.delete(CORE, "Machine", "default", "m");
    context.passes.management.cache().put(stored(&api));
    run::<Tests, _>(&context, &key()).await.unwrap();
    assert_eq!(api.object(CORE, "Machine", "default", "m"), None, "{:?}", taken(&context));
    assert_eq!(taken(&context).last().unwrap(), "forget m");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_is_nothing_to_do() {
    let (api, context) = context(annotated("chain"), false);
    let gone = ObjectKey::of::<Machine>("default", "gone");
    assert_eq!(run::<Tests, _>(&context, &gone).await.unwrap(), Outcome::Settled);
    assert_eq!(api.requests().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_before_or_after_a_step_takes_no_further_one() {
    for (after, expected) in [(false, 0), (true, 1)] {
        let (_api, mut context) = context(annotated("chain"), false);
        context.passes.hook = Some(Arc::new(move |_, is_after| is_after == after));
        let answer = run::<Tests, _>(&context, &key()).await;
        assert!(matches!(answer, Err(PassError::Killed)), "{answer:?}");
        assert_eq!(taken(&context).len(), expected);
    }
}

#[test]
fn when_to_look_again_follows_from_the_plan() {
    let plan = |progress, recheck| Plan { steps: vec![], progress, status: None, recheck, conditions: &[] };
    let reason = |wake| Reason { code: "X", message: String::new(), wake };
    let second = Duration::from_secs(1);
    for (what, plan, expected) in [
        ("done", plan(Progress::Done, None), Outcome::Settled),
        ("done, and drift", plan(Progress::Done, Some(second)), Outcome::After(second)),
        ("event", plan(Progress::Waiting(reason(Wake::Event)), Some(second)), Outcome::Settled),
        ("time", plan(Progress::Waiting(reason(Wake::After(second))), None), Outcome::After(second)),
        ("retry", plan(Progress::Blocked(reason(Wake::Retry)), None), Outcome::Failed),
    ] {
        assert_eq!(outcome(&plan), expected, "{what}");
    }
}
