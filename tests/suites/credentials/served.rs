//! Credentials of a running gateway: changing files, the trusted front's door, keys bound to a
//! principal. One region serves all tests of this file, one after the other. The route `payouts`
//! binds its keys to the principal, so every token in the file names one.

use crate::credentials::signing::{SigningKey, jwks};
use crate::reload::reload;
use crate::support::solo::{add_lines, routes};
use crate::support::*;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{Mutex, MutexGuard};

const ISS: &str = "https://accounts.test";

struct Site {
    solo: Solo,
    trusted: String,
}

/// The region, for one test alone.
async fn site() -> MutexGuard<'static, Site> {
    static SITE: OnceCell<Mutex<Site>> = OnceCell::const_new();
    let start = || async {
        let port = free_run(1).unwrap();
        let bound = routes().replacen("name = \"payouts\"", "name = \"payouts\"\nbind = \"principal\"", 1);
        let edit = |dir: &Path| {
            fs::write(dir.join("credentials.toml"), tokens()).unwrap();
            let door = format!(
                "[listen.trusted]\naddress = \"127.0.0.1:{port}\"\ntenant_header = \"X-Tenant\"\nprincipal_header = \"X-User\"\nfrom = [\"127.0.0.1\"]\n"
            );
            add_lines(dir, &door);
        };
        let solo = Solo::start_with(&bound, None, edit).await;
        Mutex::new(Site { solo, trusted: format!("http://127.0.0.1:{port}") })
    };
    SITE.get_or_init(start).await.lock().await
}

fn tokens() -> String {
    let token = |token: &str, tenant: &str, principal: &str| {
        let digest = sha256(token);
        format!("[[credential]]\ntenant = \"{tenant}\"\nprincipal = \"{principal}\"\nsha256 = \"{digest}\"\n")
    };
    token("sk_ann", "acme", "ann") + &token("sk_bob", "acme", "bob") + &token("sk_globex", "globex", "ann")
}

fn issuer() -> String {
    format!(
        "[[issuer]]\nname = \"accounts\"\niss = \"{ISS}\"\njwks = \"keys.json\"\nalgorithms = [\"ES256\"]\naudience = [\"api\"]\ntenant_claim = \"tenant\"\n"
    )
}

fn claims() -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    json!({"iss": ISS, "aud": "api", "exp": now + 3_600, "tenant": "acme", "sub": "ann"})
}

async fn post(base: &str, path: &str, headers: &[(&str, &str)], key: &str) -> Answer {
    let mut request = Ask::post(format!("{base}{path}"), BODY).with("Idempotency-Key", key);
    for (name, value) in headers {
        request = request.with(name, *value);
    }
    ask(request).await
}

impl Site {
    async fn send(&self, token: &str, path: &str, key: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        post(&self.solo.public(), path, &[("Authorization", &bearer)], key).await
    }

    async fn accepts(&self, token: &str) -> bool {
        self.send(token, "/v1/charges", &key("probe")).await.status.as_u16() != 401
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.solo.dir.join(file), text).unwrap();
    }
}

#[test]
fn signing_keys_rotate_under_a_running_gateway() {
    run(async {
        let site = site().await;
        let (old, new) = (SigningKey::new("old", "ES256"), SigningKey::new("new", "ES256"));
        assert!(!site.accepts(&old.token(&claims())).await, "the issuer is not known yet");
        site.write("keys.json", &jwks(&[&old]));
        reload(&site.solo, "ok", || site.write("credentials.toml", &(issuer() + &tokens()))).await;
        let kept = key("rotated");
        let first = site.send(&old.token(&claims()), "/v1/payouts", &kept).await;
        assert_eq!(first.status.as_u16(), 201, "{}", first.text());
        // Only the file of keys changes now.
        reload(&site.solo, "ok", || site.write("keys.json", &jwks(&[&new]))).await;
        let refused = site.send(&old.token(&claims()), "/v1/payouts", &kept).await;
        assert_eq!((refused.status.as_u16(), code(&refused).as_str()), (401, "credential-invalid"));
        let again = site.send(&new.token(&claims()), "/v1/payouts", &kept).await;
        assert_eq!((again.header("idempotent-replayed"), again.text()), ("true", first.text()));
        assert_eq!(effects(&site.solo.ledger, &kept), 1);
        let url = format!("{}/.well-known/idempotency", site.solo.public());
        let contract = ask(Ask::get(url)).await.json();
        let payouts = contract["routes"].as_array().unwrap().iter().find(|route| route["name"] == "payouts");
        assert_eq!(payouts.unwrap()["replayed_to"], "principal");
        let mut expired = claims();
        expired["exp"] = json!(expired["exp"].as_u64().unwrap() - 7_200);
        assert!(!site.accepts(&new.token(&expired)).await, "by the real clock");
        reload(&site.solo, "ok", || site.write("credentials.toml", &tokens())).await;
        assert!(!site.accepts(&new.token(&claims())).await, "the issuer was taken out");
    });
}

#[test]
fn a_trusted_front_names_tenants_at_its_listener_only() {
    run(async {
        let site = site().await;
        let (public, kept) = (site.solo.public(), key("vouched"));
        let first = post(&site.trusted, "/v1/charges", &[("X-Tenant", "acme")], &kept).await;
        assert_eq!(first.status.as_u16(), 201, "{}", first.text());
        // The same account with a credential of its own: the same key.
        let again = site.send("sk_bob", "/v1/charges", &kept).await;
        assert_eq!((again.header("idempotent-replayed"), again.text()), ("true", first.text()));
        let others = post(&site.trusted, "/v1/charges", &[("X-Tenant", "globex")], &kept).await;
        assert_eq!((others.status.as_u16(), others.header("idempotent-replayed")), (201, ""));
        let bearer = ("Authorization", "Bearer sk_ann");
        for (base, headers) in [
            (&public, &[("X-Tenant", "acme"), ("X-User", "ann")][..]),
            (&site.trusted, &[bearer]),
            (&site.trusted, &[("X-Tenant", ""), bearer]),
        ] {
            let unused = key("unused");
            let refused = post(base, "/v1/charges", headers, &unused).await;
            assert_eq!((refused.status.as_u16(), code(&refused).as_str()), (401, "credential-invalid"));
            assert_eq!(effects(&site.solo.ledger, &unused), 0, "{base} {headers:?}");
        }
        // The public door does not even look at the header.
        let mine = key("mine");
        let named = [bearer, ("X-Tenant", "globex")];
        assert_eq!(post(&public, "/v1/charges", &named, &mine).await.status.as_u16(), 201);
        let again = site.send("sk_ann", "/v1/charges", &mine).await;
        assert_eq!(again.header("idempotent-replayed"), "true");
        // Another address gets in at the public door only.
        for (base, begin) in [(&public, "HTTP/1.1 401"), (&site.trusted, "")] {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
            let at = base.strip_prefix("http://").unwrap().parse().unwrap();
            let mut stream = socket.connect(at).await.unwrap();
            let head = "POST /v1/charges HTTP/1.1\r\nHost: a\r\nX-Tenant: acme\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
            // A refused connection may be gone before this is written.
            let _ = stream.write_all(head.as_bytes()).await;
            let mut answer = Vec::new();
            let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an end");
            let answer = String::from_utf8(answer).unwrap();
            assert!(answer.starts_with(begin) && answer.is_empty() == begin.is_empty(), "{base}: {answer}");
        }
    });
}
