//! Secrets and certificates in the files: the mistakes with the message for each, the places of
//! secrets, and a check's report of absent ones.
//!
//! `cases.rs` has all other mistakes and the files that these change. No message repeats a secret.
//! A check refuses the same certificates as a start or a reload.

use crate::config::cases::{CASES, Case, RING};
use crate::config::{files, load, load_with, said, said_with};
use crate::support::*;
use onceway::adapters::issue::generate;
use onceway::config::reader::Problem;
use onceway::config::secret::{Need, SecretSource};
use onceway::config::{Checked, check_region, check_routes, check_witness};

#[rustfmt::skip]
pub const SECRET_CASES: &[Case] = &[
    ("region", "[store]\n", "[admin]\ntoken_file = \"absent\"\n[store]\n",
        "region.toml:10: [admin]: token_file: cannot read absent: No such file or directory (os error 2)"),
    ("region", "[store]\n", "[admin]\ntoken = \"hunter2hunter2hunter2\"\n[store]\n",
        "region.toml:10: [admin]: token is a secret: write token_env with the name of an environment variable, or token_file with the path of a file, that holds the token"),
    ("region", "[store]\n", "[accept]\nkey = \"aHVudGVyMg==\"\nkey_file = \"absent\"\nkey_env = \"X\"\n[store]\n",
        "region.toml:10: [accept]: key is a secret: write key_env with the name of an environment variable, or key_file with the path of a file, that holds 32 bytes as base64 (`openssl rand -base64 32`)\n\
         region.toml:11: [accept]: key_env and key_file are both written: keep one"),
    ("region", "[store]\n", "[accept]\n[store]\n",
        "region.toml:9: [accept]: key_env is missing: write key_env with the name of an environment variable, or key_file with the path of a file, that holds 32 bytes as base64 (`openssl rand -base64 32`)"),
    ("region", "postgres://", "mysql://",
        "region.toml:10: [store]: url: must be a Postgres URL, such as \"postgres://user@host:5432/database\""),
    ("region", "gateway@127.0.0.1/onceway", "gateway@db.internal/onceway",
        "region.toml:10: [store]: url: cannot be used: sslmode is missing, for a server that is not on this machine: write verify-full with sslrootcert=PATH, or require, or disable where the network itself is trusted"),
    ("region", "gateway@127.0.0.1/onceway", "gateway@127.0.0.1/onceway?sslmode=verify-ca&sslrootcert=/ca.pem",
        "region.toml:10: [store]: url: cannot be used: sslmode=verify-ca takes any server that the authority signed for: write verify-full"),
    ("region", "sslmode=disable", "sslmode=prefer",
        "region.toml:23: [provision.publishers]: west: cannot be used: sslmode=prefer falls back to plain text wherever somebody wants that: write verify-full with sslrootcert=PATH, or require, or disable where the network itself is trusted"),
    ("region", "gateway@", "gateway:hunter2@",
        "region.toml:10: [store]: url: holds a password: write url_env with the name of an environment variable, or url_file with the path of a file, that holds the URL"),
    ("region", "url = \"postgres://gateway@127.0.0.1/onceway\"", "url_env = \"ONCEWAY_TEST_UNSET\"",
        "region.toml:10: [store]: url_env: the environment variable ONCEWAY_TEST_UNSET is not set: set it to the secret"),
    ("region", "url = \"postgres://gateway@127.0.0.1/onceway\"", "url_file = \"absent\"",
        "region.toml:10: [store]: url_file: cannot read absent: No such file or directory (os error 2)"),
    ("region", "url = \"postgres://gateway@127.0.0.1/onceway\"", "url_file = \"keys.json\"",
        "region.toml:10: [store]: url_file: keys.json must be a Postgres URL, such as \"postgres://user@host:5432/database\""),
    ("region", "url = \"postgres://gateway@127.0.0.1/onceway\"\n", "",
        "region.toml:9: [store]: url is missing: write url_env with the name of an environment variable, or url_file with the path of a file, that holds the URL"),
    ("region", "[upstream]", "url_env = \"X\"\n[upstream]",
        "region.toml:11: [store]: url and url_env are both written: keep one"),
    ("region", "admin_url_env = \"ONCEWAY_TEST_UNSET\"", "admin_url = \"postgres://h/d?password=hunter2\"",
        "region.toml:21: [provision]: admin_url: holds a password: write admin_url_env with the name of an environment variable, or admin_url_file with the path of a file, that holds the URL"),
    ("region", "ONCEWAY_TEST_UNSET\"\n", "X\"\ngateway_password = \"hunter2\"\nreplication_password = \"hunter2\"\n",
        "region.toml:22: [provision]: gateway_password is a secret: write gateway_password_env with the name of an environment variable, or gateway_password_file with the path of a file, that holds the password\n\
         region.toml:23: [provision]: replication_password is a secret: write replication_password_env with the name of an environment variable, or replication_password_file with the path of a file, that holds the password"),
    ("region", "user=r", "user=r password=hunter2",
        "region.toml:23: [provision.publishers]: west: holds a password: write { env = \"NAME\" } with the name of an environment variable, or { file = \"PATH\" }, that holds the whole string"),
    ("region", "\"host=west user=r dbname=onceway sslmode=disable\"", "{ variable = \"X\" }",
        "region.toml:23: [provision.publishers]: west: must be a connection string without a password; else write { env = \"NAME\" } with the name of an environment variable, or { file = \"PATH\" }, that holds the whole string"),
];

