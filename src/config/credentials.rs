//! `credentials.toml`: which token belongs to which tenant, by the token's SHA-256.
//!
//! Neighbours: `gateway::credentials` looks tokens up. The file holds digests only, so that whoever reads it cannot use it. It must
//! never repeat a value of the file in a message: somebody may have written the token itself.

use std::path::Path;

use super::reader::{self, At, Problems, Section, Source};
use super::ring::tenant;
use crate::gateway::credentials::{Credentials, TokenDigest};

/// Reads the file; what is wrong is added to `problems`. Blocks.
pub fn read(path: &Path, wanted_by: &At, problems: &Problems) -> Option<Credentials> {
    let source = Source::read(path, wanted_by, problems)?;
    let document = source.parse(problems)?;
    let top = Section::top(&source, &document, problems);
    let sections = top.tables("credential");
    if sections.is_empty() {
        top.fail("no credential is listed, so nobody could send a key: write a [[credential]] with tenant and sha256");
    }
    let mut credentials = Credentials::default();
    for section in sections {
        let tenant = section.required("tenant", "name the tenant that the token belongs to", tenant);
        let advice = "write the token's digest, as `printf %s TOKEN | sha256sum` prints it";
        let digest = section.required("sha256", advice, digest);
        if let (Some(tenant), Some(digest)) = (tenant, digest)
            && let Some(before) = credentials.insert(digest, tenant)
        {
            section.fail_at(
                "sha256",
                format!("this token is listed already, for tenant {before}: list it once"),
            );
        }
        section.finish();
    }
    top.finish();
    Some(credentials)
}

fn digest(value: &toml::de::DeValue<'_>) -> Result<TokenDigest, String> {
    let wrong =
        "must be 64 hex digits, as `printf %s TOKEN | sha256sum` prints them; never write the token itself";
    let text = reader::text(value)?;
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let bytes: Vec<u8> = digits
        .ok_or(wrong)?
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
        .collect();
    if text.len() != 64 {
        return Err(wrong.to_owned());
    }
    TokenDigest::try_from(bytes).map_err(|_| wrong.to_owned())
}
