//! Whether this system lets a user have machines, and what to do where it does not.
//!
//! Holds: asked of a child, which does what the fabric does first; what it could not do says why.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::WORD;

/// Why there can be no machines here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("machines cannot run here: {cause}. {ways_out}")]
pub struct Refusal {
    pub cause: String,
    ways_out: String,
}

const GUESTS: &str = "or use --guests=hollow";

/// A fabric can be started here, or why not.
pub fn check(program: &Path) -> Result<(), Refusal> {
    let child = Command::new(program).args([WORD, "probe"]).stdin(Stdio::null()).output();
    let said = match child {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => {
            return Err(Refusal { cause: format!("{}: {error}", program.display()), ways_out: GUESTS.into() });
        }
    };
    let read = |name: &str| std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok();
    Err(refusal(&said, |name| read(name).map(|text| text.trim().to_owned())))
}

/// What the fabric does first, in a process that then ends.
pub(crate) fn attempt() -> std::io::Result<()> {
    crate::fabric::enter_namespaces()?;
    let own = crate::network::NetNamespace::current()?;
    // Some systems give the namespace and no rights in it.
    own.configure(async |links| links.up("lo").await).map_err(|error| std::io::Error::other(crate::chain(&error)))
}

fn refusal(said: &str, setting: impl Fn(&str) -> Option<String>) -> Refusal {
    let is_zero = |name: &str| setting(name).as_deref() == Some("0");
    let (cause, ways_out) = if setting("kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        (
            "kernel.apparmor_restrict_unprivileged_userns is 1, so AppArmor takes from users what they may do in namespaces of their own".to_owned(),
            "Load an AppArmor profile for hangar that allows userns, set the sysctl to 0, or run hangar as root",
        )
    } else if is_zero("kernel/unprivileged_userns_clone") {
        (
            "kernel.unprivileged_userns_clone is 0, so users get no namespaces".to_owned(),
            "Set the sysctl to 1, or run hangar as root",
        )
    } else if let Some(name) =
        ["user/max_user_namespaces", "user/max_net_namespaces"].into_iter().find(|name| is_zero(name))
    {
        (format!("{} is 0", name.replace('/', ".")), "Set the sysctl to 10000, or run hangar as root where that helps")
    } else if said.contains("No space left") {
        (
            format!("user.max_user_namespaces or user.max_net_namespaces is used up ({said})"),
            "Raise the sysctl, or end what uses namespaces",
        )
    } else {
        (
            format!("a user and network namespace could not be made ({said})"),
            "In a container, allow unshare and mount in its seccomp profile, or run hangar outside of it",
        )
    };
    Refusal { cause, ways_out: format!("{ways_out}, {GUESTS}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_its_cause_and_the_ways_out() {
        let rows = [
            ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor profile"),
            ("kernel/unprivileged_userns_clone", "0", "Set the sysctl to 1"),
            ("user/max_user_namespaces", "0", "user.max_user_namespaces is 0"),
            ("user/max_net_namespaces", "0", "user.max_net_namespaces is 0"),
            ("", "", "seccomp profile"),
        ];
        for (name, value, words) in rows {
            let found = refusal("Operation not permitted", |asked| (asked == name).then(|| value.to_owned()));
            let text = found.to_string();
            assert!(text.contains(words) && text.contains("--guests=hollow"), "{text}");
        }
        assert!(refusal("No space left on device", |_| None).to_string().contains("used up"));
    }
}