#[test]
fn no_secret_is_shown() {
    let shown = format!("{:?}", load_with(&[]));
    assert!(shown.contains("(secret)"));
    assert!(!shown.contains("gateway@") && !shown.contains("user=r"), "{shown}");
    assert!(SECRET_CASES.iter().filter(|(_, _, to, _)| to.contains("hunter2")).count() > 4);
    for (file, from, to, _) in CASES.iter().chain(SECRET_CASES) {
        let said = said_with(&[(file, from, to)]).join("\n");
        for secret in ["hunter2", "aHVudGVyMg", "sk_secret", "user=r", "ba7816", "c2VjcmV0"] {
            assert!(!said.contains(secret), "{said}");
        }
    }
}

#[test]
fn the_environment_may_hold_the_store_url() {
    let written = "url = \"postgres://gateway@127.0.0.1/onceway\"";
    let folder = files(&[("region", written, "url_env = \"STORE\"")]);
    let file = folder.path().join("region.toml");
    let url = "postgres://somebody@elsewhere/onceway?sslmode=verify-full&sslrootcert=/ca.pem";
    let config = Config::load_with(&file, &|name| (name == "STORE").then(|| url.to_owned())).unwrap();
    assert_eq!(config.process.store.url.reveal(), url);
    let wrong = Config::load_with(&file, &|_| Some("mysql://hunter2".to_owned())).unwrap_err().to_string();
    assert!(wrong.contains("STORE must be a Postgres URL") && !wrong.contains("hunter2"), "{wrong}");
}

#[test]
fn secrets_may_lie_in_files() {
    let folder = files(&[
        ("region", "url = \"postgres://gateway@127.0.0.1/onceway\"", "url_file = \"url\""),
        ("region", "\"host=west user=r dbname=onceway sslmode=disable\"", "{ file = \"west\" }"),
    ]);
    fs::write(folder.path().join("url"), "postgres://gateway:hunter2@127.0.0.1/onceway\n").unwrap();
    let config = load(folder.path()).unwrap();
    assert_eq!(config.process.store.url.reveal(), "postgres://gateway:hunter2@127.0.0.1/onceway");
    // A secret that only `store init` needs is read when that needs it.
    let west = folder.path().join("west");
    let publishers = config.process.provision.unwrap().publishers;
    assert_eq!(publishers.into_values().collect::<Vec<_>>(), [SecretSource::File(west)]);
}

const INCOMPLETE: [(&str, &str, &str); 4] = [
    ("region", "\"host=west user=r dbname=onceway sslmode=disable\"", "{ file = \"west\" }"),
    (
        "region",
        "gateway@127.0.0.1/onceway",
        "gateway@127.0.0.1/onceway?sslmode=verify-full&sslrootcert=/nowhere/ca.pem&sslcert=/nowhere/us.pem&sslkey=/nowhere/us.key",
    ),
    ("region", "[provision]\n", "[provision]\npublishers_ca = \"servers.pem\"\n"),
    (
        "region",
        "[store]\n",
        "[admin]\ntoken_file = \"token\"\n[listen.tls]\ncertificate = \"public.pem\"\nkey = \"public.key\"\n[store]\n",
    ),
];

/// The advice but for that on the one route of the good files that reruns.
fn unexpected(advice: &[Problem]) -> Vec<(usize, String)> {
    let reruns = |text: &str| text.starts_with("route \"emails\" runs a key in doubt again");
    assert_eq!(advice.iter().filter(|one| reruns(&one.text)).count(), 1, "{advice:?}");
    let others = advice.iter().filter(|one| !reruns(&one.text));
    others.map(|one| (one.line, one.text.clone())).collect()
}

