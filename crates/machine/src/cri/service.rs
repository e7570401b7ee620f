//! The calls of a kubelet.

use std::sync::Arc;
use std::time::Duration;

use hangar_node::process::runtime::{ExecRequest, exit_code};
use tonic::{Request, Response, Status};

use super::generated as api;
use super::generated::runtime_service_server::RuntimeService;
use super::sandbox::failed;
use super::streaming::{Session, inside};
use super::{Runtime, container};

pub struct Service(pub Arc<Runtime>);

type Answer<T> = Result<Response<T>, Status>;

fn no_container(id: &str) -> Status {
    Status::not_found(format!("there is no container {id}"))
}

fn no_sandbox(id: &str) -> Status {
    Status::not_found(format!("there is no sandbox {id}"))
}

/// Whether labels are as a filter wants them.
fn fits(
    wanted: &std::collections::HashMap<String, String>,
    labels: &std::collections::HashMap<String, String>,
) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Service {
    /// Work that waits for files and other processes.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Runtime) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let runtime = self.0.clone();
        tokio::task::spawn_blocking(move || work(&runtime))
            .await
            .map_err(|error| Status::internal(error.to_string()))?
    }
}

#[tonic::async_trait]
impl RuntimeService for Service {
    async fn version(&self, _request: Request<api::VersionRequest>) -> Answer<api::VersionResponse> {
        Ok(Response::new(api::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "hangar".into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            runtime_api_version: "v1".into(),
        }))
    }

    async fn status(&self, _request: Request<api::StatusRequest>) -> Answer<api::StatusResponse> {
        let condition = |kind: &str, status: bool, reason: &str, message: &str| api::RuntimeCondition {
            r#type: kind.into(),
            status,
            reason: reason.into(),
            message: message.into(),
        };
        let network = match self.0.network.is_ready() {
            true => condition("NetworkReady", true, "", ""),
            false => {
                condition("NetworkReady", false, "NoPodCIDR", "the node has no range of pod addresses (podCIDR) yet")
            }
        };
        let conditions = vec![condition("RuntimeReady", true, "", ""), network];
        Ok(Response::new(api::StatusResponse { status: Some(api::RuntimeStatus { conditions }), ..Default::default() }))
    }

    async fn update_runtime_config(
        &self,
        request: Request<api::UpdateRuntimeConfigRequest>,
    ) -> Answer<api::UpdateRuntimeConfigResponse> {
        let range = request.into_inner().runtime_config.and_then(|config| config.network_config);
        let range = range.map(|config| config.pod_cidr).unwrap_or_default();
        self.blocking(move |runtime| runtime.network.set_range(&range).map_err(failed)).await?;
        Ok(Response::new(api::UpdateRuntimeConfigResponse {}))
    }

    async fn runtime_config(&self, _request: Request<api::RuntimeConfigRequest>) -> Answer<api::RuntimeConfigResponse> {
        let linux = api::LinuxRuntimeConfiguration { cgroup_driver: api::CgroupDriver::Cgroupfs as i32 };
        Ok(Response::new(api::RuntimeConfigResponse { linux: Some(linux) }))
    }

    async fn run_pod_sandbox(&self, request: Request<api::RunPodSandboxRequest>) -> Answer<api::RunPodSandboxResponse> {
        let request = request.into_inner();
        let config = request.config.ok_or_else(|| Status::invalid_argument("config is missing"))?;
        let sandbox = self.blocking(move |runtime| runtime.run_sandbox(config, request.runtime_handler)).await?;
        Ok(Response::new(api::RunPodSandboxResponse { pod_sandbox_id: sandbox.id.clone() }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<api::StopPodSandboxRequest>,
    ) -> Answer<api::StopPodSandboxResponse> {
        self.0.stop_sandbox(&request.into_inner().pod_sandbox_id).await;
        Ok(Response::new(api::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<api::RemovePodSandboxRequest>,
    ) -> Answer<api::RemovePodSandboxResponse> {
        self.0.remove_sandbox(&request.into_inner().pod_sandbox_id).await;
        Ok(Response::new(api::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<api::PodSandboxStatusRequest>,
    ) -> Answer<api::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let sandbox = self.0.sandbox(&id).ok_or_else(|| no_sandbox(&id))?;
        Ok(Response::new(api::PodSandboxStatusResponse { status: Some(sandbox.status()), ..Default::default() }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<api::ListPodSandboxRequest>,
    ) -> Answer<api::ListPodSandboxResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let all = self.0.all_sandboxes().into_iter().map(|sandbox| sandbox.summary());
        let items = all
            .filter(|sandbox| filter.id.is_empty() || sandbox.id.starts_with(&filter.id))
            .filter(|sandbox| filter.state.as_ref().is_none_or(|wanted| wanted.state == sandbox.state))
            .filter(|sandbox| fits(&filter.label_selector, &sandbox.labels))
            .collect();
        Ok(Response::new(api::ListPodSandboxResponse { items }))
    }

    async fn create_container(
        &self,
        request: Request<api::CreateContainerRequest>,
    ) -> Answer<api::CreateContainerResponse> {
        let request = request.into_inner();
        let config = request.config.ok_or_else(|| Status::invalid_argument("config is missing"))?;
        let id = request.pod_sandbox_id;
        let sandbox = self.0.sandbox(&id).ok_or_else(|| no_sandbox(&id))?;
        let container = self.blocking(move |runtime| runtime.create_container(&sandbox, config)).await?;
        Ok(Response::new(api::CreateContainerResponse { container_id: container.id.clone() }))
    }

    async fn start_container(
        &self,
        request: Request<api::StartContainerRequest>,
    ) -> Answer<api::StartContainerResponse> {
        let id = request.into_inner().container_id;
        container::start(self.0.container(&id).ok_or_else(|| no_container(&id))?).await?;
        Ok(Response::new(api::StartContainerResponse {}))
    }

    async fn stop_container(&self, request: Request<api::StopContainerRequest>) -> Answer<api::StopContainerResponse> {
        let request = request.into_inner();
        if let Some(container) = self.0.container(&request.container_id) {
            container.stop(Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0))).await;
        }
        Ok(Response::new(api::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<api::RemoveContainerRequest>,
    ) -> Answer<api::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        if let Some(container) = self.0.container(&id) {
            container.stop(Duration::ZERO).await;
            self.blocking(move |runtime| {
                runtime.forget_container(&id);
                Ok(())
            })
            .await?;
        }
        Ok(Response::new(api::RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<api::ListContainersRequest>,
    ) -> Answer<api::ListContainersResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let all = self.0.all_containers().into_iter().map(|container| container.summary());
        let containers = all
            .filter(|one| filter.id.is_empty() || one.id.starts_with(&filter.id))
            .filter(|one| filter.pod_sandbox_id.is_empty() || one.pod_sandbox_id == filter.pod_sandbox_id)
            .filter(|one| filter.state.as_ref().is_none_or(|wanted| wanted.state == one.state))
            .filter(|one| fits(&filter.label_selector, &one.labels))
            .collect();
        Ok(Response::new(api::ListContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<api::ContainerStatusRequest>,
    ) -> Answer<api::ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        let container = self.0.container(&id).ok_or_else(|| no_container(&id))?;
        Ok(Response::new(api::ContainerStatusResponse { status: Some(container.status()), ..Default::default() }))
    }

    async fn update_container_resources(
        &self,
        _request: Request<api::UpdateContainerResourcesRequest>,
    ) -> Answer<api::UpdateContainerResourcesResponse> {
        Ok(Response::new(api::UpdateContainerResourcesResponse {}))
    }

    async fn exec_sync(&self, request: Request<api::ExecSyncRequest>) -> Answer<api::ExecSyncResponse> {
        let request = request.into_inner();
        let container = self.0.container(&request.container_id).ok_or_else(|| no_container(&request.container_id))?;
        let mut command = self.0.exec_command(&container, &request.cmd).map_err(Status::failed_precondition)?;
        let output = command.stdin(std::process::Stdio::null()).output();
        let output = match u64::try_from(request.timeout).unwrap_or(0) {
            0 => output.await,
            seconds => tokio::time::timeout(Duration::from_secs(seconds), output)
                .await
                .map_err(|_| Status::deadline_exceeded(format!("command timed out after {seconds} s")))?,
        };
        let output = output.map_err(failed)?;
        Ok(Response::new(api::ExecSyncResponse {
            stdout: output.stdout,
            stderr: output.stderr,
            exit_code: exit_code(output.status),
        }))
    }

    async fn exec(&self, request: Request<api::ExecRequest>) -> Answer<api::ExecResponse> {
        let request = request.into_inner();
        let container = self.0.container(&request.container_id).ok_or_else(|| no_container(&request.container_id))?;
        container.pid().ok_or_else(|| Status::failed_precondition("the container does not run"))?;
        let wanted = ExecRequest {
            command: request.cmd,
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr && !request.tty,
            tty: request.tty,
        };
        let (runtime, words) = (self.0.clone(), wanted.command.clone());
        let command = Box::new(move || runtime.exec_command(&container, &words));
        let url = self.0.streams.expect(Session::Exec(wanted, command)).map_err(failed)?;
        Ok(Response::new(api::ExecResponse { url }))
    }

    async fn attach(&self, _request: Request<api::AttachRequest>) -> Answer<api::AttachResponse> {
        Err(Status::unimplemented(
            "attach is not supported, containers run as processes with closed input: use `kubectl logs -f` or `kubectl exec`",
        ))
    }

    async fn port_forward(&self, request: Request<api::PortForwardRequest>) -> Answer<api::PortForwardResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let sandbox = self.0.sandbox(&id).ok_or_else(|| no_sandbox(&id))?;
        let url = self.0.streams.expect(Session::Forward(inside(sandbox.namespace()))).map_err(failed)?;
        Ok(Response::new(api::PortForwardResponse { url }))
    }

    async fn container_stats(
        &self,
        request: Request<api::ContainerStatsRequest>,
    ) -> Answer<api::ContainerStatsResponse> {
        let id = request.into_inner().container_id;
        self.0.container(&id).ok_or_else(|| no_container(&id))?;
        Ok(Response::new(api::ContainerStatsResponse::default()))
    }

    async fn list_container_stats(
        &self,
        _request: Request<api::ListContainerStatsRequest>,
    ) -> Answer<api::ListContainerStatsResponse> {
        Ok(Response::new(api::ListContainerStatsResponse::default()))
    }

    async fn list_pod_sandbox_stats(
        &self,
        _request: Request<api::ListPodSandboxStatsRequest>,
    ) -> Answer<api::ListPodSandboxStatsResponse> {
        Ok(Response::new(api::ListPodSandboxStatsResponse::default()))
    }
}
