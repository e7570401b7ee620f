//! The processes of machines by themselves, for the tests of this crate; programs come from the directory of components, one file for each image.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use hangar_node::process::{ImageError, Images, Program};

struct Directory(PathBuf);

impl Images for Directory {
    fn resolve(&self, image: &str) -> Result<Program, ImageError> {
        let last = image.rsplit('/').next().unwrap_or(image);
        let name = last.split(':').next().unwrap_or(last);
        let (path, is_host_shell) = match name {
            "pause" | "busybox" => (PathBuf::from("/bin/sh"), true),
            _ => (self.0.join(name), false),
        };
        if !path.is_file() {
            return Err(ImageError { image: image.to_owned() });
        }
        Ok(Program {
            path,
            version: "test".into(),
            substituted_for: None,
            dropped_flags: vec![],
            default_args: vec![],
            container_paths: vec![],
            files: vec![],
            is_host_shell,
        })
    }
}

fn main() -> ExitCode {
    let images = |directory: &Path| Arc::new(Directory(directory.to_owned())) as Arc<dyn Images>;
    hangar_machine::run_if_asked(images).unwrap_or_else(|| {
        eprintln!("this program has no use of its own: run `cargo test -p hangar-machine`");
        ExitCode::FAILURE
    })
}
