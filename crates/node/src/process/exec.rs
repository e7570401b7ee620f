//! `kubectl exec`: a command in the place of a container, its input and output on streams.
//!
//! Flows: streams arrive (error, stdin, stdout, stderr, resize) -> process, with a terminal if one was asked for -> bytes both ways -> how it ended,
//! as a Status on the stream `error`. Holds: when the client goes, the process goes; its output is complete before its end is told.

use std::collections::HashMap;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::mpsc;

use super::spdy::{Stream, Writer};
use super::terminal::Terminal;

/// An API server opens its streams at once.
const ARRIVE_WITHIN: Duration = Duration::from_secs(30);

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ExecRequest {
    pub command: Vec<String>,
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

impl ExecRequest {
    pub fn read(query: &str) -> Self {
        let mut request = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let yes = ["1", "true"].contains(&&*value);
            match &*name {
                "command" => request.command.push(value.into_owned()),
                "input" => request.stdin = yes,
                "output" => request.stdout = yes,
                "error" => request.stderr = yes,
                "tty" => request.tty = yes,
                _ => {}
            }
        }
        // A terminal has one output.
        request.stderr &= !request.tty;
        request
    }

    fn streams(&self) -> Vec<&'static str> {
        let wanted = [
            ("error", true),
            ("stdin", self.stdin),
            ("stdout", self.stdout),
            ("stderr", self.stderr),
            ("resize", self.tty),
        ];
        wanted.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| name).collect()
    }
}

/// Serves one request; `command` is what runs, or why it cannot.
pub async fn serve(mut opened: mpsc::Receiver<Stream>, request: ExecRequest, command: Result<Command, String>) {
    let Some(mut streams) = arrive(&mut opened, &request.streams()).await else { return };
    let Some(error) = streams.remove("error") else { return };
    let ended = tokio::select! {
        ended = run(&request, command, &mut streams) => ended,
        // The connection is closed: whoever asked is gone.
        () = closed(&mut opened) => return,
    };
    let status = match &ended {
        Ok(status) => status_object(*status),
        Err(message) => json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "message": message}),
    };
    let _ = error.writer.write(status.to_string().as_bytes()).await;
    error.writer.close().await;
    for stream in streams.values() {
        stream.writer.close().await;
    }
}

/// Says why nothing can be done, where kubectl looks for it.
pub async fn refuse(mut opened: mpsc::Receiver<Stream>, message: &'static str) {
    let Some(streams) = arrive(&mut opened, &["error"]).await else { return };
    let status = json!({"metadata": {}, "status": "Failure", "reason": "BadRequest", "code": 400, "message": message});
    for stream in streams.values().filter(|stream| stream.header("streamtype") == "error") {
        let _ = stream.writer.write(status.to_string().as_bytes()).await;
        stream.writer.close().await;
    }
    // Other streams are still being opened; the client closes the connection when it has read why.
    let _ = tokio::time::timeout(ARRIVE_WITHIN, closed(&mut opened)).await;
}

/// Waits until every stream that was announced is there.
async fn arrive(opened: &mut mpsc::Receiver<Stream>, wanted: &[&str]) -> Option<HashMap<String, Stream>> {
    let mut streams = HashMap::new();
    while wanted.iter().any(|name| !streams.contains_key(*name)) {
        let stream = tokio::time::timeout(ARRIVE_WITHIN, opened.recv()).await.ok()??;
        streams.insert(stream.header("streamtype").to_owned(), stream);
    }
    Some(streams)
}

async fn closed(opened: &mut mpsc::Receiver<Stream>) {
    while opened.recv().await.is_some() {}
}

async fn run(
    request: &ExecRequest,
    command: Result<Command, String>,
    streams: &mut HashMap<String, Stream>,
) -> Result<ExitStatus, String> {
    let command = command?;
    if request.tty { with_terminal(command, streams).await } else { with_pipes(command, request, streams).await }
}

