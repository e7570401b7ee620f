//! Carries out one call to a cloud.
//!
//! Holds: what a call made or took away is in the project's lists before anything else can fail. Until there is an answer, the lists count as wrong: a
//! pass that is cut off in the middle leaves them so.

use std::sync::Arc;

use hangar_openstack::{CreateServer, Error, ErrorKind, Port, SecurityGroup, Server};
use hangar_planner::cloud::{CloudAnswer, CloudCall, Resource, ResourceType};

use super::{Project, Session};

/// Invalidates the lists unless it is told that all is well.
struct Unanswered<'a>(Option<&'a Project>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(project) = self.0 {
            project.invalidate();
        }
    }
}

pub async fn carry_out(session: &Session, project: &Project, call: CloudCall) -> Result<CloudAnswer, Error> {
    let mut unanswered = Unanswered(Some(project));
    let answer = try_out(session, project, call).await;
    match &answer {
        Ok(CloudAnswer::Is(resource)) => project.insert(resource).await,
        Ok(CloudAnswer::Gone(of, id)) => project.remove(*of, id).await,
        // What was named is not there, or is somebody else's: what we know is old.
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::BadRequest | ErrorKind::Conflict) => {
            session.forget_flavors().await;
            return answer;
        }
        Err(error) if !is_answer(error) => return answer,
        Err(_) => {}
    }
    unanswered.0 = None;
    answer
}

/// The service itself said no: nothing was done.
fn is_answer(error: &Error) -> bool {
    !matches!(error.kind, ErrorKind::Server | ErrorKind::Unreachable | ErrorKind::Malformed)
}

async fn try_out(session: &Session, project: &Project, call: CloudCall) -> Result<CloudAnswer, Error> {
    let cloud = &session.cloud;
    match call {
        CloudCall::CreatePort(body) => cloud.create_port(&body).await.map(port),
        CloudCall::CreateServer(body) => {
            let id = cloud.create_server(&body).await?;
            Ok(CloudAnswer::Is(Resource::Server(Arc::new(new_server(id, *body)))))
        }
        CloudCall::CreateSecurityGroup(body) => cloud.create_security_group(&body).await.map(group),
        CloudCall::TagPort { id, tags } => {
            let tags = cloud.set_tags("ports", &id, &tags).await?;
            let known = project.port(&id).await.map_or_else(Port::default, |port| Port::clone(&port));
            Ok(port(Port { id, tags, ..known }))
        }
        CloudCall::CreateRules { group_id, rules } => {
            let made = cloud.create_security_group_rules(&rules).await?;
            let mut known = known_group(project, &group_id).await;
            known.security_group_rules.extend(made);
            Ok(group(known))
        }
        CloudCall::DeleteRule { group_id, id } => {
            tolerate(cloud.delete_security_group_rule(&id).await)?;
            let mut known = known_group(project, &group_id).await;
            known.security_group_rules.retain(|rule| rule.id != id);
            Ok(group(known))
        }
        CloudCall::Delete(of, id) => delete(session, project, of, id).await,
    }
}

async fn delete(session: &Session, project: &Project, of: ResourceType, id: String) -> Result<CloudAnswer, Error> {
    let cloud = &session.cloud;
    match of {
        ResourceType::Port => tolerate(cloud.delete_port(&id).await)?,
        ResourceType::SecurityGroup => tolerate(cloud.delete_security_group(&id).await)?,
        ResourceType::Server => {
            // Accepted; it takes a while.
            if let Err(error) = cloud.delete_server(&id).await {
                tolerate(Err(error))?;
            } else if let Some(known) = project.server(&id).await {
                let deleting = Server { task_state: Some("deleting".into()), ..Server::clone(&known) };
                return Ok(CloudAnswer::Is(Resource::Server(Arc::new(deleting))));
            }
        }
    }
    Ok(CloudAnswer::Gone(of, id))
}

/// Nova answers with an id only: when it was made is for Nova to say. Two processes that each believe their own clock delete each other's server.
fn new_server(id: String, body: CreateServer) -> Server {
    Server { id, name: body.name, status: "BUILD".into(), metadata: body.metadata, ..Server::default() }
}

async fn known_group(project: &Project, id: &str) -> SecurityGroup {
    let known = project.security_group(id).await;
    known
        .map_or_else(|| SecurityGroup { id: id.to_owned(), ..Default::default() }, |group| SecurityGroup::clone(&group))
}

fn port(port: Port) -> CloudAnswer {
    CloudAnswer::Is(Resource::Port(Arc::new(port)))
}

fn group(group: SecurityGroup) -> CloudAnswer {
    CloudAnswer::Is(Resource::SecurityGroup(Arc::new(group)))
}

/// What is gone already is what we wanted.
fn tolerate(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
