//! H3: how many Machines may be unhealthy for something to be done about it.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::World;
use crate::Reason;

/// How many must and may be unhealthy; nothing if that cannot be understood.
pub(super) fn limits(world: &World, targets: usize) -> Option<(usize, usize)> {
    let remediation = world.typed().spec.remediation.as_ref();
    let Some(trigger) = remediation.and_then(|remediation| remediation.trigger_if.as_ref()) else {
        return Some((0, targets));
    };
    if let Some(range) = &trigger.unhealthy_in_range {
        let (least, most) = range.strip_prefix('[')?.strip_suffix(']')?.split_once('-')?;
        let (least, most) = (least.trim().parse().ok()?, most.trim().parse().ok()?);
        return (least <= most).then_some((least, most));
    }
    match &trigger.unhealthy_less_than_or_equal_to {
        Some(IntOrString::Int(number)) => Some((0, usize::try_from(*number).unwrap_or(0))),
        Some(IntOrString::String(text)) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
            Some((0, targets.saturating_mul(percent) / 100))
        }
        None => Some((0, targets)),
    }
}

/// Why nothing is done, if so.
pub(super) fn refusal(world: &World, unhealthy: usize, targets: usize) -> Option<Reason> {
    let count = format!("{unhealthy} of {targets} Machines are unhealthy");
    let Some((least, most)) = limits(world, targets) else {
        let text = "spec.remediation.triggerIf.unhealthyInRange must be two numbers, such as [1-3]";
        return Some(Reason::retry("InvalidRange", text));
    };
    if unhealthy > most {
        let text = format!("{count}, at most {most} may be: nothing is remediated");
        return Some(Reason::retry("TooManyUnhealthy", text));
    }
    let text = || format!("{count}, remediation begins with {least}: nothing is remediated");
    (unhealthy > 0 && unhealthy < least).then(|| Reason::retry("TooFewUnhealthy", text()))
}
