//! A broker's credentials allow it nothing but its own stream, and connections are encrypted.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream;
use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer};
use whimbrel_lab::engine_servers::{EngineServers, EngineServersOptions};

use super::rig::{broker, client, publish, refused, serve, servers};

/// What one broker needs.
struct Credential {
    file: PathBuf,
    seed: String,
    user: String,
}

fn credential(folder: &Path, name: &str) -> Credential {
    let pair = KeyPair::new_user();
    let seed = pair.seed().expect("a new pair has its seed");
    let file = folder.join(format!("{name}.nk"));
    fs::write(&file, &seed).expect("it is written");
    Credential { file, seed, user: user(name, &pair.public_key()) }
}

/// A user of the servers that may do what the broker of this name does, as in docs/engine.md.
fn user(name: &str, key: &str) -> String {
    let page = include_str!("../../../../../docs/engine.md");
    let (_, rest) = page.split_once("<!-- user -->\n```\n").expect("the page has a user");
    let (user, _) = rest.split_once("```").expect("it has an end");
    user.replace("UNORTH", key).replace("north", name)
}

/// A certificate for servers on this machine, and its authority.
fn certificates(folder: &Path) -> (PathBuf, String) {
    let mut params = CertificateParams::new([]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("signed");
    let issuer = Issuer::new(params, key);
    let server_key = rcgen::KeyPair::generate().expect("a key");
    let of_server = CertificateParams::new(["127.0.0.1".to_owned()]).expect("an address");
    let server = of_server.signed_by(&server_key, &issuer).expect("signed");
    let path = |name: &str| folder.join(name);
    fs::write(path("ca.pem"), authority.pem()).expect("it is written");
    fs::write(path("server.pem"), server.pem()).expect("it is written");
    fs::write(path("server.key"), server_key.serialize_pem()).expect("it is written");
    let tls = format!("tls {{ cert_file: {:?}, key_file: {:?} }}\n", path("server.pem"), path("server.key"));
    (path("ca.pem"), tls)
}

/// Tries to take the epoch of a broker with a credential; what the servers say.
async fn take_epoch(servers: &EngineServers, ca: &Path, of: &Credential, name: &str) -> Result<u64, String> {
    let [addresses, _] = servers.arguments();
    let address = addresses.trim_start_matches("--engine=").split(',').next().expect("there is a server").to_owned();
    let options = ConnectOptions::with_nkey(of.seed.clone()).add_root_certificates(ca.to_owned()).require_tls(true);
    let options = options.custom_inbox_prefix("_INBOX_north");
    let nats = options.connect(address).await.expect("north may connect");
    let mut context = jetstream::new(nats);
    context.set_timeout(Duration::from_secs(3));
    let taken = context.publish(format!("wj.{name}.epoch"), "taken".into()).await.map_err(|error| error.to_string())?;
    taken.await.map(|taken| taken.sequence).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_credential_is_good_for_one_broker() {
    let folder = tempfile::tempdir().expect("a folder");
    let (north, south) = (credential(folder.path(), "north"), credential(folder.path(), "south"));
    let (ca, tls) = certificates(folder.path());
    let configuration = format!("{tls}authorization {{ users: [ {} {} ] }}\n", north.user, south.user);
    let options = EngineServersOptions { configuration, ..EngineServersOptions::default() };
    let Some(servers) = servers(&options) else { return };
    let with = |name: &str, credential: &Credential, number: u32| {
        let mut serve = serve(&servers, name, &folder.path().join(format!("{name}{number}")));
        serve.arg("--engine-credentials").arg(&credential.file).arg("--engine-ca").arg(&ca);
        serve
    };
    let running = broker(with("south", &south, 1));
    let (writer, _events) = client(&running.url, "writer").await;
    publish(&writer, 0..10).await;
    let (status, said) = refused(with("south", &north, 2));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("credentials"), "{said}");
    let refused = take_epoch(&servers, &ca, &north, "south").await;
    refused.expect_err("south's epoch is not north's to take");
    // South goes on, and north is a broker with that credential.
    publish(&writer, 10..20).await;
    assert_eq!(running.metric("whimbrel_engine_epoch").await, 2.0);
    let other = broker(with("north", &north, 3));
    let (writer, _events) = client(&other.url, "writer").await;
    publish(&writer, 0..10).await;
    // The test can fail: the credential that may is not refused.
    take_epoch(&servers, &ca, &north, "north").await.expect("its own epoch is north's to take");
}