#[test]
fn a_check_tells_what_is_missing_here_from_what_is_wrong() {
    let folder = files(&INCOMPLETE);
    let check_for = |need, environment| {
        let Checked { value, wrong, missing, advice } =
            check_region(&folder.path().join("region.toml"), environment, need);
        let lines = |all: Vec<Problem>| -> Vec<String> {
            let gone = "No such file or directory (os error 2)";
            let shown = |one: Problem| one.to_string().replace(&format!("{}/", folder.path().display()), "");
            all.into_iter().map(|one| shown(one).replace(gone, "gone")).collect()
        };
        assert!(unexpected(&advice).is_empty(), "{advice:?}");
        (value.is_some(), lines(wrong), lines(missing))
    };
    let check = |environment| check_for(Need::All, environment);
    let pem = |line: u32, key: &str, name: &str| {
        format!("region.toml:{line}: [peer]: {key}: cannot read {name}: gone")
    };
    let store = |name: &str| format!("region.toml:15: [store]: url: cannot read /nowhere/{name}: gone");
    let all = [
        "region.toml:10: [admin]: token_file: cannot read token: gone".to_owned(),
        "region.toml:12: [listen.tls]: certificate: cannot read public.pem: gone".to_owned(),
        "region.toml:13: [listen.tls]: key: cannot read public.key: gone".to_owned(),
        store("ca.pem"),
        store("us.pem"),
        store("us.key"),
        pem(20, "certificate", "east.pem"),
        pem(21, "key", "east.key"),
        pem(22, "ca", "ca.pem"),
        "region.toml:26: [provision]: publishers_ca: cannot read servers.pem: gone".to_owned(),
        "region.toml:27: the environment variable ONCEWAY_TEST_UNSET is not set: set it to the secret"
            .to_owned(),
        "region.toml:29: cannot read west: gone".to_owned(),
    ];
    assert_eq!(check(&|_| None), (true, Vec::new(), all.to_vec()));
    // Gateways need no secrets of `onceway store`: the last three lines.
    assert_eq!(check_for(Need::Gateway, &|_| None), (true, Vec::new(), all[..all.len() - 3].to_vec()));
    // An existing secret must be right, no matter which command needs it.
    generate(&[RegionName::parse("east").unwrap()]).unwrap().write(folder.path()).unwrap();
    for (name, text) in [("token", "short"), ("west", "host=west password=hunter2")] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let (right, wrong, missing) = check(&|_| Some("mysql://hunter2".to_owned()));
    assert!(!right && missing.len() == 6, "{missing:?}");
    assert_eq!(wrong.len(), 3, "{wrong:?}");
    let parts = [
        "token must hold one token",
        "ONCEWAY_TEST_UNSET must be a Postgres URL",
        ":29: west has no dbname=",
    ];
    assert!(wrong.iter().zip(parts).all(|(line, part)| line.contains(part)), "{wrong:?}");
    assert!(!wrong.concat().contains("hunter2"), "{wrong:?}");
    // A starting gateway does without other commands' secrets, never without its own.
    let refused = said(folder.path());
    assert!(refused.len() == 1 && refused[0].contains("[admin]"), "{refused:?}");
}

#[test]
fn an_admin_listener_open_to_others_takes_its_token_from_a_file() {
    let open = ("region", "127.0.0.1:7402", "0.0.0.0:7402");
    let folder = files(&[open, ("region", "[store]\n", "[admin]\ntoken_file = \"token\"\n[store]\n")]);
    fs::write(folder.path().join("token"), "short\n").unwrap();
    let too_short = said(folder.path());
    assert!(too_short.len() == 1 && too_short[0].contains("16 or more"), "{too_short:?}");
    fs::write(folder.path().join("token"), "a-token-of-25-characters-\n").unwrap();
    let config = load(folder.path()).unwrap();
    assert_eq!(config.process.admin.token.unwrap().reveal(), "a-token-of-25-characters-");
}

/// The lines of the advice on a file of routes that begins so; there is none if nothing is advised.
fn advised(file: &Path, is_advised: bool, begins: &str) -> Vec<usize> {
    let checked = check_routes(file);
    assert!(checked.wrong.is_empty() && checked.missing.is_empty(), "{checked:?}");
    let advised = unexpected(&checked.advice);
    assert_eq!(advised.len(), usize::from(is_advised), "{advised:?}");
    assert!(advised.iter().all(|(_, text)| text.starts_with(begins)), "{advised:?}");
    advised.into_iter().map(|(line, _)| line).collect()
}

