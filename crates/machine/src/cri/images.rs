//! Images are names of programs that lie in the component store; nothing is downloaded in a guest.

use std::sync::Arc;

use hangar_node::process::Program;
use tonic::{Request, Response, Status};

use super::generated as api;
use super::generated::image_service_server::ImageService;
use super::{Runtime, now};

pub struct Service(pub Arc<Runtime>);

/// By what a container's status says which program runs.
pub fn reference(image: &str, program: Option<&Program>) -> String {
    match program.filter(|program| !program.is_host_shell) {
        Some(program) => {
            let name = program.path.file_name().unwrap_or_default().to_string_lossy();
            format!("hangar://{name}@{}", program.version)
        }
        None => format!("hangar://{}", image.rsplit('/').next().unwrap_or(image)),
    }
}

impl Service {
    async fn resolve(&self, name: String) -> Result<Program, String> {
        let runtime = self.0.clone();
        let found = tokio::task::spawn_blocking(move || runtime.images.resolve(&name)).await;
        found.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }
}

#[tonic::async_trait]
impl ImageService for Service {
    async fn list_images(
        &self,
        _request: Request<api::ListImagesRequest>,
    ) -> Result<Response<api::ListImagesResponse>, Status> {
        Ok(Response::new(api::ListImagesResponse::default()))
    }

    async fn image_status(
        &self,
        request: Request<api::ImageStatusRequest>,
    ) -> Result<Response<api::ImageStatusResponse>, Status> {
        let spec = request.into_inner().image.unwrap_or_default();
        let name = spec.image.clone();
        let Ok(program) = self.resolve(name.clone()).await else {
            return Ok(Response::new(api::ImageStatusResponse::default()));
        };
        let size = program.path.metadata().map_or(1, |metadata| metadata.len().max(1));
        let image = api::Image {
            id: reference(&name, Some(&program)),
            repo_tags: vec![name],
            size,
            spec: Some(spec),
            ..Default::default()
        };
        Ok(Response::new(api::ImageStatusResponse { image: Some(image), ..Default::default() }))
    }

    async fn pull_image(
        &self,
        request: Request<api::PullImageRequest>,
    ) -> Result<Response<api::PullImageResponse>, Status> {
        let name = request.into_inner().image.unwrap_or_default().image;
        let program = self.resolve(name.clone()).await.map_err(Status::not_found)?;
        let image_ref = reference(&name, Some(&program));
        Ok(Response::new(api::PullImageResponse { image_ref }))
    }

    async fn remove_image(
        &self,
        _request: Request<api::RemoveImageRequest>,
    ) -> Result<Response<api::RemoveImageResponse>, Status> {
        Ok(Response::new(api::RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _request: Request<api::ImageFsInfoRequest>,
    ) -> Result<Response<api::ImageFsInfoResponse>, Status> {
        let usage = api::FilesystemUsage {
            timestamp: now(),
            fs_id: Some(api::FilesystemIdentifier { mountpoint: self.0.directory.display().to_string() }),
            used_bytes: Some(api::UInt64Value { value: 0 }),
            inodes_used: Some(api::UInt64Value { value: 0 }),
        };
        Ok(Response::new(api::ImageFsInfoResponse {
            image_filesystems: vec![usage.clone()],
            container_filesystems: vec![usage],
        }))
    }
}
