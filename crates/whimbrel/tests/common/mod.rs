//! Commands as people run them, and a broker for them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

/// A process that ends with its test.
pub struct Ends(pub Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn whimbrel(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whimbrel"));
    command.args(arguments);
    command
}

/// A broker, and its URL.
pub fn broker() -> (Ends, String) {
    broker_at("127.0.0.1:0")
}

/// A broker at that address, and its URL.
pub fn broker_at(address: &str) -> (Ends, String) {
    let off = ["--listen-tls=off", "--listen-ws=off", "--listen-wss=off", "--listen-http=off", "--listen-overlay=off"];
    let mut serve = whimbrel(&["serve", "--dev", "--listen-mqtt", address]);
    serve.args(off);
    ready(serve)
}

/// The broker that a command starts, and its URL.
pub fn ready(serve: Command) -> (Ends, String) {
    let (serve, ready) = ready_with(serve);
    (serve, url_of(&ready))
}

/// The URL for MQTT of a broker that says this when it is ready.
pub fn url_of(ready: &serde_json::Value) -> String {
    format!("mqtt://{}", ready["mqtt"].as_str().expect("its address"))
}

/// The broker that a command starts, and what it says when it is ready.
pub fn ready_with(serve: Command) -> (Ends, serde_json::Value) {
    ready_logging(serve, Stdio::null())
}

/// The same; its log goes there.
pub fn ready_logging(mut serve: Command, log: impl Into<Stdio>) -> (Ends, serde_json::Value) {
    let serve = serve.stdout(Stdio::piped()).stderr(log).spawn().expect("the broker starts");
    let mut serve = Ends(serve);
    let mut line = String::new();
    let out = serve.0.stdout.take().expect("its output is piped");
    BufReader::new(out).read_line(&mut line).expect("it says that it is ready");
    (serve, serde_json::from_str(&line).expect("the ready line is JSON"))
}

pub fn run(arguments: &[&str]) -> Output {
    whimbrel(arguments).output().expect("the command runs")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
