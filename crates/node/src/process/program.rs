//! From an image and a command to a program on this machine.

use std::path::{Path, PathBuf};

use super::{Images, Program};

/// What runs, with which arguments, and what it is if the image gave it.
pub(super) type Chosen = (PathBuf, Vec<String>, Option<Program>);

/// The image's program with arguments that fit it, or a program of the machine if the command names one.
pub(super) fn choose(
    images: &dyn Images,
    image: &str,
    mut command: Vec<String>,
    args: Vec<String>,
) -> Result<Chosen, String> {
    let found = images.resolve(image);
    let first = (!command.is_empty()).then(|| command.remove(0));
    let args = [command, args].concat();
    if let Some(first) = &first {
        let of_image = found.as_ref().is_ok_and(|program| Path::new(first).file_name() == program.path.file_name());
        if !of_image && let Some(path) = on_machine(first) {
            return Ok((path, args, None));
        }
        if let Ok(program) = &found
            && !of_image
        {
            return Err(format!("{first} is neither {} nor a program of this machine", program.path.display()));
        }
    }
    let (program, args) = images.adapt(found.map_err(|error| error.to_string())?, args);
    Ok((program.path.clone(), args, Some(program)))
}

fn on_machine(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file())
}