/// No strictness refuses a route that trusts a bare 503.
#[test]
fn a_check_warns_of_a_route_that_trusts_a_bare_503() {
    for (lines, trusts) in [("", false), ("nothing_happened = [429, 503]", true), ("final = [503]", false)] {
        let folder = files(&[("routes", "hold = \"10s\"", &format!("hold = \"10s\"\n{lines}"))]);
        let what = "route \"charges\" takes a 503 without Retry-After";
        let lines = advised(&folder.path().join("routes.toml"), trusts, what);
        assert!(lines.iter().all(|line| *line == 1), "{lines:?}");
    }
}

/// A catch-all without keys passes each request that the routes before it do not match.
#[test]
fn a_check_warns_of_a_catch_all_without_keys_behind_routes_with_keys() {
    for (rest, warned) in [
        ("path = \"/*\"", true),
        ("path = \"/v1/*\"\nmethods = [\"GET\", \"PUT\"]", true),
        ("path = \"/*\"\nmethods = [\"GET\", \"HEAD\"]", false),
        ("path = \"/v2/*\"", false),
        ("path = \"/v1/lookup\"", false),
    ] {
        let folder = files(&[]);
        let file = folder.path().join("routes.toml");
        let catch_all = format!("\n[[route]]\nname = \"rest\"\nkey = \"off\"\n{rest}");
        let written = fs::read_to_string(&file).unwrap() + &catch_all;
        fs::write(&file, &written).unwrap();
        let at = written.lines().count() - rest.lines().count() - 2;
        let lines = advised(&file, warned, "route \"rest\" lets all other paths under");
        assert!(lines.iter().all(|line| *line == at), "{rest}: {lines:?}");
    }
}

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
        fs::copy(folder.path().join(&toml), made.path().join(&toml)).unwrap();
    }
    for (of, to) in [
        ("west.pem", "public.pem"),
        ("west.key", "public.key"),
        ("west.pem", "store.pem"),
        ("west.key", "store.key"),
        ("ca.pem", "store-ca.pem"),
        ("ca.pem", "publishers.pem"),
    ] {
        fs::copy(made.path().join(of), made.path().join(to)).unwrap();
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
type Replaced = (&'static [(&'static str, &'static str)], &'static str);

#[rustfmt::skip]
const CERTIFICATES: &[Replaced] = &[
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
    for (replaced, expected) in CERTIFICATES {
        let folder = certified();
        let others = certified();
        for (file, by) in *replaced {
            let by = if by.is_empty() {
                GARBAGE.to_owned()
            } else {
                fs::read_to_string(others.path().join(by)).unwrap()
            };
            fs::write(folder.path().join(file), by).unwrap();
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
    fs::remove_file(folder.path().join("east.key")).unwrap();
    fs::remove_file(folder.path().join("store.pem")).unwrap();
    // A folder does not count as a file.
    fs::create_dir(folder.path().join("store.pem")).unwrap();
    for file in ["ca.pem", "store.key"] {
        fs::write(folder.path().join(file), GARBAGE).unwrap();
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
    fs::write(folder.path().join("east.pem"), pem).unwrap();
    fs::write(folder.path().join("east.key"), key.serialize_pem()).unwrap();
    assert_eq!(wrong(folder.path(), Need::All), [""; 0]);
}

#[test]
fn a_witness_is_checked_alike() {
    let folder = certified();
    let file = folder.path().join("witness.toml");
    let text = "name = \"west\"\nring = \"ring.toml\"\nfile = \"state\"\n[listen]\npeer = \"127.0.0.1:1\"\nadmin = \"127.0.0.1:2\"\n\
                [peer]\ncertificate = \"east.pem\"\nkey = \"west.key\"\nca = \"ca.pem\"\n";
    fs::write(&file, text).unwrap();
    let ring = RING.replace("\"west\"", "\"north\"") + "[[witness]]\nname = \"west\"\n";
    fs::write(folder.path().join("ring.toml"), ring).unwrap();
    let checked = check_witness(&file, &|_| None);
    let said: Vec<String> = checked.wrong.iter().map(ToString::to_string).collect();
    assert!(said.len() == 1 && said[0].contains("witness.toml:8: [peer]: certificate: "), "{said:#?}");
    fs::write(&file, text.replace("east.pem", "west.pem")).unwrap();
    let checked = check_witness(&file, &|_| None);
    assert!(checked.value.is_some() && checked.wrong.is_empty(), "{:#?}", checked.wrong);
}
