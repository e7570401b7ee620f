//! A small kubelet: pods become local processes of a plain user.
pub mod child;
pub mod log;
pub use child::{Child, Run, markers};
pub use log::tail as log_tail;
use std::path::PathBuf;
/// Finds the program that an image stands for.
pub trait Images: Send + Sync {
    fn resolve(&self, image: &str) -> Result<Program, ImageError>;
    /// Makes arguments fit a program that stands in for another version.
    fn adapt(&self, program: Program, args: Vec<String>) -> (Program, Vec<String>) {
        (program, args)
    }
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    pub version: String,
    pub substituted_for: Option<String>,
    pub dropped_flags: Vec<String>,
}
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "no program is known for image {image}: get one with `hangar components fetch`, or name a directory with --components"
)]
pub struct ImageError {
    pub image: String,
}
