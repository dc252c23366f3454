//! Certificates and keys that the files name: a check refuses the same files as a start or a
//! reload.
//!
//! The files are those of `cases.rs`, beside real certificates; `secrets.rs` has files that are not
//! on this machine.

use std::path::Path;

use onceway::adapters::issue::generate;
use onceway::config::secret::Need;
use onceway::config::{check_region, check_witness};
use onceway::protocol::region::RegionName;
use tempfile::TempDir;

use crate::config::cases::RING;
use crate::config::files;

const GARBAGE: &str = "nothing to see";

/// The good files with certificates for clients and for the store: valid ones of east and west.
fn certified() -> TempDir {
    let made = tempfile::tempdir().unwrap();
    let regions = ["east", "west"].map(|name| RegionName::parse(name).unwrap());
    generate(&regions).unwrap().write(made.path()).unwrap();
    let at = |name: &str| made.path().join(name).display().to_string();
    let url = format!(
        "gateway@127.0.0.1/onceway?sslmode=verify-full&sslrootcert={}&sslcert={}&sslkey={}",
        at("store-ca.pem"),
        at("store.pem"),
        at("store.key")
    );
    let folder = files(&[
        ("region", "gateway@127.0.0.1/onceway", &url),
        ("region", "[provision]\n", "[provision]\npublishers_ca = \"publishers.pem\"\n"),
        (
            "region",
            "[store]\n",
            "[listen.tls]\ncertificate = \"public.pem\"\nkey = \"public.key\"\n[store]\n",
        ),
    ]);
    for toml in ["region", "ring", "routes", "credentials"].map(|name| format!("{name}.toml")) {
        std::fs::copy(folder.path().join(&toml), made.path().join(&toml)).unwrap();
    }
    for (of, to) in [
        ("west.pem", "public.pem"),
        ("west.key", "public.key"),
        ("west.pem", "store.pem"),
        ("west.key", "store.key"),
        ("ca.pem", "store-ca.pem"),
        ("ca.pem", "publishers.pem"),
    ] {
        std::fs::copy(made.path().join(of), made.path().join(to)).unwrap();
    }
    made
}

fn wrong(folder: &Path, need: Need) -> Vec<String> {
    let checked = check_region(&folder.join("region.toml"), &|_| None, need);
    assert_eq!(checked.value.is_some(), checked.wrong.is_empty());
    let shown = |problem: String| problem.replace(&format!("{}/", folder.display()), "");
    checked.wrong.iter().map(|problem| shown(problem.to_string())).collect()
}

/// The replaced files with their replacements, and the beginning of each message, a line each.
type Case = (&'static [(&'static str, &'static str)], &'static str);

#[rustfmt::skip]
const CASES: &[Case] = &[
    (&[], ""),
    (&[("east.key", "west.key")],
        "region.toml:19: [peer]: key: east.key: cannot be used with east.pem: "),
    (&[("east.pem", "west.pem")],
        "region.toml:18: [peer]: certificate: east.pem: the certificate does not name east.onceway as a DNS name"),
    (&[("ca.pem", "")],
        "region.toml:20: [peer]: ca: ca.pem: no PEM certificate in it"),
    (&[("east.pem", ""), ("east.key", ""), ("ca.pem", "")],
        "region.toml:18: [peer]: certificate: east.pem: no PEM certificate in it\n\
         region.toml:19: [peer]: key: east.key: no PEM private key: \n\
         region.toml:20: [peer]: ca: ca.pem: no PEM certificate in it"),
    (&[("public.key", "east.key")],
        "region.toml:11: [listen.tls]: key: public.key: cannot be used with public.pem: "),
    (&[("public.pem", ""), ("public.key", "")],
        "region.toml:10: [listen.tls]: certificate: public.pem: no PEM certificate in it\n\
         region.toml:11: [listen.tls]: key: public.key: no PEM private key: "),
    (&[("store.key", "east.key")],
        "region.toml:13: [store]: url: store.key: cannot be used with store.pem: "),
    (&[("store-ca.pem", ""), ("store.pem", ""), ("store.key", "")],
        "region.toml:13: [store]: url: store-ca.pem: no PEM certificate in it\n\
         region.toml:13: [store]: url: store.pem: no PEM certificate in it\n\
         region.toml:13: [store]: url: store.key: no PEM private key: "),
    (&[("publishers.pem", "")],
        "region.toml:24: [provision]: publishers_ca: publishers.pem: no PEM certificate in it"),
];