async fn with_pipes(
    mut command: Command,
    request: &ExecRequest,
    streams: &mut HashMap<String, Stream>,
) -> Result<ExitStatus, String> {
    let pipe = |wanted: bool| if wanted { Stdio::piped() } else { Stdio::null() };
    command.stdin(pipe(request.stdin)).stdout(pipe(request.stdout)).stderr(pipe(request.stderr));
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let input = streams.remove("stdin");
    let feed = feed(child.stdin.take(), input.map(|stream| stream.reader));
    let writer = |name: &str| streams.get(name).map(|stream| stream.writer.clone());
    let (out, err) = (drain(child.stdout.take(), writer("stdout")), drain(child.stderr.take(), writer("stderr")));
    let finished = async { tokio::join!(child.wait(), out, err).0 };
    // Input may never end; the process does not wait for that, and neither do we.
    beside(finished, feed).await.map_err(|error| error.to_string())
}

/// Does something for as long as something else takes.
pub(super) async fn beside<T>(main: impl Future<Output = T>, side: impl Future<Output = ()>) -> T {
    let mut main = std::pin::pin!(main);
    tokio::select! {
        biased;
        value = &mut main => value,
        () = side => main.await,
    }
}

async fn with_terminal(command: Command, streams: &mut HashMap<String, Stream>) -> Result<ExitStatus, String> {
    let mut terminal = Terminal::open(command).map_err(|error| error.to_string())?;
    let resize = streams.remove("resize").map(|stream| stream.reader);
    let input = streams.remove("stdin").map(|stream| stream.reader);
    let output = streams.get("stdout").map(|stream| stream.writer.clone());
    let (reader, writer) = terminal.halves().map_err(|error| error.to_string())?;
    let sizes = terminal.sizes();
    let resizing = async {
        let Some(mut resize) = resize else { return };
        while let Some(bytes) = resize.recv().await {
            if let Ok(size) = serde_json::from_slice::<Value>(&bytes) {
                sizes.set(size["Width"].as_u64().unwrap_or(80), size["Height"].as_u64().unwrap_or(24));
            }
        }
    };
    let finished = async { tokio::join!(terminal.wait(), drain(Some(reader), output)).0 };
    let typing = feed(Some(writer), input);
    let aside = async {
        tokio::join!(typing, resizing);
    };
    beside(finished, aside).await.map_err(|error| error.to_string())
}

/// From the client to the process; the process sees the end of the input.
async fn feed(to: Option<impl AsyncWrite + Unpin>, from: Option<mpsc::Receiver<bytes::Bytes>>) {
    let (Some(mut to), Some(mut from)) = (to, from) else { return };
    while let Some(bytes) = from.recv().await {
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// From the process to the client.
async fn drain(from: Option<impl AsyncRead + Unpin>, to: Option<Writer>) {
    let (Some(mut from), Some(to)) = (from, to) else { return };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 || to.write(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// As kubectl reads it: success, or the exit code as a cause.
fn status_object(status: ExitStatus) -> Value {
    let code = super::child::exit_code(status);
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: {status}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_names_its_command_and_streams() {
        let request = ExecRequest::read("command=sh&command=-c&command=echo%20a+b&input=1&output=1&error=1&tty=0");
        assert_eq!(request.command, ["sh", "-c", "echo a b"]);
        assert_eq!(request.streams(), ["error", "stdin", "stdout", "stderr"]);
        let request = ExecRequest::read("command=sh&input=1&output=1&error=1&tty=1");
        assert_eq!(request.streams(), ["error", "stdin", "stdout", "resize"]);
    }

    #[test]
    fn the_exit_code_is_a_cause() {
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(status_object(ExitStatus::from_raw(0))["status"], "Success");
        let table = [(3 << 8, "3"), (9, "137")];
        for (raw, code) in table {
            assert_eq!(status_object(ExitStatus::from_raw(raw))["details"]["causes"][0]["message"], code);
        }
    }
}
