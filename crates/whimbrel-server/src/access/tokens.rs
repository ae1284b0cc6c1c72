//! Signed tokens (JWT): the holder of a valid token is the principal that it names.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use ring::digest;
use serde::Deserialize;
use whimbrel_access::Principal;

use super::passwords::{FileFault, read_text};
use super::provider;

/// The longest token, in bytes.
pub const TOKEN_MAX: usize = 16 << 10;

/// Keys at most.
pub const KEYS_MAX: usize = 64;

/// The largest key file, in bytes.
const FILE_MAX: u64 = 64 << 10;

/// The shortest secret for HS256, in bytes (RFC 7518, section 3.2).
const SECRET_MIN: usize = 32;

/// Difference between clocks that is tolerated, in seconds.
const LEEWAY: u64 = 5;

/// Algorithms, by their names in tokens and in the configuration.
pub const ALGORITHMS: &[&str] = &["HS256", "RS256", "ES256", "EdDSA"];

/// A key as it is written in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPlan {
    /// The key's name in tokens (`kid`); `None`: it is for tokens that name no key.
    pub id: Option<String>,
    /// One of [`ALGORITHMS`].
    pub algorithm: String,
    /// File of the public key in PEM; for HS256 of the secret itself, without the end of its line.
    pub file: PathBuf,
}

/// Hash of a key and of the issuer and audience that its tokens must have. Clients let in by a key
/// whose mark is no longer in force are disconnected.
pub type Mark = u64;

struct Key {
    id: Option<String>,
    /// Hash of the key alone.
    key_mark: Mark,
    /// Hash of the key, and of issuer and audience.
    mark: Mark,
    validation: Validation,
    key: DecodingKey,
}

/// The keys by which tokens are verified, and the claims that tokens must have.
pub struct Tokens {
    keys: Vec<Key>,
    /// Issuer and audience that tokens must have, if any.
    claims: [Option<String>; 2],
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

/// Claims of a token. A claim of the wrong type is an error, not absent.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    exp: u64,
    #[serde(default, rename = "nbf")]
    _nbf: Option<u64>,
}

impl Tokens {
    /// Reads the keys. Tokens must have `issuer` and `audience`, if these are given.
    ///
    /// # Errors
    /// The key that cannot be used, by its place, and why.
    pub fn read(plans: &[KeyPlan], issuer: Option<&str>, audience: Option<&str>) -> Result<Tokens, (usize, FileFault)> {
        provider::install();
        let keys = plans.iter().enumerate().map(|(place, plan)| {
            let (algorithm, key, text) = read_key(plan).map_err(|fault| (place, fault))?;
            let mut validation = Validation::new(algorithm);
            let mut required = vec!["exp", "sub"];
            if let Some(issuer) = issuer {
                validation.set_issuer(&[issuer]);
                required.push("iss");
            }
            match audience {
                Some(audience) => {
                    validation.set_audience(&[audience]);
                    required.push("aud");
                }
                None => validation.validate_aud = false,
            }
            validation.set_required_spec_claims(&required);
            (validation.validate_nbf, validation.leeway) = (true, LEEWAY);
            Ok(Key {
                id: plan.id.clone(),
                key_mark: mark(plan, &text, [None, None]),
                mark: mark(plan, &text, [issuer, audience]),
                validation,
                key,
            })
        });
        let claims = [issuer, audience].map(|text| text.map(str::to_owned));
        Ok(Tokens { keys: keys.collect::<Result<_, _>>()?, claims })
    }

    /// The marks of the keys.
    pub fn marks(&self) -> impl Iterator<Item = Mark> {
        self.keys.iter().map(|key| key.mark)
    }

    /// Names of the keys that another set does not have, for messages.
    pub fn not_in(&self, others: Option<&Tokens>) -> Vec<String> {
        let has = |key: &&Key| others.is_some_and(|others| others.keys.iter().any(|it| it.key_mark == key.key_mark));
        let keys = self.keys.iter().filter(|key| !has(key));
        keys.map(|key| key.id.as_ref().map_or_else(|| "one without an id".into(), |id| format!("{id:?}"))).collect()
    }

    /// Issuer and audience that tokens must have, if any.
    pub fn claims(&self) -> &[Option<String>; 2] {
        &self.claims
    }

    /// Whether this looks like a token, and not like a password.
    pub fn is_token(text: &str) -> bool {
        text.len() <= TOKEN_MAX && text.matches('.').count() == 2 && decode_header(text).is_ok()
    }

