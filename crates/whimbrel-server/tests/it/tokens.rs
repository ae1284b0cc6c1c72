//! Tokens of each algorithm, and keys that are tried for others.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use whimbrel_server::access::tokens::{ALGORITHMS, KeyPlan, Tokens};

/// Signs a message.
type Sign = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// One key of each algorithm: its public part in a file, and who signs with it.
struct Keys {
    directory: tempfile::TempDir,
    signers: Vec<(&'static str, Sign)>,
}

impl Keys {
    fn new() -> Keys {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("it can be written");
        let secret = "a secret that is long enough for HS256";
        write("HS256", secret);
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let by_secret: Sign = Box::new(move |message| hmac::sign(&key, message).as_ref().to_vec());

        let rsa = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/keys");
        fs::copy(rsa.join("rsa-of-tests-only.pem"), directory.path().join("RS256")).expect("the key of tests");
        let der = PrivatePkcs8KeyDer::from_pem_file(rsa.join("rsa-of-tests-only.key")).expect("the key of tests");
        let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).expect("an RSA key");
        let by_rsa: Sign = Box::new(move |message| {
            let mut signature = vec![0; key.public().modulus_len()];
            key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).expect("a signature");
            signature
        });

        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        write("ES256", &pair.public_key_pem());
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pair.serialize_der(), &random);
        let key = key.expect("an ECDSA key");
        let by_curve: Sign =
            Box::new(move |message| key.sign(&random, message).expect("a signature").as_ref().to_vec());

        let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        write("EdDSA", &pair.public_key_pem());
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pair.serialize_der()).expect("an Ed25519 key");
        let by_edwards: Sign = Box::new(move |message| key.sign(message).as_ref().to_vec());

        let signers = vec![("HS256", by_secret), ("RS256", by_rsa), ("ES256", by_curve), ("EdDSA", by_edwards)];
        Keys { directory, signers }
    }

    fn plan(&self, algorithm: &str, file: &str, id: Option<&str>) -> KeyPlan {
        let (id, algorithm) = (id.map(ToOwned::to_owned), algorithm.to_owned());
        KeyPlan { id, algorithm, file: self.directory.path().join(file) }
    }

    fn token(&self, says: &str, signer: &str, id: Option<&str>) -> String {
        let sign = &self.signers.iter().find(|(name, _)| *name == signer).expect("a signer").1;
        token(says, id, sign)
    }
}

fn token(says: &str, id: Option<&str>, sign: &dyn Fn(&[u8]) -> Vec<u8>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let mut header = json!({ "alg": says });
    if let Some(id) = id {
        header["kid"] = json!(id);
    }
    let encode = |text: String| URL_SAFE_NO_PAD.encode(text);
    let claims = json!({ "sub": "bus-7", "exp": now + 60 });
    let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
    let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

fn read(plans: &[KeyPlan]) -> Tokens {
    Tokens::read(plans, None, None).unwrap_or_else(|(_, fault)| panic!("{fault}"))
}

#[test]
fn each_algorithm_is_believed_with_its_own_key_only() {
    let keys = Keys::new();
    for algorithm in ALGORITHMS {
        let tokens = read(&[keys.plan(algorithm, algorithm, None)]);
        for signer in ALGORITHMS {
            for says in ALGORITHMS {
                let is_right = signer == algorithm && says == algorithm;
                let judged = tokens.verify(&keys.token(says, signer, None));
                assert_eq!(judged.is_ok(), is_right, "key {algorithm}, signed by {signer}, says {says}: {judged:?}");
                assert!(judged.is_err() || judged.is_ok_and(|(who, ..)| who.name() == "bus-7"));
            }
        }
    }
}

#[test]
fn a_public_key_is_no_secret() {
    let keys = Keys::new();
    let public = fs::read(keys.directory.path().join("RS256")).expect("the key");
    let plans: Vec<KeyPlan> = ALGORITHMS.iter().map(|algorithm| keys.plan(algorithm, algorithm, None)).collect();
    let tokens = read(&plans);
    // What everybody knows, used as if only the two ends knew it.
    let forger = hmac::Key::new(hmac::HMAC_SHA256, &public);
    let forged = token("HS256", None, &|message| hmac::sign(&forger, message).as_ref().to_vec());
    assert!(tokens.verify(&forged).is_err());
    for says in ["none", "None", "HS384", "RS512", "PS256", "ES384"] {
        assert!(tokens.verify(&token(says, None, &|_| Vec::new())).is_err(), "{says}");
        assert!(tokens.verify(&keys.token(says, "HS256", None)).is_err(), "{says}");
    }
    for garbage in ["", ".", "..", "a.b.c", "e30.e30.", &"x.".repeat(10_000)] {
        assert!(tokens.verify(garbage).is_err(), "{garbage}");
    }
}

#[test]
fn keys_are_found_by_their_names() {
    let keys = Keys::new();
    let tokens = read(&[keys.plan("ES256", "ES256", Some("new")), keys.plan("EdDSA", "EdDSA", None)]);
    assert!(tokens.verify(&keys.token("ES256", "ES256", Some("new"))).is_ok());
    assert!(tokens.verify(&keys.token("ES256", "ES256", Some("old"))).is_err());
    assert!(tokens.verify(&keys.token("ES256", "ES256", None)).is_err());
    assert!(tokens.verify(&keys.token("EdDSA", "EdDSA", None)).is_ok());
    assert!(tokens.verify(&keys.token("EdDSA", "EdDSA", Some("new"))).is_err());
}

#[test]
fn files_that_are_no_keys_are_named() {
    let keys = Keys::new();
    let refused = |algorithm: &str, text: &str, words: &str| {
        let path: &Path = &keys.directory.path().join("wrong");
        fs::write(path, text).expect("it can be written");
        let (place, fault) =
            Tokens::read(&[keys.plan("HS256", "HS256", None), keys.plan(algorithm, "wrong", None)], None, None)
                .map(drop)
                .expect_err("it is no key");
        assert!(place == 1 && fault.to_string().contains(words) && fault.path == path, "{fault}");
    };
    refused("HS256", "short\n", "no secret of at least 32 bytes");
    refused("RS256", "no pem", "no public key for RS256");
    refused(
        "ES256",
        &fs::read_to_string(keys.directory.path().join("EdDSA")).expect("a key"),
        "no public key for ES256",
    );
    let private = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/keys/rsa-of-tests-only.key");
    refused("RS256", &fs::read_to_string(private).expect("a key"), "it holds a private key");
}
