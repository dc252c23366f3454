//! The recipe for certificates between regions, and the steps that replace an authority, with the
//! product's own TLS at both ends of each handshake.

use super::{between, text, tool, well};
use crate::support::*;
use onceway::adapters::identity::{self, IdentityFiles};
use onceway::adapters::issue;
use rustls::{ClientConnection, ConnectionCommon, ServerConnection};
use std::ops::DerefMut;

fn name(region: &str) -> RegionName {
    RegionName::parse(region).unwrap()
}

fn authority(folder: &Path) {
    issue::generate(&[name("us-east"), name("eu-west")]).unwrap().write(folder).unwrap();
}

fn load(region: &str, files: &IdentityFiles) -> PeerIdentity {
    PeerIdentity::load(name(region), files).unwrap()
}

/// True if two regions accept each other's identity, in both directions.
fn know_each_other(one: &PeerIdentity, other: &PeerIdentity) -> bool {
    greet(one, other) && greet(other, one)
}

/// Carries a flight over. Returns false if the other end refuses it.
fn flies<F, T>(
    from: &mut impl DerefMut<Target = ConnectionCommon<F>>,
    to: &mut impl DerefMut<Target = ConnectionCommon<T>>,
) -> bool {
    let mut wire = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut wire).unwrap();
    }
    let mut arrived = &wire[..];
    while !arrived.is_empty() {
        to.read_tls(&mut arrived).unwrap();
    }
    to.process_new_packets().is_ok()
}

fn greet(client: &PeerIdentity, server: &PeerIdentity) -> bool {
    let mut dialling =
        ClientConnection::new(client.client_config(), identity::server_name(&server.me)).unwrap();
    let mut listening = ServerConnection::new(server.server_config()).unwrap();
    // TLS 1.3 with client certificates needs three flights.
    for _ in 0..4 {
        if !flies(&mut dialling, &mut listening) || !flies(&mut listening, &mut dialling) {
            return false;
        }
    }
    let named =
        |certificates: Option<&[_]>, region| certificates.is_some_and(|all| identity::region_of(all, region));
    !dialling.is_handshaking()
        && !listening.is_handshaking()
        && named(dialling.peer_certificates(), &server.me)
        && named(listening.peer_certificates(), &client.me)
}

#[test]
fn certificates_by_the_openssl_recipe_are_taken() {
    if tool("openssl", "the openssl recipe of deploy/README.md").is_none() {
        return;
    }
    let guide = text("deploy/README.md");
    let recipe = between(&guide, "```sh openssl\n", "```");
    let folder = tempfile::tempdir().unwrap();
    authority(folder.path());
    let us_east = load("us-east", &identity::files_in(folder.path(), &name("us-east")));
    fs::remove_file(folder.path().join("eu-west.pem")).unwrap();
    fs::remove_file(folder.path().join("eu-west.key")).unwrap();
    well(Command::new("sh").args(["-eu", "-c", recipe]).env("REGION", "eu-west").current_dir(folder.path()));
    let eu_west = load("eu-west", &identity::files_in(folder.path(), &name("eu-west")));
    assert!(know_each_other(&us_east, &eu_west));
}

#[test]
fn replacing_an_authority_takes_three_rounds() {
    let [old, new] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    authority(old.path());
    authority(new.path());
    let read = |folder: &Path| fs::read_to_string(folder.join("ca.pem")).unwrap();
    let both = old.path().join("both.pem");
    fs::write(&both, read(old.path()) + &read(new.path())).unwrap();
    let with = |folder: &Path, region: &str, trusts_both: bool| {
        let mut files = identity::files_in(folder, &name(region));
        if trusts_both {
            files.authorities = both.clone();
        }
        load(region, &files)
    };
    // Each round meets the one before it, region by region.
    let rounds = [(old.path(), false), (old.path(), true), (new.path(), true), (new.path(), false)];
    for pair in rounds.windows(2) {
        let [before, after] = [pair[0], pair[1]].map(|(folder, both)| with(folder, "us-east", both));
        let other = with(pair[0].0, "eu-west", pair[0].1);
        assert!(know_each_other(&before, &other) && know_each_other(&after, &other), "{pair:?}");
    }
    // Without the first round they refuse each other.
    let (fresh, stale) = (with(new.path(), "us-east", true), with(old.path(), "eu-west", false));
    assert!(!know_each_other(&fresh, &stale));
}