    /// Verifies a token. Returns its principal, its end, and the mark of its key.
    ///
    /// # Errors
    /// Why it is not valid; for the audit, not for the client.
    pub fn verify(&self, token: &str) -> Result<(Principal, SystemTime, Mark), String> {
        if token.len() > TOKEN_MAX {
            return Err(format!("the token is longer than {TOKEN_MAX} bytes"));
        }
        let header = decode_header(token).map_err(|error| format!("the token cannot be read: {error}"))?;
        if header.crit.is_some() {
            return Err("the token asks for extensions that are not known".into());
        }
        let named = |key: &&Key| key.id == header.kid && key.validation.algorithms.contains(&header.alg);
        let mut why = match &header.kid {
            Some(id) => format!("there is no key {:?} for {:?}", shortened(id), header.alg),
            None => format!("the token names no key, and there is none without a name for {:?}", header.alg),
        };
        for key in self.keys.iter().filter(named) {
            match decode::<Claims>(token, &key.key, &key.validation) {
                Ok(read) => {
                    let until = UNIX_EPOCH.checked_add(Duration::from_secs(read.claims.exp));
                    let until = until.unwrap_or(SystemTime::now() + Duration::from_secs(u32::MAX.into()));
                    let principal = Principal::new(&read.claims.sub);
                    let principal = principal.map_err(|error| format!("its `sub` is no principal: {error}"))?;
                    return Ok((principal, until, key.mark));
                }
                Err(error) => why = format!("the token is not believed: {error}"),
            }
        }
        Err(why)
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

/// The mark of a key with this text, for tokens with these claims.
fn mark(plan: &KeyPlan, text: &str, claims: [Option<&str>; 2]) -> Mark {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in
        [plan.id.as_deref(), Some(&plan.algorithm), Some(text.trim_end_matches(['\r', '\n']))].into_iter().chain(claims)
    {
        // Each part with its length, so that no other division of the same bytes has the same mark.
        context.update(&part.map_or(u64::MAX, |part| part.len() as u64).to_le_bytes());
        context.update(part.unwrap_or_default().as_bytes());
    }
    let bytes: [u8; size_of::<Mark>()] =
        context.finish().as_ref()[..size_of::<Mark>()].try_into().expect("a hash is longer");
    Mark::from_le_bytes(bytes)
}

/// Reads a key. Returns its algorithm, the key, and the text of its file.
fn read_key(plan: &KeyPlan) -> Result<(Algorithm, DecodingKey, String), FileFault> {
    let fault = |cause: String| FileFault { path: plan.file.clone(), line: None, cause };
    let text = read_text(&plan.file, FILE_MAX)?;
    let of_pem = |read: Result<DecodingKey, _>| {
        let what =
            |error: jsonwebtoken::errors::Error| format!("it is no public key for {} in PEM: {error}", plan.algorithm);
        read.map_err(|error| fault(what(error)))
    };
    let read = match plan.algorithm.as_str() {
        "HS256" => {
            let secret = text.trim_end_matches(['\r', '\n']);
            if secret.len() < SECRET_MIN || secret.contains("-----BEGIN") {
                return Err(fault(format!("it is no secret of at least {SECRET_MIN} bytes, which HS256 needs")));
            }
            Ok((Algorithm::HS256, DecodingKey::from_secret(secret.as_bytes())))
        }
        _ if text.contains("PRIVATE KEY") => Err(fault(
            "it holds a private key: the broker needs the public one only, and nobody else may have that".into(),
        )),
        "RS256" => of_pem(DecodingKey::from_rsa_pem(text.as_bytes())).map(|key| (Algorithm::RS256, key)),
        "ES256" => of_pem(DecodingKey::from_ec_pem(text.as_bytes())).map(|key| (Algorithm::ES256, key)),
        "EdDSA" => of_pem(DecodingKey::from_ed_pem(text.as_bytes())).map(|key| (Algorithm::EdDSA, key)),
        other => Err(fault(format!("{other:?} is not known: use one of {}", ALGORITHMS.join(", ")))),
    };
    read.map(|(algorithm, key)| (algorithm, key, text))
}

/// Files of all keys.
pub fn files(plans: &[KeyPlan]) -> impl Iterator<Item = &Path> {
    plans.iter().map(|plan| plan.file.as_path())
}
