//! The guests of a fabric: started with their links, and ended.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::link_name;
use super::places::plug;
use crate::WORD;
use crate::guest::GuestSpec;
use crate::network::NetNamespace;

#[derive(Default)]
pub struct Guests {
    running: BTreeMap<String, Child>,
}

impl Guests {
    /// Whether it was started now; one that runs stays as it is.
    pub fn boot(&mut self, own: &NetNamespace, spec: GuestSpec) -> Result<bool, String> {
        self.reap();
        if self.running.contains_key(&spec.id) {
            return Ok(false);
        }
        let (id, program) = (spec.id.clone(), spec.program.clone());
        let said = |error: std::io::Error| format!("could not start the guest {id}: {error}");
        let mut command = Command::new(program);
        command.args([WORD, "guest"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(said)?;
        let booted = (|| {
            let (input, output) = (child.stdin.take(), child.stdout.take());
            let (Some(mut input), Some(output)) = (input, output) else { return Err("it has no pipes".to_owned()) };
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
            heard("booted")
        })();
        if let Err(why) = booted {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("could not start the guest {id}: {why}"));
        }
        self.running.insert(id, child);
        Ok(true)
    }

    pub fn power_off(&mut self, id: &str) {
        if let Some(mut child) = self.running.remove(id) {
            // Its first process goes with it, and with that one everything in the guest.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn running(&mut self) -> Vec<String> {
        self.reap();
        self.running.keys().cloned().collect()
    }

    /// Forgets those that ended by themselves.
    fn reap(&mut self) {
        self.running.retain(|_, child| matches!(child.try_wait(), Ok(None)));
    }
}

fn tell(input: &mut ChildStdin, line: &str) -> Result<(), String> {
    writeln!(input, "{line}").and_then(|()| input.flush()).map_err(|error| error.to_string())
}
