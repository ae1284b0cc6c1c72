//! Checks signatures of tokens with ring, the only crypto provider.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, EncodingKey};
use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider =
    CryptoProvider { signer_factory: no_signer, verifier_factory: verifier, key_utils: KeyUtils::new_unimplemented() };

/// Installs ring as the provider that checks tokens.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    // Nothing else in this process uses tokens; another provider installed before would check them.
    ONCE.call_once(|| {
        let _ = PROVIDER.install_default();
    });
}

/// The broker makes no tokens.
fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let bytes = key.try_get_as_bytes()?;
    let public = |family, by: &'static dyn VerificationAlgorithm| {
        let kind = Kind::Public(UnparsedPublicKey::new(by, bytes.to_vec()));
        // A token names its algorithm: a key of another family must not be used for it.
        if key.family() == family { Ok(kind) } else { Err(Error::from(ErrorKind::InvalidAlgorithm)) }
    };
    let kind = match algorithm {
        Algorithm::HS256 if key.family() == AlgorithmFamily::Hmac => {
            Kind::Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes))
        }
        Algorithm::RS256 => public(AlgorithmFamily::Rsa, &RSA_PKCS1_2048_8192_SHA256)?,
        Algorithm::ES256 => public(AlgorithmFamily::Ec, &ECDSA_P256_SHA256_FIXED)?,
        Algorithm::EdDSA => public(AlgorithmFamily::Ed, &ED25519)?,
        _ => return Err(ErrorKind::InvalidAlgorithm.into()),
    };
    Ok(Box::new(Verifier { algorithm: *algorithm, kind }))
}

enum Kind {
    Secret(hmac::Key),
    Public(UnparsedPublicKey<Vec<u8>>),
}

struct Verifier {
    algorithm: Algorithm,
    kind: Kind,
}

impl signature::Verifier<Vec<u8>> for Verifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let is_right = match &self.kind {
            Kind::Secret(key) => hmac::verify(key, message, signature),
            Kind::Public(key) => key.verify(message, signature),
        };
        is_right.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Verifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
