//! `systemctl` in a guest: the verbs that bootstrap data, kubeadm and people use.

use std::io::{BufRead as _, BufReader, Result, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

use super::services::Services;

const SOCKET: &str = "/run/hangar/services.sock";
/// What systemctl answers where there is no such unit.
const NOT_FOUND: u8 = 5;
const INACTIVE: u8 = 3;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Outcome {
    code: u8,
    text: String,
}

/// In the place of the program.
pub fn run(words: &[String]) -> ExitCode {
    let asked = || -> Result<Outcome> {
        let mut stream = UnixStream::connect(SOCKET)?;
        writeln!(stream, "{}", serde_json::to_string(words)?)?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    match asked() {
        Ok(outcome) => {
            print!("{}", outcome.text);
            ExitCode::from(outcome.code)
        }
        Err(error) => {
            eprintln!("Failed to connect to bus: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Answers it, in the agent.
pub fn serve(services: Arc<Services>) -> Result<()> {
    let listener = UnixListener::bind(Path::new(SOCKET))?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let services = services.clone();
            tokio::spawn(async move {
                let (from, mut to) = stream.into_split();
                let mut line = String::new();
                if tokio::io::BufReader::new(from).read_line(&mut line).await.is_err() {
                    return;
                }
                let words: Vec<String> = serde_json::from_str(&line).unwrap_or_default();
                let outcome = answer(&services, &words).await;
                let text = serde_json::to_string(&outcome).unwrap_or_default();
                // Whoever asked may be gone.
                let _ = to.write_all(format!("{text}\n").as_bytes()).await;
            });
        }
    });
    Ok(())
}

async fn answer(services: &Services, words: &[String]) -> Outcome {
    let (options, names): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| word.starts_with('-'));
    let now = options.iter().any(|option| *option == "--now");
    let quiet = options.iter().any(|option| ["-q", "--quiet"].contains(&option.as_str()));
    let mut names = names.into_iter();
    let verb = names.next().map_or("list-units", String::as_str);
    let mut outcome = Outcome::default();
    for name in names.map(|name| full(name)) {
        let known = Services::exists(&name);
        let mut fail = |code: u8, text: String| {
            outcome.code = outcome.code.max(code);
            outcome.text.push_str(&text);
        };
        let missing = || format!("Failed to {verb} {name}: Unit {name} not found.\n");
        match verb {
            "start" | "restart" | "reload-or-restart" | "try-restart" | "reload" if !known => {
                fail(NOT_FOUND, missing())
            }
            "start" | "restart" | "reload-or-restart" | "try-restart" | "reload" => {
                if verb != "start" {
                    services.stop_one(&name).await;
                }
                if let Err(why) = services.start_one(&name).await {
                    fail(1, format!("Job for {name} failed: {why}\n"));
                }
            }
            "stop" => services.stop_one(&name).await,
            "enable" | "disable" if !known => fail(1, missing()),
            "enable" | "disable" => {
                if let Err(error) = Services::enable(&name, verb == "enable") {
                    fail(1, format!("{name}: {error}\n"));
                }
                match (verb, now) {
                    ("enable", true) => {
                        if let Err(why) = services.start_one(&name).await {
                            fail(1, format!("Job for {name} failed: {why}\n"));
                        }
                    }
                    (_, true) => services.stop_one(&name).await,
                    _ => {}
                }
            }
            "is-active" | "is-enabled" => {
                let (word, code) = match verb {
                    "is-active" => {
                        let state = services.state(&name).await;
                        (state, if state == "active" { 0 } else { INACTIVE })
                    }
                    _ if Services::is_enabled(&name) => ("enabled", 0),
                    _ => (if known { "disabled" } else { "not-found" }, 1),
                };
                fail(code, if quiet { String::new() } else { format!("{word}\n") });
            }
            "status" | "show" => {
                let state = services.state(&name).await;
                let loaded = if known { "loaded" } else { "not-found" };
                fail(
                    if state == "active" { 0 } else { INACTIVE },
                    format!("{name}\n     Loaded: {loaded}\n     Active: {state}\n"),
                );
            }
            // daemon-reload, mask, reset-failed, ...: units are read when they are started.
            _ => {}
        }
    }
    outcome
}

fn full(name: &str) -> String {
    if name.contains('.') { name.to_owned() } else { format!("{name}.service") }
}
