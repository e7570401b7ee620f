//! From an image and a command to a program on this machine.

use std::path::{Path, PathBuf};

use super::{Images, Program};

/// What runs, with which arguments, and what it is if the image gave it.
pub type Chosen = (PathBuf, Vec<String>, Option<Program>);

/// The image's program with arguments that fit it, or a program of the machine if the command names one. `mounted` says whether a path lies
/// in a volume of the container.
pub fn choose(
    images: &dyn Images,
    image: &str,
    mut command: Vec<String>,
    mut args: Vec<String>,
    mounted: impl Fn(&Path) -> bool,
) -> Result<Chosen, String> {
    let found = images.resolve(image);
    let host_shell = found.as_ref().is_ok_and(|program| program.is_host_shell);
    if host_shell && command.is_empty() {
        // Such an image has no program that arguments could belong to: they are the command.
        command = std::mem::take(&mut args);
    }
    let first = (!command.is_empty()).then(|| command.remove(0));
    let args = [command, args].concat();
    if let Some(first) = &first {
        let of_image = found.as_ref().is_ok_and(|program| {
            let path = Path::new(first);
            path.file_name() == program.path.file_name() || program.container_paths.iter().any(|seen| seen == path)
        });
        if (!of_image || host_shell)
            && let Some(path) = on_machine(first).or_else(|| Some(PathBuf::from(first)).filter(|path| mounted(path)))
        {
            return Ok((path, args, found.ok().filter(|program| program.is_host_shell)));
        }
        if let Ok(program) = &found
            && !of_image
        {
            return Err(format!(
                "executable {first} not found: it is neither {} nor a program of this machine",
                program.path.display()
            ));
        }
    }
    let found = found.map_err(|error| error.to_string())?;
    let args = if first.is_none() && args.is_empty() { found.default_args.clone() } else { args };
    let (program, args) = images.adapt(found, args);
    Ok((program.path.clone(), args, Some(program)))
}

/// Where a container sees the program of its image.
pub fn program_paths(program: &Program) -> Vec<PathBuf> {
    match (program.container_paths.is_empty(), program.path.file_name()) {
        (true, Some(name)) if !program.is_host_shell => vec![Path::new("/usr/local/bin").join(name)],
        _ => program.container_paths.clone(),
    }
}

/// By which path a container with a root of its own runs the program of its image; `first` is the first word of its command.
pub fn container_path(path: PathBuf, program: Option<&Program>, first: Option<&str>) -> PathBuf {
    let Some(program) = program.filter(|one| !one.is_host_shell) else { return path };
    let seen = program_paths(program);
    let named = first.map(PathBuf::from);
    named.filter(|named| seen.contains(named)).or_else(|| seen.into_iter().next()).unwrap_or(path)
}

fn on_machine(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::super::ImageError;
    use super::*;

    struct Some3;

    impl Images for Some3 {
        fn resolve(&self, image: &str) -> Result<Program, ImageError> {
            let (path, words, is_host_shell): (&str, &[&str], bool) = match image {
                "agnhost" => ("/store/agnhost", &["pause"], false),
                "busybox" => ("/bin/sh", &[], true),
                _ => return Err(ImageError { image: image.to_owned() }),
            };
            let default_args = words.iter().map(|word| (*word).to_owned()).collect();
            let (version, substituted_for, dropped_flags) = Default::default();
            let (container_paths, files) = (vec![], vec![]);
            Ok(Program {
                path: path.into(),
                version,
                substituted_for,
                dropped_flags,
                default_args,
                container_paths,
                files,
                is_host_shell,
            })
        }
    }

    type Words = &'static [&'static str];
    type Row = (&'static str, Words, Words, Option<(&'static str, Words)>);

    #[test]
    fn commands_and_arguments_go_together_as_in_images() {
        let rows: [Row; 9] = [
            ("agnhost", &[], &[], Some(("/store/agnhost", &["pause"]))),
            ("agnhost", &[], &["netexec"], Some(("/store/agnhost", &["netexec"]))),
            ("agnhost", &["/agnhost", "a"], &["b"], Some(("/store/agnhost", &["a", "b"]))),
            ("agnhost", &["/bin/sh", "-c"], &["x"], Some(("/bin/sh", &["-c", "x"]))),
            ("busybox", &[], &["/bin/sh", "-c"], Some(("/bin/sh", &["-c"]))),
            ("busybox", &[], &[], Some(("/bin/sh", &[]))),
            ("unknown", &["/bin/sh"], &[], Some(("/bin/sh", &[]))),
            ("unknown", &["/scripts/mine"], &[], Some(("/scripts/mine", &[]))),
            ("agnhost", &["/no/such"], &[], None),
        ];
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        for (image, command, args, expected) in rows {
            let chosen = choose(&Some3, image, owned(command), owned(args), |path| path.starts_with("/scripts"));
            let chosen = chosen.ok().map(|(path, args, _)| (path, args));
            assert_eq!(chosen, expected.map(|(path, args)| (path.into(), owned(args))), "{image} {command:?} {args:?}");
        }
    }
}