#[test]
fn a_check_refuses_certificates_that_a_gateway_would() {
    for (replaced, expected) in CASES {
        let folder = certified();
        let others = certified();
        for (file, by) in *replaced {
            let by = if by.is_empty() {
                GARBAGE.to_owned()
            } else {
                std::fs::read_to_string(others.path().join(by)).unwrap()
            };
            std::fs::write(folder.path().join(file), by).unwrap();
        }
        let said = wrong(folder.path(), Need::All);
        let begins = said.iter().zip(expected.lines()).all(|(line, begin)| line.starts_with(begin));
        assert!(begins && said.len() == expected.lines().count(), "{replaced:?}: {said:#?}");
        // Files that only `onceway store` reads are not on a gateway's machine.
        let of_gateways = said.iter().filter(|line| !line.contains("[provision]"));
        assert!(wrong(folder.path(), Need::Gateway).iter().eq(of_gateways), "{replaced:?}");
    }
}

#[test]
fn a_file_that_is_not_here_hides_nothing_of_the_others() {
    let folder = certified();
    std::fs::remove_file(folder.path().join("east.key")).unwrap();
    std::fs::remove_file(folder.path().join("store.pem")).unwrap();
    // A folder does not count as a file.
    std::fs::create_dir(folder.path().join("store.pem")).unwrap();
    for file in ["ca.pem", "store.key"] {
        std::fs::write(folder.path().join(file), GARBAGE).unwrap();
    }
    let checked = check_region(&folder.path().join("region.toml"), &|_| None, Need::Gateway);
    assert_eq!(checked.missing.len(), 2, "{:#?}", checked.missing);
    let said = wrong(folder.path(), Need::Gateway);
    assert_eq!(said.len(), 2, "{said:#?}");
    assert!(said[0].contains("store.key: no PEM") && said[1].contains("ca.pem"), "{said:#?}");
}

#[test]
fn an_expired_certificate_is_no_mistake_in_the_files() {
    let folder = certified();
    let mut params = rcgen::CertificateParams::new(vec!["east.onceway".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    std::fs::write(folder.path().join("east.pem"), pem).unwrap();
    std::fs::write(folder.path().join("east.key"), key.serialize_pem()).unwrap();
    assert_eq!(wrong(folder.path(), Need::All), [""; 0]);
}

#[test]
fn a_witness_is_checked_alike() {
    let folder = certified();
    let file = folder.path().join("witness.toml");
    let text = "name = \"west\"\nring = \"ring.toml\"\nfile = \"state\"\n[listen]\npeer = \"127.0.0.1:1\"\nadmin = \"127.0.0.1:2\"\n\
                [peer]\ncertificate = \"east.pem\"\nkey = \"west.key\"\nca = \"ca.pem\"\n";
    std::fs::write(&file, text).unwrap();
    let ring = RING.replace("\"west\"", "\"north\"") + "[[witness]]\nname = \"west\"\n";
    std::fs::write(folder.path().join("ring.toml"), ring).unwrap();
    let checked = check_witness(&file, &|_| None);
    let said: Vec<String> = checked.wrong.iter().map(ToString::to_string).collect();
    assert!(said.len() == 1 && said[0].contains("witness.toml:8: [peer]: certificate: "), "{said:#?}");
    std::fs::write(&file, text.replace("east.pem", "west.pem")).unwrap();
    let checked = check_witness(&file, &|_| None);
    assert!(checked.value.is_some() && checked.wrong.is_empty(), "{:#?}", checked.wrong);
}
