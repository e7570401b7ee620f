//! Why a process of the plane does not stay up, as far as it can be told from outside, with what to do.

use std::path::Path;

use crate::disk_space;
use crate::store::{Damage, damage_of};

/// The reason if it is one that we know, or the last words of the log.
pub(super) fn explain(home: &Path, program: &Path, log: &Path) -> String {
    if let Err(lack) = disk_space::check(home, disk_space::TO_RUN) {
        return lack.to_string();
    }
    // etcd asks for more at once than may be left, and prints long where it was when that failed.
    if hangar_node::process::log_tail(log, 60).contains("no space left on device") {
        return format!(
            "no space left on device for {}: free up space, or choose another directory with --home",
            home.display()
        );
    }
    damage_of(program).map_or_else(|| hangar_node::process::log_tail(log, 8), |damage| damaged(&damage))
}

fn damaged(damage: &Damage) -> String {
    let Damage { component, path, .. } = damage;
    format!(
        "{} is damaged: its checksum differs from the recorded one. Remove {} and run `hangar components fetch {}@{}`",
        path.display(),
        path.parent().unwrap_or(path).display(),
        component.name,
        component.version
    )
}
