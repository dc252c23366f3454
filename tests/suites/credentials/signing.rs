//! An issuer for tests: keys, their public halves as JWKs, and tokens assembled by hand, right ones
//! and wrong ones. With the verifier's encoder, the verifier would be tested against itself.
//! `rsa.pem` was made for these tests and opens nothing.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
    RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use serde_json::{Value, json};

enum Pair {
    Ec(&'static str, EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Rsa(&'static dyn RsaEncoding, Box<RsaKeyPair>),
}

pub struct SigningKey {
    pub kid: String,
    pub alg: &'static str,
    pair: Pair,
}

impl SigningKey {
    /// A fresh key; for RSA the one in the file.
    pub fn new(kid: &str, alg: &'static str) -> Self {
        let ec = |curve, algorithm: &'static EcdsaSigningAlgorithm| {
            let random = SystemRandom::new();
            let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            Pair::Ec(curve, EcdsaKeyPair::from_pkcs8(algorithm, made.as_ref(), &random).unwrap())
        };
        let rsa = |encoding| {
            let lines = include_str!("rsa.pem").lines().filter(|line| !line.starts_with("-----"));
            let key = STANDARD.decode(lines.collect::<String>()).unwrap();
            Pair::Rsa(encoding, Box::new(RsaKeyPair::from_pkcs8(&key).unwrap()))
        };
        let pair = match alg {
            "ES256" => ec("P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
            "ES384" => ec("P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
            "EdDSA" => {
                let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
                Pair::Ed(Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap())
            }
            "RS256" => rsa(&RSA_PKCS1_SHA256),
            "RS384" => rsa(&RSA_PKCS1_SHA384),
            "RS512" => rsa(&RSA_PKCS1_SHA512),
            "PS256" => rsa(&RSA_PSS_SHA256),
            "PS384" => rsa(&RSA_PSS_SHA384),
            "PS512" => rsa(&RSA_PSS_SHA512),
            _ => panic!("no key signs {alg}"),
        };
        Self { kid: kid.to_owned(), alg, pair }
    }

    pub fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Ec(curve, pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y)})
            }
            Pair::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref())})
            }
            Pair::Rsa(_, pair) => {
                let public: PublicKeyComponents<Vec<u8>> = pair.public().into();
                json!({"kty": "RSA", "n": encode(&public.n), "e": encode(&public.e)})
            }
        };
        jwk["kid"] = json!(self.kid);
        jwk
    }

    pub fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"typ": "JWT", "alg": self.alg, "kid": self.kid}), claims)
    }

    /// A token with any header and a correct signature.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Ec(_, pair) => pair.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
            Pair::Rsa(encoding, pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(*encoding, &random, message.as_bytes(), &mut signature).unwrap();
                signature
            }
        };
        format!("{message}.{}", encode(&signature))
    }
}

pub fn message(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()))
}

pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub fn jwks(keys: &[&SigningKey]) -> String {
    json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()}).to_string()
}
