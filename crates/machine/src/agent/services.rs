//! Services of a guest: started from their unit files, started again when they end, switched on and off.
//!
//! Flows: `systemctl` in the guest -> a socket -> here. Holds: one process for each service; its output is in `/var/log/NAME.log`; that it ended, and its
//! last words, are on the console once for each sort of end.

use std::collections::BTreeMap;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hangar_node::process::{Child, LogFormat, Run, log_tail};
use tokio::sync::watch;

use super::console;
use super::unit::{Unit, command};

const WANTED: &str = "/etc/systemd/system/multi-user.target.wants";
const LOGS: &str = "/var/log";
/// Between an end and the next start.
const PAUSE: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(10);
/// Services that are part of the agent.
const BUILT_IN: [&str; 2] = ["containerd.service", "dbus.service"];

struct Running {
    stop: watch::Sender<bool>,
    /// `active`, `activating`, `failed`.
    state: Arc<Mutex<&'static str>>,
    task: tokio::task::JoinHandle<()>,
}

pub struct Services {
    running: tokio::sync::Mutex<BTreeMap<String, Running>>,
}

impl Services {
    /// Listens for `systemctl`.
    pub fn start() -> Result<Arc<Self>> {
        let services = Arc::new(Self { running: tokio::sync::Mutex::default() });
        super::systemctl::serve(services.clone())?;
        Ok(services)
    }

    /// Starts what is switched on and does not run.
    pub async fn start_enabled(&self) {
        let entries = Path::new(WANTED).read_dir().into_iter().flatten().flatten();
        for name in entries.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
            if let Err(why) = self.start_one(&name).await {
                console(&format!("{name}: {why}"));
            }
        }
    }

    /// Does nothing if it runs, or if it waits for a file that is not there.
    pub async fn start_one(&self, name: &str) -> std::result::Result<(), String> {
        if BUILT_IN.contains(&name) {
            return Ok(());
        }
        let unit = Unit::read(name).ok_or_else(|| format!("Unit {name} not found."))?;
        let mut running = self.running.lock().await;
        if running.get(name).is_some_and(|one| !one.task.is_finished())
            || unit.condition.as_ref().is_some_and(|path| !path.exists())
        {
            return Ok(());
        }
        let (stop, stopped) = watch::channel(false);
        let state = Arc::new(Mutex::new("activating"));
        if unit.is_oneshot {
            drop(running);
            return run_once(name, &unit).await;
        }
        let task = tokio::spawn(supervise(name.to_owned(), stopped, state.clone()));
        running.insert(name.to_owned(), Running { stop, state, task });
        Ok(())
    }

    pub async fn stop_one(&self, name: &str) {
        let found = self.running.lock().await.remove(name);
        if let Some(found) = found {
            found.stop.send_replace(true);
            let _ = found.task.await;
        }
    }

    pub async fn stop_all(&self) {
        let names: Vec<String> = self.running.lock().await.keys().cloned().collect();
        for name in names {
            self.stop_one(&name).await;
        }
    }

    pub async fn state(&self, name: &str) -> &'static str {
        if BUILT_IN.contains(&name) {
            return "active";
        }
        let running = self.running.lock().await;
        running.get(name).map_or("inactive", |one| *one.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn exists(name: &str) -> bool {
        BUILT_IN.contains(&name) || Unit::read(name).is_some()
    }

    pub fn is_enabled(name: &str) -> bool {
        BUILT_IN.contains(&name) || Path::new(WANTED).join(name).is_symlink()
    }

    pub fn enable(name: &str, on: bool) -> Result<()> {
        let link = Path::new(WANTED).join(name);
        let _ = std::fs::remove_file(&link);
        if on && !BUILT_IN.contains(&name) {
            std::fs::create_dir_all(WANTED)?;
            std::os::unix::fs::symlink(format!("../{name}"), link)?;
        }
        Ok(())
    }
}

fn description(name: &str, unit: &Unit, line: &str) -> std::result::Result<Run, String> {
    let variables = unit.variables()?;
    let mut words = command(line, &variables).into_iter();
    let program = PathBuf::from(words.next().ok_or("its unit file has no ExecStart")?);
    let log = Path::new(LOGS).join(format!("{}.log", name.trim_end_matches(".service")));
    Ok(Run {
        program,
        args: words.collect(),
        env: variables,
        directory: unit.working_directory.clone().unwrap_or_else(|| "/".into()),
        log,
        log_format: LogFormat::Raw,
        home: std::env::var_os("HANGAR_HOME").unwrap_or_default().into(),
    })
}

async fn run_once(name: &str, unit: &Unit) -> std::result::Result<(), String> {
    for line in &unit.exec_start {
        let run = description(name, unit, line)?;
        let mut child = Child::start(&run).await.map_err(|error| error.to_string())?;
        let status = child.wait().await.map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("{status}: {}", log_tail(&run.log, 1)));
        }
    }
    Ok(())
}

async fn supervise(name: String, mut stop: watch::Receiver<bool>, state: Arc<Mutex<&'static str>>) {
    let set = |now| *state.lock().unwrap_or_else(PoisonError::into_inner) = now;
    let mut said = String::new();
    loop {
        // Its files may have changed meanwhile.
        let Some(unit) = Unit::read(&name) else { return set("inactive") };
        let line = unit.exec_start.first().cloned().unwrap_or_default();
        let why = match description(&name, &unit, &line) {
            Err(why) => why,
            Ok(run) => match Child::start(&run).await {
                Err(error) => format!("{}: {error}", run.program.display()),
                Ok(mut child) => {
                    set("active");
                    tokio::select! {
                        status = child.wait() => match status {
                            Ok(status) => format!("{status}: {}", log_tail(&run.log, 1)),
                            Err(error) => error.to_string(),
                        },
                        () = stopped(&mut stop) => {
                            child.end(GRACE).await;
                            return set("inactive");
                        }
                    }
                }
            },
        };
        let kind: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
        if kind != said {
            console(&format!("{name}: {why}"));
            said = kind;
        }
        if !unit.restarts {
            return set("failed");
        }
        set("activating");
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stopped(&mut stop) => return set("inactive"),
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}
