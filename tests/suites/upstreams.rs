//! A named upstream in front of a real gateway: two endpoints behind TLS with our own credential,
//! keys from other headers, and endpoints that are killed. Effects are counted at the endpoints,
//! which see every request. `net::verdicts` plays each failure by itself.

use crate::net::support::{Pki, read_request, region};
use crate::support::solo::add_lines;
use crate::support::*;
use onceway::adapters::tls::load;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

const ANSWER: &str = "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nmade";
const REFUSAL: &str = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
const ROUTE: &str = "hold = \"10s\"\nupstream_timeout = \"2s\"\nrecovery = \"park\"\n\
    key_from = [\"header:Idempotency-Key\", \"header:X-Idempotency-Key\"]\nforward_key = \"bare\"\nforward_key_header = \"X-Request-Key\"\n";

type Seen = Arc<Mutex<Vec<BTreeMap<String, String>>>>;

/// One endpoint: it answers each request, until it is killed.
struct Door {
    port: u16,
    acceptor: TlsAcceptor,
    seen: Seen,
    running: Mutex<Vec<AbortHandle>>,
}

impl Door {
    async fn open(pki: &Pki, seen: &Seen) -> Arc<Self> {
        let files = files_in(pki.path(), &region("us"));
        let acceptor = TlsAcceptor::from(Arc::new(load(&files.certificate, &files.key).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let door = Arc::new(Self { port, acceptor, seen: seen.clone(), running: Mutex::default() });
        door.serve(listener);
        door
    }

    fn serve(self: &Arc<Self>, listener: TcpListener) {
        let door = self.clone();
        let all = async move {
            while let Ok((stream, _)) = listener.accept().await {
                let one = tokio::spawn(door.clone().answer(stream)).abort_handle();
                door.running.lock().unwrap().push(one);
            }
        };
        self.running.lock().unwrap().push(tokio::spawn(all).abort_handle());
    }

    async fn answer(self: Arc<Self>, stream: TcpStream) {
        let Ok(mut stream) = self.acceptor.accept(stream).await else { return };
        while let Some(request) = read_request(&mut stream).await {
            let lines = request.lines().filter_map(|line| line.split_once(": "));
            let headers: BTreeMap<String, String> =
                lines.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
            let answer = if headers.contains_key("x-refuse") { REFUSAL } else { ANSWER };
            self.seen.lock().unwrap().push(headers);
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

struct Stage {
    solo: Solo,
    seen: Seen,
    doors: [Arc<Door>; 2],
    /// Another service, whose endpoints are killed.
    killed: [Arc<Door>; 2],
    _pki: Pki,
}

async fn stage() -> &'static Stage {
    static STAGE: OnceCell<Stage> = OnceCell::const_new();
    STAGE
        .get_or_init(|| async {
            let (pki, seen) = (Pki::new(&["us"]), Seen::default());
            let mut pairs = Vec::new();
            for _ in 0..2 {
                pairs.push([Door::open(&pki, &seen).await, Door::open(&pki, &seen).await]);
            }
            let routes = [
                route("charges", &format!("key = \"required\"\nupstream = \"pay\"\n{ROUTE}")),
                route("payouts", &format!("key = \"required\"\nupstream = \"killed\"\n{ROUTE}")),
                route("notes", "key = \"off\"\nupstream = \"pay\""),
            ];
            let service = |name: &str, doors: &[Arc<Door>; 2]| {
                let addresses = doors.each_ref().map(|door| format!("\"https://127.0.0.1:{}\"", door.port));
                format!(
                    "[upstreams.{name}]\naddresses = [{}]\n[upstreams.{name}.tls]\nca = \"{}\"\nserver_name = \"us.onceway\"\n",
                    addresses.join(", "),
                    pki.path().join("ca.pem").display()
                )
            };
            let lines = format!(
                "{}{}[upstreams.pay.credentials]\nvalue_file = \"pay\"\n",
                service("killed", &pairs[1]),
                service("pay", &pairs[0])
            );
            let edit = |dir: &Path| {
                fs::write(dir.join("pay"), "Bearer sk_one\n").unwrap();
                add_lines(dir, &lines);
            };
            let solo = Solo::start_with(&routes.concat(), None, edit).await;
            let [doors, killed] = pairs.try_into().ok().unwrap();
            Stage { solo, seen, doors, killed, _pki: pki }
        })
        .await
}

impl Stage {
    fn seen(&self, key: &str) -> Vec<BTreeMap<String, String>> {
        let mut seen = self.seen.lock().unwrap().clone();
        seen.retain(|headers| headers.get("x-request-key").is_some_and(|one| one == key));
        seen
    }

    fn charge(&self, name: &'static str, written: &str) -> Ask {
        self.ask("/v1/charges", name, written)
    }

    fn note(&self) -> Ask {
        Ask::post(format!("{}/v1/notes", self.solo.public()), BODY)
    }

    fn ask(&self, path: &str, name: &'static str, written: &str) -> Ask {
        let mut ask = post(&self.solo.public(), path, "unused", BODY);
        ask.headers.retain(|(name, _)| name != "Idempotency-Key");
        ask.with(name, written)
    }
}

#[test]
fn a_key_of_another_header_runs_once() {
    run(async {
        let stage = stage().await;
        let key = key("other-header");
        let first = ask(stage.charge("X-Idempotency-Key", &key).with("Cookie", "session=1")).await;
        assert_eq!((first.status.as_u16(), first.text().as_str()), (201, "made"), "{}", first.text());
        // Quoted, in the other header, or in both: the same key.
        for again in [
            stage.charge("Idempotency-Key", &format!("\"{key}\"")),
            stage.charge("X-Idempotency-Key", &key).with("Idempotency-Key", &*key),
        ] {
            let again = ask(again).await;
            assert_eq!((again.status.as_u16(), again.header("idempotent-replayed")), (201, "true"));
        }
        let seen = stage.seen(&key);
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0]["authorization"], "Bearer sk_one");
        for gone in ["idempotency-key", "x-idempotency-key", "cookie"] {
            assert_eq!(seen[0].get(gone), None);
        }
        let port = seen[0]["host"].strip_prefix("127.0.0.1:").unwrap();
        assert!(stage.doors.iter().any(|door| door.port.to_string() == port), "{port}");
        let both = stage.charge("X-Idempotency-Key", &key).with("Idempotency-Key", "another-key-entirely");
        let both = ask(both).await;
        assert_eq!((both.status.as_u16(), code(&both).as_str()), (400, "key-repeated"));
        let none = ask(stage.charge("X-Other", "x")).await;
        assert_eq!((none.status.as_u16(), code(&none).as_str()), (400, "key-missing"));
        // Requests without keys go there as well.
        let before = stage.seen.lock().unwrap().len();
        assert_eq!(ask(stage.note()).await.status, 201);
        assert!(stage.seen.lock().unwrap().len() > before);
    });
}

#[test]
fn a_credential_that_is_replaced_counts_from_then_on() {
    run(async {
        let stage = stage().await;
        for now in ["Bearer sk_two", "Bearer sk_one"] {
            fs::write(stage.solo.dir.join("pay"), format!("{now}\n")).unwrap();
            until("that credential to be sent", async || {
                let key = key("rotated");
                assert_eq!(ask(stage.charge("Idempotency-Key", &key)).await.status.as_u16(), 201);
                let sent = stage.seen(&key).remove(0)["authorization"].clone();
                assert!(["Bearer sk_one", "Bearer sk_two"].contains(&sent.as_str()));
                sent == now
            })
            .await;
        }
    });
}

#[test]
fn a_refused_credential_of_ours_releases_the_key() {
    run(async {
        let stage = stage().await;
        let key = key("refused");
        let refused = ask(stage.charge("Idempotency-Key", &key).with("X-Refuse", "1")).await;
        assert_eq!((refused.status.as_u16(), code(&refused).as_str()), (502, "upstream-credential"));
        assert_eq!(key_status(&stage.solo.region, &key).await["state"], "released");
        assert_eq!(ask(stage.charge("Idempotency-Key", &key)).await.status.as_u16(), 201, "it runs then");
        assert_eq!(stage.seen(&key).len(), 2);
        let passed = ask(stage.note().with("X-Refuse", "1")).await;
        assert_eq!((passed.status.as_u16(), code(&passed).as_str()), (502, "upstream-credential"));
        assert!(log(&stage.solo.region).await.contains("the upstream refuses our credential"));
        assert!(!log(&stage.solo.region).await.contains("sk_one"));
    });
}

/// Only the requests that a killed endpoint had are in doubt.
#[test]
fn killed_endpoints_cause_no_second_effect() {
    run(async {
        let stage = stage().await;
        let (mut made, mut doubts) = (0, 0);
        for round in 0..12 {
            let door = &stage.killed[round % 2];
            let keys: Vec<String> = (0..16).map(|_| key("storm")).collect();
            let mut running = JoinSet::new();
            for key in &keys {
                let (request, key) = (stage.ask("/v1/payouts", "Idempotency-Key", key), key.clone());
                running.spawn(async move { (key, request.send(PATIENCE).await.unwrap()) });
            }
            tokio::task::yield_now().await;
            door.running.lock().unwrap().drain(..).for_each(|one| one.abort());
            while let Some(answered) = running.join_next().await {
                let (key, answer) = answered.unwrap();
                let seen = stage.seen(&key).len();
                assert!(seen <= 1, "{key} ran {seen} times");
                match answer.status.as_u16() {
                    201 => made += 1,
                    504 => {
                        doubts += 1;
                        assert_eq!(code(&answer), "outcome-unknown");
                        assert_eq!(key_status(&stage.solo.region, &key).await["state"], "in-doubt");
                    }
                    other => panic!("{other}: {}", answer.text()),
                }
            }
            // The killed listener goes at its task's next turn.
            let bind = async || TcpListener::bind((Ipv4Addr::LOCALHOST, door.port)).await.ok();
            door.serve(found("the killed listener to go", bind).await);
        }
        assert!(made >= 96, "{made} made, {doubts} in doubt");
        // With nobody killed all of them run.
        tokio::time::timeout(Duration::from_secs(60), async {
            for _ in 0..20 {
                let calm = stage.ask("/v1/payouts", "Idempotency-Key", &key("calm"));
                assert_eq!(ask(calm).await.status.as_u16(), 201);
            }
        })
        .await
        .unwrap();
    });
}
