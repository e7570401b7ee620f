//! The guests of a fabric: started with their links, and ended.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::places::plug;
use super::{PodRoute, link_name};
use crate::WORD;
use crate::guest::GuestSpec;
use crate::network::nft::PortFilter;
use crate::network::{NetNamespace, nft};

#[derive(Default)]
pub struct Guests {
    running: BTreeMap<String, Running>,
}

struct Running {
    child: Child,
    /// Its standard output, where nothing comes any more: it ends with the guest.
    lifeline: OwnedFd,
}

impl Guests {
    /// Whether it was started now, and a pipe that ends with it; one that runs stays as it is.
    pub fn boot(&mut self, own: &NetNamespace, spec: GuestSpec) -> Result<(bool, OwnedFd), String> {
        self.reap();
        if let Some(running) = self.running.get(&spec.id) {
            return Ok((false, running.lifeline.try_clone().map_err(|error| error.to_string())?));
        }
        let (id, program) = (spec.id.clone(), spec.program.clone());
        let said = |error: std::io::Error| format!("could not start the guest {id}: {error}");
        let mut command = Command::new(program);
        command.args([WORD, "guest"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(said)?;
        let booted: Result<(OwnedFd, OwnedFd), String> = (|| {
            let (input, output) = (child.stdin.take(), child.stdout.take());
            let (Some(mut input), Some(output)) = (input, output) else { return Err("it has no pipes".to_owned()) };
            let lifeline = output.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
            let mut output = BufReader::new(output).lines();
            let mut heard = |what: &str| match output.next() {
                Some(Ok(line)) if line == what => Ok(()),
                Some(Ok(line)) => Err(line),
                _ => Err(format!("it ended before it was {what}")),
            };
            tell(&mut input, &serde_json::to_string(&spec).map_err(|error| error.to_string())?)?;
            heard("unshared")?;
            let namespace = NetNamespace::of_process(child.id()).map_err(|error| error.to_string())?;
            for (number, interface) in spec.interfaces.iter().enumerate() {
                let outer = link_name('g', &format!("{}/{number}", spec.id));
                plug(own, &namespace, &interface.network, &outer, &format!("eth{number}"), interface.mtu)
                    .map_err(|error| crate::chain(&error))?;
            }
            tell(&mut input, "plugged")?;
            heard("booted")?;
            Ok((lifeline.try_clone().map_err(|error| error.to_string())?, lifeline))
        })();
        match booted {
            Ok((lifeline, given)) => {
                self.running.insert(id, Running { child, lifeline });
                Ok((true, given))
            }
            Err(why) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("could not start the guest {id}: {why}"))
            }
        }
    }

    pub fn power_off(&mut self, id: &str) {
        if let Some(Running { mut child, .. }) = self.running.remove(id) {
            // Its first process goes with it, and with that one everything in the guest.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Nothing happens to one that does not run: it is told again when it does.
    pub fn route(&mut self, id: &str, routes: &[PodRoute]) -> Result<(), String> {
        self.reap();
        let Some(running) = self.running.get(id) else { return Ok(()) };
        let namespace = NetNamespace::of_process(running.child.id()).map_err(|error| error.to_string())?;
        let routed = namespace.configure(async |links| {
            for route in routes {
                links.route(route.range, route.node).await?;
            }
            Ok(())
        });
        routed.map_err(|error| crate::chain(&error))?;
        let ranges: Vec<_> = routes.iter().map(|route| route.range).collect();
        // Where there is no nft, pods of other nodes see the node's address.
        let _ = namespace.inside(|| nft::run(&nft::pods(&ranges)));
        Ok(())
    }

    /// Nothing happens to one that does not run: it is told again when it does.
    pub fn filter(&mut self, id: &str, filter: &PortFilter) -> Result<(), String> {
        self.reap();
        let Some(running) = self.running.get(id) else { return Ok(()) };
        let namespace = NetNamespace::of_process(running.child.id()).map_err(|error| error.to_string())?;
        namespace.inside(|| nft::run(&nft::filter(filter))).map_err(|error| error.to_string())
    }

    pub fn running(&mut self) -> Vec<String> {
        self.reap();
        self.running.keys().cloned().collect()
    }

    /// Forgets those that ended by themselves.
    fn reap(&mut self) {
        self.running.retain(|_, running| matches!(running.child.try_wait(), Ok(None)));
    }
}

fn tell(input: &mut ChildStdin, line: &str) -> Result<(), String> {
    writeln!(input, "{line}").and_then(|()| input.flush()).map_err(|error| error.to_string())
}
