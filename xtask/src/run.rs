//! Running cargo and other programs, with an error that repeats the command which failed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A cargo command in the workspace: the cargo that runs this one.
pub fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root);
    command
}

/// Runs to the end with our own input and output.
pub fn to_success(mut command: Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", display(&command)))?;
    if !status.success() {
        bail!("{} failed ({status})", display(&command));
    }
    Ok(())
}

/// Runs to the end and gives what was printed on stdout.
pub fn output(mut command: Command) -> Result<String> {
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run {}", display(&command)))?;
    if !output.status.success() {
        bail!("{} failed ({})", display(&command), output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The command as one would type it.
pub fn display(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    format!("`{}`", words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
}
